"""Positive numbers whose logarithm is Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.families.base import IDENTITY, LOG, Etas, Parameter
from avem.families.gamma import is_positive
from avem.families.normal import UnivariateGaussian, normal_share
from avem.families.tails import Tailed


@dataclass(frozen=True)
class LogNormal(Tailed):
    """A positive number; the parameters are mean and standard deviation of its logarithm.

    Examples
    --------
    >>> [p.name for p in avem.LogNormal().parameters]
    ['meanlog', 'sdlog']
    """

    name = "log_normal"
    other_names = ("lognormal",)
    wanted = "positive numbers"
    harmless = 1.0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("meanlog", IDENTITY), Parameter("sdlog", LOG, -1)

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return is_positive(y[0])

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        log_y = jnp.log(y[0])
        return UnivariateGaussian().log_density((log_y,), eta) - log_y

    def _log_tails(self, y: Array, eta: tuple[Array, ...]) -> tuple[Array, Array]:
        return UnivariateGaussian()._log_tails(jnp.log(y), eta)

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        return UnivariateGaussian().start((np.log(y[0]),))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.log(y[0])[:, None]

    def mean(self, eta: Etas) -> np.ndarray:
        return np.exp(eta[0] + 0.5 * np.exp(eta[1]) ** 2)

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        positive = np.asarray(y) > 0
        log_y = np.log(np.where(positive, y, 1.0))
        return np.where(positive, UnivariateGaussian().cdf(log_y, eta), 0.0)

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        square = np.exp(eta[1]) ** 2
        return np.expm1(square) * np.exp(2 * eta[0] + square)

    def _partial_moment(self, power: int, low: Any, high: Any, eta: Etas) -> np.ndarray:
        sd = np.exp(eta[1])
        with np.errstate(divide="ignore"):
            a, b = ((np.log(np.maximum(end, 0.0)) - eta[0]) / sd for end in (low, high))
        size = np.exp(power * eta[0] + 0.5 * (power * sd) ** 2)
        return size * normal_share(a - power * sd, b - power * sd)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        return np.exp(UnivariateGaussian().draw(rng, eta, extras))
