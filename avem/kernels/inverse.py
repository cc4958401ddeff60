"""Many small symmetric matrices at once, the batch on the last axis.

LAPACK takes about a microsecond for each small matrix; unrolled loops over the entries, vectorised
over the batch, take a few nanoseconds. Above `_UNROLL` rows the code would be long to compile, and
loops that stay loops take over.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from avem.kernels.dispatch import engine
from avem.kernels.matrices import Unrolled

_UNROLL = 6
"""Up to this size, matrices are written out entry by entry."""


def inverse_and_logdet(
    matrix: Float[Array, "d d batch"],
) -> tuple[Float[Array, "d d batch"], Float[Array, " batch"]]:
    """Inverse and log determinant of every positive definite matrix of the batch."""
    run = engine("inverse", matrix.dtype, rows=len(matrix), lanes=matrix.shape[-1])
    inverse, logdet = (run or definition)(matrix)
    return inverse, logdet


def definition(
    matrix: Float[Array, "d d batch"],
) -> tuple[Float[Array, "d d batch"], Float[Array, " batch"]]:
    """What `inverse_and_logdet` computes, from Cholesky factors."""
    if matrix.shape[0] > _UNROLL:
        low = _looped_cholesky(matrix)
        return _looped_inverse(low), 2.0 * jnp.log(jnp.diagonal(low)).sum(-1)
    inverse, logdet = Unrolled.of(matrix).inverse_and_logdet()
    return inverse.unpack(), logdet


def cholesky(matrix: Float[Array, "d d batch"]) -> Float[Array, "d d batch"]:
    """Lower Cholesky factor of every positive definite matrix of the batch."""
    if matrix.shape[0] > _UNROLL:
        return _looped_cholesky(matrix)
    return Unrolled.of(matrix).cholesky().unpack()


def lower_solve(
    low: Float[Array, "d d batch"], right: Float[Array, "node d batch"]
) -> Float[Array, "node d batch"]:
    """L^-1 r of every right side, by forward substitution."""

    def entry(i: Array, found: Array) -> Array:
        rest = right[:, i] - (low[i] * found).sum(1)
        return found.at[:, i].set(rest / low[i, i])

    return lax.fori_loop(0, low.shape[0], entry, jnp.zeros_like(right))


def _looped_cholesky(matrix: Float[Array, "d d batch"]) -> Float[Array, "d d batch"]:
    """The factor, column by column.

    Not by LAPACK, for speed, and because compiled calls of it from several threads at once wait for
    each other for ever.
    """
    below = np.arange(matrix.shape[0])[:, None]

    def column(j: Array, low: Array) -> Array:
        rest = matrix[:, j] - (low * low[j]).sum(1)
        return low.at[:, j].set(jnp.where(below >= j, rest / jnp.sqrt(rest[j]), 0.0))

    return lax.fori_loop(0, matrix.shape[0], column, jnp.zeros_like(matrix))


def _looped_inverse(low: Float[Array, "d d batch"]) -> Float[Array, "d d batch"]:
    """The inverse of L L', by forward substitution of the factor."""
    d = low.shape[0]
    unit = jnp.broadcast_to(jnp.eye(d, dtype=low.dtype)[:, :, None], low.shape)

    def row(i: Array, half: Array) -> Array:
        known = (low[i][:, None] * half).sum(0)
        return half.at[i].set((unit[i] - known) / low[i, i])

    half = lax.fori_loop(0, d, row, jnp.zeros_like(low))

    def add(i: Array, total: Array) -> Array:
        return total + half[i][:, None] * half[i][None]

    return lax.fori_loop(0, d, add, jnp.zeros_like(low))
