"""Successes out of known numbers of trials: P(success) = logistic(eta)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from scipy.special import betainc

from avem.errors import ModelError
from avem.families.base import LOGIT, Etas, Parameter
from avem.families.poisson import is_count
from avem.families.univariate import Mean, Univariate


@dataclass(frozen=True)
class Binomial(Univariate):
    """A count of successes; the model is of the probability of each.

    Parameters
    ----------
    trials : str or int
        The name of the column with the numbers of trials, or the number itself.

    Examples
    --------
    >>> avem.Binomial(trials="n_items").extras
    ('n_items',)
    """

    trials: str | int

    name = "binomial"
    wanted = "counts (0, 1, 2, ...) no larger than the number of trials"
    concave = True
    discrete = True

    def __post_init__(self) -> None:
        whole = isinstance(self.trials, int | np.integer) and not isinstance(self.trials, bool)
        if not isinstance(self.trials, str) and not (whole and self.trials >= 1):
            raise ModelError(
                f"Binomial trials is {self.trials!r}; "
                "give the name of a column or a whole number of at least 1."
            )

    @classmethod
    def from_word(cls) -> Self:
        raise ModelError(
            "A binomial outcome needs its number of trials: avem.Binomial(trials='column') or "
            "avem.Binomial(10)."
        )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("probability", LOGIT),)

    @property
    def extras(self) -> tuple[str, ...]:
        return (self.trials,) if isinstance(self.trials, str) else ()

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        n = self._trials(y[1:])
        return is_count(y[0]) & is_count(n) & (y[0] <= n)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        n = self._trials(y[1:])
        ways = gammaln(n + 1.0) - gammaln(y[0] + 1.0) - gammaln(n - y[0] + 1.0)
        return y[0] * eta[0] + n * jax.nn.log_sigmoid(-eta[0]) + ways

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        n = np.broadcast_to(self._trials(y[1:]), y[0].shape)
        share = (y[0].sum() + 0.5) / (n.sum() + 1)
        return (float(LOGIT.to_eta(share)),)

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        # the angle whose variance does not depend on the probability
        share = (y[0] + 0.375) / (self._trials(y[1:]) + 0.75)
        return np.arcsin(np.sqrt(share))[:, None]

    def mean(self, eta: Etas) -> np.ndarray:
        """Expected successes; expected share of successes where the trials vary by row."""
        return LOGIT.to_natural(eta[0]) * (1 if self.extras else self.trials)

    def expected(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Expected successes."""
        return self.mean(eta) * extras[0] if self.extras else self.mean(eta)

    def means(self, outcome: str) -> list[Mean]:
        """On a log scale where it is a number of successes, not a share."""
        return [Mean(outcome, outcome, "logit" if self.extras else "log")]

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        n, k = np.asarray(self._trials(extras), float), np.floor(y)
        inside = (k >= 0) & (k < n)
        others, ones = np.where(inside, n - k, 1.0), np.where(inside, k, 0.0) + 1.0
        below = betainc(others, ones, LOGIT.to_natural(-np.asarray(eta[0])))
        return np.where(inside, below, np.where(k < 0, 0.0, 1.0))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        p = LOGIT.to_natural(eta[0])
        return self._trials(extras) * p * (1 - p)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        n = np.asarray(self._trials(extras)).astype(int)
        return np.asarray(rng.binomial(n, LOGIT.to_natural(eta[0])), float)

    def _trials(self, columns: tuple[Any, ...]) -> Any:
        """The numbers of trials: the column, if there is one."""
        return columns[0] if self.extras else self.trials
