"""Rates of moves to compiled code.

Sums of pairs times log probabilities have derivatives in the log rates of each interval, which come
with the probabilities; those in coefficients and effects follow. The curvature is the expected
information, sum of pairs (dP/P)(dP/P)': what is left out of the second derivative is 0 on average,
and without it the curvature is never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from avem.kernels.logs import safe_log
from avem.numerics.devices import platform
from avem.numerics.generator import product

RATES = "rates.coef"
"""In theta: (moves, terms) coefficients of log rates."""
_AT_ONCE, _AT_ONCE_ELSEWHERE = 2048, 1 << 19
"""Cells times lanes whose derivatives are found together: on a processor they stay in its cache, on
a GPU they fit into its memory."""
_LOG_RATES = (-40.0, 40.0)
"""Beyond these nothing changes any more within an interval, or all has changed."""

Way = tuple[tuple[int, int], ...]
"""A parameter: the moves whose log rates it is in, with the design columns it multiplies there."""


class _Terms(NamedTuple):
    """Of a sum of pairs times log probabilities in some parameters, over all lanes or of each."""

    gradient: Array
    """(parameter, ...)."""
    curvature: Array
    """(parameter, parameter, ...) the expected information."""


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
    together: bool = False
    """So they are with many cells, as sums over subjects will do."""

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
            eta = jnp.broadcast_to(a[:, p.offset], shape) if p.offset >= 0 else jnp.zeros(shape)
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
            return safe_log(self.probabilities(coef, g, a))

        return jnp.where(here > 0, jnp.exp(average(logs, f, cov, self.effects)), 0.0)

    # --- pairs of states ------------------------------------------------------------------------

    def summed(self) -> RateMoves:
        together = self.n_cells > 1 and not (self.few or self.has_effects)
        return replace(self, together=together)

    def steps(self, chunk: Chunk) -> hmm.Steps:
        if not (self.few or self.together):
            return hmm.Steps(None, 0)
        if self.n_cells == 1:
            return hmm.Steps()
        index = chunk.patterns[self.pattern].index
        return hmm.Steps(index, self.n_cells, self.together)

    def collect(self, pair: Array, chunk: Chunk) -> Array:
        """Expected moves (cell, from, to, subject or lane); of all together (cell, from, to)."""
        if self.together:
            return pair[..., 0]
        return by_subject(pair, chunk) if self.few else pair

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * (share if self.few else to_lanes(share, chunk))

    # --- the expected log likelihood ------------------------------------------------------------

    def _terms(
        self, log_rates: Array, pair: Array, a: Array, ways: Sequence[Way], apart: bool
    ) -> _Terms:
        """From pairs (cell, from, to, lane), a few cells at a time."""
        n_cells, n_lanes = log_rates.shape[1:]
        most = _AT_ONCE if platform() == "cpu" else _AT_ONCE_ELSEWHERE
        n_blocks = -(-n_cells // max(1, most // n_lanes))
        if n_blocks == 1:
            return self._terms_at_once(log_rates, pair, a, ways, apart)
        at_once = -(-n_cells // n_blocks)

        def blocks(cells: Array) -> Array:
            """The last one is filled up with 0, which adds nothing."""
            more = [(0, n_blocks * at_once - n_cells)] + [(0, 0)] * (cells.ndim - 1)
            return jnp.pad(cells, more).reshape(n_blocks, at_once, *cells.shape[1:])

        def block(given: tuple[Array, Array, Array]) -> _Terms:
            by_cell, own, columns = given
            return self._terms_at_once(jnp.moveaxis(by_cell, 1, 0), own, columns, ways, apart)

        each = (blocks(jnp.moveaxis(log_rates, 0, 1)), blocks(pair), blocks(a))
        return jax.tree.map(lambda found: found.sum(0), lax.map(block, each))

    def _terms_at_once(
        self, log_rates: Array, pair: Array, a: Array, ways: Sequence[Way], apart: bool
    ) -> _Terms:
        pair = jnp.moveaxis(pair, 0, 2)
        chance, slope = self._moved(log_rates, a, slopes=True)
        possible = chance > 0
        along = slope * jnp.where(possible, 1.0 / jnp.where(possible, chance, 1.0), 0.0)
        by_way = [_total([along[m] * a[:, c] for m, c in way]) for way in ways]
        if not apart:
            rows = jnp.stack(by_way).reshape(len(ways), -1)
            weighed = rows * jnp.broadcast_to(pair, chance.shape).reshape(-1)
            return _Terms(weighed.sum(1), rows @ weighed.T)
        # Added up one by one, which is much faster than sums over axes.
        moves = list(np.ndindex(chance.shape[:2]))
        weighed = [[way[move] * pair[move] for move in moves] for way in by_way]
        first = [_total(own).sum(0) for own in weighed]
        second = {
            (p, q): _total([w * by_way[q][move] for w, move in zip(own, moves, strict=True)]).sum(0)
            for p, own in enumerate(weighed)
            for q in range(p + 1)
        }
        every = range(len(ways))
        rows = [jnp.stack([second[max(p, q), min(p, q)] for q in every]) for p in every]
        return _Terms(jnp.stack(first), jnp.stack(rows))

    def _value(self, log_rates: Array, pair: Array, a: Array) -> Array:
        """(lane,) sums of pairs times log probabilities."""
        return (jnp.moveaxis(pair, 0, 2) * safe_log(self._moved(log_rates, a).chance)).sum(
            (0, 1, 2)
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
            return lambda f: self._value(self._log_rates(theta[RATES], f, a), pair, a)

        return self._of_effects(mean, cov, collected, chunk, of)

    def effect_terms(self, theta, mean, cov, collected, chunk) -> EffectTerms:
        def of(pair: Array, a: Array) -> Any:
            return lambda f: self._in_effects(self._log_rates(theta[RATES], f, a), pair, a)

        return self._of_effects(mean, cov, collected, chunk, of)

    def _in_effects(self, log_rates: Array, pair: Array, a: Array) -> EffectTerms:
        ways = [
            tuple(
                (m, z)
                for m, p in enumerate(self.predictors)
                for i, z in zip(p.effects[0], p.z_cols, strict=True)
                if i == effect
            )
            for effect in self.effects
        ]
        first, second = self._terms(log_rates, pair, a, ways, apart=True)
        at, n_lanes = np.array(self.effects), log_rates.shape[-1]
        gradient = jnp.zeros((self.n_effects, n_lanes)).at[at].set(first)
        curvature = jnp.zeros((self.n_effects, self.n_effects, n_lanes))
        curvature = curvature.at[at[:, None], at].set(second)
        return EffectTerms(self._value(log_rates, pair, a), gradient, curvature, curvature)

    def coef_terms(self, key, coef, mean, cov, collected, chunk) -> CoefTerms:
        """One problem: the rates of all moves act on all probabilities."""
        q, pair = (mean, cov) if self.few else q_on_lanes(mean, cov, chunk), collected
        a = chunk.a if self.n_cells == 0 else chunk.patterns[self.pattern].a[:, :, None]
        if self.few and not self.has_effects:
            pair = pair.sum(-1, keepdims=True)
        elif pair.ndim == 3:
            pair = pair[..., None]
        elif self.n_cells and not self.few:
            pair = hmm.by_cell(pair, hmm.Steps(chunk.patterns[self.pattern].index, self.n_cells))
        columns = self.predictors[0].x_cols
        ways = [((m, c),) for m in range(len(self.pairs)) for c in columns]

        def terms(f: Array) -> CoefTerms:
            log_rates = self._log_rates(coef, f, a)
            gradient, curvature = self._terms(log_rates, pair, a, ways, apart=False)
            value = self._value(log_rates, pair, a).sum().reshape(1)
            return CoefTerms(value, gradient[None], curvature[None])

        return average(terms, *q, self.effects, at_once=False)


def _total(parts: Sequence[Array]) -> Array:
    return reduce(jnp.add, parts)
