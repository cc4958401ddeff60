"""Angles with heavy tails: a Cauchy variable wrapped around the circle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.families.base import ANGLE, LOGIT, Etas, Parameter
from avem.families.von_mises import AngleFamily, mean_vector


@dataclass(frozen=True)
class WrappedCauchy(AngleFamily):
    """An angle in radians; the concentration is the mean of cos(y - mean), from 0 to 1.

    Examples
    --------
    >>> [p.name for p in avem.WrappedCauchy().parameters]
    ['mean', 'concentration']
    """

    name = "wrapped_cauchy"

    def describe(self) -> str:
        return "wrapped Cauchy"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("mean", ANGLE), Parameter("concentration", LOGIT)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        # (1 - c^2) / (1 + c^2 - 2 c cos x) in the odds c / (1 - c): no difference is left
        odds = jnp.exp(eta[1])
        top, slope = jnp.log1p(2.0 * odds) - np.log(2 * np.pi), 4.0 * odds * (1.0 + odds)
        return top - jnp.log1p(slope * jnp.sin(0.5 * (y[0] - eta[0])) ** 2)

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        angle, length = mean_vector(y[0])
        return angle, float(LOGIT.to_eta(np.clip(length, 0.01, 0.999)))

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Of the arc from -pi to y."""
        stretch = 1.0 + 2.0 * np.exp(eta[1])

        def turned(angle: Any) -> np.ndarray:
            turns = np.round(angle / (2 * np.pi))
            return turns + np.arctan(stretch * np.tan(angle / 2 - np.pi * turns)) / np.pi

        found = turned(ANGLE.to_natural(y) - eta[0]) - turned(-np.pi - np.asarray(eta[0]))
        return np.clip(found, 0.0, 1.0)

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """The circular one: 1 less the mean of cos(y - mean)."""
        return LOGIT.to_natural(-np.asarray(eta[1]))

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        # a uniform angle, drawn towards the mean by a map of the circle onto itself
        around, odds = np.broadcast_arrays(eta[0], np.exp(eta[1]))
        uniform = np.pi * (rng.random(around.shape) - 0.5)
        return ANGLE.to_natural(around + 2 * np.arctan(np.tan(uniform) / (1 + 2 * odds)))
