"""Logarithms of probabilities that may be 0."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def safe_log(chances: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The logarithm, and 0 for what never happens."""
    possible = chances > 0
    return jnp.where(possible, jnp.log(jnp.where(possible, chances, 1.0)), 0.0)
