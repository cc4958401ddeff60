"""Counts that vary more than Poisson ones: variance = mean + mean^2 / size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from scipy.special import betainc

from avem.families.base import LOG, LOGIT, Etas, Parameter
from avem.families.log_gamma import log_gamma_rest
from avem.families.poisson import CountFamily, count_mean


@dataclass(frozen=True)
class NegativeBinomial(CountFamily):
    """A count whose variance, within a state, is mean + mean^2 / size.

    Examples
    --------
    >>> float(avem.NegativeBinomial().variance((0.0, 0.0)).round(6))
    2.0
    """

    name = "negative_binomial"
    other_names = ("nbinom",)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("mean", LOG), Parameter("size", LOG)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        # The large parts of log gamma(y + size) - log gamma(size) cancel against log(size + mean);
        # what is left stays exact as size grows and the density becomes Poisson.
        size = jnp.exp(eta[1])
        rest = log_gamma_rest(size)
        total = y[0] + size
        return (
            (total - 0.5) * jnp.log1p(y[0] * jnp.exp(-eta[1]))
            + (log_gamma_rest(total) - rest)
            + (y[0] * eta[0] - total * jax.nn.softplus(eta[0] - eta[1]))
            - (y[0] + gammaln(y[0] + 1.0))
        )

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        mean = count_mean(y[0])
        excess = max(float(y[0].var()) - mean, 0.01 * mean**2)
        return float(np.log(mean)), float(np.log(mean**2 / excess))

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        count = np.floor(y)
        share = LOGIT.to_natural(np.asarray(eta[1]) - eta[0])  # size / (size + mean)
        below = betainc(np.exp(eta[1]), np.maximum(count, 0.0) + 1.0, share)
        return np.where(count < 0, 0.0, below)

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        mean = self.mean(eta)
        return mean + mean**2 * np.exp(-np.asarray(eta[1]))

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        size = np.exp(eta[1])
        rate = rng.gamma(size, np.exp(eta[0]) / size)
        return np.asarray(rng.poisson(rate), float)
