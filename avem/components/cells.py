"""Rows that look alike, gathered into cells: what few different rows cost is paid once."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

_FEW = 8


def from_cells(cells: Array, index: Array) -> Array:
    """Values (cell, ..., lane) on the rows (time, ..., lane) of each cell, 0 on other rows."""
    index = index.reshape(len(index), *[1] * (cells.ndim - 2), index.shape[-1])
    if len(cells) > _FEW:
        padded = jnp.pad(cells, [(0, 1)] + [(0, 0)] * (cells.ndim - 1))
        return jnp.take_along_axis(padded, index, axis=0)
    # A few selections are much faster than a gather.
    parts = [jnp.where(index == c, cells[c][None], 0.0) for c in range(len(cells))]
    return sum(parts[1:], parts[0])


def in_cells(rows: Array, index: Array, n_cells: int) -> Array:
    """(cell, ..., lane) sums over the rows (time, ..., lane) of each cell."""
    index = index.reshape(len(index), *[1] * (rows.ndim - 2), index.shape[-1])

    def total(cell: Array | int) -> Array:
        return jnp.where(index == cell, rows, 0.0).sum(0)

    if n_cells > _FEW:  # written out, it takes long to compile
        return lax.map(total, jnp.arange(n_cells))
    return jnp.stack([total(cell) for cell in range(n_cells)])
