"""Between the subjects of a chunk and their lanes (one lane is one sequence)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from avem.data.layout import Chunk

Theta = dict[str, Array]


def by_subject(values: Float[Array, "... lane"], chunk: Chunk) -> Float[Array, "... subject"]:
    """Sums over the lanes of each subject."""
    n = chunk.real.shape[0]
    if values.shape[-1] == n:  # everyone has one sequence
        return values
    return jnp.zeros((*values.shape[:-1], n), values.dtype).at[..., chunk.owner].add(values)


def all_by_subject(parts: Sequence[Float[Array, "... lane"]], chunk: Chunk) -> list[Array]:
    """`by_subject` of several arrays in one addition, which is faster."""
    n = chunk.valid.shape[-1]
    if n == chunk.real.shape[0]:
        return list(parts)
    rows = by_subject(jnp.concatenate([part.reshape(-1, n) for part in parts]), chunk)
    ends = np.cumsum([part.size // n for part in parts])
    pairs = zip(parts, jnp.split(rows, ends[:-1]), strict=True)
    return [found.reshape(*part.shape[:-1], rows.shape[-1]) for part, found in pairs]


def to_lanes(values: Array, chunk: Chunk) -> Array:
    """Values of each subject on its lanes."""
    one_each = chunk.owner.shape == chunk.real.shape
    return values if one_each else values[..., chunk.owner]


def q_on_lanes(mean: Array, cov: Array | None, chunk: Chunk) -> tuple[Array, Array | None]:
    """q of each subject on its lanes."""
    return to_lanes(mean, chunk), None if cov is None else to_lanes(cov, chunk)


def sum_lanes(terms: Any, chunk: Chunk) -> Any:
    """Every array of per-lane terms summed over the lanes of each subject."""
    return jax.tree.map(lambda part: by_subject(part, chunk), terms)
