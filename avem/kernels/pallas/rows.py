"""What the chains' kernel reads of a block of lanes, and what it leaves of their states."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from avem.kernels.pallas.chain import Vectors

if TYPE_CHECKING:
    from avem.kernels.gaussian_chain import Lists


class TableRows:
    """Rows whose log densities are given; their state probabilities are wanted."""

    def __init__(self, table: Any, state: Any) -> None:
        self._table, self._state = table, state

    def read(self, t: Any) -> Vectors:
        return tuple(self._table[t, k, :] for k in range(self._table.shape[1]))

    def densities(self, row: Vectors) -> Vectors:
        return row

    def nothing(self) -> tuple[()]:
        return ()

    def take(self, t: Any, row: Vectors, chance: Vectors, so_far: Any) -> Any:
        for k, own in enumerate(chance):
            self._state[t, k, :] = own
        return so_far

    def finish(self, so_far: Any) -> None:
        return None


class _Row(NamedTuple):
    """A step's data."""

    seen: dict[int, Array]
    """Which lanes have seen each group."""
    numbers: dict[int, Array]
    """By their places in `Lists.features`."""


class GaussianRows:
    """Rows with Gaussian outcomes, as `kernels/gaussian_chain.py` defines them."""

    def __init__(
        self,
        lists: Lists,
        a: Any,
        y: Any,
        seen: Any,
        coef: Any,
        constant: Any,
        weight: Any,
        first: Any,
        sums: Any,
    ) -> None:
        self._lists, self._a, self._y, self._seen = lists, a, y, seen
        self._coef, self._constant, self._weight = coef, constant, weight
        self._first, self._sums = first, sums
        self._n_states, self._n_features = sums.shape[:2]

    def read(self, t: Any) -> _Row:
        lists, n_a = self._lists, self._a.shape[1]
        groups = {
            *lists.groups,
            *(g for g, _, _ in lists.terms),
            *(g for g, _, _ in lists.features),
        }
        numbers = {i for _, *pair in lists.features for i in pair} - {0}
        numbers |= {1 + c for c in lists.columns}
        numbers |= {1 + n_a + j for _, *pair in lists.terms for j in pair}
        numbers -= {1 + lists.constant}
        return _Row(
            {g: self._seen[t, g, :] for g in sorted(groups)},
            {
                i: self._a[t, i - 1, :] if i <= n_a else self._y[t, i - 1 - n_a, :]
                for i in sorted(numbers)
            },
        )

    def densities(self, row: _Row) -> Vectors:
        lists, n_a = self._lists, self._a.shape[1]
        used = sorted({j for _, *pair in lists.terms for j in pair})
        a = [row.numbers.get(1 + c) for c in lists.columns]
        y = {j: row.numbers[1 + n_a + j] for j in used}
        n_outcomes, n_columns = self._y.shape[1], len(lists.columns)
        found = []
        for k in range(self._n_states):
            r = {}
            for j in used:
                place = (k * n_outcomes + j) * n_columns
                r[j] = y[j]
                for c in range(n_columns):
                    own = self._coef[place + c, :]
                    r[j] = r[j] - (own if a[c] is None else own * a[c])
            parts: dict[int, list[Array]] = {}
            for i, g in enumerate(lists.groups):
                parts.setdefault(g, []).append(self._constant[k, i, :])
            for q, (g, i, j) in enumerate(lists.terms):
                parts.setdefault(g, []).append(-self._weight[k, q, :] * (r[i] * r[j]))
            of_group = (
                jnp.where(row.seen[g], reduce(jnp.add, own), 0.0) for g, own in parts.items()
            )
            found.append(reduce(jnp.add, of_group))
        return found

    def nothing(self) -> tuple[Array, ...]:
        zero = jnp.zeros(self._sums.shape[-1:], self._sums.dtype)
        return (zero,) * (self._n_states * self._n_features)

    def take(self, t: Any, row: _Row, chance: Vectors, so_far: Any) -> Any:
        for k, own in enumerate(chance):
            # The last step that comes is the first one: it stays.
            self._first[k, :] = own
        new = list(so_far)
        for f, (g, left, right) in enumerate(self._lists.features):
            factors = [row.numbers[i] for i in (left, right) if i in row.numbers]
            for k, own in enumerate(chance):
                weighed = jnp.where(row.seen[g], reduce(jnp.multiply, [own, *factors]), 0.0)
                place = k * self._n_features + f
                new[place] = new[place] + weighed
        return tuple(new)

    def finish(self, so_far: Any) -> None:
        for place, total in enumerate(so_far):
            self._sums[place // self._n_features, place % self._n_features, :] = total
