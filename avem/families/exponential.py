"""Waiting times without memory: y ~ Exponential(mean), log mean = eta."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.families.base import LOG, Etas, Family, Parameter
from avem.families.tails import Tailed, exponential_tails, gamma_share


@dataclass(frozen=True)
class Exponential(Tailed):
    """A number from 0 up whose standard deviation, within a state, equals its mean.

    Examples
    --------
    >>> avem.Exponential().mean((np.log([2.0, 5.0]),))
    array([2., 5.])
    """

    name = "exponential"
    wanted = "numbers of at least 0"
    concave = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("mean", LOG),)

    def within(self, other: Family, numbers: tuple[int, int] = (1, 1)) -> bool:
        return other.name in ("gamma", "weibull") or super().within(other, numbers)  # of shape 1

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.isfinite(y[0]) & (y[0] >= 0)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        return -eta[0] - y[0] * jnp.exp(-eta[0])

    def _log_tails(self, y: Array, eta: tuple[Array, ...]) -> tuple[Array, Array]:
        return exponential_tails(jnp.log(jnp.maximum(y, np.finfo(float).tiny)) - eta[0])

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        return (float(np.log(y[0].mean() or 1.0)),)

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        # the fourth root is nearly symmetric within a state and, unlike the log, finite at 0
        return np.sqrt(np.sqrt(y[0]))[:, None]

    def mean(self, eta: Etas) -> np.ndarray:
        return np.exp(eta[0])

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        return -np.expm1(-np.maximum(y, 0.0) * np.exp(-np.asarray(eta[0])))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        return self.mean(eta) ** 2

    def _partial_moment(self, power: int, low: Any, high: Any, eta: Etas) -> np.ndarray:
        mean = self.mean(eta)
        return mean**power * factorial(power) * gamma_share(1.0 + power, low / mean, high / mean)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        return np.asarray(rng.exponential(self.mean(eta)))
