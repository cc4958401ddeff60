"""Chains in continuous time: probabilities of moves over intervals, with their slopes in the rates.

The probabilities are those of `numerics/generator.py`. Derivatives are taken forwards, through the
series and its squarings, in one sweep for each kind of move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from avem.kernels.dispatch import engine
from avem.numerics.generator import generators, transition_matrices

Pairs = Sequence[tuple[int, int]]
"""(from, to) of every kind of move there is."""


class Moved(NamedTuple):
    """After an interval."""

    chance: Float[Array, "state state interval"]
    slope: Float[Array, "move state state interval"]
    """In the logarithm of the rate of each kind of move; of none, where slopes are not wanted."""


def over_intervals(
    rates: Float[Array, "move interval"], pairs: Pairs, n_states: int, slopes: bool = False
) -> Moved:
    """Probabilities of being in each state after an interval, given that at its beginning.

    ``rates`` are those of the moves in `pairs`, times the length of the interval.
    """
    run = engine("rates", rates.dtype, states=n_states)
    chance, slope = (run or definition)(rates, pairs, n_states, slopes)
    return Moved(chance, slope)


def definition(rates: Array, pairs: Pairs, n_states: int, slopes: bool) -> Moved:
    """What `over_intervals` computes."""

    def chances(log_factor: Array) -> Array:
        matrix = as_matrix(rates * jnp.exp(log_factor), pairs, n_states)
        return transition_matrices(generators(matrix), _repeated)

    none = jnp.zeros_like(rates)
    if not slopes:
        return Moved(chances(none), jnp.zeros((0, n_states, n_states, none.shape[-1]), none.dtype))
    # Intervals do not mix: one sweep for each move.
    ways = jnp.eye(len(pairs), dtype=rates.dtype)[:, :, None] + none
    slope = jax.vmap(lambda way: jax.jvp(chances, (none,), (way,))[1])(ways)
    return Moved(chances(none), slope)


def as_matrix(rates: Array, pairs: Pairs, n_states: int) -> Array:
    """(from, to, ...) of (move, ...); 0 where there is no move."""
    first, second = np.array(pairs, int).reshape(-1, 2).T
    return jnp.zeros((n_states, n_states, *rates.shape[1:])).at[first, second].set(rates)


def _repeated(n: Any, function: Callable[[Any, Any], Any], x: Any) -> Any:
    return lax.fori_loop(0, n.astype(int), function, x)
