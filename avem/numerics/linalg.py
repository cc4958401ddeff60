"""Many small symmetric matrices at once, the batch on the last axis.

LAPACK takes about a microsecond for each small matrix; unrolled loops over the entries, vectorised
over the batch, take a few nanoseconds. Above `_UNROLL` rows the code would be long to compile.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

_UNROLL = 6


def inverse_and_logdet(
    matrix: Float[Array, "d d batch"],
) -> tuple[Float[Array, "d d batch"], Float[Array, " batch"]]:
    """Inverse and log determinant of every positive definite matrix of the batch."""
    d = matrix.shape[0]
    if d > _UNROLL:
        batch_first = jnp.moveaxis(matrix, -1, 0)
        factor = jnp.linalg.cholesky(batch_first)
        half = jnp.linalg.inv(factor)
        logdet = 2.0 * jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)).sum(-1)
        return jnp.moveaxis(jnp.swapaxes(half, 1, 2) @ half, 0, -1), logdet

    low = _unrolled_cholesky(matrix)
    # The factor's inverse by forward substitution.
    zero = jnp.zeros_like(matrix[0, 0])
    half = [[zero] * d for _ in range(d)]
    for j in range(d):
        half[j][j] = 1.0 / low[j][j]
        for i in range(j + 1, d):
            half[i][j] = -sum(low[i][m] * half[m][j] for m in range(j, i)) / low[i][i]
    inverse = [
        [sum((half[m][i] * half[m][j] for m in range(max(i, j), d)), zero) for j in range(d)]
        for i in range(d)
    ]
    logdet = 2.0 * sum(jnp.log(low[i][i]) for i in range(d))
    return jnp.stack([jnp.stack(row) for row in inverse]), jnp.asarray(logdet)


def cholesky(matrix: Float[Array, "d d batch"]) -> Float[Array, "d d batch"]:
    """Lower Cholesky factor of every positive definite matrix of the batch."""
    d = matrix.shape[0]
    if d > _UNROLL:
        return jnp.moveaxis(jnp.linalg.cholesky(jnp.moveaxis(matrix, -1, 0)), 0, -1)
    low, zero = _unrolled_cholesky(matrix), jnp.zeros_like(matrix[0, 0])
    rows = [jnp.stack([low[i][j] if j <= i else zero for j in range(d)]) for i in range(d)]
    return jnp.stack(rows)


def _unrolled_cholesky(matrix: Float[Array, "d d batch"]) -> list[list[Array]]:
    """The factor's entries, row by row; what stands above the diagonal has no meaning."""
    d = matrix.shape[0]
    low: list[list[Array]] = [[matrix[0, 0]] * d for _ in range(d)]
    for i in range(d):
        for j in range(i + 1):
            rest = matrix[i, j] - sum(low[i][m] * low[j][m] for m in range(j))
            low[i][j] = jnp.sqrt(rest) if i == j else rest / low[j][j]
    return low
