"""Durations and strengths: y ~ Weibull(scale, shape), log scale and log shape are linear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from avem.families.base import LOG, Etas, Parameter
from avem.families.gamma import is_positive
from avem.families.tails import Tailed, bounded_exp, exponential_tails, gamma_share

_EULER = 0.5772156649015329


@dataclass(frozen=True)
class Weibull(Tailed):
    """A positive number; beyond shape 1, the longer it lasts the sooner it ends.

    P(y > t) = exp(-(t / scale)^shape). Its mean is scale times gamma(1 + 1 / shape), so that exp
    of a coefficient is a ratio of means as well as of scales.

    Examples
    --------
    >>> float(avem.Weibull().mean((np.log(3.0), 0.0)).round(6))
    3.0
    """

    name = "weibull"
    wanted = "positive numbers"
    harmless = 1.0

    def describe(self) -> str:
        return "Weibull"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("scale", LOG), Parameter("shape", LOG, 1)

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return is_positive(y[0])

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        log_y = jnp.log(y[0])
        z = jnp.exp(eta[1]) * (log_y - eta[0])
        return eta[1] - log_y + z - bounded_exp(z)

    def _log_tails(self, y: Array, eta: tuple[Array, ...]) -> tuple[Array, Array]:
        return exponential_tails(jnp.exp(eta[1]) * (jnp.log(y) - eta[0]))

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        # the log has standard deviation pi / (sqrt(6) shape) and mean log scale - Euler / shape
        log_y = np.log(y[0])
        shape = np.clip(np.pi / np.sqrt(6) / max(float(log_y.std()), 1e-3), 0.05, 1e3)
        return float(log_y.mean() + _EULER / shape), float(np.log(shape))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.log(y[0])[:, None]

    def mean(self, eta: Etas) -> np.ndarray:
        return np.exp(np.asarray(eta[0]) + gammaln(1.0 + np.exp(-np.asarray(eta[1]))))

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        positive = np.asarray(y) > 0
        z = np.exp(eta[1]) * (np.log(np.where(positive, y, 1.0)) - eta[0])
        return np.where(positive, -np.expm1(-np.exp(np.minimum(z, 700.0))), 0.0)

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        inverse = np.exp(-np.asarray(eta[1]))
        first, second = gammaln(1.0 + inverse), gammaln(1.0 + 2.0 * inverse)
        return np.exp(2 * (np.asarray(eta[0]) + first)) * np.expm1(second - 2 * first)

    def _partial_moment(self, power: int, low: Any, high: Any, eta: Etas) -> np.ndarray:
        scale, shape = np.exp(eta[0]), np.exp(eta[1])
        a, b = ((np.maximum(end, 0.0) / scale) ** shape for end in (low, high))
        more = 1.0 + power / shape
        return scale**power * np.exp(gammaln(more)) * gamma_share(more, a, b)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        log_y = np.asarray(eta[0]) + np.log(rng.exponential(size=_shape(eta))) * np.exp(
            -np.asarray(eta[1])
        )
        return np.exp(np.clip(log_y, -700.0, 700.0))  # a small shape leaves all bounds


def _shape(eta: Etas) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(e) for e in eta))
