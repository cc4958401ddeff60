"""Counts whose zeros are a matter of their own: 0 with probability `zero`, else 1, 2, ..."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.families.base import LOGIT, Etas, Parameter
from avem.families.negative_binomial import NegativeBinomial
from avem.families.poisson import Poisson
from avem.families.univariate import Univariate
from avem.families.zero_inflated import rate_of_positive


class _Hurdle(Univariate):
    """What the two families share. The counts above 0 are those of `counts` that are not 0."""

    counts: ClassVar[Univariate]

    wanted = "counts (0, 1, 2, ...)"
    discrete = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (*self.counts.parameters, Parameter("zero", LOGIT))

    @staticmethod
    @abstractmethod
    def _minus_log_none(eta: Any, array: Any) -> Any:
        """Minus the log of the probability that `counts` is 0, with `jnp` or `np` as `array`."""

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return self.counts.valid(y)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        *count, zero = eta
        above = y[0] > 0
        density = self.counts.log_density((jnp.where(above, y[0], 1.0),), tuple(count))
        some = jnp.log(-jnp.expm1(-self._minus_log_none(count, jnp)))
        none, any_ = jax.nn.log_sigmoid(zero), jax.nn.log_sigmoid(-zero)
        return jnp.where(above, density + (any_ - some), none)

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        above = y[0] > 0
        root = np.sqrt(y[0])
        # the second column says nothing of zeros: they get the mean of the others
        middle = root[above].mean() if above.any() else 0.0
        return np.column_stack([above.astype(float), np.where(above, root, middle)])

    def _above(self, eta: Etas) -> tuple[Etas, np.ndarray, np.ndarray]:
        """The predictors of the counts, P(y > 0), and that of the counts."""
        *count, zero = (np.asarray(e, float) for e in eta)
        some = -np.expm1(-self._minus_log_none(count, np))
        return tuple(count), LOGIT.to_natural(-zero), some

    def mean(self, eta: Etas) -> np.ndarray:
        count, above, some = self._above(eta)
        return above * self.counts.mean(count) / some

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        count, above, some = self._above(eta)
        beyond = (1.0 - self.counts.cdf(y, count)) / some
        return np.where(np.asarray(y) < 0, 0.0, 1.0 - above * np.minimum(beyond, 1.0))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        count, above, some = self._above(eta)
        square = (self.counts.variance(count) + self.counts.mean(count) ** 2) / some
        return above * square - self.mean(eta) ** 2

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        count, above, some = self._above(np.broadcast_arrays(*eta))
        # a count exceeds k with probability u: for u below P(count > 0) it is at least 1
        value = self._exceeded(some * (1.0 - rng.random(some.shape)), count)
        return np.where(rng.random(above.shape) < above, np.maximum(value, 1.0), 0.0)

    @staticmethod
    @abstractmethod
    def _exceeded(u: np.ndarray, eta: Etas) -> np.ndarray:
        """The smallest count that `counts` exceeds with at most probability `u`."""


@dataclass(frozen=True)
class HurdlePoisson(_Hurdle):
    """0 with probability `zero`, otherwise a Poisson count that is not 0.

    There may be more zeros than a Poisson count has, or fewer. ``rate`` is that of the Poisson
    count before its zeros were taken away.

    Examples
    --------
    >>> [p.name for p in avem.HurdlePoisson().parameters]
    ['rate', 'zero']
    """

    name = "hurdle_poisson"
    other_names = ("truncated_poisson",)
    counts = Poisson()
    concave = True

    def describe(self) -> str:
        return "hurdle Poisson"

    @staticmethod
    def _minus_log_none(eta: Any, array: Any) -> Any:
        return array.exp(eta[0])

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        return float(np.log(rate_of_positive(y[0]))), _zero(y[0])

    @staticmethod
    def _exceeded(u: np.ndarray, eta: Etas) -> np.ndarray:
        from scipy.stats import poisson

        return poisson.isf(u, np.exp(eta[0]))


@dataclass(frozen=True)
class HurdleNegativeBinomial(_Hurdle):
    """0 with probability `zero`, otherwise a negative binomial count that is not 0.

    There may be more zeros than such a count has, or fewer. ``mean`` and ``size`` are those of the
    count before its zeros were taken away.

    Examples
    --------
    >>> [p.name for p in avem.HurdleNegativeBinomial().parameters]
    ['mean', 'size', 'zero']
    """

    name = "hurdle_negative_binomial"
    counts = NegativeBinomial()

    @staticmethod
    def _minus_log_none(eta: Any, array: Any) -> Any:
        return array.exp(eta[1]) * array.logaddexp(0.0, eta[0] - eta[1])

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        # From the moments of the counts above 0, with the share of zeros that these imply.
        above = y[0][y[0] > 0]
        if not len(above):
            above = np.ones(1)
        first, second = max(float(above.mean()), 1.05), float((above**2).mean())
        none, mean, over = 0.0, first, 1.0
        for _ in range(50):
            mean = max(first * (1 - none), 0.05)
            over = np.clip((second * (1 - none) - mean) / mean**2 - 1, 0.01, 20.0)
            none = min((1 + mean * over) ** (-1 / over), 0.95)
        return float(np.log(mean)), float(-np.log(over)), _zero(y[0])

    @staticmethod
    def _exceeded(u: np.ndarray, eta: Etas) -> np.ndarray:
        from scipy.stats import nbinom

        return nbinom.isf(u, np.exp(eta[1]), LOGIT.to_natural(eta[1] - eta[0]))


def _zero(y: np.ndarray) -> float:
    """The log odds of 0."""
    return float(LOGIT.to_eta(((y == 0).sum() + 0.5) / (len(y) + 1)))
