"""Shares strictly between 0 and 1: y ~ Beta(mean precision, (1 - mean) precision)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import betainc

from avem.families.base import LOG, LOGIT, Etas, Parameter
from avem.families.gamma import is_positive
from avem.families.log_gamma import log_gamma_rest
from avem.families.univariate import Univariate


@dataclass(frozen=True)
class Beta(Univariate):
    """A share; within a state its variance is mean (1 - mean) / (1 + precision).

    Examples
    --------
    >>> avem.Beta().natural((0.0, 0.0)).keys()
    dict_keys(['mean', 'precision'])
    """

    name = "beta"
    wanted = (
        "numbers between 0 and 1, neither of them included "
        "(of a slider from 0 to 100, use (y + 0.5) / 101)"
    )
    harmless = 0.5

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("mean", LOGIT), Parameter("precision", LOG, 1)

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return is_positive(y[0]) & (y[0] < 1)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        # The large parts of the three log gammas cancel; what is left is exact at any precision.
        log_m, log_w = jax.nn.log_sigmoid(eta[0]), jax.nn.log_sigmoid(-eta[0])
        a, b = jnp.exp(eta[1] + log_m), jnp.exp(eta[1] + log_w)
        whole = 0.5 * (eta[1] - np.log(2 * np.pi)) + log_gamma_rest(jnp.exp(eta[1]))
        parts = 0.5 * (log_m + log_w) - log_gamma_rest(a) - log_gamma_rest(b)
        log_y, log_v = jnp.log(y[0]), jnp.log1p(-y[0])
        return whole + parts + a * (log_y - log_m) + b * (log_v - log_w) - (log_y + log_v)

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        mean = np.clip(y[0].mean(), 1e-6, 1 - 1e-6)
        most = mean * (1 - mean)  # the variance of zeros and ones
        precision = np.clip(most / max(float(y[0].var()), 1e-4 * most) - 1, 0.1, None)
        return float(LOGIT.to_eta(mean)), float(np.log(precision))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return LOGIT.to_eta(y[0])[:, None]

    def mean(self, eta: Etas) -> np.ndarray:
        return LOGIT.to_natural(eta[0])

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        precision = np.exp(eta[1])
        a, b = (precision * LOGIT.to_natural(side * np.asarray(eta[0])) for side in (1, -1))
        return betainc(a, b, np.clip(y, 0.0, 1.0))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        mean = self.mean(eta)
        return mean * (1 - mean) / (1 + np.exp(eta[1]))

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        mean, precision = LOGIT.to_natural(eta[0]), np.exp(eta[1])
        value = rng.beta(mean * precision, LOGIT.to_natural(-np.asarray(eta[0])) * precision)
        # a small precision gives 0 and 1 by rounding
        return np.clip(value, np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
