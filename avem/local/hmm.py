"""One subject's hidden Markov chain given its parameters: tables in, moments out.

Every function takes a *table* of log densities, ``table[t, k, n] = log p(y_t | state k)``, for many
sequences ("lanes") at once. Lanes are the last axis and the states are unrolled into separate
``(n_lanes,)`` vectors: XLA then fuses each time step into a few long vector loops.

A lane may be shorter than the table: ``valid`` marks its steps. A padded step leaves the recursion
as it was and contributes exactly 0 to every sum. A missing observation is not a padded step: it is
a valid step whose table entries are 0 for all states.

The recursions of the paper's Appendix A.1 are written once, over an :class:`Algebra`: probabilities
rescaled at each step (fast), or their logarithms (slower, survives any underflow).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int


class Posterior(NamedTuple):
    """What forward-backward knows of the chains of all lanes."""

    loglik: Float[Array, " lane"]
    """log p(D | f) of each lane; not finite where the scaled form underflowed."""
    state: Float[Array, "time state lane"]
    """p(U_t = k | D, f), the paper's zeta; 0 at padded steps."""
    pair: Float[Array, "state state lane"]
    """Sum over t of p(U_{t-1} = k, U_t = l | D, f), the paper's xi."""


class Algebra(NamedTuple):
    """How probabilities are represented: as themselves, or by their logarithms."""

    times: Callable[[Array, Array], Array]
    over: Callable[[Array, Array], Array]
    total: Callable[[Sequence[Array]], Array]
    one: float
    enter: Callable[[Array], Array]
    """From a probability."""
    exponential: Callable[[Array], Array]
    """From the logarithm of a probability."""
    leave: Callable[[Array], Array]
    """To a probability."""
    log: Callable[[Array], Array]
    """To the logarithm of a probability."""


def _identity(x: Array) -> Array:
    return x


def _log_total(parts: Sequence[Array]) -> Array:
    top = reduce(jnp.maximum, parts)
    # An impossible event has log probability -inf; -inf - -inf would be NaN.
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    return top + jnp.log(sum(jnp.exp(part - top) for part in parts))


_ALGEBRAS = {
    "scaled": Algebra(
        times=jnp.multiply,
        over=jnp.divide,
        total=partial(reduce, jnp.add),
        one=1.0,
        enter=_identity,
        exponential=jnp.exp,
        leave=_identity,
        log=jnp.log,
    ),
    "log": Algebra(
        times=jnp.add,
        over=jnp.subtract,
        total=_log_total,
        one=0.0,
        enter=jnp.log,
        exponential=_identity,
        leave=jnp.exp,
        log=_identity,
    ),
}


def smooth(
    initial: Float[Array, " state"],
    transition: Float[Array, "state state"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    form: str = "scaled",
) -> Posterior:
    """Posterior state and pair probabilities and log likelihood of every lane (eq. hmm_posterior).

    ``form`` is ``"scaled"`` or ``"log"``; they agree wherever the scaled one does not underflow.
    """
    algebra = _ALGEBRAS[form]
    n_states, n_lanes = table.shape[1:]
    states = range(n_states)
    step = _unpack(algebra.enter(transition))
    emission, scale, filtered, norm = _forward(algebra, initial, step, table, valid)

    def backward(carry, now):
        ahead, pair = carry  # ahead[l] = e_{t+1}(l) b_{t+1}(l) / norm_{t+1}
        here, e_t, norm_t, valid_t, goes_on = now
        reach = [[algebra.times(step[k][m], ahead[m]) for m in states] for k in states]
        beta = [jnp.where(goes_on, algebra.total(reach[k]), algebra.one) for k in states]
        pair = tuple(
            pair[k * n_states + m]
            + jnp.where(goes_on, algebra.leave(algebra.times(here[k], reach[k][m])), 0.0)
            for k in states
            for m in states
        )
        ahead = tuple(algebra.over(algebra.times(e_t[k], beta[k]), norm_t) for k in states)
        state = tuple(
            jnp.where(valid_t, algebra.leave(algebra.times(here[k], beta[k])), 0.0) for k in states
        )
        return (ahead, pair), state

    nothing = jnp.zeros(n_lanes, table.dtype)
    goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
    (_, pair), state = lax.scan(
        backward,
        ((nothing,) * n_states, (nothing,) * n_states**2),
        (filtered, emission, norm, valid, goes_on),
        reverse=True,
    )
    pairs = jnp.stack(pair).reshape(n_states, n_states, n_lanes)
    # The backward pass can overflow where the forward one does not: one flag for both.
    is_finite = jnp.isfinite(pairs).all((0, 1))
    return Posterior(
        loglik=jnp.where(is_finite, _loglik(algebra, scale, norm, valid), jnp.nan),
        state=jnp.stack(state, axis=1),
        pair=pairs,
    )


def _unpack(transition: Array) -> list[list[Array]]:
    return [list(row) for row in transition]


def _forward(algebra, initial, step, table, valid):
    """Filtered probabilities and their normalisers (eq. forward_update, rescaled at each step)."""
    n_states, n_lanes = table.shape[1:]
    states = range(n_states)
    # The largest emission of each step is taken out so that exp never overflows.
    scale = table.max(axis=1)
    emission = tuple(algebra.exponential(table[:, k] - scale) for k in states)

    def forward(predicted, now):
        e_t, valid_t = now
        joint = [algebra.times(predicted[k], e_t[k]) for k in states]
        norm_t = jnp.where(valid_t, algebra.total(joint), algebra.one)
        here = tuple(algebra.over(joint[k], norm_t) for k in states)
        predicted = tuple(
            jnp.where(
                valid_t,
                algebra.total([algebra.times(here[k], step[k][m]) for k in states]),
                predicted[m],
            )
            for m in states
        )
        return predicted, (here, norm_t)

    start = tuple(
        jnp.broadcast_to(algebra.enter(initial[k]), (n_lanes,)).astype(table.dtype) for k in states
    )
    _, (filtered, norm) = lax.scan(forward, start, (emission, valid))
    return emission, scale, filtered, norm


def _loglik(algebra, scale, norm, valid):
    # A scan, not a sum: it adds the steps in order, so padding cannot change the last bit.
    parts = jnp.where(valid, scale + algebra.log(norm), 0.0)
    return lax.scan(lambda total, part: (total + part, None), jnp.zeros_like(parts[0]), parts)[0]


def viterbi(
    initial: Float[Array, " state"],
    transition: Float[Array, "state state"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
) -> tuple[Int[Array, "time lane"], Float[Array, " lane"]]:
    """Most probable path of each lane and its log p(D, U); padded steps repeat a state."""
    log_transition = jnp.log(transition)

    def forward(best, now):
        table_t, valid_t, first = now
        through = best[:, None] + log_transition[:, :, None]  # (from, to, lane)
        came_from = jnp.where(valid_t, through.argmax(0), jnp.arange(best.shape[0])[:, None])
        moved = jnp.where(first, best, through.max(0)) + table_t
        return jnp.where(valid_t, moved, best), came_from

    start = jnp.broadcast_to(jnp.log(initial)[:, None], table.shape[1:])
    first = jnp.arange(len(table)) == 0
    best, came_from = lax.scan(forward, start, (table, valid, first))

    def backward(state, back):
        previous = jnp.take_along_axis(back, state[None], axis=0)[0]
        return previous, state

    last = best.argmax(0)
    _, path = lax.scan(backward, last, came_from, reverse=True)
    return path, best.max(0)


def sample_paths(
    initial: Float[Array, " state"],
    transition: Float[Array, "state state"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    uniform: Float[Array, "time lane"],
) -> Int[Array, "time lane"]:
    """One draw of every lane's path from p(U | D, f), from given uniform numbers.

    Forward filtering, backward sampling. Padded steps are 0.
    """
    algebra = _ALGEBRAS["scaled"]
    transition = jnp.asarray(transition)
    step = _unpack(transition)
    _, _, filtered, _ = _forward(algebra, initial, step, table, valid)

    def backward(following, now):
        here, valid_t, goes_on, u = now
        # Weight of state k now: filtered[k] * transition[k, state that follows].
        weight = here * jnp.where(goes_on, transition[:, following], 1.0)
        mass = jnp.cumsum(weight, axis=0)
        drawn = (u * mass[-1] > mass).sum(0)
        drawn = jnp.where(valid_t, drawn, 0)
        return drawn, drawn

    goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
    start = jnp.zeros(table.shape[2], int)
    _, path = lax.scan(
        backward, start, (jnp.stack(filtered, 1), valid, goes_on, uniform), reverse=True
    )
    return path
