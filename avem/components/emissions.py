"""The parts of a model that emit outcomes, all behind one interface.

A block reads its columns of a chunk and offers, for every subject of it:

- `table`: log density of each row in each state, at given effects, or expected under q;
- `collect`: what the local posterior leaves behind for the later steps, and `weigh`: the same
  times a share of each subject;
- `value` and `effect_terms`: the expected log likelihood Q(f), for q;
- `coef_terms` (by Newton) or `totals` and `maximise` (closed form): for the M-step.

`key` is the block's prefix in theta. Everywhere, `mean` and `cov` describe q, and `cov=None` means
the point `mean`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from avem.components import autodiff as auto
from avem.components.lanes import Theta, by_subject, q_on_lanes, sum_lanes, to_lanes
from avem.components.linear import Cells, CoefTerms, GeneralKernel
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.families.custom import Custom
from avem.families.gaussian import GaussianKernel

_FEW = 8


def from_cells(cells: Array, index: Array) -> Array:
    """Values (cell, ..., lane) on the rows (time, ..., lane) of each cell, 0 on other rows."""
    index = index.reshape(len(index), *[1] * (cells.ndim - 2), index.shape[-1])
    if len(cells) > _FEW:
        padded = jnp.pad(cells, [(0, 1)] + [(0, 0)] * (cells.ndim - 1))
        return jnp.take_along_axis(padded, index, axis=0)
    # A few selections are much faster than a gather.
    parts = [jnp.where(index == c, cells[c][None], 0.0) for c in range(len(cells))]
    return sum(parts[1:], parts[0])


@dataclass(frozen=True)
class GaussianBlock:
    """Gaussian outcomes: everything in closed form."""

    key: str
    kernel: GaussianKernel
    y_cols: tuple[int, ...]
    seen_cols: tuple[int, ...]

    closed_form = True

    @property
    def has_effects(self) -> bool:
        return self.kernel.n_own_effects > 0

    def _view(self, chunk: Chunk) -> Chunk:
        everything = len(self.y_cols) == chunk.y.shape[1]
        if everything and len(self.seen_cols) == chunk.seen.shape[1]:
            return chunk
        y, seen = np.array(self.y_cols), np.array(self.seen_cols)
        return chunk._replace(y=chunk.y[:, y], seen=chunk.seen[:, seen])

    def _theta(self, theta: Theta) -> tuple[Array, Array]:
        return theta[self.key + "coef"], theta[self.key + "covariance"]

    def table(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None) -> Array:
        on_lanes, spread = q_on_lanes(f, cov, chunk)
        return self.kernel.table(*self._theta(theta), on_lanes, self._view(chunk), spread)

    def collect(self, state: Array, chunk: Chunk) -> Array:
        return by_subject(self.kernel.moments(state, self._view(chunk)), chunk)

    def weigh(self, moments: Array, share: Array, chunk: Chunk) -> Array:
        return moments * share

    def quadratic(self, theta: Theta, moments: Array) -> tuple[Array, Array]:
        """Lambda and h with Q(f) = h'f - f'Lambda f / 2 + constant."""
        return self.kernel.effect_quadratic(*self._theta(theta), moments)

    def totals(self, moments: Array, mean: Array, second: Array) -> Any:
        return self.kernel.accumulate(moments, mean, second)


@dataclass(frozen=True)
class GeneralBlock:
    """An outcome of any family with linear predictors."""

    key: str
    kernel: GeneralKernel
    y_cols: tuple[int, ...]
    seen_col: int
    pattern: int
    """Which of the chunk's patterns gathers its rows into cells; -1: each row is a cell."""
    row_list: int
    """Then: which of the chunk's lists holds its observed rows."""

    closed_form = False

    @property
    def has_effects(self) -> bool:
        return bool(self.kernel.with_effects)

    def _possible(self, columns: list[Array], seen: Array) -> tuple[Array, ...]:
        # 0 may be no possible value: then even a weight of 0 would not save the sums.
        stand_in = (self.kernel.density.harmless, *[1.0] * (len(columns) - 1))
        pairs = zip(columns, stand_in, strict=True)
        return tuple(jnp.where(seen, column, other) for column, other in pairs)

    def _data(self, chunk: Chunk) -> tuple[tuple[Array, ...], Array]:
        """The outcome columns (cell, 1, lane) and the design (cell, column, lane)."""
        if self.pattern < 0:
            rows = chunk.lists[self.row_list]
            y = self._possible([rows.y[c] for c in self.y_cols], rows.real)
            return tuple(column[None, None] for column in y), rows.a[None]
        cells = chunk.patterns[self.pattern]
        return tuple(cells.y[:, c][:, None, None] for c in self.y_cols), cells.a[:, :, None]

    def table(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None) -> Array:
        coef, n_states = theta[self.key + "coef"], self.kernel.n_states
        if self.pattern < 0:
            seen = chunk.seen[:, self.seen_col]
            y = self._possible([chunk.y[:, c] for c in self.y_cols], seen)
            columns = tuple(column[:, None] for column in y)
            table = self.kernel.table(coef, *q_on_lanes(f, cov, chunk), columns, chunk.a)
            table = jnp.where(seen[:, None], table, 0.0)
            return jnp.broadcast_to(table, (len(chunk.y), n_states, chunk.y.shape[-1]))
        y, a = self._data(chunk)
        table = self.kernel.table(coef, f, cov, y, a)
        table = jnp.broadcast_to(table, (len(a), n_states, f.shape[1]))
        return from_cells(to_lanes(table, chunk), chunk.patterns[self.pattern].index)

    def collect(self, state: Array, chunk: Chunk) -> Array:
        if self.pattern < 0:
            rows = chunk.lists[self.row_list]
            own = state[rows.step, :, rows.lane].T
            return jnp.where(rows.real, own, 0.0)[None]
        cells = chunk.patterns[self.pattern]
        index = cells.index[:, None]
        in_cell = [jnp.where(index == c, state, 0.0).sum(0) for c in range(len(cells.a))]
        return by_subject(jnp.stack(in_cell), chunk)

    def weigh(self, weight: Array, share: Array, chunk: Chunk) -> Array:
        return weight * (share if self.pattern >= 0 else share[chunk.lists[self.row_list].owner])

    def _on_cells(self, mean: Array, cov: Array | None, chunk: Chunk):
        """q of the subject that each lane of the cells belongs to."""
        if self.pattern >= 0:
            return mean, cov
        owner = chunk.lists[self.row_list].owner
        return mean[:, owner], None if cov is None else cov[:, :, owner]

    def _per_subject(self, terms: Any, chunk: Chunk) -> Any:
        if self.pattern >= 0:
            return terms
        rows, n = chunk.lists[self.row_list], chunk.real.shape[0]

        def add(part: Array) -> Array:
            total = jnp.zeros((*part.shape[:-1], n), part.dtype)
            return total.at[..., rows.owner].add(jnp.where(rows.real, part, 0.0))

        return jax.tree.map(add, terms)

    def value(self, theta: Theta, mean, cov, weight: Array, chunk: Chunk) -> Array:
        cells = Cells(*self._data(chunk), weight)
        q = self._on_cells(mean, cov, chunk)
        return self._per_subject(self.kernel.value(theta[self.key + "coef"], *q, cells), chunk)

    def effect_terms(self, theta: Theta, mean, cov, weight: Array, chunk: Chunk) -> EffectTerms:
        cells = Cells(*self._data(chunk), weight)
        q = self._on_cells(mean, cov, chunk)
        terms = self.kernel.effect_terms(theta[self.key + "coef"], *q, cells)
        return self._per_subject(terms, chunk)

    def coef_terms(self, coef: Array, mean, cov, weight: Array, chunk: Chunk) -> CoefTerms:
        cells = Cells(*self._data(chunk), weight)
        return self.kernel.coef_terms(coef, *self._on_cells(mean, cov, chunk), cells)


class _Row(NamedTuple):
    """What a user's emission sees of one step."""

    y: Array
    x: Array
    seen: Array


@dataclass(frozen=True)
class CustomBlock:
    """An outcome with a user's own density, which may depend on what happened before."""

    key: str
    family: Custom
    n_states: int
    terms: tuple[str, ...]
    x_cols: tuple[int, ...]
    effects: tuple[tuple[int, ...], ...]
    """For every state, the place in f of each of the family's effects."""
    y_col: int
    seen_col: int

    closed_form = False

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
        seen, y = chunk.seen[:, self.seen_col], chunk.y[:, self.y_col]
        # Where nothing is seen, something that is possible: of the same lane, or of any.
        own = jnp.take_along_axis(y, seen.argmax(0)[None], axis=0)
        possible = jnp.where(seen.any(0), own, y.ravel()[seen.ravel().argmax()])
        rows = _Row(jnp.where(seen, y, possible), chunk.a[:, np.array(self.x_cols, int)], seen)
        own = f[np.array(self.effects, int).reshape(self.n_states, -1)]  # (state, effect, lane)
        of_lane = jax.vmap(series, in_axes=(None, -1, -1), out_axes=-1)
        return jax.vmap(of_lane, in_axes=(0, 0, None), out_axes=1)(coef, own, rows)

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

    def weigh(self, weight: Array, share: Array, chunk: Chunk) -> Array:
        return weight * to_lanes(share, chunk)

    def value(self, theta: Theta, mean, cov, weight: Array, chunk: Chunk) -> Array:
        q = q_on_lanes(mean, cov, chunk)
        term, coef = self._term(chunk, weight), theta[self.key + "coef"]
        return by_subject(auto.expected_value(term, coef, *q, self._places), chunk)

    def effect_terms(self, theta: Theta, mean, cov, weight: Array, chunk: Chunk) -> EffectTerms:
        q = q_on_lanes(mean, cov, chunk)
        term, coef = self._term(chunk, weight), theta[self.key + "coef"]
        return sum_lanes(auto.effect_terms(term, coef, *q, self._places), chunk)

    def coef_terms(self, coef: Array, mean, cov, weight: Array, chunk: Chunk) -> CoefTerms:
        q = q_on_lanes(mean, cov, chunk)
        return auto.coef_terms(self._term(chunk, weight), coef, *q, self._places)


Block = GaussianBlock | GeneralBlock | CustomBlock
