"""Exact zeros among positive numbers: 0 with probability `zero`, else gamma."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.families.base import LOGIT, Etas, Parameter
from avem.families.gamma import Gamma
from avem.families.univariate import Univariate


@dataclass(frozen=True)
class ZeroAugmentedGamma(Univariate):
    """0 with probability `zero`, otherwise positive; mean and shape are those of the positives.

    Examples
    --------
    >>> [p.name for p in avem.ZeroAugmentedGamma().parameters]
    ['mean', 'shape', 'zero']
    """

    name = "zero_augmented_gamma"
    wanted = "numbers of at least 0"
    zeros_apart = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (*Gamma().parameters, Parameter("zero", LOGIT))

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return (y[0] == 0) | Gamma().valid(y)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        mean, shape, zero = eta
        positive = y[0] > 0
        # the gamma density at 0 may be infinite, so it is asked at 1 instead
        density = Gamma().log_density((jnp.where(positive, y[0], 1.0),), (mean, shape))
        none, some = jax.nn.log_sigmoid(zero), jax.nn.log_sigmoid(-zero)
        return jnp.where(positive, some + density, none)

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        positive = y[0][y[0] > 0]
        zero = (len(y[0]) - len(positive) + 0.5) / (len(y[0]) + 1)
        found = Gamma().start((positive if len(positive) else np.ones(1),))
        return *found, float(LOGIT.to_eta(zero))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        positive = y[0] > 0
        log_y = np.log(np.where(positive, y[0], 1.0))
        # the second column says nothing of zeros: they get the mean of the others
        middle = log_y[positive].mean() if positive.any() else 0.0
        return np.column_stack([positive.astype(float), np.where(positive, log_y, middle)])

    def mean(self, eta: Etas) -> np.ndarray:
        return Gamma().mean(eta[:2]) * LOGIT.to_natural(-np.asarray(eta[2]))

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        zero, some = (LOGIT.to_natural(side * np.asarray(eta[2])) for side in (1, -1))
        return np.where(np.asarray(y) < 0, 0.0, zero + some * Gamma().cdf(y, eta[:2]))

    def below(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        return np.where(np.asarray(y) > 0, self.cdf(y, eta), 0.0)

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        some = LOGIT.to_natural(-np.asarray(eta[2]))
        square = Gamma().mean(eta[:2]) ** 2
        return some * (Gamma().variance(eta[:2]) + (1 - some) * square)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        mean, shape, zero = np.broadcast_arrays(*eta)
        value = Gamma().draw(rng, (mean, shape), extras)
        return np.where(rng.random(zero.shape) < LOGIT.to_natural(zero), 0.0, value)
