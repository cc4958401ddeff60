"""Rates of moves to compiled code.

Sums of pairs times log probabilities have derivatives in the log rates of each interval, which come
with the probabilities; those in coefficients and effects follow. The curvature is the expected
information, sum of pairs (dP/P)(dP/P)': what is left out of the second derivative is 0 on average,
and without it the curvature is never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from avem.components.autodiff import average
from avem.components.lanes import by_subject, q_on_lanes, sum_lanes, to_lanes
from avem.components.linear import CoefTerms, Predictor
from avem.components.transitions import TransitionBlock
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.kernels import forward_backward as hmm
from avem.kernels import rates
from avem.kernels.forward import ByCell
from avem.numerics.devices import platform
from avem.numerics.generator import product

RATES = "rates.coef"
"""In theta: (moves, terms) coefficients of log rates."""
_AT_ONCE = 1024
"""Cells times lanes whose derivatives are found together, on a processor."""
_LOG_RATES = (-40.0, 40.0)
"""Beyond these nothing changes any more within an interval, or all has changed."""


class _Slopes(NamedTuple):
    """Of sums of pairs times log probabilities."""

    value: Array
    """(cell, lane)."""
    first: Array
    """(move, cell, lane) in log rates."""
    second: Array
    """(move, move, cell, lane) the expected information."""


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
        return False

    # --- probabilities --------------------------------------------------------------------------

    def _log_rates(self, coef: Array, f: Array, a: Array) -> Array:
        """(move, cell, lane) at design columns (cell, column, lane or 1)."""
        shape = (len(a), max(a.shape[-1], f.shape[-1] if self.has_effects else 1))
        etas = []
        for b, p in zip(coef.reshape(len(self.pairs), -1), self.predictors, strict=True):
            eta = jnp.zeros(shape)
            for i, column in enumerate(p.x_cols):
                eta += b[i] * a[:, column]
            for j, column in enumerate(p.z_cols):
                eta += a[:, column] * f[p.effects[0][j]]
            etas.append(eta)
        return jnp.stack(etas)

    def _moved(self, log_rates: Array, a: Array, slopes: bool = False) -> rates.Moved:
        """(from, to, cell, lane) probabilities; densities of entering where there is an event.

        With `slopes`, (move, from, to, cell, lane) in the log rates, too.
        """
        low, high = _LOG_RATES
        now = jnp.exp(jnp.clip(log_rates, low, high))
        flat = (now * a[:, self.clock[0]]).reshape(len(now), -1)
        moved = rates.over_intervals(flat, self.pairs, self.n_states, slopes)
        moved = jax.tree.map(lambda part: part.reshape(*part.shape[:-1], *now.shape[1:]), moved)
        if self.absorbing:
            moved = self._with_entries(moved, now, a)
        if not slopes:
            return moved
        varies = ((log_rates > low) & (log_rates < high))[:, None, None]
        return moved._replace(slope=jnp.where(varies, moved.slope, 0.0))

    def _with_entries(self, moved: rates.Moved, now: Array, a: Array) -> rates.Moved:
        """Where there is an event, densities of moving into an absorbing state at the end."""
        event = a[:, self.clock[1]]
        ends = np.isin([k for _, k in self.pairs], self.absorbing)

        def entered(before: Array, kinds: np.ndarray) -> Array:
            """From probabilities before, by moves of some kinds."""
            own = jnp.where(kinds[:, None, None], now, 0.0)
            return event * product(before, rates.as_matrix(own, self.pairs, self.n_states))

        chance = jnp.where(event > 0, entered(moved.chance, ends), moved.chance)
        if not len(moved.slope):
            return moved._replace(chance=chance)
        each = [
            entered(slope, ends) + entered(moved.chance, ends & (np.arange(len(ends)) == m))
            for m, slope in enumerate(moved.slope)
        ]
        return rates.Moved(chance, jnp.where(event > 0, jnp.stack(each), moved.slope))

    def probabilities(self, coef: Array, f: Array, a: Array) -> Array:
        """(cell, from, to, lane)."""
        return jnp.moveaxis(self._moved(self._log_rates(coef, f, a), a).chance, 2, 0)

    def table(self, theta, f, chunk, cov=None) -> Array | ByCell:
        coef = theta[RATES]
        if self.n_cells == 0:
            return self._expected(coef, *q_on_lanes(f, cov, chunk), chunk.a)
        a = chunk.patterns[self.pattern].a[:, :, None]
        cells = self._expected(coef, f, cov, a)
        if self.has_effects:
            cells = to_lanes(cells, chunk)
        if self.n_cells == 1:
            return cells[0] if self.has_effects else cells[0, :, :, 0]
        return ByCell(cells, chunk.patterns[self.pattern].index)

    def _expected(self, coef: Array, f: Array, cov: Array | None, a: Array) -> Array:
        """The probabilities at f; with `cov`, exp E_q of their logarithms."""
        here = self.probabilities(coef, f, a)
        if cov is None or not self.has_effects:
            return here

        def logs(g: Array) -> Array:
            return _safe_log(self.probabilities(coef, g, a))

        return jnp.where(here > 0, jnp.exp(average(logs, f, cov, self.effects)), 0.0)

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

    def _slopes(self, log_rates: Array, pair: Array, a: Array) -> _Slopes:
        """From pairs (cell, from, to, lane); a few cells at a time, which stay in the cache."""
        n_cells, n_lanes = log_rates.shape[1:]
        n_blocks = -(-n_cells // max(1, _AT_ONCE // n_lanes))
        if n_blocks == 1 or platform() != "cpu":
            return self._slopes_at_once(log_rates, pair, a)
        at_once = -(-n_cells // n_blocks)
        cells = np.minimum(np.arange(n_blocks * at_once), n_cells - 1).reshape(n_blocks, at_once)

        def block(own: Array) -> _Slopes:
            return self._slopes_at_once(log_rates[:, own], pair[own], a[own])

        def joined(found: Array) -> Array:
            """From (block, ..., cell, lane); the last one is filled up."""
            flat = jnp.moveaxis(found, 0, -3)
            return flat.reshape(*flat.shape[:-3], cells.size, n_lanes)[..., :n_cells, :]

        found = jax.tree.map(joined, lax.map(block, cells))
        # On its own, so that whoever asks for the value alone does not wait for the rest.
        value = self._values(self._moved(log_rates, a).chance, jnp.moveaxis(pair, 0, 2))
        return found._replace(value=value)

    def _values(self, chance: Array, pair: Array) -> Array:
        """(cell, lane) sums of pairs times log probabilities."""
        return (pair * _safe_log(chance)).sum((0, 1))

    def _slopes_at_once(self, log_rates: Array, pair: Array, a: Array) -> _Slopes:
        pair = jnp.moveaxis(pair, 0, 2)
        chance, slope = self._moved(log_rates, a, slopes=True)
        possible = chance > 0
        along = slope * jnp.where(possible, 1.0 / jnp.where(possible, chance, 1.0), 0.0)
        moves = [(along[:, k, j], pair[k, j]) for k, j in np.ndindex(chance.shape[:2])]
        # Added up one by one, which is much faster than sums over axes.
        return _Slopes(
            self._values(chance, pair),
            _total([slope * weight for slope, weight in moves]),
            _total([slope[:, None] * (slope * weight) for slope, weight in moves]),
        )

    def _of_effects(self, mean, cov, pair, chunk: Chunk, of: Callable[..., Any]) -> Any:
        """E_q of `of` (pairs, design columns) at effects, per subject."""
        if self.few:
            a = chunk.patterns[self.pattern].a[:, :, None]
            return average(of(pair, a), mean, cov, self.effects, at_once=False)
        q = q_on_lanes(mean, cov, chunk)
        return sum_lanes(average(of(pair, chunk.a), *q, self.effects, at_once=False), chunk)

    def value(self, theta, mean, cov, collected, chunk) -> Array:
        def of(pair: Array, a: Array) -> Any:
            return lambda f: (pair * _safe_log(self.probabilities(theta[RATES], f, a))).sum(
                (0, 1, 2)
            )

        return self._of_effects(mean, cov, collected, chunk, of)

    def effect_terms(self, theta, mean, cov, collected, chunk) -> EffectTerms:
        def of(pair: Array, a: Array) -> Any:
            return lambda f: self._in_effects(
                self._slopes(self._log_rates(theta[RATES], f, a), pair, a), a
            )

        return self._of_effects(mean, cov, collected, chunk, of)

    def _in_effects(self, slopes: _Slopes, a: Array) -> EffectTerms:
        n_lanes = slopes.value.shape[-1]
        gradient = jnp.zeros((self.n_effects, n_lanes))
        curvature = jnp.zeros((self.n_effects, self.n_effects, n_lanes))
        for m, p in enumerate(self.predictors):
            for i, z in zip(p.effects[0], p.z_cols, strict=True):
                gradient = gradient.at[i].add((slopes.first[m] * a[:, z]).sum(0))
                for n, q in enumerate(self.predictors):
                    for j, w in zip(q.effects[0], q.z_cols, strict=True):
                        bend = (slopes.second[m, n] * a[:, z] * a[:, w]).sum(0)
                        curvature = curvature.at[i, j].add(bend)
        return EffectTerms(slopes.value.sum(0), gradient, curvature, curvature)

    def coef_terms(self, key, coef, mean, cov, collected, chunk) -> CoefTerms:
        """One problem: the rates of all moves act on all probabilities."""
        q, pair = (mean, cov) if self.few else q_on_lanes(mean, cov, chunk), collected
        a = chunk.a if self.n_cells == 0 else chunk.patterns[self.pattern].a[:, :, None]
        if self.few and not self.has_effects:
            pair = pair.sum(-1, keepdims=True)
        elif self.n_cells and not self.few:
            index = chunk.patterns[self.pattern].index
            empty = jnp.zeros((self.n_cells + 1, *pair.shape[1:3]), pair.dtype)
            rows = jnp.moveaxis(pair, -1, 1)
            pair = empty.at[index].add(rows, mode="promise_in_bounds")[:-1, :, :, None]
        x = jnp.moveaxis(a[:, np.array(self.predictors[0].x_cols)], 1, 0)

        def terms(f: Array) -> CoefTerms:
            slopes = self._slopes(self._log_rates(coef, f, a), pair, a)
            size, wide = len(self.pairs) * len(x), x + 0 * slopes.value
            gradient = jnp.einsum("mcl,icl->mi", slopes.first, wide)
            curvature = jnp.einsum("mncl,icl,jcl->minj", slopes.second, wide, wide)
            value = slopes.value.sum().reshape(1)
            return CoefTerms(value, gradient.reshape(1, size), curvature.reshape(1, size, size))

        return average(terms, *q, self.effects, at_once=False)


def _total(parts: Sequence[Array]) -> Array:
    return reduce(jnp.add, parts)


def _safe_log(chances: Array) -> Array:
    """The logarithm, and 0 for what never happens."""
    possible = chances > 0
    return jnp.where(possible, jnp.log(jnp.where(possible, chances, 1.0)), 0.0)
