"""Shares with spikes at both ends, such as sliders: exactly 0, exactly 1, or beta between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.families.base import LOGIT, Etas, Parameter
from avem.families.beta import Beta
from avem.families.univariate import Univariate


@dataclass(frozen=True)
class ZeroOneInflatedBeta(Univariate):
    """0 with probability `zero`; of the rest, 1 with probability `one`; otherwise a beta share.

    ``mean`` and ``precision`` are those of the shares between 0 and 1. A slider from 0 to 100 is
    divided by 100.

    Examples
    --------
    >>> [p.name for p in avem.ZeroOneInflatedBeta().parameters]
    ['mean', 'precision', 'zero', 'one']
    """

    name = "zero_one_inflated_beta"
    other_names = ("zoib", "ordered_beta", "zero_inflated_beta")
    wanted = "numbers from 0 to 1 (a slider from 0 to 100 is divided by 100)"
    zeros_apart = True
    harmless = 0.5

    def describe(self) -> str:
        return "zero-one inflated beta"

    @property
    def measure(self) -> str:
        return "density with probabilities of 0 and 1"

    def has_density(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return (y[0] != 0) & (y[0] != 1)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (*Beta().parameters, Parameter("zero", LOGIT), Parameter("one", LOGIT))

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return (y[0] == 0) | (y[0] == 1) | Beta().valid(y)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        mean, precision, zero, one = eta
        inside = (y[0] > 0) & (y[0] < 1)
        # the beta density at 0 and 1 may be infinite, so it is asked at 1/2 instead
        density = Beta().log_density((jnp.where(inside, y[0], 0.5),), (mean, precision))
        none, some = jax.nn.log_sigmoid(zero), jax.nn.log_sigmoid(-zero)
        all_, part = some + jax.nn.log_sigmoid(one), some + jax.nn.log_sigmoid(-one)
        return jnp.where(inside, part + density, jnp.where(y[0] > 0, all_, none))

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        n, n_zero, n_one = len(y[0]), (y[0] == 0).sum(), (y[0] == 1).sum()
        inside = y[0][self.has_density(y)]
        found = Beta().start((inside if len(inside) else np.full(1, 0.5),))
        zero, one = (n_zero + 0.5) / (n + 1), (n_one + 0.5) / (n - n_zero + 1)
        return *found, float(LOGIT.to_eta(zero)), float(LOGIT.to_eta(one))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        inside = self.has_density(y)
        logit = LOGIT.to_eta(np.where(inside, y[0], 0.5))
        # the last column says nothing of zeros and ones: they get the mean of the others
        middle = logit[inside].mean() if inside.any() else 0.0
        spikes = [(y[0] == value).astype(float) for value in (0, 1)]
        return np.column_stack([*spikes, np.where(inside, logit, middle)])

    def _shares(self, eta: Etas) -> tuple[Any, Any, Any]:
        """Probabilities of 0, of 1, and of anything between."""
        zero, one = (np.asarray(e, float) for e in eta[2:])
        some = LOGIT.to_natural(-zero)
        at_one, between = (some * LOGIT.to_natural(side * one) for side in (1, -1))
        return LOGIT.to_natural(zero), at_one, between

    def mean(self, eta: Etas) -> np.ndarray:
        _, one, between = self._shares(eta)
        return one + between * Beta().mean(eta[:2])

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        zero, _, between = self._shares(eta)
        y = np.asarray(y)
        within = zero + between * Beta().cdf(y, eta[:2])
        return np.where(y < 0, 0.0, np.where(y < 1, within, 1.0))

    def below(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        zero, _, between = self._shares(eta)
        y = np.asarray(y)
        within = zero + between * Beta().cdf(y, eta[:2])
        return np.where(y > 1, 1.0, np.where(y > 0, within, 0.0))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        _, one, between = self._shares(eta)
        square = one + between * (Beta().variance(eta[:2]) + Beta().mean(eta[:2]) ** 2)
        return square - self.mean(eta) ** 2

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        eta = tuple(np.broadcast_arrays(*eta))
        zero, one, _ = self._shares(eta)
        value, u = Beta().draw(rng, eta[:2], extras), rng.random(np.shape(zero))
        return np.where(u < zero, 0.0, np.where(u < zero + one, 1.0, value))
