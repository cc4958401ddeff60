"""A mixed HMM as the engine sees it: its design, its units, and data sets laid out for it."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from avem.data import Design, DesignData, Panel
from avem.data._layout import Chunk, Layout, build_layout
from avem.families.gaussian import Gaussian, GaussianKernel
from avem.models.hmm_kernel import HMMKernel
from avem.models.scaling import Scaling, spread
from avem.numerics.precision import in_float64

_LANES_ON_CPU = 1024
"""Chunks that stay in a core's cache; an accelerator wants all lanes at once."""
_LANES_ELSEWHERE = 1 << 20


@dataclass(frozen=True, eq=False)
class HMMModel:
    """All that is fixed before the parameters are: states, family, design, units."""

    n_states: int
    family: Gaussian
    effect_covariance: str
    design: Design
    scaling: Scaling

    @property
    def n_effects(self) -> int:
        """Number of effects of a subject, d."""
        return len(self.design.outcomes) * len(self.design.effect_terms)

    @property
    def effect_names(self) -> list[str]:
        """ "outcome: term" of each effect."""
        return [f"{y}: {z}" for y in self.design.outcomes for z in self.design.effect_terms]

    @property
    def effect_blocks(self) -> np.ndarray:
        """(d,) effects of different blocks are independent."""
        return np.tile(np.array(self.design.effect_blocks, int), len(self.design.outcomes))

    @property
    def matched_terms(self) -> np.ndarray:
        """(d,) the fixed term with the same column as each effect, or -1."""
        x_cols = self.design.x_cols
        term = [x_cols.index(z) if z in x_cols else -1 for z in self.design.z_cols]
        return np.tile(np.array(term, int), len(self.design.outcomes))

    @in_float64
    def encode(self, panel: Panel, data: DesignData | None = None) -> Encoded:
        """The panel laid out for this model, on the device."""
        data = self.design.apply(panel) if data is None else data
        y, a = self.scaling.data_in(data)
        observed = ~np.isnan(y)
        groups, seen = self.family.groups(observed)
        on_cpu = jax.default_backend() == "cpu"
        layout = build_layout(panel, _LANES_ON_CPU if on_cpu else _LANES_ELSEWHERE)
        emission = GaussianKernel(
            self.family,
            self.n_states,
            len(self.design.outcomes),
            self.design.x_cols,
            self.design.z_cols,
            groups,
        )
        filled = layout.chunks(np.nan_to_num(y, nan=0.0), a, seen)
        return Encoded(
            panel=panel,
            y=y,
            a=a,
            layout=layout,
            chunks=tuple(jax.device_put(chunk) for chunk in filled),
            kernel=HMMKernel(self.n_states, emission),
            spread=np.array([spread(column) ** 2 for column in y.T]),
        )


@dataclass(frozen=True, eq=False)
class Encoded:
    """One data set, ready to compute on."""

    panel: Panel
    y: np.ndarray
    """(rows, outcomes) on the scale of the fit, NaN where missing."""
    a: np.ndarray
    layout: Layout
    chunks: tuple[Chunk, ...]
    kernel: HMMKernel
    spread: np.ndarray
    """(outcomes,) variance of each outcome, not counting a few wild values."""
