"""Forward and backward pass of hidden Markov chains, a block of lanes per program.

The recursions of `kernels/forward_backward.py`, whose scans are the definition: every lane is one
thread, a step's numbers are vectors over the lanes of a block, and the loop over time is inside the
kernel. Filtered probabilities go to memory and come back. The backward pass needs no densities: a
state's smoothed probability follows from its filtered one, and from how much the rows ahead raise
the chances of where it may go next. Where densities come from and what becomes of the state
probabilities is for `BlockRows` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array, lax

Vectors = Sequence[Array]


class BlockRows(Protocol):
    """The data of a block of lanes."""

    def read(self, t: Any) -> Any:
        """The numbers of step t, which the other functions are handed."""
        ...

    def densities(self, row: Any) -> Vectors:
        """Log densities of a step in every state."""
        ...

    def nothing(self) -> Any:
        """What `take` begins with."""
        ...

    def take(self, t: Any, row: Any, chance: Vectors, so_far: Any) -> Any:
        """State probabilities of step t, the last step first."""
        ...

    def finish(self, so_far: Any) -> None:
        """After all steps."""
        ...


class Chain(NamedTuple):
    """References to what describes the chains, and to where their results go."""

    initial: Any
    transition: Any
    """(1 or time, state, state, 1 or lane)."""
    valid: Any
    cell: Any
    loglik: Any
    pair: Any
    filtered: Any


def run(chain: Chain, rows: BlockRows, n_cells: int) -> None:
    """Both passes of the lanes of a block."""
    n_times, n_states, _ = chain.filtered.shape
    states = range(n_states)
    zero = jnp.zeros(chain.valid.shape[-1:], chain.loglik.dtype)
    varies = chain.transition.shape[0] > 1

    def read_moves(t: Any) -> list[list[Array]]:
        return [[zero + chain.transition[t, k, m, :] for m in states] for k in states]

    fixed = None if varies else read_moves(0)

    def moves(t: Any) -> list[list[Array]]:
        """Of the step into t; of any, where that is too late."""
        return read_moves(jnp.minimum(t, n_times - 1)) if fixed is None else fixed

    def emission(row: Any) -> tuple[Array, list[Array]]:
        log = rows.densities(row)
        top = reduce(jnp.maximum, log)
        return top, [jnp.exp(own - top) for own in log]

    def read(t: Any) -> Any:
        """What a step needs is on its way from memory while the step before it is computed."""
        t = jnp.clip(t, 0, n_times - 1)
        return rows.read(t), chain.valid[t, :]

    def forward(t: Any, carry: Any) -> Any:
        predicted, total, (row, valid) = carry
        ahead_of = read(t + 1)
        top, dense = emission(row)
        joint = [predicted[k] * dense[k] for k in states]
        norm = _sum(joint)
        over = 1.0 / norm
        here = [one * over for one in joint]
        for k in states:
            chain.filtered[t, k, :] = here[k]
        step = moves(t + 1)
        ahead = [_sum([here[k] * step[k][m] for k in states]) for m in states]
        predicted = tuple(jnp.where(valid, ahead[m], predicted[m]) for m in states)
        return predicted, total + jnp.where(valid, top + jnp.log(norm), 0.0), ahead_of

    start = tuple(zero + chain.initial[k, :] for k in states)
    _, loglik, last = lax.fori_loop(0, n_times, forward, (start, zero, read(0)))

    # With the same moves in every step, these are multiplied in at the end.
    simple = not varies and n_cells == 1

    def filtered(t: Any) -> tuple[Array, ...]:
        return tuple(chain.filtered[jnp.maximum(t, 0), k, :] for k in states)

    def backward(i: Any, carry: Any) -> Any:
        ahead, goes_on, pairs, taken, (row, valid), here = carry
        t = n_times - 1 - i
        next_row, next_here = read(t - 1), filtered(t - 1)
        after = jnp.minimum(t + 1, n_times - 1)
        step = moves(t + 1)
        # How much more probable each next state is than it was before its row was seen.
        raised = [_over(ahead[m], _sum([here[k] * step[k][m] for k in states])) for m in states]
        moved = [
            jnp.where(goes_on, here[k] * raised[m] * (1.0 if simple else step[k][m]), 0.0)
            for k in states
            for m in states
        ]
        pairs = _add(chain, pairs, moved, t, after, n_cells)
        back = [_sum([step[k][m] * raised[m] for m in states]) for k in states]
        chance = [
            jnp.where(valid, jnp.where(goes_on, here[k] * back[k], here[k]), 0.0) for k in states
        ]
        taken = rows.take(t, row, chance, taken)
        return tuple(chance), valid, pairs, taken, next_row, next_here

    sums = (zero,) * (max(n_cells, 1) * n_states**2)
    nobody = jnp.zeros_like(last[1])
    begin = ((zero,) * n_states, nobody, sums, rows.nothing(), last, filtered(n_times - 1))
    _, _, pairs, taken, _, _ = lax.fori_loop(0, n_times, backward, begin)
    rows.finish(taken)
    total = _sum(pairs)
    if n_cells:
        for number, pair in enumerate(pairs):
            cell, k, m = number // n_states**2, number // n_states % n_states, number % n_states
            chain.pair[cell, k, m, :] = pair * fixed[k][m] if simple and fixed else pair
    # The backward pass can overflow where the forward one does not: one flag for both.
    chain.loglik[:] = jnp.where(total - total == 0.0, loglik, jnp.nan)


def _add(
    chain: Chain, pairs: Vectors, moved: Vectors, t: Any, after: Any, n_cells: int
) -> tuple[Array, ...]:
    """The pairs of the step into `after` go to its cell, or are stored one by one."""
    n_pairs, n_states = len(moved), chain.filtered.shape[1]
    if not n_cells:
        # The last step has none after it: what it would store is what the first one has, nothing.
        place = lax.rem(t + 1, chain.filtered.shape[0])
        for number, one in enumerate(moved):
            chain.pair[place, number // n_states, number % n_states, :] = one
        return tuple(a + b for a, b in zip(pairs, moved, strict=True))
    if chain.cell is None:
        return tuple(a + b for a, b in zip(pairs, moved, strict=True))
    cell = chain.cell[after, :]
    return tuple(
        total + jnp.where(cell == number // n_pairs, moved[number % n_pairs], 0.0)
        for number, total in enumerate(pairs)
    )


def _over(chance: Array, before: Array) -> Array:
    """Their ratio; 0 where there was no chance."""
    return jnp.where(before > 0.0, chance / before, 0.0)


def _sum(parts: Vectors) -> Array:
    return reduce(jnp.add, parts)
