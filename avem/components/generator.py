"""Moves in continuous time: rates that are log-linear in covariates and effects.

Over an interval d the chain moves by exp(Q d), so rows may come at any times. The expected log
likelihood is a sum over intervals of pairs_kl log P_kl(d; Q), whose derivatives are automatic ones
through the exponential; equal intervals with equal covariates share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from avem.components.base import Match, Row
from avem.components.emission import BlockMaker
from avem.components.free import Plain
from avem.components.generator_block import RATES, RateMoves
from avem.components.lines import Builder, Line, predictors
from avem.components.logit_transitions import slopes_of_moves
from avem.components.moves import (
    MOVES_IN_WORDS,
    as_json,
    by_number,
    checked_moves,
    pairs_of,
    renumberings,
)
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling
from avem.components.transitions import FreeTransitions, Transitions, register
from avem.data import parse_formula
from avem.data.clock import Clock
from avem.data.formula import Formula
from avem.errors import ModelError
from avem.numerics.generator import generators, transition_matrices

_LEAVING = 0.1
"""Moves from a state within a usual interval, at the start."""
_SLOWEST = 1e-300
_NO_RATE = 1e-6
"""Moves within a usual interval below which a rate is on the boundary."""
_NO_END = (
    "event={!r} marks when a state that is never left was entered, and there is no such state here "
    "beside others. Say which moves there are: moves=[('ill', 'dead'), ...]."
)
_MANY_CELLS = 4096
"""Different rows up to which each kind has its probabilities computed once."""


@dataclass(frozen=True)
class OneState(FreeTransitions):
    """In continuous time, of a single state: there is nowhere to go."""

    def generators(self, theta: Params, a: np.ndarray, effects: np.ndarray) -> np.ndarray:
        return np.zeros((len(a), 1, 1))

    def over(self, moves: np.ndarray, time: np.ndarray) -> np.ndarray:
        return np.ones((len(time), 1, 1))


@register
@dataclass(frozen=True)
class Rates(Transitions):
    """Log rates of moves that are linear in covariates and effects."""

    word = "rates"
    text: str = "~ 1"
    moves: Any = "all"
    """A word of `moves.py`, or pairs of states, by number or by name."""
    event: str | None = None
    unit: str | None = None
    as_matrix: bool = False
    """Without covariates and effects: the user sees one matrix of rates."""
    own_lines: tuple[Line, ...] = ()
    clock_cols: tuple[int, ...] = ()
    """The design columns of the interval and of the event."""
    key = "rates."

    def __post_init__(self) -> None:
        if parse_formula(self.text).outcomes:
            raise ModelError(f"The formula {self.text!r} of rates has an outcome; write '~ x'.")
        object.__setattr__(self, "moves", checked_moves(self.moves))
        Clock(self.unit, self.event)  # checks both

    @property
    def formula(self) -> Formula:
        return parse_formula(self.text)

    @property
    def clock(self) -> Clock:
        return Clock(self.unit, self.event)

    @property
    def keeps_order(self) -> bool:  # type: ignore[override]
        """Where not all moves are possible, they tell states apart; see `orders`."""
        return self.moves != "all"

    @property
    def lines(self) -> tuple[Line, ...]:
        """By move, in the order of `pairs`."""
        return self.own_lines

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(from, to) of every move there is."""
        return pairs_of(self.moves, self.n_states)

    @property
    def absorbing(self) -> tuple[int, ...]:
        """The states that are never left."""
        left = {k for k, _ in self.pairs}
        return tuple(k for k in range(self.n_states) if k not in left)

    def orders(self) -> Iterable[tuple[int, ...]] | None:
        return None if self.moves == "all" else renumberings(self.pairs, self.n_states)

    def lacking(self, other: Transitions) -> np.ndarray:
        if not isinstance(other, Rates):
            return super().lacking(other)
        found = np.zeros((self.n_states, self.n_states), bool)
        for k, m in set(self.pairs) - set(other.pairs):
            found[k, m] = True
        return found

    def within(self, other: Transitions) -> bool:
        return isinstance(other, Rates) and not self.lacking(other).any()

    def named(self, names: Sequence[str]) -> Rates:
        return replace(self, moves=by_number(self.moves, names))

    def in_closed_form(self, n_states: int, stationary: bool) -> Transitions:
        if n_states > 1:
            return self
        if self.event is not None:
            raise ModelError(_NO_END.format(self.event))
        return OneState()

    def bound(self, n_states: int, part: int, builder: Builder) -> Rates:
        own, design = replace(self, n_states=n_states), builder.designs.parts[part]
        if self.event is not None and not own.absorbing:
            raise ModelError(_NO_END.format(self.event))
        x_cols, z_cols = builder.designs.x_cols(part), builder.designs.z_cols(part)
        offset, lines = builder.designs.offset_col(part), []
        for k, to in own.pairs:
            named = zip(design.effect_terms, design.effect_blocks, strict=True)
            what = {"outcome": "", "parameter": "", "state": k, "to_state": to}
            places = tuple(builder.effect(part, group, term=t, **what) for t, group in named)
            label = f"{k} -> {to}"
            own_line = (label, part, design.terms, x_cols, z_cols, (places,), offset)
            lines.append(Line("", "transition", *own_line))
        plain = design.terms == ("Intercept",) and not z_cols and offset < 0
        cols = builder.designs.clock_cols
        return replace(own, as_matrix=plain, own_lines=tuple(lines), clock_cols=cols)

    # --- words ----------------------------------------------------------------------------------

    def describe(self) -> str:
        word = isinstance(self.moves, str)
        said = f", {MOVES_IN_WORDS[self.moves]}" if word else f", {len(self.moves)} moves"
        said = "" if self.moves == "all" else said
        return f"continuous time, rates {self.text}{said}"

    def code(self) -> str:
        given = [repr(self.text)] if self.text != "~ 1" else []
        given += [f"moves={as_json(self.moves)!r}"] if self.moves != "all" else []
        named = (("event", self.event), ("unit", self.unit))
        given += [f"{name}={value!r}" for name, value in named if value is not None]
        return f"avem.rates({', '.join(given)})"

    def __repr__(self) -> str:
        return self.code()

    def to_json(self) -> dict[str, Any]:
        own = {
            "text": self.text,
            "moves": as_json(self.moves),
            "event": self.event,
            "unit": self.unit,
        }
        return {"kind": self.word, **own}

    # --- parameters -----------------------------------------------------------------------------

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the coefficients of one move."""
        return self.lines[0].terms

    @property
    def name(self) -> str:
        """The user's parameter."""
        return "rate" if self.as_matrix else "rate_coef"

    @property
    def _at(self) -> tuple[np.ndarray, np.ndarray]:
        """The moves as an index of arrays (from, to, ...)."""
        own = np.array(self.pairs, int)
        return own[:, 0], own[:, 1]

    def param_info(self) -> dict[str, ParamInfo]:
        k = self.n_states
        if self.as_matrix:
            return {self.name: ParamInfo((k, k), "rate", "from state x to state; 0 for no move")}
        axes = f"from state x to state x terms ({', '.join(self.terms)}); 0 for no move"
        return {self.name: ParamInfo((k, k, len(self.terms)), "free", axes)}

    def params_out(self, theta: Params, units: Scaling) -> Params:
        own = self.lines[0].coef_out(theta[RATES], units, shift=-self._log_unit(units))
        full = np.zeros((self.n_states, self.n_states, len(self.terms)))
        full[self._at] = np.exp(own) if self.as_matrix else own
        return {self.name: full[:, :, 0] if self.as_matrix else full}

    def params_in(self, params: Params, units: Scaling) -> Params:
        own = params[self.name][self._at]
        if self.as_matrix:
            own = np.log(np.maximum(own, _SLOWEST))[:, None]
        return {RATES: self.lines[0].coef_in(own, units, shift=-self._log_unit(units))}

    def _log_unit(self, units: Scaling) -> float:
        """Of the interval that is 1 on the scale of the fit, in the user's unit of time."""
        return float(np.log(units.column_scale[self.clock_cols[0]]))

    def check_params(self, params: Params, where: str) -> None:
        given = params.get(self.name)
        if given is None:
            return
        away = ~np.eye(self.n_states, dtype=bool)
        away[self._at] = False
        wrong = np.argwhere(away & (np.abs(given).reshape(*away.shape, -1).max(2) > 0))
        if len(wrong):
            k, m = wrong[0]
            raise ModelError(
                f"{where}[{self.name!r}] has a move from state {k} to state {m}, which {self!r} "
                "does not have."
            )
        if self.as_matrix:
            own = given * (1 - np.eye(self.n_states))
            diagonal = np.diagonal(given)
            fits = np.allclose(diagonal, 0) or np.allclose(diagonal, -own.sum(1))
            if (own < 0).any() or not fits:
                raise ModelError(
                    f"{where}['rate'] must have rates that are not negative, and on its diagonal 0 "
                    "(or what makes its rows sum to 0)."
                )

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for k, m in self.pairs:
            if self.as_matrix:
                yield Row({"state": k, "to_state": m}, value[k, m])
                continue
            for i, term in enumerate(self.terms):
                yield Row({"state": k, "to_state": m, "term": term}, value[k, m, i])

    def slope_units(self, units: Scaling) -> Iterator[tuple[str, float]]:
        return slopes_of_moves(self.name, self.lines, units)

    def middle(self) -> Params:
        return {RATES: np.zeros((len(self.pairs), len(self.terms)))}

    def _moved(self, fixed) -> bool:
        return not {"rate", "rate_coef"} & set(fixed)

    def free_entries(self, fixed) -> Params:
        return {RATES: np.full(len(self.terms), self._moved(fixed))}

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        own = np.full(theta[RATES].size, self._moved(fixed))
        if self.as_matrix:
            own &= np.exp(theta[RATES].ravel()) > _NO_RATE
        return [Plain(RATES, np.flatnonzero(own))]

    def matches(self, fixed) -> dict[int, Match]:
        found: dict[int, Match] = {}
        if self._moved(fixed):
            for number, line in enumerate(self.lines):
                for place, match in line.matches(RATES, (), 0).items():
                    found[place] = match._replace(state=number)
        return found

    def effect_units(self, units: Scaling):
        z_cols = self.lines[0].z_cols
        change = units.to_user(z_cols)
        return [(line.effects[0], change) for line in self.lines if z_cols]

    def relabelled(self, theta: Params, order: np.ndarray) -> Params:
        full = np.zeros((self.n_states, self.n_states, len(self.terms)))
        full[self._at] = theta[RATES]
        return {RATES: full[np.ix_(order, order)][self._at]}

    def start(self, constant: int) -> Params:
        x_cols, coef = self.lines[0].x_cols, self.middle()[RATES]
        if constant in x_cols:
            ways = np.bincount(self._at[0], minlength=self.n_states)[self._at[0]]
            coef[:, x_cols.index(constant)] = np.log(_LEAVING / ways)
        return {RATES: coef}

    # --- probabilities, in NumPy ----------------------------------------------------------------

    def possible(self) -> np.ndarray:
        reach = np.eye(self.n_states, dtype=bool)
        reach[self._at] = True
        for _ in range(self.n_states):
            reach = reach @ reach
        return reach

    def entered(self) -> np.ndarray:
        step = np.zeros((self.n_states, self.n_states), bool)
        step[self._at] = True
        step[:, [k for k in range(self.n_states) if k not in self.absorbing]] = False
        return self.possible() @ step

    def generators(self, theta: Params, a: np.ndarray, effects: np.ndarray) -> np.ndarray:
        none = np.zeros(len(a), int)
        rates = np.zeros((self.n_states, self.n_states, len(a)))
        for (k, m), b, line in zip(self.pairs, theta[RATES], self.lines, strict=True):
            rates[k, m] = np.exp(line.eta(np.tile(b, (len(a), 1)), a, none, effects))
        return np.moveaxis(generators(rates), -1, 0)

    def intervals(self, a: np.ndarray) -> np.ndarray:
        return a[:, self.clock_cols[0]]

    def over(self, moves: np.ndarray, time: np.ndarray) -> np.ndarray:
        moved = np.moveaxis(moves * time[:, None, None], 0, -1)
        found = np.moveaxis(np.array(transition_matrices(moved)), -1, 0)
        stuck = list(self.absorbing)
        found[:, stuck] = np.eye(self.n_states)[stuck]  # and not one rounding less
        return found

    def chances(self, theta, a, effects, state) -> np.ndarray:
        own = self.generators(theta, a, effects)
        return self.over(own, self.intervals(a))[np.arange(len(a)), state]

    def matrices(self, theta, a, effects) -> np.ndarray:
        """Over one unit of time, whatever the interval is."""
        return self.over(self.generators(theta, a, effects), np.ones(len(a)))

    def block(self, maker: BlockMaker, rows: np.ndarray) -> RateMoves:
        lines = self.lines
        has_effects = bool(lines[0].z_cols)
        few = maker.pattern(lines, (), rows, self.clock_cols)
        pattern = few
        if few < 0 and not has_effects:
            pattern = maker.pattern(lines, (), rows, self.clock_cols, _MANY_CELLS)
        return RateMoves(
            self.n_states,
            maker.n_effects,
            self.pairs,
            predictors(lines, maker.constant),
            self.clock_cols,
            self.absorbing if self.event is not None else (),
            pattern,
            maker.n_cells(pattern) if pattern >= 0 else 0,
            few >= 0,
        )


def rates(
    formula: str = "~ 1",
    *,
    moves: str | Sequence[tuple[Any, Any]] = "all",
    event: str | None = None,
    unit: str | None = None,
) -> Transitions:
    """Moves between states in continuous time: rows may come at any times.

    Parameters
    ----------
    formula : str
        Of the logarithm of every rate: ``"~ x + (1 | subject)"``. Covariates of a row act on the
        interval that leads to it, and are constant in it. Every move has its own coefficients and
        effects.
    moves : {"all", "progressive", "banded", "absorbing"} or list of tuple
        Which moves there are: between all states, from each state to the next (also
        ``"left_to_right"``), to neighbours, all but from the last state, or pairs of states by
        number or name, ``[("well", "ill"), ("ill", "dead")]``. A state that is never left is
        absorbing.
    event : str, optional
        A column that is true (or 1) in the row at whose time an absorbing state was entered, such
        as the day of death. In the other rows up to it the subject is not in an absorbing state.
    unit : str, optional
        Of time. Of dates one of seconds, minutes, hours, days, weeks and years; days by default. Of
        numbers, what 1 is called in tables.

    Returns
    -------
    Transitions
        For ``transition=`` of `MixedHMM`.

    Examples
    --------
    >>> avem.rates("~ age", moves="progressive", unit="years")
    avem.rates('~ age', moves='progressive', unit='years')
    """
    return Rates(text=parse_formula(formula).text, moves=moves, event=event, unit=unit)
