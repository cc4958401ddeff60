"""Linear predictors: their columns, their effects, and their coefficients in the user's units.

A `Line` is one linear predictor as people know it: the mean of an outcome, the log odds of one of
its levels, its shape, or the log odds of a move between states. Every line has a design (terms) and
perhaps effects. Compiled code reads lines as column numbers; tables and parameter arrays read them
as names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from avem.components.base import Match
from avem.components.linear import GeneralKernel, Predictor
from avem.components.scaling import Scaling
from avem.data.designs import Designs

NO_DESIGN = -1
"""The `part` of a line without a formula: one number per state."""


@dataclass(frozen=True)
class Effect:
    """One coordinate of f."""

    outcome: str
    """Empty for transitions and the first state."""
    parameter: str
    """Empty for the location of an outcome."""
    term: str
    state: int | None
    """The state it acts in, or leaves; None when all states share it."""
    to_state: int | None
    block: tuple[int, int]
    """Effects of different blocks are independent."""

    @property
    def name(self) -> str:
        """ "outcome: term", with the parameter and the states where there are several."""
        return self.named(())

    def named(self, states: Sequence[str]) -> str:
        """Its name with the states' names in place of their numbers."""
        own = [k if k is None or not states else states[k] for k in (self.state, self.to_state)]
        if self.to_state is not None:
            return f"{own[0]}->{own[1]}: {self.term}"
        what = ".".join(filter(None, (self.outcome, self.parameter)))
        where = "" if self.state is None else f" [{own[0]}]"
        return f"{what}: {self.term}{where}"

    @property
    def where(self) -> dict[str, Any]:
        """What the table of parameters says of it."""
        outcome = ".".join(filter(None, (self.outcome, self.parameter))) or None
        return {
            "state": self.state,
            "to_state": self.to_state,
            "term": self.term,
            "outcome": outcome,
        }


@dataclass(frozen=True)
class Line:
    """One linear predictor."""

    outcome: str
    parameter: str
    """Empty for the location of an outcome."""
    label: str
    """The outcome, or "outcome[level]"."""
    part: int
    """Which of the model's designs, or `NO_DESIGN`."""
    terms: tuple[str, ...]
    x_cols: tuple[int, ...]
    z_cols: tuple[int, ...]
    effects: tuple[tuple[int, ...], ...]
    """For every state, the place in f of each effect."""
    offset: int = -1
    """The column that is added as it is; -1: none."""

    @property
    def columns(self) -> tuple[int, ...]:
        """All design columns that it reads."""
        return (*self.x_cols, *self.z_cols, *([self.offset] if self.offset >= 0 else []))

    @property
    def has_formula(self) -> bool:
        """Whether it has a formula of its own, not one number per state."""
        return self.part != NO_DESIGN

    @property
    def param_name(self) -> str:
        """The user's parameter that holds its coefficients, without the component's prefix."""
        if not self.parameter:
            return "coef"
        return f"{self.parameter}_coef" if self.has_formula else self.parameter

    def eta(
        self, coef: np.ndarray, a: np.ndarray, state: np.ndarray, effects: np.ndarray
    ) -> np.ndarray:
        """(rows,) the predictor, for rows with coefficients, design, state and effects each."""
        eta = (coef * a[:, list(self.x_cols)]).sum(1)
        if self.offset >= 0:
            eta = eta + a[:, self.offset]
        if self.z_cols:
            acting = np.take_along_axis(effects, np.array(self.effects, int)[state], axis=1)
            eta = eta + (acting * a[:, list(self.z_cols)]).sum(1)
        return eta

    # Coefficients b on the scale of the fit are T b s + c e in the user's units.

    def coef_out(
        self, b: np.ndarray, units: Scaling, unit: float = 1.0, shift: float = 0.0
    ) -> np.ndarray:
        """Coefficients (..., terms) in the user's units; `unit` and `shift` are the outcome's."""
        out = b @ units.to_user(self.x_cols).T * unit
        if shift:
            out[..., self.x_cols.index(units.constant)] += shift
        return out

    def coef_in(
        self, b: np.ndarray, units: Scaling, unit: float = 1.0, shift: float = 0.0
    ) -> np.ndarray:
        """The inverse of `coef_out`."""
        b = np.array(b, float)
        if shift:
            b[..., self.x_cols.index(units.constant)] -= shift
        return b @ np.linalg.inv(units.to_user(self.x_cols)).T / unit

    def matches(self, key: str, lead: tuple[int, ...], at: int) -> dict[int, Match]:
        """For every effect with a fixed column of its own, where its coefficient stands.

        theta[key] has the states first, then `lead`, then this line's terms from `at` on.
        """
        found = {}
        shared = len(set(self.effects)) == 1
        for state, places in enumerate(self.effects[:1] if shared else self.effects):
            for column, place in zip(self.z_cols, places, strict=True):
                if column in self.x_cols:
                    term = at + self.x_cols.index(column)
                    found[place] = Match(key, None if shared else state, (*lead, term))
        return found


def predictors(lines: Sequence[Line], constant: int) -> tuple[Predictor, ...]:
    """The lines as compiled code reads them; `constant` is the column of ones."""
    return tuple(
        Predictor(line.x_cols, line.z_cols, line.effects, line.columns == (constant,), line.offset)
        for line in lines
    )


def general_kernel(
    density, concave: bool, n_states: int, n_effects: int, lines: Sequence[Line], constant: int
) -> GeneralKernel:
    """The formulas of a density whose predictors are these lines."""
    return GeneralKernel(density, n_states, n_effects, predictors(lines, constant), concave)


@dataclass
class Builder:
    """Makes the lines of a model's components, and numbers effects as they are met."""

    designs: Designs
    n_states: int
    by_formula: bool
    """Effects of different formulas are independent."""
    effects: list[Effect] = field(default_factory=list)

    def effect(self, part: int, group: int, **what) -> int:
        """A new effect; its place in f."""
        block = (part if self.by_formula else 0, group)
        self.effects.append(Effect(block=block, **what))
        return len(self.effects) - 1

    def line(
        self,
        part: int,
        outcome: str,
        parameter: str,
        label: str,
        by_state: bool,
        n_states: int = 0,
        only: int | None = None,
    ) -> Line:
        """A line with the design and the effects of one of the formulas.

        ``only``: the state that it is about, where it is about one alone.
        """
        design = self.designs.parts[part]
        n_states = n_states or self.n_states
        places = []
        for state in range(n_states) if by_state else (only,):
            named = zip(design.effect_terms, design.effect_blocks, strict=True)
            places.append(
                tuple(
                    self.effect(
                        part,
                        group,
                        outcome=label if not parameter else outcome,
                        parameter=parameter,
                        term=term,
                        state=state,
                        to_state=None,
                    )
                    for term, group in named
                )
            )
        shared = tuple(places) if by_state else (places[0],) * n_states
        x_cols, z_cols = self.designs.x_cols(part), self.designs.z_cols(part)
        offset = self.designs.offset_col(part)
        return Line(outcome, parameter, label, part, design.terms, x_cols, z_cols, shared, offset)

    def constant(self, outcome: str, parameter: str, label: str) -> Line:
        """A parameter without a formula of its own: one number per state."""
        column = self.designs.names.index("Intercept")
        none = ((),) * self.n_states
        return Line(outcome, parameter, label, NO_DESIGN, ("Intercept",), (column,), (), none)
