"""Between the subjects of a chunk and their lanes (one lane is one sequence)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from avem.data._layout import Chunk

Theta = dict[str, Array]


def by_subject(values: Float[Array, "... lane"], chunk: Chunk) -> Float[Array, "... subject"]:
    """Sums over the lanes of each subject."""
    total = jnp.zeros((*values.shape[:-1], chunk.real.shape[0]), values.dtype)
    return total.at[..., chunk.owner].add(values)


def to_lanes(values: Array, chunk: Chunk) -> Array:
    """Values of each subject on its lanes."""
    return values[..., chunk.owner]


def q_on_lanes(mean: Array, cov: Array | None, chunk: Chunk) -> tuple[Array, Array | None]:
    """q of each subject on its lanes."""
    return to_lanes(mean, chunk), None if cov is None else to_lanes(cov, chunk)


def sum_lanes(terms: Any, chunk: Chunk) -> Any:
    """Every array of per-lane terms summed over the lanes of each subject."""
    return jax.tree.map(lambda part: by_subject(part, chunk), terms)
