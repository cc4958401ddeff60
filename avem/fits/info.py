"""How a fit went, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from avem.data import Panel
from avem.inference.fit import Fitted
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.base import Method
from avem.inference.methods.names import as_method
from avem.inference.options import Options
from avem.inference.starts import start_gaps, starts_agreeing


@dataclass(frozen=True)
class FitInfo:
    """How the fit went: for people, not for further computing."""

    method: str
    refined: bool
    """The adaptive tier went on from the method's solution."""
    lost: tuple[float, ...]
    """Share of the information on each effect that is lost by not seeing the states; AVEM only."""
    q_update: str
    anchor: str
    unanchored: tuple[str, ...]
    """The effects that partial anchoring integrated."""
    n_nodes: int | None
    n_draws: int | None
    fresh_draws: bool
    fixed: tuple[str, ...]
    """Parameters that were held."""
    plain: bool
    seed: int
    n_rows: int
    n_sequences: int
    n_observed: int
    """Observed outcome cells."""
    n_missing: int
    start_gaps: tuple[float, ...]
    """How far below the best start's bound each one ended."""
    start_iterations: tuple[int, ...]
    """Iterations that each start took before they were compared."""
    starts_agreeing: int
    """Starts that found the best one's solution."""
    moved: int
    """Times a subject was moved to a better mode of its effect."""
    seconds: float
    notes: tuple[str, ...]
    """What a reader should know, in sentences."""
    max_radius: float | None = None
    """Largest spectral radius that a subject's dynamics may have; state-space models only."""
    held_back: int = 0
    """Subjects whose dynamics were kept within it."""
    refine: str | None = None
    """As it was asked for; `refined` says what was done."""
    tol: float | None = None
    """None, here and below: not known, of a fit that an earlier avem has saved."""
    max_iter: int | None = None
    n_starts: int | None = None
    batch_size: int | None = None
    init: tuple[str, ...] = ()
    """Parameters that were given values to start from."""
    likelihood: bool | None = None
    """The method maximises the marginal likelihood, not a bound."""
    options: dict | None = None
    """The method's own options."""
    refine_options: dict | None = None
    """Those of the adaptive tier, where it may go on from the method's solution."""

    @property
    def at_maximum_likelihood(self) -> bool:
        """`bound` is the log likelihood by integration, not a variational bound."""
        if self.likelihood is not None:
            return self.refined or self.likelihood
        return self.refined or self.method in ("quadrature", "monte_carlo", "adaptive")


def method_of(info: FitInfo) -> Method:
    """The method of a fit, with its options; ModelError where its class is not known here."""
    kind = type(as_method(info.method))
    return kind(**_options_of(info, kind, info.options))


def refinement_of(info: FitInfo) -> Adaptive | None:
    """The tier that went on from the method's solution, if one did."""
    if not info.refined:
        return None
    return Adaptive(**_options_of(info, Adaptive, info.refine_options))


def _options_of(info: FitInfo, kind: type[Method], known: dict | None) -> dict[str, Any]:
    if known is not None:
        return known
    # A fit that an earlier avem has saved: all its methods' options are attributes.
    found = {field.name: getattr(info, field.name) for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    return {name: value for name, value in found.items() if value is not None}


def make_info(
    fitted: Fitted,
    panel: Panel,
    observed: np.ndarray,
    options: Options,
    notes: Sequence[str],
    **more: Any,
) -> FitInfo:
    """The record of a fit; ``observed`` (rows, outcomes)."""
    return FitInfo(
        **options.record(fitted.method),
        **more,
        refined=fitted.refined,
        lost=fitted.lost,
        n_rows=panel.n_rows,
        n_sequences=panel.n_lanes,
        n_observed=int(observed.sum()),
        n_missing=int((~observed).sum()),
        start_gaps=start_gaps(fitted.starts),
        start_iterations=tuple(len(start.bounds) for start in fitted.starts),
        starts_agreeing=starts_agreeing(fitted.starts),
        moved=fitted.run.moved,
        held_back=fitted.held_back,
        seconds=fitted.seconds,
        notes=tuple(notes),
    )
