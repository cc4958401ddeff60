"""Counts with more zeros than their family allows: 0 with probability `zero`, else a count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import lambertw

from avem.families.base import LOGIT, Etas, Parameter
from avem.families.negative_binomial import NegativeBinomial
from avem.families.poisson import Poisson, count_mean
from avem.families.univariate import Univariate


class _ZeroInflated(Univariate):
    """What the two families share."""

    counts: ClassVar[Univariate]
    """The family of the counts, which may be 0 as well."""

    wanted = "counts (0, 1, 2, ...)"
    discrete = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (*self.counts.parameters, Parameter("zero", LOGIT))

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return self.counts.valid(y)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        *count, zero = eta
        density = self.counts.log_density(y, tuple(count))
        either = jnp.where(y[0] == 0, jnp.logaddexp(zero, density), density)
        return jax.nn.log_sigmoid(-zero) + either

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return self.counts.features(y)

    def mean(self, eta: Etas) -> np.ndarray:
        *count, zero = eta
        return self.counts.mean(tuple(count)) * LOGIT.to_natural(-np.asarray(zero))

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        *count, zero = eta
        none, some = (LOGIT.to_natural(side * np.asarray(zero)) for side in (1, -1))
        return np.where(np.asarray(y) < 0, 0.0, none + some * self.counts.cdf(y, tuple(count)))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        *count, zero = eta
        some = LOGIT.to_natural(-np.asarray(zero))
        square = self.counts.mean(tuple(count)) ** 2
        return some * (self.counts.variance(tuple(count)) + (1 - some) * square)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        *count, zero = np.broadcast_arrays(*eta)
        value = self.counts.draw(rng, tuple(count), extras)
        return np.where(rng.random(zero.shape) < LOGIT.to_natural(zero), 0.0, value)


@dataclass(frozen=True)
class ZeroInflatedPoisson(_ZeroInflated):
    """0 with probability `zero`, otherwise a Poisson count.

    Examples
    --------
    >>> [p.name for p in avem.ZeroInflatedPoisson().parameters]
    ['rate', 'zero']
    """

    name = "zero_inflated_poisson"
    counts = Poisson()

    def describe(self) -> str:
        return "zero inflated Poisson"

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        rate = rate_of_positive(y[0])
        none = np.exp(-rate)
        zero = _off_bounds((np.mean(y[0] == 0) - none) / (1 - none))
        return float(np.log(rate)), float(LOGIT.to_eta(zero))


@dataclass(frozen=True)
class ZeroInflatedNegativeBinomial(_ZeroInflated):
    """0 with probability `zero`, otherwise a negative binomial count.

    Examples
    --------
    >>> [p.name for p in avem.ZeroInflatedNegativeBinomial().parameters]
    ['mean', 'size', 'zero']
    """

    name = "zero_inflated_negative_binomial"
    counts = NegativeBinomial()

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        # Ratios of factorial moments do not know `zero`: mean (1 + 1/size), mean (1 + 2/size).
        mean = count_mean(y[0])
        pairs = float((y[0] * (y[0] - 1)).mean())
        triples = float((y[0] * (y[0] - 1) * (y[0] - 2)).mean())
        first, second = pairs / mean, triples / (pairs or 1.0)
        alone = max(2 * first - second, mean)
        zero = _off_bounds(min(1 - mean / alone, np.mean(y[0] == 0)))
        mean /= 1 - zero
        size = 1 / max(first / mean - 1, 0.01)
        return float(np.log(mean)), float(np.log(size)), float(LOGIT.to_eta(zero))


def rate_of_positive(y: np.ndarray) -> float:
    """The rate of Poisson counts from those above 0, which do not know how many zeros there are."""
    above = y[y > 0]
    mean = max(float(above.mean()) if len(above) else 1.0, 1.05)  # 1 for a rate of 0
    # the mean of those above 0 is rate / (1 - exp(-rate))
    return mean + float(lambertw(-mean * np.exp(-mean)).real)


def _off_bounds(share: float) -> float:
    return float(np.clip(share, 0.05, 0.95))
