"""What every model is: components, effects, and what follows from looping over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from avem.components.base import Component, Match, Row
from avem.components.effects import EffectCovariance
from avem.components.free import Free
from avem.components.param_info import ParamInfo, Params, check_arrays
from avem.components.scaling import Scaling
from avem.data import Design, Panel
from avem.data.clock import Clock
from avem.data.designs import Designs
from avem.models.encoding import encode_panel
from avem.models.restriction import Restriction
from avem.models.scanned import encode_scan
from avem.models.state_names import state_labels, with_names
from avem.numerics.precision import in_float64


class _Share(NamedTuple):
    """A component's part of one of the user's arrays, which several may share."""

    component: Component
    info: ParamInfo
    columns: slice
    """Of the second axis, where the array is shared."""


def _split(value: np.ndarray, shares: list[_Share]) -> list[tuple[_Share, np.ndarray]]:
    """Each component's part of an array."""
    if len(shares) == 1:
        return [(shares[0], value)]
    return [(share, value[:, share.columns]) for share in shares]


class Model(ABC):
    """A model learned from a panel; leaves are `HMMModel` and `SSMModel`."""

    size_name: ClassVar[str]
    """What the number of its states is called: "n_states"."""
    state_words: ClassVar[str]
    """What one of them is called: "state"."""
    one_per_core: ClassVar[bool]
    """Whether every core has one chunk of a small panel."""

    spec: Any
    designs: Designs
    scaling: Scaling

    @abstractmethod
    def _make_parts(self) -> tuple[Any, ...]: ...

    @abstractmethod
    def _make_prior(self) -> EffectCovariance: ...

    @property
    @abstractmethod
    def effect_names(self) -> list[str]:
        """Name of each effect."""

    @property
    @abstractmethod
    def effect_labels(self) -> list[str]:
        """The same with the states' names in place of their numbers, where they have names."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names that the user gave the states, or none."""
        return self.spec.state_names

    @property
    def state_labels(self) -> tuple[str, ...]:
        """What each state is called in a sentence: its name, or "state 0"."""
        return state_labels(self.state_names, self.size)

    def in_words(self, text: str) -> str:
        """A sentence about states and effects by number, with the states' names in place."""
        if self.state_names:
            for name, label in zip(self.effect_names, self.effect_labels, strict=True):
                text = text.replace(name, label)
        return with_names(text, self.state_names)

    @property
    @abstractmethod
    def parts_ahead(self) -> tuple[Design, ...]:
        """The designs that later rows of a sequence read."""

    @property
    def extras(self) -> tuple[str, ...]:
        """Columns beside outcomes and covariates that predictions need."""
        return ()

    @property
    def n_clusters(self) -> int:
        """Types of subjects."""
        return 1

    @property
    def keeps_order(self) -> bool:
        """The states have an order of their own."""
        return True

    @cached_property
    def orders(self) -> list[tuple[int, ...]] | None:
        """The renumberings of states that leave the model as it is; None: all, or nobody looked."""
        return None

    def relabelled(self, theta: Params, order: np.ndarray) -> tuple[Params, np.ndarray]:
        """The same parameters with the states renumbered, and (d, d) what turns effects."""
        return theta, np.eye(self.n_effects)

    def with_clusters(self, theta: Params, order: np.ndarray) -> Params:
        """The same parameters with the types of subjects renumbered."""
        return theta

    @property
    def marks(self) -> tuple[str, ...]:
        """Columns that say something of single rows' states; they may be missing anywhere."""
        return ()

    @property
    def clock(self) -> Clock | None:
        """What reads intervals of time; None where time goes in steps."""
        return None

    @property
    def continuous(self) -> bool:
        """Time is continuous, not in steps."""
        return self.clock is not None

    @property
    def extras_behind(self) -> tuple[str, ...]:
        """Those that are read where an outcome is known, and not needed ahead."""
        return ()

    @property
    def size(self) -> int:
        """The number of its states."""
        return getattr(self.spec, self.size_name)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of all outcomes."""
        return self.spec.outcome_names

    def by_lane(self, panel: Panel, A: np.ndarray) -> bool:
        """Whether design columns that must not change within sequences do not: there are none."""
        return True

    def beyond(self, panel: Panel, y: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """(rows,) the ends of sequences that are left out: none.

        ``unit`` (outcome columns) are the standard deviations of the outcomes `y`.
        """
        return np.zeros(len(y), bool)

    @in_float64
    def encode(self, panel: Any, data: Any = None, max_lanes: int = 0) -> Any:
        """The panel laid out for this model, on the device; a scan in files."""
        if not panel.in_memory:
            return encode_scan(self, panel, data, max_lanes)
        return encode_panel(self, panel, data, max_lanes)

    def in_units(self, y: np.ndarray) -> np.ndarray:
        """(rows, outcome columns) bool: which values have a density in their column's unit."""
        return ~np.isnan(y)

    def log_jacobian(self, y: np.ndarray) -> np.ndarray:
        """(rows,) what to add to a log density on the scale of the fit to have it in user units.

        ``y`` (rows, outcome columns) are the outcomes, NaN where missing.
        """
        return self.scaling.log_jacobian(self.in_units(y))

    def in_user_units(self) -> Self:
        """The same model without any scaling."""
        leaf: Any = self
        return replace(leaf, scaling=self.scaling.without())

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        """Its components in the order of `fit.params`, without the effects' distribution."""
        return self._make_parts()

    @cached_property
    def prior(self) -> EffectCovariance:
        """The distribution of the effects."""
        return self._make_prior()

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """All of them."""
        return (*self.parts, self.prior)

    @property
    def n_effects(self) -> int:
        """Number of effects of a subject, d."""
        return len(self.effect_names)

    @property
    def effect_blocks(self) -> np.ndarray:
        """(d,) effects of different blocks are independent."""
        return np.array(self.prior.blocks, int)

    # --- parameters -----------------------------------------------------------------------------

    @cached_property
    def _owners(self) -> dict[str, list[_Share]]:
        """The components behind each of the user's arrays."""
        found: dict[str, list[_Share]] = {}
        for component in self.components:
            for name, info in component.param_info().items():
                before = found.setdefault(name, [])
                first = before[-1].columns.stop if before else 0
                width = info.shape[1] if len(info.shape) > 1 else 0
                before.append(_Share(component, info, slice(first, first + width)))
        return found

    def param_info(self) -> dict[str, ParamInfo]:
        """Every parameter of the model, in the order of `fit.params`."""
        return {
            name: reduce(ParamInfo.joined, (share.info for share in shares))
            for name, shares in self._owners.items()
        }

    @property
    def population(self) -> set[str]:
        """Names of all parameters but the covariances of the effects."""
        return {name for part in self.parts for name in part.param_info()}

    def params_out(self, theta: Params) -> Params:
        """The user's parameters from theta."""
        found: dict[str, list[np.ndarray]] = {name: [] for name in self._owners}
        for component in self.components:
            for name, value in component.params_out(theta, self.scaling).items():
                found[name].append(value)
        return {
            name: parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
            for name, parts in found.items()
        }

    def params_in(self, params: Params) -> Params:
        """Theta from all of the user's parameters."""
        own: dict[int, Params] = {id(component): {} for component in self.components}
        for name, shares in self._owners.items():
            for share, part in _split(params[name], shares):
                own[id(share.component)][name] = part
        theta: Params = {}
        for component in self.components:
            theta.update(component.params_in(own[id(component)], self.scaling))
        return theta

    def override(self, theta: Params, params: Params) -> Params:
        """Theta with some of the user's parameters put in the place of its own."""
        return self.params_in({**self.params_out(theta), **params}) if params else theta

    def check_params(self, given: Any, where: str) -> Params:
        """The given parameters as arrays, or an error that says which is wrong and how."""
        checked = check_arrays(given, self.param_info(), where)
        for component in self.components:
            component.check_params(checked, where)
        return checked

    def parameter_rows(self, params: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Row]]:
        """Name and row of every single number, array by array, states first."""
        for name, shares in self._owners.items():
            rows: list[Row] = []
            for share, part in _split(params[name], shares):
                rows += share.component.rows(name, part)
            if len(shares) > 1:
                rows.sort(key=lambda row: row.where["state"])
            for row in rows:
                yield name, row

    def constant_rows(self) -> np.ndarray:
        """(rows,) bool: which numbers of `parameter_rows` are what they are by definition."""
        rows = self.parameter_rows(self.params_out(self.middle()))
        return np.array([row.constant for _, row in rows])

    def middle(self) -> Params:
        """Theta inside all bounds."""
        out: Params = {}
        for component in self.components:
            out.update(component.middle())
        return out

    # --- what is free ---------------------------------------------------------------------------

    def restriction(
        self, fixed: Collection[str], theta: Params, strict: bool = True
    ) -> Restriction | None:
        """What constraints and priors say, with `fixed` parameters where theta has them."""
        return None

    def log_prior(self, theta: Params) -> float:
        """Of the parameters, up to a constant; 0 where they have no priors."""
        return 0.0

    def prior_slope(self, theta: Params) -> Params:
        """Its derivative in entries of theta; those that no prior is about are left out."""
        return {}

    def pinned_rows(self, fixed: Collection[str], theta: Params) -> np.ndarray:
        """(rows,) bool: which numbers of `parameter_rows` constraints hold at a value."""
        return np.zeros(len(self.constant_rows()), bool)

    def find_free(self, theta: Params, fixed: Collection[str], spread: np.ndarray) -> Free:
        """What is estimated: not held by the user, and not on the boundary.

        ``spread`` (outcome columns) are the variances that others are judged by.
        """
        scale = self.effect_scale(spread)
        found = [
            part
            for component in self.components
            for part in component.free_parts(theta, fixed, spread, scale)
        ]
        return Free(tuple(part for part in found if part.size))

    def count_free(self, fixed: Collection[str]) -> int:
        """How many parameters are estimated, those that ended on a boundary included."""
        return self.find_free(self.middle(), fixed, np.ones(len(self.scaling.scale))).size

    def held(self, fixed: Collection[str]) -> frozenset[str]:
        """The entries of theta with a closed form that the user's `fixed` names hold."""
        return frozenset().union(*(component.held(fixed) for component in self.components))

    def free_entries(self, fixed: Collection[str]) -> Params:
        """For every coefficient array of theta, which coefficients may move."""
        out: Params = {}
        for component in self.components:
            out.update(component.free_entries(fixed))
        return out

    def limits(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Lowest and highest coefficients, where a density could close in on a single value."""
        out = {}
        for component in self.components:
            out.update(component.limits())
        return out

    def floors(self, spread: np.ndarray) -> Params:
        """For every covariance of outcomes in theta, the variances that its own are judged by."""
        out: Params = {}
        for component in self.components:
            out.update(component.floors(spread))
        return out

    # --- effects --------------------------------------------------------------------------------

    def matches(self, fixed: Collection[str] = ()) -> tuple[Match | None, ...]:
        """(d,) the coefficients that each effect is added to, unless they are held."""
        found: dict[int, Match] = {}
        for component in self.components:
            found.update(component.matches(fixed))
        return tuple(found.get(place) for place in range(self.n_effects))

    @cached_property
    def effect_units(self) -> np.ndarray:
        """(d, d) from effects on the scale of the fit to the user's."""
        matrix = np.eye(self.n_effects)
        for component in self.parts:
            for places, change in component.effect_units(self.scaling):
                matrix[np.ix_(places, places)] = change
        return matrix

    def effect_scale(self, spread: np.ndarray) -> np.ndarray:
        """(d,) the variance beside which an effect's is judged: the outcome's, or 1 on a link."""
        scale = np.ones(self.n_effects)
        for component in self.parts:
            for place, variance in component.effect_scale(spread).items():
                scale[place] = variance
        return scale

    def effects_in(self, effects: np.ndarray) -> np.ndarray:
        """Effects (d, subjects) on the scale of the fit from the user's (subjects, d)."""
        return np.linalg.solve(self.effect_units, effects.T)

    def effects_cov_in(self, cov: np.ndarray) -> np.ndarray:
        """Covariances (d, d, subjects) on the scale of the fit from the user's (subjects, d, d)."""
        back = np.linalg.inv(self.effect_units)
        return np.moveaxis(back @ cov @ back.T, 0, -1)

    def effects_out(self, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The user's (subjects, d) and (subjects, d, d) from (d, subjects) and (d, d, subjects)."""
        matrix = self.effect_units
        return (matrix @ mean).T, matrix @ np.moveaxis(cov, -1, 0) @ matrix.T
