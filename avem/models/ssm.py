"""A mixed-effects state-space model as the engine sees it: shapes, units, data laid out for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from avem.components.dynamics import Dynamics, FirstState, SSMComponent
from avem.components.effects import EffectCovariance
from avem.components.loadings import Loadings
from avem.components.param_info import Params
from avem.components.scaling import Scaling
from avem.data import Design, Panel
from avem.data.clock import Clock
from avem.data.columns import outcome_values
from avem.data.designs import Designs
from avem.data.scanning.memory import need_rows
from avem.errors import ModelError
from avem.models.base import Model
from avem.models.encoded import LaidOut, PanelData
from avem.models.hmm_layout import Blocks
from avem.models.ssm_clock import FEW, MOST_SHARED
from avem.models.ssm_kernel import SSMKernel
from avem.models.ssm_specification import SSMSpecification
from avem.numerics.rows import any_seen, largest

_BEYOND = 1e3


@dataclass(frozen=True, eq=False)
class SSMModel(Model):
    """All that is fixed before the parameters are: shapes, designs, units."""

    size_name = "n_latent"
    state_words = "latent state"
    one_per_core = True

    spec: SSMSpecification
    designs: Designs
    scaling: Scaling

    @classmethod
    def learn(cls, spec: SSMSpecification, panel: Panel) -> SSMModel:
        """The model with levels and columns learned from a panel, in the user's units."""
        parts = tuple(Design.build(formula, panel) for formula in spec.formulas)
        designs = Designs(parts, spec.clock)
        n_outcomes = len(spec.formula.outcomes)
        constant = designs.names.index("Intercept")
        return cls(spec, designs, Scaling.none(n_outcomes, len(designs.keys), constant))

    def scaled_to(self, data: PanelData) -> SSMModel:
        """The same model with outcomes of unit size, and of middle 0 where there are intercepts.

        In continuous time, a usual interval is 1.
        """
        every = range(len(self.outcomes))
        scale = data.spreads(every)
        centre = np.zeros_like(scale)
        if self.scaling.constant in self.x_cols:
            centre = data.medians(every)
        columns = np.array(self.scaling.column_scale)
        if self.clock_col >= 0:
            columns[self.clock_col] = data.usual(self.clock_col)
        own = replace(self.scaling, centre=centre, scale=scale, column_scale=columns)
        return replace(self, scaling=own)

    def averaged_over(self, data: PanelData) -> SSMModel:
        """The same model: it keeps no averages of a data set."""
        return self

    def without_effects(self) -> SSMModel:
        """The model whose subjects are all alike."""
        first, *others = self.designs.parts
        alike = replace(first, z_cols=(), effect_terms=(), effect_blocks=())
        designs = replace(self.designs, parts=(alike, *others))
        return replace(self, spec=self.spec._replace(random=()), designs=designs)

    # --- what it is made of ---------------------------------------------------------------------

    @property
    def n_latent(self) -> int:
        """q."""
        return self.spec.n_latent

    @property
    def usual_time(self) -> float:
        """The interval that is 1 in the fit, in the user's unit of time; 1 in steps."""
        return self.scaling.usual_time(self.clock_col)

    @property
    def parts_ahead(self) -> tuple[Design, ...]:
        """The designs of the outcomes and of the states."""
        return self.designs.parts[:2]

    @property
    def outcome_columns(self) -> list[int]:
        """Columns of Y that hold outcomes: all of them."""
        return list(range(len(self.outcomes)))

    @property
    def clock(self) -> Clock | None:
        """That of the specification; then the states have a drift."""
        return self.spec.clock

    @property
    def clock_col(self) -> int:
        """The design column of the interval before each row; -1: time goes in steps."""
        return self.designs.clock_cols[0] if self.continuous else -1

    @property
    def x_cols(self) -> tuple[int, ...]:
        """Design columns of the outcomes' coefficients."""
        return self.designs.x_cols(0)

    @property
    def drive_cols(self) -> tuple[int, ...]:
        """Design columns that act on the states."""
        return self.designs.x_cols(1)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the outcomes' coefficients."""
        return tuple(self.designs.names[c] for c in self.x_cols)

    @property
    def state_terms(self) -> tuple[str, ...]:
        """Names of the states' coefficients."""
        return tuple(self.designs.names[c] for c in self.drive_cols)

    def kernel(
        self, groups: tuple[tuple[int, ...], ...] | None = None, n_cells: int = 0
    ) -> SSMKernel:
        """The model's shape, with the outcomes that are always seen together.

        ``n_cells``: of different intervals, where rows are gathered by them.
        """
        return SSMKernel(
            n_latent=self.n_latent,
            groups=groups or (tuple(range(len(self.outcomes))),),
            x_cols=self.x_cols,
            z_cols=self.designs.z_cols(0),
            drive_cols=self.drive_cols,
            random_transition="transition" in self.spec.random,
            random_loading="loading" in self.spec.random,
            clock=self.clock_col,
            n_cells=n_cells,
        )

    @cached_property
    def shape(self) -> SSMKernel:
        """The kernel as if all outcomes were seen together."""
        return self.kernel()

    def _make_parts(self) -> tuple[SSMComponent, ...]:
        shape = self.shape
        loadings = Loadings(
            self.n_latent,
            self.outcomes,
            self.terms,
            self.x_cols,
            shape.w_cols,
            tuple(self.designs.names[c] for c in shape.w_cols),
            len(shape.transition_effects),
            shape.loading_effects,
            shape.coef_effects,
            self.clock_col,
        )
        entries = shape.transition_effects
        dynamics = Dynamics(self.n_latent, self.state_terms, entries, self.clock_col)
        return (FirstState(self.n_latent, self.clock_col), dynamics, loadings)

    def _make_prior(self) -> EffectCovariance:
        arrays = [(f"{kind}_covariance", effects_of(self, kind)) for kind in self.spec.kinds]
        structure: dict[str, str] = dict(
            zip(self.spec.kinds, self.spec.effect_covariance, strict=True)
        )
        blocks = [
            number if structure[kind] == "diagonal" else self.effect_kinds.index(kind)
            for number, kind in enumerate(self.effect_kinds)
        ]
        return EffectCovariance(
            names=tuple(self.effect_names),
            where=tuple({"term": name} for name in self.effect_names),
            arrays=tuple((name, places) for name, places in arrays if places),
            structure="block",
            blocks=tuple(blocks),
            units=self.effect_units,
        )

    @cached_property
    def effect_kinds(self) -> tuple[str, ...]:
        """(d,) which of the specification's kinds each effect belongs to."""
        shape = self.shape
        sizes = (shape.transition_effects, shape.loading_effects, shape.coef_effects)
        pairs = zip(self.spec.kinds, sizes, strict=True)
        return tuple(kind for kind, entries in pairs for _ in entries)

    @property
    def effect_names(self) -> list[str]:
        return self._effects_named(range(self.n_latent))

    @property
    def effect_labels(self) -> list[str]:
        return self._effects_named(self.state_names or range(self.n_latent))

    def _effects_named(self, states: Sequence[Any]) -> list[str]:
        found = {}
        for component in self.parts:
            found.update(component.effects(states))
        return [found[place] for place in range(len(found))]

    def free_entries(self, fixed, centred: bool = False) -> Params:
        """For each population matrix of theta, which entries the M-step moves.

        ``centred`` is the paper's iteration: what differs between subjects moves with the effects'
        mean alone.
        """
        free = super().free_entries(fixed)
        if centred:
            for component in self.parts:
                for key, varying in component.centred_entries().items():
                    free[key] = free[key] & ~varying
        return free

    def turned(self, theta: Params, sign: np.ndarray) -> tuple[Params, np.ndarray]:
        """Theta with the states' signs turned, and the sign (d,) that each effect takes."""
        new, signs = dict(theta), np.ones(self.n_effects)
        for component in self.parts:
            new.update(component.turned(theta, sign))
            for place, turn in component.effect_signs(sign).items():
                signs[place] = turn
        new["effect_covariance"] = np.outer(signs, signs) * theta["effect_covariance"]
        return new, signs

    def check_params(self, given: Any, where: str) -> Params:
        checked = super().check_params(given, where)
        loading = checked.get("loading_mean")
        if loading is not None and np.triu(loading, 1).any():
            raise ModelError(
                f"{where}['loading_mean'] has values above the diagonal; they are 0 in this model, "
                "which is what tells the states apart."
            )
        for kind, structure in zip(self.spec.kinds, self.spec.effect_covariance, strict=True):
            sigma = checked.get(f"{kind}_covariance")
            if sigma is None or structure != "diagonal":
                continue
            if (sigma != np.diag(np.diag(sigma))).any():
                raise ModelError(
                    f"{where}['{kind}_covariance'] is not diagonal, as effect_covariance says it "
                    "is."
                )
        return checked

    # --- data -----------------------------------------------------------------------------------

    def read(self, panel: Panel, outcomes: bool = True) -> PanelData:
        """The panel's outcomes and design columns."""
        if not panel.in_memory:
            raise need_rows()
        columns = [
            outcome_values(panel, name) if outcomes else np.full(panel.n_rows, np.nan)
            for name in self.outcomes
        ]
        Y = np.stack(columns, axis=1)
        needed = self.needed(panel, Y if outcomes else np.zeros(Y.shape))
        found = self.designs.apply(panel, needed, [False, True, True])
        n_without_past, lost = 0, found.incomplete[0] & needed[0]
        if lost.any():
            n_without_past = int((~np.isnan(Y[lost])).sum())
            Y[lost] = np.nan
        return PanelData(Y, found.A, n_without_past)

    def needed(self, panel: Panel, y: np.ndarray) -> list[np.ndarray]:
        """(rows,) bool for each design: where its covariates are used, if y are the outcomes."""
        seen, later = any_seen(y, range(y.shape[1])), panel.row_step > 0
        return [seen, later & bool(self.drive_cols), np.ones(panel.n_rows, bool)]

    def laid_out(
        self,
        y: np.ndarray,
        a: np.ndarray,
        later: np.ndarray,
        possible: None = None,
        by_lane: bool = True,
    ) -> LaidOut:
        """Kernel and masks of rows; its states have no labels that could be known."""
        observed = ~np.isnan(y)
        groups = seen_together(observed)
        masks, n_cells = observed[:, [group[0] for group in groups]], 0
        blocks = Blocks(y, a, self.n_effects, self.scaling.constant)
        if self.clock_col >= 0:
            # Where subjects have drifts of their own, only a few intervals are worth sharing.
            most = FEW if self.shape.random_transition else MOST_SHARED
            if blocks.pattern((), (), later, (self.clock_col,), most) >= 0:
                n_cells = blocks.n_cells(0)
        kernel = self.kernel(groups, n_cells)
        return LaidOut(kernel, masks, blocks.patterns, telling=blocks.telling)

    @property
    def n_columns(self) -> int:
        """Columns of Y: the outcomes."""
        return len(self.outcomes)

    def start_means(self, y: np.ndarray, subject: np.ndarray, n_subjects: int) -> np.ndarray:
        """(subjects, 0): starts know nothing of single subjects."""
        return np.zeros((n_subjects, 0))

    def beyond(self, panel: Panel, y: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """(rows,) the ends of sequences that are left out; ``unit`` are the outcomes' spreads."""
        return runaway(panel, y, unit)


def runaway(panel: Panel, y: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """(rows,) the ends of sequences whose states have grown out of all bounds.

    Rows after the last that lies within a thousand `unit`s, the outcomes' standard deviations:
    what came before says all there is to say, and their squares would drown everything else.
    """
    pairs = zip(y.T, unit, strict=True)
    if not any(largest(column) / own > _BEYOND for column, own in pairs):
        return np.zeros(len(y), bool)
    size = np.nan_to_num(np.abs(y) / unit).max(axis=1, initial=0.0)
    last = np.full(panel.n_lanes, -1)
    np.maximum.at(last, panel.row_lane, np.where(size <= _BEYOND, panel.row_step, -1))
    return panel.row_step > last[panel.row_lane]


def effects_of(model: SSMModel, kind: str) -> tuple[int, ...]:
    """The places of the effects of one kind."""
    return tuple(place for place, own in enumerate(model.effect_kinds) if own == kind)


def seen_together(observed: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Columns with the same pattern of missing values, in groups."""
    groups: dict[bytes, list[int]] = {}
    for j, column in enumerate(observed.T):
        groups.setdefault(column.tobytes(), []).append(j)
    return tuple(tuple(group) for group in groups.values())
