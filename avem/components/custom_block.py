"""A user's own density to compiled code: one step after the other, with what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from avem.components import autodiff as auto
from avem.components.base import EmissionBlock
from avem.components.lanes import Theta, by_subject, q_on_lanes, sum_lanes, to_lanes
from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms

if TYPE_CHECKING:
    from avem.families.custom import Custom


class _Row(NamedTuple):
    """What a user's emission sees of one step."""

    y: Array
    x: Array
    seen: Array


@dataclass(frozen=True)
class CustomBlock(EmissionBlock):
    """A user's own density, to compiled code; it may depend on what happened before."""

    key: str
    family: Custom
    n_states: int
    terms: tuple[str, ...]
    x_cols: tuple[int, ...]
    effects: tuple[tuple[int, ...], ...]
    """For every state, the place in f of each of the family's effects."""
    y_cols: tuple[int, ...]
    seen_col: int

    @property
    def concave(self) -> bool:
        return False

    @property
    def newton_keys(self) -> tuple[str, ...]:
        return (self.key + "coef",)

    @property
    def has_effects(self) -> bool:
        return bool(self.family.effects)

    @cached_property
    def _places(self) -> tuple[int, ...]:
        return tuple(sorted({place for of_state in self.effects for place in of_state}))

    def _term(self, chunk: Chunk, weight: Array) -> auto.Term:
        def term(coef: Array, f: Array) -> Array:
            return (weight * self._table(coef, f, chunk)).sum(0)

        return term

    def _table(self, coef: Array, f: Array, chunk: Chunk) -> Array:
        """(time, state, lane) log densities at the effects f of every lane."""
        return self._run(coef, f, chunk, self._series)

    def histories(self, theta: Theta, f: Array, chunk: Chunk) -> Any:
        """What is remembered before each step, (time, state, ..., lane) for each of its parts."""
        on_lanes = q_on_lanes(f, None, chunk)[0]
        return self._run(theta[self.key + "coef"], on_lanes, chunk, self._memory)

    def _run(self, coef: Array, f: Array, chunk: Chunk, series: Callable[..., Any]) -> Any:
        seen = chunk.seen[:, self.seen_col]
        y = [self._possible(chunk.y[:, column], seen) for column in self.y_cols]
        y = y[0] if len(y) == 1 else jnp.stack(y, axis=1)
        rows = _Row(y, chunk.a[:, np.array(self.x_cols, int)], seen)
        own = f[np.array(self.effects, int).reshape(self.n_states, -1)]  # (state, effect, lane)
        of_lane = jax.vmap(series, in_axes=(None, -1, -1), out_axes=-1)
        return jax.vmap(of_lane, in_axes=(0, 0, None), out_axes=1)(coef, own, rows)

    def _possible(self, y: Array, seen: Array) -> Array:
        """(time, lane) where nothing is seen, something that is: of the same lane, or of any."""
        own = jnp.take_along_axis(y, seen.argmax(0)[None], axis=0)
        some = jnp.where(seen.any(0), own, y.ravel()[seen.ravel().argmax()])
        return jnp.where(seen, y, some)

    def _series(self, coef: Array, effect: Array, rows: _Row) -> Array:
        """(time,) log densities of one sequence in one state."""
        return self._scan(coef, effect, rows, lambda history, density: density)

    def _memory(self, coef: Array, effect: Array, rows: _Row) -> Any:
        """(time, ...) what is remembered before each step of one sequence in one state."""
        return self._scan(coef, effect, rows, lambda history, density: history)

    def _scan(self, coef: Array, effect: Array, rows: _Row, wanted: Callable[..., Any]) -> Any:
        names = [name for name, _ in self.family.params]
        effects = dict(zip(self.family.effects, effect, strict=True))
        params = {name: b + effects.get(name, 0.0) for name, b in zip(names, coef, strict=True)}

        def step(history, row):
            x = dict(zip(self.terms, row.x, strict=True))
            there = self.family.log_prob(row.y, x, history, params, effects)
            moved = history
            if self.family.update is not None:
                moved = self.family.update(history, row.y, x, params, effects)
            kept = jax.tree.map(
                lambda new, old: jnp.where(row.seen, new, old).astype(jnp.result_type(old)),
                moved,
                history,
            )
            return kept, wanted(history, jnp.where(row.seen, there, 0.0))

        start = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, effect.dtype), self.family.start_history()
        )
        return lax.scan(step, start, rows)[1]

    def table(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None) -> Array:
        coef, q = theta[self.key + "coef"], q_on_lanes(f, cov, chunk)
        return auto.average(lambda g: self._table(coef, g, chunk), *q, self._places)

    def collect(self, state: Array, chunk: Chunk) -> Array:
        return jnp.where(chunk.seen[:, self.seen_col][:, None], state, 0.0)

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * to_lanes(share, chunk)

    def value(self, theta: Theta, mean, cov, collected: Array, chunk: Chunk) -> Array:
        q = q_on_lanes(mean, cov, chunk)
        term, coef = self._term(chunk, collected), theta[self.key + "coef"]
        return by_subject(auto.expected_value(term, coef, *q, self._places), chunk)

    def effect_terms(self, theta: Theta, mean, cov, collected: Array, chunk: Chunk) -> EffectTerms:
        q = q_on_lanes(mean, cov, chunk)
        term, coef = self._term(chunk, collected), theta[self.key + "coef"]
        return sum_lanes(auto.effect_terms(term, coef, *q, self._places), chunk)

    def coef_terms(self, key, coef: Array, mean, cov, collected: Array, chunk) -> CoefTerms:
        q = q_on_lanes(mean, cov, chunk)
        return auto.coef_terms(self._term(chunk, collected), coef, *q, self._places)
