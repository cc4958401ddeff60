"""Counts with one parameter: y ~ Poisson(rate), log rate = eta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from scipy.special import pdtr

from avem.families.base import LOG, Etas, Parameter
from avem.families.univariate import Univariate


class CountFamily(Univariate):
    """A number of events, whose mean is on the log scale."""

    wanted = "counts (0, 1, 2, ...)"
    discrete = True

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return is_count(y[0])

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.sqrt(y[0])[:, None]

    def mean(self, eta: Etas) -> np.ndarray:
        return np.exp(eta[0])


@dataclass(frozen=True)
class Poisson(CountFamily):
    """A count whose variance, within a state, equals its mean.

    Examples
    --------
    >>> avem.Poisson().valid((np.array([0.0, 1.5]),))
    array([ True, False])
    """

    name = "poisson"
    concave = True

    def describe(self) -> str:
        return "Poisson"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("rate", LOG),)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        return y[0] * eta[0] - jnp.exp(eta[0]) - gammaln(y[0] + 1.0)

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        return (float(np.log(count_mean(y[0]))),)

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        count = np.floor(y)
        return np.where(count < 0, 0.0, pdtr(np.maximum(count, 0.0), np.exp(eta[0])))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        return self.mean(eta)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        return np.asarray(rng.poisson(self.mean(eta)), float)


def is_count(y: np.ndarray) -> np.ndarray:
    """Which values are 0, 1, 2, ..."""
    return np.isfinite(y) & (y >= 0) & (y == np.floor(y))


def count_mean(y: np.ndarray) -> float:
    """The mean of some counts, kept above 0: as if half an event had been seen."""
    return max(float(y.mean()), 0.5 / len(y))
