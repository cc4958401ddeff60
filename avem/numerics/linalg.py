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
        columns = _cholesky_columns(matrix)
        half = _inverse_rows(columns)
        inverse = jnp.asarray(sum(row[:, None] * row[None] for row in half))
        pivots = jnp.stack([column[j] for j, column in enumerate(columns)])
        return inverse, 2.0 * jnp.log(pivots).sum(0)

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
        return jnp.stack(_cholesky_columns(matrix), axis=1)
    low, zero = _unrolled_cholesky(matrix), jnp.zeros_like(matrix[0, 0])
    rows = [jnp.stack([low[i][j] if j <= i else zero for j in range(d)]) for i in range(d)]
    return jnp.stack(rows)


def _cholesky_columns(matrix: Float[Array, "d d batch"]) -> list[Float[Array, "d batch"]]:
    """The factor column by column, 0 above the diagonal.

    Not by LAPACK, for speed, and because compiled calls of it from several threads at once wait for
    each other for ever.
    """
    columns: list[Array] = []
    for j in range(matrix.shape[0]):
        rest = matrix[j:, j]
        for known in columns:
            rest = rest - known[j:] * known[j]
        own = rest / jnp.sqrt(rest[0])
        columns.append(jnp.concatenate([jnp.zeros_like(matrix[:j, j]), own]))
    return columns


def _inverse_rows(columns: list[Float[Array, "d batch"]]) -> list[Float[Array, "d batch"]]:
    """The rows of the factor's inverse, by forward substitution."""
    rows: list[Array] = []
    for i, column in enumerate(columns):
        row = jnp.zeros_like(column).at[i].set(1.0)
        for known, other in zip(rows, columns, strict=False):
            row = row - other[i] * known
        rows.append(row / column[i])
    return rows


def _unrolled_cholesky(matrix: Float[Array, "d d batch"]) -> list[list[Array]]:
    """The factor's entries, row by row; what stands above the diagonal has no meaning."""
    d = matrix.shape[0]
    low: list[list[Array]] = [[matrix[0, 0]] * d for _ in range(d)]
    for i in range(d):
        for j in range(i + 1):
            rest = matrix[i, j] - sum(low[i][m] * low[j][m] for m in range(j))
            low[i][j] = jnp.sqrt(rest) if i == j else rest / low[j][j]
    return low
