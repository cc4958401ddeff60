"""One Gaussian outcome, whose standard deviation has a linear predictor of its own.

Users write a `Gaussian` with a formula for sd; it turns into this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import ndtr

from avem.families.base import IDENTITY, LOG, Etas, Family, Parameter
from avem.families.tails import Tailed, log_normal_tails


@dataclass(frozen=True)
class UnivariateGaussian(Tailed):
    """A real number with mean and standard deviation."""

    name = "normal"
    wanted = "numbers"
    location_scale = True

    def describe(self) -> str:
        return "Gaussian"

    def within(self, other: Family, numbers: tuple[int, int] = (1, 1)) -> bool:
        if other.name == "gaussian":  # terms of the standard deviation are compared as such
            return numbers == (1, 1) or getattr(other, "covariance", "") != "spherical"
        return super().within(other, numbers)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("mean", IDENTITY), Parameter("sd", LOG, -1)

    def code(self) -> str:
        return "avem.Gaussian()"

    @property
    def code_formulas(self) -> dict[str, str]:
        return {"sd": "~ 1"}

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.isfinite(y[0])

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        z = (y[0] - eta[0]) * jnp.exp(-eta[1])
        return -(eta[1] + 0.5 * np.log(2 * np.pi)) - 0.5 * z**2

    def _log_tails(self, y: Array, eta: tuple[Array, ...]) -> tuple[Array, Array]:
        return log_normal_tails((y - eta[0]) * jnp.exp(-eta[1]))

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        return float(y[0].mean()), float(np.log(spread(y[0])))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return y[0][:, None]

    def mean(self, eta: Etas) -> np.ndarray:
        return np.asarray(eta[0])

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        return ndtr((y - np.asarray(eta[0])) * np.exp(-np.asarray(eta[1])))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        return np.exp(2 * np.asarray(eta[1]))

    def _partial_moment(self, power: int, low: Any, high: Any, eta: Etas) -> np.ndarray:
        mean, sd = np.asarray(eta[0]), np.exp(eta[1])
        a, b = (low - mean) / sd, (high - mean) / sd
        share = normal_share(a, b)
        if power == 0:
            return share
        (at_a, far_a), (at_b, far_b) = (_density(z) for z in (a, b))
        first = mean * share + sd * (at_a - at_b)
        if power == 1:
            return first
        return 2 * mean * first - (mean**2 - sd**2) * share + sd**2 * (far_a - far_b)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        return np.asarray(rng.normal(eta[0], np.exp(eta[1])))


def normal_share(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Probability that a standard normal lies between, from whichever tail is small."""
    return np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))


def _density(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """That of the standard normal distribution, and times z; 0 at infinity."""
    found = np.exp(-0.5 * np.minimum(z**2, 1e4)) / np.sqrt(2 * np.pi)
    return found, found * np.clip(z, -1e3, 1e3)


def spread(y: np.ndarray) -> float:
    """Standard deviation; where all values are equal, their size, for want of anything better."""
    sd, size = float(y.std()), float(np.abs(y).max())
    return sd if sd > 1e-9 * size else size or 1.0
