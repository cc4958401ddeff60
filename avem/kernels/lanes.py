"""Sequences of different lengths side by side ("lanes"); ``valid`` marks the steps of each."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Shaped


def has_next(valid: Bool[Array, "time lane"]) -> Bool[Array, "time lane"]:
    """Whether a step follows each step."""
    return jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])


def following(values: Shaped[Array, "time ..."]) -> Shaped[Array, "time ..."]:
    """The values of the next step at every step; the last ones are not used."""
    return jnp.concatenate([values[1:], values[-1:]])
