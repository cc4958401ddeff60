"""Angles around a mean direction: density proportional to exp(concentration cos(y - mean))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import i0e
from scipy import special

from avem.families.base import ANGLE, LOG, Etas, Parameter
from avem.families.univariate import Univariate

# Coefficients of 1/k, 1/k^2, ... in i0e(k) sqrt(2 pi k); exact to rounding from 100.
_SERIES = (1 / 8, 9 / 128, 75 / 1024, 3675 / 32768, 59535 / 262144, 2401245 / 4194304)
_FAR = 100.0


class AngleFamily(Univariate):
    """A direction around a mean one."""

    wanted = "angles in radians, between -pi and pi"
    angular = True

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        """At most a full turn, give or take the rounding of a written 2 pi."""
        return np.abs(y[0]) <= 2 * np.pi + 1e-3

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.column_stack([np.cos(y[0]), np.sin(y[0])])

    def mean(self, eta: Etas) -> np.ndarray:
        return ANGLE.to_natural(eta[0])


@dataclass(frozen=True)
class VonMises(AngleFamily):
    """An angle in radians; the larger the concentration, the closer to the mean angle.

    Examples
    --------
    >>> [p.name for p in avem.VonMises().parameters]
    ['mean', 'concentration']
    """

    name = "von_mises"

    def describe(self) -> str:
        return "von Mises"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("mean", ANGLE), Parameter("concentration", LOG, 1)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        # cos x - 1 = -2 sin(x / 2)^2, which keeps its digits at small angles
        concentration = jnp.exp(eta[1])
        constant = _log_i0e(concentration) + np.log(2 * np.pi)
        return -2.0 * concentration * jnp.sin(0.5 * (y[0] - eta[0])) ** 2 - constant

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        angle, length = mean_vector(y[0])
        length = np.clip(length, 0.01, 1 - 5e-5)
        concentration = length * (2 - length**2) / (1 - length**2)
        return angle, float(np.log(concentration))

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Of the arc from -pi to y."""
        from scipy.stats import vonmises  # which takes long to import

        concentration = np.exp(eta[1])
        ends = (vonmises.cdf(at - eta[0], concentration) for at in (ANGLE.to_natural(y), -np.pi))
        return np.clip(np.subtract(*ends), 0.0, 1.0)

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """The circular one: 1 less the mean of cos(y - mean)."""
        concentration = np.exp(eta[1])
        return 1.0 - special.i1e(concentration) / special.i0e(concentration)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        around, concentration = np.broadcast_arrays(eta[0], np.exp(eta[1]))
        return ANGLE.to_natural(around + rng.vonmises(0.0, concentration))


def _log_i0e(k: Array) -> Array:
    """Log of the scaled Bessel function exp(-k) I0(k), with exact derivatives at any k > 0.

    Those of i0e itself are differences that lose all digits as k grows.
    """
    near = k < _FAR
    small, far = jnp.where(near, k, 1.0), jnp.where(near, _FAR, k)
    inverse, series = 1.0 / far, 0.0
    for coefficient in reversed(_SERIES):
        series = (series + coefficient) * inverse
    return jnp.where(near, jnp.log(i0e(small)), jnp.log1p(series) - 0.5 * jnp.log(2 * np.pi * far))


def mean_vector(y: np.ndarray) -> tuple[float, float]:
    """Angle and length of the mean of the unit vectors in the directions `y`."""
    mean = np.exp(1j * y).mean()
    return float(np.angle(mean)), float(np.abs(mean))
