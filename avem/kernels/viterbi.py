"""The most probable paths of hidden Markov chains, on tables as in `forward_backward`."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from avem.kernels.dispatch import engine


def viterbi(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
) -> tuple[Int[Array, "time lane"], Float[Array, " lane"]]:
    """Most probable path of each lane and its log p(D, U); padded steps repeat a state."""
    times, states, lanes = table.shape
    run = engine("viterbi", table.dtype, states=states, times=times, lanes=lanes)
    path, height = (run or definition)(initial, transition, table, valid)
    return path, height


def definition(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
) -> tuple[Int[Array, "time lane"], Float[Array, " lane"]]:
    """What `viterbi` computes, by two scans over time."""
    n_states = table.shape[1]
    log_transition = jnp.log(jnp.asarray(transition))
    if log_transition.ndim == 2:
        log_transition = log_transition[:, :, None]
    over_time = log_transition.ndim == 4

    def forward(best, now):
        table_t, valid_t, first, move = now
        through = best[:, None] + (move if over_time else log_transition)  # (from, to, lane)
        came_from = jnp.where(valid_t, through.argmax(0), jnp.arange(n_states)[:, None])
        moved = jnp.where(first, best, through.max(0)) + table_t
        return jnp.where(valid_t, moved, best), came_from

    entry = jnp.log(jnp.asarray(initial))
    start = jnp.broadcast_to(entry if entry.ndim > 1 else entry[:, None], table.shape[1:])
    first = jnp.arange(len(table)) == 0
    scanned = (table, valid, first, log_transition if over_time else None)
    best, came_from = lax.scan(forward, start, scanned)

    def backward(state, back):
        previous = jnp.take_along_axis(back, state[None], axis=0)[0]
        return previous, state

    last = best.argmax(0)
    _, path = lax.scan(backward, last, came_from, reverse=True)
    return path, best.max(0)
