"""Rates of moves to compiled code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from avem.components import autodiff
from avem.components.cells import from_cells
from avem.components.lanes import by_subject, q_on_lanes, sum_lanes, to_lanes
from avem.components.linear import CoefTerms, Predictor
from avem.components.transitions import TransitionBlock
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.kernels import forward_backward as hmm
from avem.numerics.generator import generators, product, transition_matrices

RATES = "rates.coef"
"""In theta: (moves, terms) coefficients of log rates."""
_LOG_RATES = (-40.0, 40.0)
"""Beyond these nothing changes any more within an interval, or all has changed."""


@dataclass(frozen=True)
class RateMoves(TransitionBlock):
    """Probabilities of moves over intervals; with an event, densities of entering at their ends."""

    n_states: int
    n_effects: int
    pairs: tuple[tuple[int, int], ...]
    predictors: tuple[Predictor, ...]
    """Of each of `pairs`."""
    clock: tuple[int, ...]
    """The design columns of interval and event."""
    absorbing: tuple[int, ...]
    """The states that an event is the entry into."""
    pattern: int
    """Which of the chunk's patterns gathers the rows by what the rates read, or -1."""
    n_cells: int
    """Of that pattern; 0 when every row is a cell."""
    few: bool
    """The cells are so few that pairs are summed by cell in the local pass."""

    @property
    def newton_keys(self) -> tuple[str, ...]:
        return (RATES,)

    @cached_property
    def effects(self) -> tuple[int, ...]:
        """The effects that act on the rates."""
        return tuple(sorted({e for p in self.predictors for e in p.effects[0]}))

    @property
    def has_effects(self) -> bool:
        return bool(self.effects)

    @property
    def concave(self) -> bool:
        return not self.has_effects

    # --- probabilities --------------------------------------------------------------------------

    def probabilities(self, coef: Array, f: Array, a: Array) -> Array:
        """(cell, from, to, lane) at design columns (cell, column, lane or 1)."""
        shape = (len(a), max(a.shape[-1], f.shape[-1] if self.has_effects else 1))
        rows = [[jnp.zeros(shape) for _ in range(self.n_states)] for _ in range(self.n_states)]
        for (k, m), b, p in zip(self.pairs, coef, self.predictors, strict=True):
            eta = jnp.zeros(shape)
            for i, column in enumerate(p.x_cols):
                eta += b[i] * a[:, column]
            for j, column in enumerate(p.z_cols):
                eta += a[:, column] * f[p.effects[0][j]]
            rows[k][m] = jnp.exp(jnp.clip(eta, *_LOG_RATES))
        rates = jnp.stack([jnp.stack(row) for row in rows])
        moved = transition_matrices(generators(rates) * a[:, self.clock[0]], _repeated)
        if self.absorbing:
            into = np.isin(np.arange(self.n_states), self.absorbing)[None, :, None, None]
            event = a[:, self.clock[1]]
            moved = jnp.where(event > 0, event * product(moved, rates * into), moved)
        return jnp.moveaxis(moved, 2, 0)

    def table(self, theta, f, chunk, cov=None) -> Array:
        coef = theta[RATES]
        if self.n_cells == 0:
            return self._expected(coef, *q_on_lanes(f, cov, chunk), chunk.a)
        a = chunk.patterns[self.pattern].a[:, :, None]
        cells = self._expected(coef, f, cov, a)
        # Rows without a step into them have no cell of their own; any will do.
        index = jnp.minimum(chunk.patterns[self.pattern].index, self.n_cells - 1)
        if not self.has_effects:
            if self.n_cells == 1:
                return cells[0, :, :, 0]
            return jnp.moveaxis(cells[..., 0][index], 1, -1)
        cells = to_lanes(cells, chunk)
        return cells[0] if self.n_cells == 1 else from_cells(cells, index)

    def _expected(self, coef: Array, f: Array, cov: Array | None, a: Array) -> Array:
        """The probabilities at f; with `cov`, exp E_q of their logarithms."""
        here = self.probabilities(coef, f, a)
        if cov is None or not self.has_effects:
            return here

        def logs(g: Array) -> Array:
            return _safe_log(self.probabilities(coef, g, a))

        return jnp.where(here > 0, jnp.exp(autodiff.average(logs, f, cov, self.effects)), 0.0)

    # --- pairs of states ------------------------------------------------------------------------

    def steps(self, chunk: Chunk) -> hmm.Steps:
        if not self.few:
            return hmm.Steps(None, 0)
        if self.n_cells == 1:
            return hmm.Steps()
        return hmm.Steps(chunk.patterns[self.pattern].index, self.n_cells)

    def collect(self, pair: Array, chunk: Chunk) -> Array:
        return by_subject(pair, chunk) if self.few else pair

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * (share if self.few else to_lanes(share, chunk))

    # --- the expected log likelihood ------------------------------------------------------------

    def _term(self, pair: Array, a: Array) -> autodiff.Term:
        """Sum over cells and moves of pairs times log probabilities, (1, lane)."""

        def term(coef: Array, f: Array) -> Array:
            chances = self.probabilities(coef.reshape(len(self.pairs), -1), f, a)
            return (pair * _safe_log(chances)).sum((0, 1, 2))[None]

        return term

    def _by_effects(self, of: Callable[..., Any], theta, mean, cov, pair, chunk: Chunk) -> Any:
        flat = theta[RATES].reshape(1, -1)
        if self.few:
            a = chunk.patterns[self.pattern].a[:, :, None]
            return of(self._term(pair, a), flat, mean, cov, self.effects)
        q = q_on_lanes(mean, cov, chunk)
        return sum_lanes(of(self._term(pair, chunk.a), flat, *q, self.effects), chunk)

    def value(self, theta, mean, cov, collected, chunk) -> Array:
        return self._by_effects(autodiff.expected_value, theta, mean, cov, collected, chunk)

    def effect_terms(self, theta, mean, cov, collected, chunk) -> EffectTerms:
        return self._by_effects(autodiff.effect_terms, theta, mean, cov, collected, chunk)

    def coef_terms(self, key, coef, mean, cov, collected, chunk) -> CoefTerms:
        """One problem: the rates of all moves act on all probabilities."""
        flat, q, pair = coef.reshape(1, -1), (mean, cov), collected
        a = chunk.a if self.n_cells == 0 else chunk.patterns[self.pattern].a[:, :, None]
        if not self.few:
            q = q_on_lanes(mean, cov, chunk)
        if self.few and not self.has_effects:
            pair = pair.sum(-1, keepdims=True)
        elif self.n_cells and not self.few:
            index = chunk.patterns[self.pattern].index
            empty = jnp.zeros((self.n_cells + 1, *pair.shape[1:3]), pair.dtype)
            pair = empty.at[index].add(jnp.moveaxis(pair, -1, 1))[:-1, :, :, None]
        return autodiff.coef_terms(self._term(pair, a), flat, *q, self.effects)


def _repeated(n: int, function: Callable[[int, Any], Any], x: Any) -> Any:
    return lax.fori_loop(0, n, function, x)


def _safe_log(chances: Array) -> Array:
    """The logarithm, and 0 for what never happens."""
    possible = chances > 0
    return jnp.where(possible, jnp.log(jnp.where(possible, chances, 1.0)), 0.0)
