"""The distribution of the first state: free, with covariates and effects, or stationary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import softmax

from avem.components import autodiff
from avem.components.base import Block, Component, Match, Row
from avem.components.emission import BlockMaker
from avem.components.free import odds_part
from avem.components.lanes import Theta, q_on_lanes, sum_lanes, to_lanes
from avem.components.linear import Cells, CoefTerms, GeneralKernel
from avem.components.lines import Builder, Line, general_kernel
from avem.components.logit_transitions import MOVES, LogitMoves
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling
from avem.components.transitions import (
    TransitionBlock,
    expected_of_chances,
    information_of_chances,
    slope_of_chances,
)
from avem.data.formula import Formula
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.families.categorical import Counts
from avem.numerics.markov import stationary


@dataclass(frozen=True)
class Initial(Component, ABC):
    """The interface of initial distributions."""

    n_states: int

    @property
    def lines(self) -> tuple[Line, ...]:
        """Its linear predictors; none, where it has no covariates."""
        return ()

    @abstractmethod
    def chances(
        self,
        theta: Params,
        a: np.ndarray,
        effects: np.ndarray,
        moves: Callable[[], np.ndarray],
    ) -> np.ndarray:
        """(rows, states) at design columns (rows, columns) and effects (rows, d).

        `moves()` gives (rows, from, to).
        """

    def turned(self, order: np.ndarray) -> tuple[list[int], np.ndarray]:
        """Its effects' places in f, and the matrix to those of the states renumbered."""
        return [], np.zeros((0, 0))

    @abstractmethod
    def start(self) -> Params:
        """Its entries of theta before anything is known."""

    @abstractmethod
    def block(self, maker: BlockMaker, transitions: TransitionBlock) -> InitialBlock:
        """Its compiled half."""


class InitialBlock(Block):
    """An initial distribution to compiled code; what is collected are expected starts."""

    @abstractmethod
    def table(
        self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None, transition: Array
    ) -> Array:
        """(state,) or (state, lane) probabilities, given the table of the transitions."""

    def collect(self, state: Array, chunk: Chunk) -> Array:
        """(state, lane) expected starts, from state probabilities (time, state, lane)."""
        return state[0]

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * to_lanes(share, chunk)


# --- free -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FreeInitial(Initial):
    """One distribution for all sequences."""

    key = ""

    def param_info(self) -> dict[str, ParamInfo]:
        return {"initial": ParamInfo((self.n_states,), "simplex", "states")}

    def params_out(self, theta: Params, units: Scaling) -> Params:
        return {"initial": np.array(theta["initial"])}

    def params_in(self, params: Params, units: Scaling) -> Params:
        return {"initial": np.array(params["initial"], float)}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for k in range(self.n_states):
            yield Row({"state": k}, value[k], self.n_states == 1)

    def middle(self) -> Params:
        return self.start()

    def held(self, fixed) -> set[str]:
        return {"initial"} & set(fixed)

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        return [] if "initial" in fixed else [odds_part("initial", (), theta["initial"])]

    def chances(self, theta, a, effects, moves) -> np.ndarray:
        return np.broadcast_to(theta["initial"], (len(a), self.n_states))

    def start(self) -> Params:
        return {"initial": np.full(self.n_states, 1 / self.n_states)}

    def block(self, maker: BlockMaker, transitions: TransitionBlock) -> FreeStart:
        return FreeStart()


@dataclass(frozen=True)
class FreeStart(InitialBlock):
    """One distribution to compiled code."""

    def table(self, theta, f, chunk, cov, transition) -> Array:
        return theta["initial"]

    def sums(self, collected: Array, mean, second) -> Array:
        return collected.sum(-1)

    def maximise(self, theta, sums, fixed, noise_floor):
        return {} if "initial" in fixed else {"initial": sums / sums.sum()}

    def slopes(self, theta, sums):
        return {"initial": slope_of_chances(sums, theta["initial"])}

    def expected(self, theta, sums):
        return expected_of_chances(sums, theta["initial"])

    def information(self, theta, sums):
        return {"initial": information_of_chances(sums, theta["initial"])}


# --- covariates and effects -----------------------------------------------------------------------

START = "start.coef"


@dataclass(frozen=True)
class LogitInitial(Initial):
    """Log odds of starting in state 1, 2, ... against 0, linear in covariates and effects."""

    own_lines: tuple[Line, ...]
    key = "start."

    @classmethod
    def build(cls, n_states: int, part: int, builder: Builder) -> LogitInitial:
        """With the design of a formula."""
        lines = [
            builder.line(part, "", "initial", f"state {k}", False, n_states=1, only=k)
            for k in range(1, n_states)
        ]
        return cls(n_states, tuple(lines))

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.own_lines

    def param_info(self) -> dict[str, ParamInfo]:
        terms = self.lines[0].terms
        axes = f"states x terms ({', '.join(terms)}); the first row is 0"
        return {"initial_coef": ParamInfo((self.n_states, len(terms)), "free", axes)}

    def params_out(self, theta: Params, units: Scaling) -> Params:
        b = theta[START].reshape(self.n_states - 1, -1)
        out = np.zeros((self.n_states, b.shape[1]))
        out[1:] = self.lines[0].coef_out(b, units)
        return {"initial_coef": out}

    def params_in(self, params: Params, units: Scaling) -> Params:
        relative = np.array(params["initial_coef"], float)
        b = self.lines[0].coef_in((relative - relative[:1])[1:], units)
        return {START: b.reshape(1, -1)}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for k, (i, term) in product(range(self.n_states), enumerate(self.lines[0].terms)):
            yield Row({"state": k, "term": term}, value[k, i], k == 0)

    def middle(self) -> Params:
        return self.start()

    def free_entries(self, fixed) -> Params:
        size = sum(len(line.terms) for line in self.lines)
        return {START: np.full(size, "initial_coef" not in fixed)}

    def relabelled(self, theta: Params, order: np.ndarray) -> Params:
        value, k = theta[START], self.n_states
        rows = np.concatenate([np.zeros((1, value.size // (k - 1))), value.reshape(k - 1, -1)])
        return {START: (rows[order] - rows[order[0]])[1:].reshape(1, -1)}

    def chances(self, theta, a, effects, moves) -> np.ndarray:
        b, first = theta[START].reshape(self.n_states - 1, -1), np.zeros(len(a), int)
        etas = [line.eta(own, a, first, effects) for line, own in zip(self.lines, b, strict=True)]
        return softmax(np.stack([np.zeros(len(a)), *etas], axis=1), axis=1)

    def matches(self, fixed) -> dict[int, Match]:
        found: dict[int, Match] = {}
        for j, line in enumerate(self.lines if "initial_coef" not in fixed else ()):
            own = line.matches(START, (), j * len(line.terms))
            found |= {place: match._replace(state=0) for place, match in own.items()}
        return found

    def effect_units(self, units: Scaling) -> list[tuple[tuple[int, ...], np.ndarray]]:
        change = units.to_user(self.lines[0].z_cols)
        return [(line.effects[0], change) for line in self.lines if line.z_cols]

    def turned(self, order: np.ndarray) -> tuple[list[int], np.ndarray]:
        """Log odds against what is state 0 then: differences of those against what it was."""
        size = self.n_states - 1
        odds = np.concatenate([np.zeros((1, size)), np.eye(size)])
        matrix = (odds[order] - odds[order[0]])[1:]
        places = [place for line in self.lines for place in line.effects[0]]
        return places, np.kron(matrix, np.eye(len(self.lines[0].z_cols)))

    def start(self) -> Params:
        return {START: np.zeros((1, sum(len(line.terms) for line in self.lines)))}

    def block(self, maker: BlockMaker, transitions: TransitionBlock) -> LogitStart:
        k, constant = self.n_states, maker.constant
        kernel = general_kernel(Counts(), True, 1, maker.n_effects, self.lines, constant)
        return LogitStart(k, kernel)


@dataclass(frozen=True)
class LogitStart(InitialBlock):
    """Log odds of the first state to compiled code."""

    n_states: int
    kernel: GeneralKernel

    @property
    def newton_keys(self) -> tuple[str, ...]:
        return (START,)

    @property
    def has_effects(self) -> bool:
        return bool(self.kernel.with_effects)

    def table(self, theta, f, chunk, cov, transition) -> Array:
        on_lanes = q_on_lanes(f, cov, chunk)
        return jnp.exp(self.kernel.log_chances(theta[START], *on_lanes, chunk.a[:1])[0, 0])

    def _cells(self, collected: Array, chunk: Chunk) -> Cells:
        counts = tuple(collected[k][None, None] for k in range(self.n_states))
        return Cells(counts, chunk.a[:1], None)

    def _expected(self, of: Callable[..., Any], theta, mean, cov, collected, chunk: Chunk) -> Any:
        on_lanes, cells = q_on_lanes(mean, cov, chunk), self._cells(collected, chunk)
        return sum_lanes(of(theta[START], *on_lanes, cells), chunk)

    def value(self, theta, mean, cov, collected, chunk) -> Array:
        return self._expected(self.kernel.value, theta, mean, cov, collected, chunk)

    def effect_terms(self, theta, mean, cov, collected, chunk) -> EffectTerms:
        return self._expected(self.kernel.effect_terms, theta, mean, cov, collected, chunk)

    def coef_terms(self, key, coef, mean, cov, collected, chunk) -> CoefTerms:
        on_lanes = q_on_lanes(mean, cov, chunk)
        return self.kernel.coef_terms(coef, *on_lanes, self._cells(collected, chunk))


# --- stationary -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StationaryInitial(Initial):
    """The distribution that the transitions of the first step leave as it is."""

    key = ""

    def chances(self, theta, a, effects, moves) -> np.ndarray:
        return stationary(moves())

    def start(self) -> Params:
        return {}

    def block(self, maker: BlockMaker, transitions: Any) -> StationaryStart:
        return StationaryStart(transitions)


@dataclass(frozen=True)
class StationaryStart(InitialBlock):
    """A stationary start to compiled code: it has a say in the coefficients of the moves."""

    moves: LogitMoves

    @property
    def newton_keys(self) -> tuple[str, ...]:
        return (MOVES,)

    @property
    def concave(self) -> bool:
        return False

    @property
    def has_effects(self) -> bool:
        return self.moves.has_effects

    def table(self, theta, f, chunk, cov, transition) -> Array:
        if cov is None or not self.has_effects:
            first = transition[0] if transition.ndim == 4 else transition
            return _stationary(first)
        coef, a = theta[MOVES], chunk.a[:1]
        log_start = autodiff.average(
            lambda g: jnp.log(_stationary(self.moves.probabilities(coef, g, None, a)[0])),
            *q_on_lanes(f, cov, chunk),
            self.moves.effects,
        )
        return jnp.exp(log_start)

    def _term(self, first: Array, chunk: Chunk) -> autodiff.Term:
        """The log probability of the first states as a function of all transitions."""
        a = chunk.a[:1]

        def term(coef: Array, f: Array) -> Array:
            by_state = coef.reshape(self.moves.n_states, -1)
            chance = _stationary(self.moves.probabilities(by_state, f, None, a)[0])
            return (first * jnp.log(chance)).sum(0)[None]

        return term

    def _expected(self, of: Any, theta, mean, cov, first: Array, chunk: Chunk) -> Any:
        on_lanes = q_on_lanes(mean, cov, chunk)
        flat = theta[MOVES].reshape(1, -1)
        return sum_lanes(of(self._term(first, chunk), flat, *on_lanes, self.moves.effects), chunk)

    def value(self, theta, mean, cov, collected, chunk) -> Array:
        return self._expected(autodiff.expected_value, theta, mean, cov, collected, chunk)

    def effect_terms(self, theta, mean, cov, collected, chunk) -> EffectTerms:
        return self._expected(autodiff.effect_terms, theta, mean, cov, collected, chunk)

    def coef_terms(self, key, coef, mean, cov, collected, chunk) -> CoefTerms:
        """One problem: a stationary start ties the moves from all states."""
        on_lanes, flat = q_on_lanes(mean, cov, chunk), coef.reshape(1, -1)
        term = self._term(collected, chunk)
        return autodiff.coef_terms(term, flat, *on_lanes, self.moves.effects)


def _stationary(transition: Array) -> Array:
    """(state, lane) from transitions (from, to, lane)."""
    return stationary(jnp.moveaxis(transition, -1, 0), jnp).T


def make_initial(given: Formula | None, n_states: int, part: int, builder: Builder) -> Initial:
    """The initial distribution of a formula; stationary where there is none."""
    if n_states == 1 or (given is not None and given.is_constant):
        return FreeInitial(n_states)
    if given is None:
        return StationaryInitial(n_states)
    return LogitInitial.build(n_states, part, builder)
