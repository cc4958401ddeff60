"""Forward-backward over hidden Markov chains: tables of log densities in, moments out.

Every function takes a *table* of log densities, ``table[t, k, n] = log p(y_t | state k)``, for many
sequences ("lanes") at once. Lanes are the last axis and the states are unrolled into separate
``(n_lanes,)`` vectors: XLA then fuses each time step into a few long vector loops.

A lane may be shorter than the table: ``valid`` marks its steps. A padded step leaves the recursion
as it was and contributes exactly 0 to every sum. A missing observation is not a padded step: it is
a valid step whose table entries are 0 for all states.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from avem.kernels.dispatch import engine
from avem.kernels.forward import (
    ALGEBRAS,
    ByCell,
    forward_pass,
    log_total,
    moves_of,
    rows_of,
)
from avem.kernels.lanes import following, has_next


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
    together: bool = False
    """Summed over lanes, too, of which one is left."""


def smooth(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"] | ByCell,
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    form: str = "scaled",
    steps: Steps | None = None,
) -> Posterior:
    """Posterior state and pair probabilities and log likelihood of every lane (eq. hmm_posterior).

    ``transition`` is one matrix, one per lane (last axis), or one per step and lane: entry t moves
    from t-1 to t; where many of them are alike, `ByCell`. ``form`` is ``"scaled"`` or ``"log"``;
    they agree wherever the scaled one does not underflow. An engine of the scaled one has no
    derivatives.
    """
    table, steps = jnp.asarray(table), Steps() if steps is None else steps
    times, states, lanes = table.shape
    run = None
    if form == "scaled":
        sizes = {"times": times, "lanes": lanes, "cells": steps.n_cells}
        sizes["together"] = int(steps.together)
        run = engine("forward_backward", table.dtype, states=states, **sizes)
    if run is None and steps.together:
        apart = smooth(initial, transition, table, valid, form, Steps(None, 0))
        return apart._replace(pair=by_cell(apart.pair, steps))
    if run is None:
        return definition(initial, rows_of(transition), table, valid, steps, form)
    return Posterior(*run(initial, transition, table, valid, steps))


def by_cell(
    pair: Float[Array, "time state state lane"], steps: Steps
) -> Float[Array, "cell state state 1"]:
    """Sums over the steps of each cell in all lanes; steps of no cell are left out."""
    empty = jnp.zeros((steps.n_cells, *pair.shape[1:3]), pair.dtype)
    return empty.at[steps.cell].add(jnp.moveaxis(pair, -1, 1), mode="drop")[..., None]


def definition(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    steps: Steps,
    form: str = "scaled",
) -> Posterior:
    """What `smooth` computes, by two scans over time."""
    algebra = ALGEBRAS[form]
    n_states, n_lanes = table.shape[1:]
    states = range(n_states)
    moves = moves_of(algebra, transition)
    emission, loglik, filtered, norm = forward_pass(algebra, initial, moves, table, valid)

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
    goes_on = has_next(valid)
    cell = None if steps.cell is None else following(steps.cell)
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
    algebra = ALGEBRAS["log"]
    states = range(table.shape[1])
    moves = moves_of(algebra, transition)
    emission, loglik, filtered, norm = forward_pass(algebra, initial, moves, table, valid)
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

        goes_on = has_next(valid)
        nothing = (jnp.zeros(table.shape[2], table.dtype),) * len(states)
        scanned = (emission, norm, goes_on, moves.following)
        _, beta = lax.scan(backward, nothing, scanned, reverse=True)
        weight = weight + jnp.stack(beta, 1)
    chance = jnp.exp(weight - log_total([weight[:, k] for k in states])[:, None])
    return jnp.where(valid[:, None], chance, 0.0), loglik
