"""Transitions with covariates and effects.

The move from state k is one of "stay" and "go j states on, counted round", a categorical outcome
whose log odds against staying are linear. So it uses the same machinery as any emission, with the
state that is left in the place of the state that emits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import softmax

from avem.components.base import Match, Row
from avem.components.cells import from_cells
from avem.components.emission import BlockMaker
from avem.components.lanes import by_subject, q_on_lanes, sum_lanes, to_lanes
from avem.components.linear import Cells, CoefTerms, GeneralKernel
from avem.components.lines import Builder, Line, general_kernel
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling
from avem.components.transitions import (
    STICKINESS,
    FreeTransitions,
    TransitionBlock,
    Transitions,
    register,
)
from avem.data import parse_formula
from avem.data.formula import Formula
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.families.categorical import Counts
from avem.kernels import forward_backward as hmm

MOVES = "moves.coef"


@register
@dataclass(frozen=True)
class LogitTransitions(Transitions):
    """Log odds of moving, against staying, that are linear in covariates and effects."""

    word = "logit"
    may_be_stationary = True
    any_chances = True
    text: str = "~ 1"
    as_matrix: bool = False
    """Without covariates and effects: the user sees one matrix of probabilities."""
    own_lines: tuple[Line, ...] = ()
    key = "moves."

    @property
    def formula(self) -> Formula:
        return parse_formula(self.text)

    def in_closed_form(self, n_states: int, stationary: bool) -> Transitions:
        constant = self.formula.is_constant and not stationary
        return FreeTransitions() if constant or n_states == 1 else self

    @property
    def lines(self) -> tuple[Line, ...]:
        """By how many states on: 1, 2, ..."""
        return self.own_lines

    def bound(self, n_states: int, part: int, builder: Builder) -> LogitTransitions:
        design = builder.designs.parts[part]
        places: dict[tuple[int, int], tuple[int, ...]] = {}
        for k, to in product(range(n_states), repeat=2):
            if to != k:
                named = zip(design.effect_terms, design.effect_blocks, strict=True)
                what = {"outcome": "", "parameter": "", "state": k, "to_state": to}
                places[k, (to - k) % n_states] = tuple(
                    builder.effect(part, group, term=term, **what) for term, group in named
                )
        x_cols, z_cols = builder.designs.x_cols(part), builder.designs.z_cols(part)
        offset = builder.designs.offset_col(part)
        lines = tuple(
            Line(
                "",
                "transition",
                f"{j} on",
                part,
                design.terms,
                x_cols,
                z_cols,
                tuple(places[k, j] for k in range(n_states)),
                offset,
            )
            for j in range(1, n_states)
        )
        plain = design.terms == ("Intercept",) and not z_cols and offset < 0
        return replace(self, n_states=n_states, as_matrix=plain, own_lines=lines)

    def describe(self) -> str:
        return "" if self.as_matrix else f"transitions {self.text}"

    def code(self) -> str:
        return "" if self.formula.is_constant else repr(self.text)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the coefficients of one move."""
        return self.lines[0].terms

    @property
    def name(self) -> str:
        """The user's parameter."""
        return "transition" if self.as_matrix else "transition_coef"

    def param_info(self) -> dict[str, ParamInfo]:
        k = self.n_states
        if self.as_matrix:
            return {self.name: ParamInfo((k, k), "simplex", "from state x to state")}
        axes = f"from state x to state x terms ({', '.join(self.terms)}); 0 for staying"
        return {self.name: ParamInfo((k, k, len(self.terms)), "free", axes)}

    def params_out(self, theta: Params, units: Scaling) -> Params:
        k = self.n_states
        b = theta[MOVES].reshape(k, k - 1, -1)
        full = moves_as_matrix(self.lines[0].coef_out(b, units))
        return {self.name: softmax(full[:, :, 0], axis=1) if self.as_matrix else full}

    def params_in(self, params: Params, units: Scaling) -> Params:
        full = params[self.name]
        if self.as_matrix:
            full = np.log(np.maximum(full, 1e-300))[:, :, None]
        here = np.arange(self.n_states)
        full = full - full[here, here][:, None]
        inside = self.lines[0].coef_in(moves_by_distance(full), units)
        return {MOVES: inside.reshape(self.n_states, -1)}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for k, m in product(range(self.n_states), repeat=2):
            if self.as_matrix:
                yield Row({"state": k, "to_state": m}, value[k, m], self.n_states == 1)
            elif k != m:
                for i, term in enumerate(self.terms):
                    yield Row({"state": k, "to_state": m, "term": term}, value[k, m, i])

    def slope_units(self, units: Scaling) -> Iterator[tuple[str, float]]:
        return slopes_of_moves(self.name, self.lines, units)

    def middle(self) -> Params:
        k = self.n_states
        return {MOVES: np.zeros((k, (k - 1) * len(self.terms)))}

    def _moved(self, fixed) -> bool:
        return not {"transition", "transition_coef"} & set(fixed)

    def free_entries(self, fixed) -> Params:
        return {MOVES: np.full((self.n_states - 1) * len(self.terms), self._moved(fixed))}

    def matches(self, fixed) -> dict[int, Match]:
        found: dict[int, Match] = {}
        if self._moved(fixed):
            for j, line in enumerate(self.lines):
                found |= line.matches(MOVES, (), j * len(line.terms))
        return found

    def effect_units(self, units: Scaling):
        z_cols = self.lines[0].z_cols
        change = units.to_user(z_cols)
        return [(places, change) for line in self.lines for places in set(line.effects) if z_cols]

    def relabelled(self, theta: Params, order: np.ndarray) -> Params:
        k = self.n_states
        matrix = moves_as_matrix(theta[MOVES].reshape(k, k - 1, -1))[np.ix_(order, order)]
        return {MOVES: moves_by_distance(matrix).reshape(k, -1)}

    def chances(self, theta, a, effects, state) -> np.ndarray:
        k = self.n_states
        coef = theta[MOVES].reshape(k, k - 1, -1)[state]
        etas = [line.eta(coef[:, j], a, state, effects) for j, line in enumerate(self.lines)]
        chance = softmax(np.stack([np.zeros(len(a)), *etas], axis=1), axis=1)
        return np.take_along_axis(chance, _distance(k)[state], axis=1)

    def start(self, constant: int) -> Params:
        k, x_cols = self.n_states, self.lines[0].x_cols
        coef = np.zeros((k, k - 1, len(x_cols)))
        if constant in x_cols:
            coef[:, :, x_cols.index(constant)] = np.log((1 - STICKINESS) / (k - 1) / STICKINESS)
        return {MOVES: coef.reshape(k, -1)}

    def block(self, maker: BlockMaker, rows: np.ndarray) -> LogitMoves:
        k = self.n_states
        kernel = general_kernel(Counts(), True, k, maker.n_effects, self.lines, maker.constant)
        pattern = maker.pattern(self.lines, (), rows)
        return LogitMoves(kernel, pattern, maker.n_cells(pattern) if pattern >= 0 else 0)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.word, "text": self.text}


@dataclass(frozen=True)
class LogitMoves(TransitionBlock):
    """Log odds of moving to compiled code."""

    kernel: GeneralKernel
    pattern: int
    """Which of the chunk's patterns gathers the rows by what the transitions read, or -1."""
    n_cells: int
    """Of that pattern; 0 when every row is a cell."""

    @property
    def newton_keys(self) -> tuple[str, ...]:
        return (MOVES,)

    @property
    def n_states(self) -> int:
        """K."""
        return self.kernel.n_states

    @cached_property
    def effects(self) -> tuple[int, ...]:
        """The effects that act on the transitions."""
        lines = self.kernel.predictors
        return tuple(sorted({e for p in lines for state in p.effects for e in state}))

    @property
    def has_effects(self) -> bool:
        return bool(self.effects)

    def table(self, theta, f, chunk, cov=None) -> Array:
        coef = theta[MOVES]
        if self.n_cells == 0:
            return self.probabilities(coef, *q_on_lanes(f, cov, chunk), chunk.a)
        a = chunk.patterns[self.pattern].a[:, :, None]
        cells = to_lanes(self.probabilities(coef, f, cov, a), chunk)
        if self.n_cells == 1:
            return cells[0]
        # Rows without a step into them have no cell of their own; any will do.
        index = jnp.minimum(chunk.patterns[self.pattern].index, self.n_cells - 1)
        return from_cells(cells, index)

    def probabilities(self, coef: Array, f: Array, cov: Array | None, a: Array) -> Array:
        """(cell, from, to, lane)."""
        by_distance = jnp.exp(self.kernel.log_chances(coef, f, cov, a))
        return by_distance[..., np.arange(self.n_states)[:, None], _distance(self.n_states), :]

    def steps(self, chunk: Chunk) -> hmm.Steps:
        if self.n_cells == 1:
            return hmm.Steps()
        if self.n_cells == 0:
            return hmm.Steps(None, 0)
        return hmm.Steps(chunk.patterns[self.pattern].index, self.n_cells)

    def collect(self, pair: Array, chunk: Chunk) -> Array:
        return pair if self.n_cells == 0 else by_subject(pair, chunk)

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * (to_lanes(share, chunk) if self.n_cells == 0 else share)

    def _cells(self, pair: Array, chunk: Chunk) -> Cells:
        here = np.arange(self.n_states)
        counts = tuple(pair[:, here, (here + j) % self.n_states] for j in range(self.n_states))
        a = chunk.a if self.n_cells == 0 else chunk.patterns[self.pattern].a[:, :, None]
        return Cells(counts, a, None)

    def _expected(self, of: Callable[..., Any], theta, mean, cov, pair, chunk) -> Any:
        coef, cells = theta[MOVES], self._cells(pair, chunk)
        if self.n_cells:
            return of(coef, mean, cov, cells)
        return sum_lanes(of(coef, *q_on_lanes(mean, cov, chunk), cells), chunk)

    def value(self, theta, mean, cov, collected, chunk) -> Array:
        return self._expected(self.kernel.value, theta, mean, cov, collected, chunk)

    def effect_terms(self, theta, mean, cov, collected, chunk) -> EffectTerms:
        return self._expected(self.kernel.effect_terms, theta, mean, cov, collected, chunk)

    def coef_terms(self, key, coef, mean, cov, collected, chunk) -> CoefTerms:
        q = (mean, cov) if self.n_cells else q_on_lanes(mean, cov, chunk)
        return self.kernel.coef_terms(coef, *q, self._cells(collected, chunk))


def slopes_of_moves(
    name: str, lines: Sequence[Line], units: Scaling
) -> Iterator[tuple[str, float]]:
    """Coefficients of covariates, and the size of these."""
    for line in lines[:1]:
        for column, term in zip(line.x_cols, line.terms, strict=True):
            if column != units.constant:
                yield f"{name}[:, :, {term!r}]", float(units.column_scale[column])


# --- moves between states: by how many states on, or as a matrix ----------------------------------


def _distance(n_states: int) -> np.ndarray:
    """(from, to) how many states on, counted round."""
    here = np.arange(n_states)
    return (here[None] - here[:, None]) % n_states


def moves_as_matrix(by_distance: np.ndarray) -> np.ndarray:
    """(from, to, ...) from (from, states on - 1, ...); 0 for staying."""
    k = len(by_distance)
    here = np.arange(k)
    out = np.zeros((k, k, *by_distance.shape[2:]))
    for j in range(1, k):
        out[here, (here + j) % k] = by_distance[:, j - 1]
    return out


def moves_by_distance(matrix: np.ndarray) -> np.ndarray:
    """The inverse of `moves_as_matrix`."""
    k = len(matrix)
    here = np.arange(k)
    return np.stack([matrix[here, (here + j) % k] for j in range(1, k)], axis=1)
