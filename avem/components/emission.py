"""What all emissions share: their lines, and the user's parameters that belong to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from avem.components.base import Component, EmissionBlock, Match
from avem.components.far_out import FarOut
from avem.components.free import Plain
from avem.components.lines import Line
from avem.numerics import rows

if TYPE_CHECKING:
    from avem.components.lines import Builder
    from avem.components.outcome import Outcome
    from avem.components.param_info import Params
    from avem.components.scaling import Scaling
    from avem.data import Panel
    from avem.families.base import Family


class BlockMaker(Protocol):
    """A data set being laid out: blocks ask it for masks, patterns and lists of rows."""

    @property
    def n_effects(self) -> int: ...

    @property
    def constant(self) -> int:
        """The design column of ones."""
        ...

    @property
    def y(self) -> np.ndarray:
        """(rows, outcome columns) on the scale of the fit, NaN where missing."""
        ...

    def mask(self, seen: np.ndarray) -> tuple[int, ...]:
        """Keep masks (rows, masks); their columns among all masks."""
        ...

    def pattern(
        self,
        lines: Sequence[Line],
        y_cols: tuple[int, ...],
        rows: np.ndarray,
        more: tuple[int, ...] = (),
        most: int | None = None,
    ) -> int:
        """The number of the pattern of these rows; -1 where more than `most` of them differ.

        ``more`` are design columns that are read beside those of the lines. Without ``most``, the
        layout decides what is too many.
        """
        ...

    def n_cells(self, pattern: int) -> int:
        """How many cells a pattern has."""
        ...

    def row_list(self, rows: np.ndarray) -> int:
        """The number of the list of these rows."""
        ...


class Position(NamedTuple):
    """Where an emission stands in its model."""

    key: str
    """Its prefix in theta."""
    prefix: str
    """Its prefix in the user's names."""
    spec: int
    """The number of its `Outcome`."""
    part: int
    """The number of its formula's design; those of its parameters follow."""
    column: int
    """Its first column of Y."""


class Clusters(NamedTuple):
    """Rows sorted into as many clusters as there are states: what a start is made from."""

    rows: np.ndarray
    """(sampled rows,) their places among all rows."""
    label: np.ndarray
    """(sampled rows,) the cluster of each."""
    centred: bool
    """They were sorted by their deviations from subjects' means."""
    y: np.ndarray
    """(rows, outcome columns) on the scale of the fit."""
    a: np.ndarray
    """(rows, design columns)."""
    subject: np.ndarray
    """(rows,)."""
    subject_means: np.ndarray
    """(subjects, own features)."""
    spread: np.ndarray
    """(outcome columns,) variances."""
    constant: int
    n_states: int


def subject_means(features: np.ndarray, subject: np.ndarray, n_subjects: int) -> np.ndarray:
    """(subjects, features) mean of what was seen, shrunk a little towards 0, the overall."""
    means = np.zeros((n_subjects, features.shape[1]))
    for j, column in enumerate(features.T):
        there = rows.seen(column)
        total = rows.sum_by(
            subject, lambda at, own=column, there=there: np.where(there[at], own[at], 0), n_subjects
        )
        means[:, j] = total / (1 + rows.count_by(subject, there, n_subjects))
    return means


class Unit(NamedTuple):
    """How outcome columns may be rescaled without changing the model."""

    columns: tuple[int, ...]
    together: bool
    """By one factor for all of them."""
    can_shift: bool
    """They may be centred, too."""
    beside: tuple[int, ...] = ()
    """Further columns in the unit of the first, of differences."""


@dataclass(frozen=True)
class Emission(Component, ABC):
    """The emission of one outcome, or of several with one joint density."""

    key: str
    prefix: str
    """Of its parameters in the user's names: empty in a model with one formula."""
    spec: int
    """The number of the `Outcome` that it comes from."""
    n_states: int
    outcomes: tuple[str, ...]
    family: Family
    lines: tuple[Line, ...]
    y_cols: tuple[int, ...]
    """Its columns of Y: the outcomes, then what its family reads beside."""

    @classmethod
    def split(
        cls, outcomes: tuple[str, ...], families: Sequence[Family]
    ) -> list[tuple[tuple[str, ...], Family]]:
        """The outcomes of one formula, in groups that one emission each is made for."""
        return [((name,), family) for name, family in zip(outcomes, families, strict=True)]

    @classmethod
    def build(
        cls,
        place: Position,
        outcomes: tuple[str, ...],
        family: Any,
        spec: Outcome,
        builder: Builder,
    ) -> Emission:
        """The emission of these outcomes."""
        width = len(outcomes) + family.n_beside
        return cls(
            place.key,
            place.prefix,
            place.spec,
            builder.n_states,
            outcomes,
            family,
            tuple(cls.make_lines(place, outcomes, family, spec, builder)),
            tuple(range(place.column, place.column + width)),
        )

    @classmethod
    @abstractmethod
    def make_lines(
        cls,
        place: Position,
        outcomes: tuple[str, ...],
        family: Any,
        spec: Outcome,
        builder: Builder,
    ) -> Iterator[Line]:
        """Its linear predictors."""

    @property
    def coef_key(self) -> str:
        """Its coefficients in theta, (states, ...)."""
        return self.key + "coef"

    @property
    def extras(self) -> tuple[int, ...]:
        """The columns of Y that its family reads beside the outcomes."""
        return self.y_cols[len(self.outcomes) :]

    @property
    def parts(self) -> set[int]:
        """The designs that its lines read."""
        return {line.part for line in self.lines if line.has_formula}

    # --- predictors -----------------------------------------------------------------------------

    def etas(
        self, coef: np.ndarray, a: np.ndarray, state: np.ndarray, effects: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """(rows,) of each line, from its coefficients in theta (states, ...)."""
        coef = coef.reshape(len(coef), -1)  # those of a Gaussian have an axis for the outcomes
        out, at = [], 0
        for line in self.lines:
            own = coef[state, at : at + len(line.terms)]
            at += len(line.terms)
            out.append(line.eta(own, a, state, effects))
        return tuple(out)

    @abstractmethod
    def level(self, theta: Params, a: np.ndarray) -> np.ndarray:
        """(states,) where the first outcome lies in each state, at design columns (columns,)."""

    # --- parameters -----------------------------------------------------------------------------

    @abstractmethod
    def coef_names(self) -> list[tuple[str, int]]:
        """The user's parameters behind a row of its coefficients, and how many each has."""

    def free_entries(self, fixed) -> Params:
        """For its coefficients, which of a state are free."""
        names = self.coef_names()
        free = [self.prefix + name not in fixed for name, _ in names]
        return {self.coef_key: np.repeat(np.array(free, bool), [size for _, size in names])}

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        """Its coefficients that are neither held nor at a limit."""
        coef, free = theta[self.coef_key], self.free_entries(fixed)[self.coef_key]
        open_to_move = np.resize(free, coef.size)
        limits = self.limits().get(self.coef_key)
        if limits is not None:
            low, high = (np.broadcast_to(limit, coef.shape).ravel() for limit in limits)
            flat = coef.ravel()
            open_to_move &= (flat > low + 1e-3) & (flat < high - 1e-3)
        return [Plain(self.coef_key, np.flatnonzero(open_to_move))]

    def effect_units(self, units: Scaling) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """One matrix for the effects of every line, in every state."""
        return [
            (places, self.line_unit(i, units) * units.to_user(line.z_cols))
            for i, line in enumerate(self.lines)
            if line.z_cols
            for places in set(line.effects)
        ]

    def line_unit(self, i: int, units: Scaling) -> float:
        """The user's unit of line `i` in those of the fit."""
        return 1.0

    # --- data -----------------------------------------------------------------------------------

    def unit(self, constant: int, spherical: bool) -> Unit | None:
        """How its outcomes may be rescaled; None: not at all. `spherical`: so are the effects."""
        return None

    @property
    def reads_user_units(self) -> bool:
        """Its covariates must not be rescaled either."""
        return False

    @property
    def by_value(self) -> bool:
        """States are told apart by single values, not by their frequencies over time."""
        return True

    @property
    def n_values_per_state(self) -> int:
        """How many values of each outcome a state needs at least."""
        return len(self.lines[0].terms) + 1

    def in_units(self, y: np.ndarray) -> np.ndarray:
        """(rows, own columns) which values have a density in their column's unit."""
        found = rows.seen(y)
        found[:, len(self.outcomes) :] = False
        return found

    def half_seen(self, y: np.ndarray) -> np.ndarray:
        """(rows,) where it would need all of its outcomes (rows, own columns), and has some."""
        return np.zeros(len(y), bool)

    def impossible(self, y: np.ndarray) -> np.ndarray:
        """(rows,) where its outcomes (rows, own columns) cannot be what they are together."""
        return np.zeros(len(y), bool)

    @abstractmethod
    def features(self, y: np.ndarray) -> np.ndarray:
        """(rows, features) in which states lie apart, from its columns; NaN where missing."""

    @abstractmethod
    def start(self, clusters: Clusters, rng: np.random.Generator) -> Params:
        """Its entries of theta from clustered rows."""

    def effects_start(
        self, clusters_means: np.ndarray, spread: np.ndarray, constant: int
    ) -> Iterator[tuple[int, float, np.ndarray | None]]:
        """(place in f, variance, values by subject or None) where the data say something."""
        return iter(())

    @abstractmethod
    def block(self, maker: BlockMaker) -> EmissionBlock:
        """Its compiled half for a data set."""

    def collapsed(self, theta: Params, spread: np.ndarray, floor: float) -> np.ndarray:
        """(states, own columns) which densities are held from closing in on a single value."""
        out = np.zeros((self.n_states, len(self.y_cols)), bool)
        limits = self.limits().get(self.coef_key)
        if limits is not None:
            coef = theta[self.coef_key]
            out[:, 0] = ((coef <= limits[0] + 0.01) | (coef >= limits[1] - 0.01)).any(1)
        return out

    def far_out(self, theta: Params) -> Iterator[FarOut]:
        """Coefficients without limits that are far from where they began."""
        return iter(())

    # --- draws ----------------------------------------------------------------------------------

    def draw(
        self,
        rng: np.random.Generator,
        theta: Params,
        a: np.ndarray,
        state: np.ndarray,
        effects: np.ndarray,
        extras: tuple[np.ndarray, ...],
    ) -> dict[str, np.ndarray]:
        """Outcome columns of some rows; in the user's units, as is `theta`."""
        return {}

    def draw_sequences(
        self,
        rng: np.random.Generator,
        theta: Params,
        panel: Panel,
        A: np.ndarray,
        states: np.ndarray,
        effects: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Outcome columns of a whole panel, where each row depends on what was drawn before."""
        return {}

    def paths(self, theta: Params, begin: Any) -> Any:
        """Draws along paths that remember what was drawn before; None: rows stand alone."""
        return None

    @property
    def remembers(self) -> bool:
        """What it emits depends on what it emitted before."""
        return False

    def why_not_drawn(self, what: str) -> str:
        """Why it "cannot simulate" or so; empty: it can."""
        return ""


def matches_of_lines(
    lines: Sequence[Line], key: str, prefix: str, fixed, by_outcome: bool
) -> dict[int, Match]:
    """The coefficients that the lines' effects are added to, unless they are held.

    `by_outcome`: theta[key] has an axis for the lines; otherwise their terms follow each other.
    """
    found: dict[int, Match] = {}
    at = 0
    for j, line in enumerate(lines):
        if prefix + line.param_name not in fixed:
            found |= line.matches(key, (j,) if by_outcome else (), 0 if by_outcome else at)
        at += len(line.terms)
    return found
