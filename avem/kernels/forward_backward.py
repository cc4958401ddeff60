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

from avem.kernels import forward_backward_cpp as hmm_native


class Posterior(NamedTuple):
    """What forward-backward knows of the chains of all lanes."""

    loglik: Float[Array, " lane"]
    """log p(D | f) of each lane; not finite where the scaled form underflowed."""
    state: Float[Array, "time state lane"]
    """p(U_t = k | D, f), the paper's zeta; 0 at padded steps."""
    pair: Float[Array, "cell state state lane"]
    """p(U_{t-1} = k, U_t = l | D, f), the paper's xi, summed over the steps t of each cell."""


class Steps(NamedTuple):
    """How the pair probabilities of the steps are summed: cell of each step, number of cells.

    The default puts all steps into one cell. With ``n_cells`` 0, every step is its own cell.
    """

    cell: Int[Array, "time lane"] | None = None
    n_cells: int = 1


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
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    form: str = "scaled",
    steps: Steps | None = None,
) -> Posterior:
    """Posterior state and pair probabilities and log likelihood of every lane (eq. hmm_posterior).

    ``transition`` is one matrix, one per lane (last axis), or one per step and lane: entry t moves
    from t-1 to t. ``form`` is ``"scaled"`` or ``"log"``; they agree wherever the scaled one does
    not underflow. The scaled one has no derivatives where a native kernel computes it.
    """
    table, steps = jnp.asarray(table), Steps() if steps is None else steps
    target = hmm_native.target_for(table) if form == "scaled" else None
    if target is None:
        return smooth_by_scan(initial, transition, table, valid, form, steps)
    return Posterior(*hmm_native.smooth(target, initial, transition, table, valid, *steps))


def smooth_by_scan(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    form: str = "scaled",
    steps: Steps | None = None,
) -> Posterior:
    """The definition of `smooth`."""
    algebra = _ALGEBRAS[form]
    steps = Steps() if steps is None else steps
    n_states, n_lanes = table.shape[1:]
    states = range(n_states)
    moves = _moves(algebra, transition)
    emission, loglik, filtered, norm = _forward(algebra, initial, moves, table, valid)

    def backward(carry, now):
        ahead, pair = carry  # ahead[l] = e_{t+1}(l) b_{t+1}(l) / norm_{t+1}
        here, e_t, norm_t, valid_t, goes_on, move, cell = now
        step = moves.here(move)
        reach = [[algebra.times(step[k][m], ahead[m]) for m in states] for k in states]
        beta = [jnp.where(goes_on, algebra.total(reach[k]), algebra.one) for k in states]
        moved = tuple(
            jnp.where(goes_on, algebra.leave(algebra.times(here[k], reach[k][m])), 0.0)
            for k in states
            for m in states
        )
        pair = tuple(
            total + (part if cell is None else jnp.where(cell == c, part, 0.0))
            for c in range(steps.n_cells)
            for part, total in zip(moved, pair[c * n_states**2 :], strict=False)
        )
        ahead = tuple(algebra.over(algebra.times(e_t[k], beta[k]), norm_t) for k in states)
        state = tuple(
            jnp.where(valid_t, algebra.leave(algebra.times(here[k], beta[k])), 0.0) for k in states
        )
        return (ahead, pair), (state, None if steps.n_cells else moved)

    nothing = jnp.zeros(n_lanes, table.dtype)
    goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
    cell = None if steps.cell is None else _following(steps.cell)
    (_, pair), (state, each) = lax.scan(
        backward,
        ((nothing,) * n_states, (nothing,) * (n_states**2 * steps.n_cells)),
        (filtered, emission, norm, valid, goes_on, moves.following, cell),
        reverse=True,
    )
    if each is None:
        pairs = jnp.stack(pair)
    else:  # the step into t+1 was met at t
        pairs = jnp.roll(jnp.stack(each, axis=1), 1, axis=0)
    pairs = pairs.reshape(-1, n_states, n_states, n_lanes)
    # The backward pass can overflow where the forward one does not: one flag for both.
    is_finite = jnp.isfinite(pairs).all((0, 1, 2))
    return Posterior(
        loglik=jnp.where(is_finite, loglik, jnp.nan),
        state=jnp.stack(state, axis=1),
        pair=pairs,
    )


class _Moves(NamedTuple):
    """Transition probabilities as the recursions read them, at time t for the step t -> t+1."""

    constant: list[list[Array]] | None
    following: tuple[tuple[Array, ...], ...] | None

    def here(self, scanned) -> Sequence[Sequence[Array]]:
        return scanned if self.constant is None else self.constant


def _moves(algebra: Algebra, transition: Array) -> _Moves:
    entries = algebra.enter(jnp.asarray(transition))
    if entries.ndim < 4:
        return _Moves([list(row) for row in entries], None)
    states = range(entries.shape[1])
    shifted = _following(entries)
    return _Moves(None, tuple(tuple(shifted[:, k, m] for m in states) for k in states))


def _following(values: Array) -> Array:
    """At every time the value of the next; the last one is not used."""
    return jnp.concatenate([values[1:], values[-1:]])


def _forward(algebra, initial, moves, table, valid):
    """Filtered probabilities, their normalisers, and the log likelihood (eq. forward_update).

    The log likelihood is added up step by step, so that padding cannot change its last bit.
    """
    n_states, n_lanes = table.shape[1:]
    states = range(n_states)
    # The largest emission of each step is taken out so that exp never overflows.
    scale = table.max(axis=1)
    emission = tuple(algebra.exponential(table[:, k] - scale) for k in states)

    def forward(carry, now):
        predicted, total = carry
        e_t, valid_t, move, scale_t = now
        step = moves.here(move)
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
        total = total + jnp.where(valid_t, scale_t + algebra.log(norm_t), 0.0)
        return (predicted, total), (here, norm_t)

    entry = algebra.enter(jnp.asarray(initial))
    start = tuple(jnp.broadcast_to(entry[k], (n_lanes,)).astype(table.dtype) for k in states)
    (_, loglik), (filtered, norm) = lax.scan(
        forward, (start, jnp.zeros(n_lanes, table.dtype)), (emission, valid, moves.following, scale)
    )
    return emission, loglik, filtered, norm


def states_given(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    kind: str,
) -> tuple[Float[Array, "time state lane"], Float[Array, " lane"]]:
    """State probabilities that do not know the step itself, and the log likelihood.

    ``kind`` is ``"before"``: p(U_t | steps before t), or ``"others"``: p(U_t | all steps but t).
    The second is not had from the posterior by dividing by the step's own density, which may have
    left nothing of the other states.
    """
    algebra = _ALGEBRAS["log"]
    states = range(table.shape[1])
    moves = _moves(algebra, transition)
    emission, loglik, filtered, norm = _forward(algebra, initial, moves, table, valid)
    step = moves.here(moves.following)
    after = [algebra.total([filtered[k] + step[k][m] for k in states]) for m in states]
    entry = jnp.log(jnp.asarray(initial))
    first = [jnp.broadcast_to(entry[k], (1, table.shape[2])) for k in states]
    weight = jnp.stack([jnp.concatenate([first[k], after[k][:-1]]) for k in states], 1)
    if kind == "others":

        def backward(ahead, now):
            e_t, norm_t, goes_on, move = now
            step = moves.here(move)
            beta = tuple(
                jnp.where(goes_on, algebra.total([step[k][m] + ahead[m] for m in states]), 0.0)
                for k in states
            )
            return tuple(e_t[k] + beta[k] - norm_t for k in states), beta

        goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
        nothing = (jnp.zeros(table.shape[2], table.dtype),) * len(states)
        scanned = (emission, norm, goes_on, moves.following)
        _, beta = lax.scan(backward, nothing, scanned, reverse=True)
        weight = weight + jnp.stack(beta, 1)
    chance = jnp.exp(weight - _log_total([weight[:, k] for k in states])[:, None])
    return jnp.where(valid[:, None], chance, 0.0), loglik


def viterbi(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
) -> tuple[Int[Array, "time lane"], Float[Array, " lane"]]:
    """Most probable path of each lane and its log p(D, U); padded steps repeat a state."""
    n_states = table.shape[1]
    log_transition = jnp.log(_with_lanes(transition))
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


def _with_lanes(transition: Array) -> Array:
    transition = jnp.asarray(transition)
    return transition[:, :, None] if transition.ndim == 2 else transition


def sample_paths(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    uniform: Float[Array, "time lane"],
) -> Int[Array, "time lane"]:
    """One draw of every lane's path from p(U | D, f), from given uniform numbers.

    Forward filtering, backward sampling. Padded steps are 0.
    """
    algebra = _ALGEBRAS["scaled"]
    _, _, filtered, _ = _forward(algebra, initial, _moves(algebra, transition), table, valid)
    by_lane = _with_lanes(transition)
    over_time = by_lane.ndim == 4
    lanes = jnp.arange(table.shape[2])

    def backward(following, now):
        here, valid_t, goes_on, u, move = now
        # Weight of state k now: filtered[k] * transition[k, state that follows].
        step = move if over_time else by_lane
        into = step[:, following, lanes if step.shape[-1] > 1 else 0]
        weight = here * jnp.where(goes_on, into, 1.0)
        mass = jnp.cumsum(weight, axis=0)
        drawn = (u * mass[-1] > mass).sum(0)
        drawn = jnp.where(valid_t, drawn, 0)
        return drawn, drawn

    goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
    start = jnp.zeros(table.shape[2], int)
    moves = _following(by_lane) if over_time else None
    scanned = (jnp.stack(filtered, 1), valid, goes_on, uniform, moves)
    _, path = lax.scan(backward, start, scanned, reverse=True)
    return path
