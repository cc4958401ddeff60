"""The most probable paths of hidden Markov chains, a lane per thread; see `kernels/viterbi.py`."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax


class Chains(NamedTuple):
    """References to logarithms of chances and densities, and to where results go."""

    initial: Any
    transition: Any
    """(1 or time, state, state, 1 or lane)."""
    table: Any
    valid: Any
    height: Any
    path: Any
    came_from: Any
    """(time, state, lane)."""


def run(refs: Chains) -> None:
    """Both passes of the lanes of a block."""
    n_times, n_states, _ = refs.table.shape
    states = range(n_states)
    zero = jnp.zeros(refs.valid.shape[-1:], refs.table.dtype)
    nobody = jnp.zeros(refs.valid.shape[-1:], jnp.int32)
    varies = refs.transition.shape[0] > 1

    def forward(t: Any, best: tuple[Array, ...]) -> tuple[Array, ...]:
        valid, new = refs.valid[t, :] != 0, []
        for m in states:
            row = t if varies else 0
            through = [best[k] + refs.transition[row, k, m, :] for k in states]
            top, origin = through[0], nobody
            for k in range(1, n_states):
                higher = through[k] > top
                top = jnp.where(higher, through[k], top)
                origin = jnp.where(higher, k, origin)
            refs.came_from[t, m, :] = jnp.where(valid, origin, m)
            moved = jnp.where(t == 0, best[m], top) + refs.table[t, m, :]
            new.append(jnp.where(valid, moved, best[m]))
        return tuple(new)

    start = tuple(zero + refs.initial[k, :] for k in states)
    best = lax.fori_loop(0, n_times, forward, start)
    height = reduce(jnp.maximum, best)
    refs.height[:] = height
    # Of states that are as high as each other, the first.
    last = nobody
    for k in reversed(states):
        last = jnp.where(best[k] == height, k, last)

    def backward(i: Any, state: Array) -> Array:
        t = n_times - 1 - i
        refs.path[t, :] = state
        before = nobody
        for k in states:
            before = jnp.where(state == k, refs.came_from[t, k, :], before)
        return before

    lax.fori_loop(0, n_times, backward, last)
