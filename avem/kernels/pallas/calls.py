"""The Pallas kernels as engines: the arguments of a definition, as a kernel reads them."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import Array

from avem.kernels.pallas.chain import Arguments, Chain, Vectors, run

if TYPE_CHECKING:
    from avem.kernels.forward_backward import Steps
    from avem.kernels.gaussian_chain import Lists, Records, Squares

_MOST_SUMS = 160
"""Vectors that a kernel adds to; more do not stay in registers, and are long to compile."""


def forward_backward(states: int, cells: int = 1, **sizes: int):
    """The engine of `forward_backward`, or None where it would have too many sums."""
    return None if cells * states**2 > _MOST_SUMS else _forward_backward


def gaussian_chain(states: int, features: int, cells: int = 1, **sizes: int):
    """The engine of `gaussian_chain`, or None where it would have too many sums."""
    too_many = states * features + cells * states**2 > _MOST_SUMS
    return None if too_many else _gaussian_chain


def _forward_backward(
    initial: Array, transition: Array, table: Array, valid: Array, steps: Steps
) -> tuple[Array, ...]:
    """Log likelihood, state and pair probabilities."""
    n_times, n_states, n = table.shape
    arrays = {**_chain(initial, transition, valid, steps, table.dtype), "table": table}
    results = {**_results(n_times, n_states, steps), "state": (n_times, n_states)}

    def kernel(table, state, **refs: Any) -> None:
        run(Chain(**refs), _Table(table, state), steps.n_cells)

    found = Arguments(arrays).call(kernel, results, n, table.dtype)
    return found["loglik"], found["state"], found["pair"]


def _gaussian_chain(
    initial: Array, transition: Array, squares: Squares, rows: Records, steps: Steps
) -> tuple[Array, ...]:
    """Log likelihood, first state, pairs, and sums of products."""
    (n_times, n), (n_states, n_outcomes, n_columns, _) = rows.valid.shape, squares.coef.shape
    dtype, lists = squares.coef.dtype, squares.lists
    n_features = len(lists.features)
    arrays = {
        **_chain(initial, transition, rows.valid, steps, dtype),
        "a": rows.a,
        "y": rows.y,
        "seen": rows.seen,
        "coef": squares.coef.reshape(n_states * n_outcomes * n_columns, -1),
        "constant": squares.constant[..., None],
        "weight": squares.weight[..., None],
    }
    results = _results(n_times, n_states, steps)
    results |= {"first": (n_states,), "sums": (n_states, n_features)}

    def kernel(a, y, seen, coef, constant, weight, first, sums, **refs: Any) -> None:
        own = _Gaussian(lists, a, y, seen, coef, constant, weight, first, sums)
        run(Chain(**refs), own, steps.n_cells)

    found = Arguments(arrays).call(kernel, results, n, dtype)
    return found["loglik"], found["first"], found["pair"], found["sums"]


def _chain(
    initial: Array, transition: Array, valid: Array, steps: Steps, dtype: Any
) -> dict[str, Any]:
    initial, transition = (jnp.asarray(x, dtype) for x in (initial, transition))
    if transition.ndim == 2:
        transition = transition[..., None]
    cell = None if steps.cell is None or not steps.n_cells else steps.cell.astype(jnp.int32)
    return {
        "initial": initial if initial.ndim == 2 else initial[:, None],
        "transition": transition if transition.ndim == 4 else transition[None],
        "valid": valid,
        "cell": cell,
    }


def _results(n_times: int, n_states: int, steps: Steps) -> dict[str, tuple[int, ...]]:
    pair = (steps.n_cells or n_times, n_states, n_states)
    return {"loglik": (), "pair": pair, "filtered": (n_times, n_states)}


class _Table:
    """Rows whose log densities are given; their state probabilities are wanted."""

    def __init__(self, table: Any, state: Any) -> None:
        self._table, self._state = table, state

    def densities(self, t: Any) -> Vectors:
        return [self._table[t, k, :] for k in range(self._table.shape[1])]

    def nothing(self) -> tuple[()]:
        return ()

    def take(self, t: Any, chance: Vectors, so_far: Any) -> Any:
        for k, own in enumerate(chance):
            self._state[t, k, :] = own
        return so_far

    def finish(self, so_far: Any) -> None:
        return None


class _Gaussian:
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

    def _shown(self, t: Any) -> dict[int, Array]:
        """Which lanes have seen each group."""
        lists = self._lists
        used = {*lists.groups, *(g for g, _, _ in lists.terms), *(g for g, _, _ in lists.features)}
        return {g: self._seen[t, g, :] != 0 for g in sorted(used)}

    def densities(self, t: Any) -> Vectors:
        lists, shown = self._lists, self._shown(t)
        used = sorted({j for _, *pair in lists.terms for j in pair})
        a = [self._a[t, c, :] for c in lists.columns]
        y = {j: self._y[t, j, :] for j in used}
        n_outcomes, n_columns = self._y.shape[1], len(lists.columns)
        found = []
        for k in range(self._n_states):
            r = {}
            for j in used:
                place = (k * n_outcomes + j) * n_columns
                r[j] = y[j]
                for c in range(n_columns):
                    r[j] = r[j] - self._coef[place + c, :] * a[c]
            parts: dict[int, list[Array]] = {}
            for i, g in enumerate(lists.groups):
                parts.setdefault(g, []).append(self._constant[k, i, :])
            for q, (g, i, j) in enumerate(lists.terms):
                parts.setdefault(g, []).append(-self._weight[k, q, :] * (r[i] * r[j]))
            of_group = (jnp.where(shown[g], reduce(jnp.add, own), 0.0) for g, own in parts.items())
            found.append(reduce(jnp.add, of_group))
        return found

    def nothing(self) -> tuple[Array, ...]:
        zero = jnp.zeros(self._sums.shape[-1:], self._sums.dtype)
        return (zero,) * (self._n_states * self._n_features)

    def take(self, t: Any, chance: Vectors, so_far: Any) -> Any:
        for k, own in enumerate(chance):
            # The last step that comes is the first one: it stays.
            self._first[k, :] = own
        shown, numbers, n_a = self._shown(t), {}, self._a.shape[1]

        def number(i: int) -> Any:
            if i not in numbers:
                here = self._a[t, i - 1, :] if i <= n_a else self._y[t, i - 1 - n_a, :]
                numbers[i] = here
            return numbers[i]

        new = list(so_far)
        for f, (g, left, right) in enumerate(self._lists.features):
            factors = [number(i) for i in (left, right) if i]
            for k, own in enumerate(chance):
                weighed = jnp.where(shown[g], reduce(jnp.multiply, [own, *factors]), 0.0)
                place = k * self._n_features + f
                new[place] = new[place] + weighed
        return tuple(new)

    def finish(self, so_far: Any) -> None:
        for place, total in enumerate(so_far):
            self._sums[place // self._n_features, place % self._n_features, :] = total
