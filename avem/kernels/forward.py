"""The forward pass over hidden Markov chains, which every function of their states begins with.

The recursions of the paper's Appendix A.1 are written once, over an :class:`Algebra`: probabilities
rescaled at each step (fast), or their logarithms (slower, survives any underflow).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from avem.kernels.lanes import following


class ByCell(NamedTuple):
    """Transition probabilities of steps many of which are alike."""

    chance: Float[Array, "cell state state lane"]
    """With one lane, the same for all."""
    cell: Int[Array, "time lane"]
    """Of each step; any, also one past the end, where there is no step."""


def cells_of(transition: Array | ByCell) -> tuple[Array, Array | None]:
    """Probabilities, and which of them each step has, where that is not plain."""
    return transition if isinstance(transition, ByCell) else (transition, None)


def rows_of(transition: Array | ByCell) -> Array:
    """One matrix, one of each lane, or one of each step and lane."""
    chance, index = cells_of(transition)
    if index is None:
        return chance
    index = jnp.minimum(index, len(chance) - 1)
    if chance.shape[-1] > 1:
        return jnp.take_along_axis(chance, index[:, None, None], axis=0)
    # Read where it is wanted: no table is turned over.
    size = chance.shape[1] ** 2
    at = size * index[:, None] + jnp.arange(size)[:, None]
    rows = chance.reshape(-1).at[at].get(mode="promise_in_bounds")
    return rows.reshape(len(index), *chance.shape[1:3], -1)


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
    exact: bool
    """No density is too small beside that of another state."""


def _identity(x: Array) -> Array:
    return x


def log_total(parts: Sequence[Array]) -> Array:
    top = reduce(jnp.maximum, parts)
    # An impossible event has log probability -inf; -inf - -inf would be NaN.
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    return top + jnp.log(sum(jnp.exp(part - top) for part in parts))


ALGEBRAS = {
    "scaled": Algebra(
        times=jnp.multiply,
        over=jnp.divide,
        total=partial(reduce, jnp.add),
        one=1.0,
        enter=_identity,
        exponential=jnp.exp,
        leave=_identity,
        log=jnp.log,
        exact=False,
    ),
    "log": Algebra(
        times=jnp.add,
        over=jnp.subtract,
        total=log_total,
        one=0.0,
        enter=jnp.log,
        exponential=_identity,
        leave=jnp.exp,
        log=_identity,
        exact=True,
    ),
}


class Moves(NamedTuple):
    """Transition probabilities as the recursions read them, at time t for the step t -> t+1."""

    constant: list[list[Array]] | None
    following: tuple[tuple[Array, ...], ...] | None

    def here(self, scanned) -> Sequence[Sequence[Array]]:
        return scanned if self.constant is None else self.constant


def moves_of(algebra: Algebra, transition: Array) -> Moves:
    entries = algebra.enter(jnp.asarray(transition))
    if entries.ndim < 4:
        return Moves([list(row) for row in entries], None)
    states = range(entries.shape[1])
    shifted = following(entries)
    return Moves(None, tuple(tuple(shifted[:, k, m] for m in states) for k in states))


def forward_pass(algebra, initial, moves, table, valid):
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
        if algebra.exact:
            e_t, more = of_those_there(predicted, e_t)
            scale_t = scale_t + more
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
        return (predicted, total), (here, norm_t, e_t if algebra.exact else None)

    entry = algebra.enter(jnp.asarray(initial))
    start = tuple(jnp.broadcast_to(entry[k], (n_lanes,)).astype(table.dtype) for k in states)
    (_, loglik), (filtered, norm, over_those) = lax.scan(
        forward, (start, jnp.zeros(n_lanes, table.dtype)), (emission, valid, moves.following, scale)
    )
    return over_those or emission, loglik, filtered, norm


def of_those_there(
    predicted: Sequence[Array], density: Sequence[Array]
) -> tuple[tuple[Array, ...], Array]:
    """Log densities over the largest one of a state in which the chain can be, and that one.

    Where another state's is larger by very much, probabilities would be lost in rounding.
    """
    there = [jnp.where(p > -jnp.inf, e, -jnp.inf) for p, e in zip(predicted, density, strict=True)]
    top = reduce(jnp.maximum, there)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    return tuple(e - top for e in there), top
