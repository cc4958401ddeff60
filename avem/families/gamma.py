"""Positive numbers with a constant coefficient of variation: y ~ Gamma(shape, mean / shape)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammainc, poch

from avem.families.base import LOG, Etas, Parameter
from avem.families.log_gamma import log_gamma_rest
from avem.families.tails import Tailed, gamma_share, log_gamma_tails


@dataclass(frozen=True)
class Gamma(Tailed):
    """A positive number; within a state its variance is mean^2 / shape.

    Examples
    --------
    >>> float(avem.Gamma().variance((np.log(3.0), 0.0)).round(6))
    9.0
    """

    name = "gamma"
    wanted = "positive numbers"
    harmless = 1.0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("mean", LOG), Parameter("shape", LOG, 1)

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return is_positive(y[0])

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        shape, constant = self._shape(eta)
        log_y, ratio = jnp.log(y[0]), y[0] * jnp.exp(-eta[0])
        return constant - log_y + shape * (log_y - eta[0] - (ratio - 1.0))

    def _log_tails(self, y: Array, eta: tuple[Array, ...]) -> tuple[Array, Array]:
        return log_gamma_tails(jnp.log(y) - eta[0], *self._shape(eta))

    def _shape(self, eta: tuple[Array, ...]) -> tuple[Array, Array]:
        """The shape, and the log of the height of the density of log y at the mean."""
        # shape log(shape) - shape - log gamma(shape) in one piece: its parts are large
        shape = jnp.exp(eta[1])
        return shape, 0.5 * (eta[1] - np.log(2 * np.pi)) - log_gamma_rest(shape)

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        mean = y[0].mean()
        # log of the mean less mean of the logs, about 1 / (2 shape); at least that of shape 1e4
        gap = max(float(np.log(mean) - np.log(y[0]).mean()), 5e-5)
        shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
        return float(np.log(mean)), float(np.log(shape))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.log(y[0])[:, None]

    def mean(self, eta: Etas) -> np.ndarray:
        return np.exp(eta[0])

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        shape = np.exp(eta[1])
        return gammainc(shape, np.maximum(y, 0.0) * shape * np.exp(-np.asarray(eta[0])))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        return np.exp(2 * np.asarray(eta[0]) - eta[1])

    def _partial_moment(self, power: int, low: Any, high: Any, eta: Etas) -> np.ndarray:
        shape = np.exp(eta[1])
        scale = np.exp(np.asarray(eta[0]) - eta[1])
        size = scale**power * poch(shape, power)
        return size * gamma_share(shape + power, low / scale, high / scale)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        shape = np.exp(eta[1])
        value = rng.gamma(shape, np.exp(eta[0]) / shape)
        return np.maximum(value, np.finfo(float).tiny)  # a small shape gives 0 by underflow


def is_positive(y: np.ndarray) -> np.ndarray:
    """Which values are positive, finite, and not so small that they lose digits."""
    return np.isfinite(y) & (y >= np.finfo(float).tiny)
