"""Numbers that are known only as far as a limit: below what can be detected, beyond what is read.

A value at or beyond its limit says that the quantity lies there; its density is replaced by the
probability of that. Everything else is the underlying family's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.families.base import Alone, Etas
from avem.families.limited import Limited


@dataclass(frozen=True)
class Censored(Limited):
    """A number that is recorded as its limit where it lies beyond it.

    A value of `lower` or less is read as "somewhere below `lower`", one of `upper` or more as
    "somewhere above `upper`". Parameters, means, predictions and intervals are those of the
    quantity itself, as if there were no limit; simulated values are recorded as the data are.

    Parameters
    ----------
    family : {"gaussian", "log_normal", "gamma", "weibull", "exponential"}
        Of the quantity itself: the word, or the class.
    lower, upper : float or str, optional
        The limit, or the name of the column with the limit of each row (``-inf`` or ``inf``, where
        a row has none).

    Examples
    --------
    >>> avem.Censored(avem.LogNormal, lower="detection_limit")
    Censored(family='log_normal', lower='detection_limit', upper=None)
    >>> avem.Censored("gaussian", lower=0, upper=100).extras
    ()
    """

    lower: str | float | None = None
    upper: str | float | None = None

    name = "censored"
    other_names = ("tobit",)
    infinite_extras = True
    limit_wanted = "a number or the name of a column"

    @classmethod
    def _limit(cls, side: str, given: Any) -> Any:
        """A column's name, too."""
        return given if isinstance(given, str) and given else super()._limit(side, given)

    # --- facts ----------------------------------------------------------------------------------

    @property
    def wanted(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"{self.base.wanted}, and a lower limit below the upper"

    @property
    def extras(self) -> tuple[str, ...]:
        return tuple(end for end in (self.lower, self.upper) if isinstance(end, str))

    @property
    def extras_ahead(self) -> tuple[str, ...]:
        """None: predictions are those of the quantity itself."""
        return ()

    @property
    def n_beside(self) -> int:
        """One: on which side of its limits a value lies."""
        return 1

    @property
    def measure(self) -> str:
        return "density with a probability beyond the limits"

    def alone(self, number: int) -> Alone:
        """The quantity itself."""
        return Alone(self.base, lambda etas, noise, state: etas)

    # --- values ---------------------------------------------------------------------------------

    def _limits(self, extras: tuple[Any, ...]) -> tuple[Any, Any]:
        """Lower and upper limit of every row, infinite where there is none."""
        columns = iter(extras)
        found = []
        for end, none in ((self.lower, -np.inf), (self.upper, np.inf)):
            if isinstance(end, str):
                given = np.asarray(next(columns, none), float)
                found.append(np.where(np.isnan(given), none, given))
            else:
                found.append(none if end is None else end)
        return found[0], found[1]

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        low, high = self._limits(y[1:])
        return self.base.valid((np.clip(y[0], low, high),)) & np.less(low, high)

    def columns(self, y: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """The value or its limit, and -1, 0 or 1: below, between or above the limits."""
        low, high = self._limits(y[1:])
        side = np.where(y[0] <= low, -1.0, np.where(y[0] >= high, 1.0, 0.0))
        known = np.where(side < 0, low, np.where(side > 0, high, y[0]))
        return known, side

    def has_density(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        side = y[1:]
        return side[0] == 0 if side else np.ones(np.shape(y[0]), bool)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        value, side = y
        below, above = self.base._log_tails(value, eta)
        inside = self.base.log_density((value,), eta)
        if self.lower is not None:
            inside = jnp.where(side < 0, below, inside)
        return inside if self.upper is None else jnp.where(side > 0, above, inside)

    def ends(
        self, low: np.ndarray, high: np.ndarray, extras: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Beyond a limit, from there to the end."""
        (side,) = extras
        return np.where(side < 0, 0.0, low), np.where(side > 0, 1.0, high)

    def mean(self, eta: Etas) -> np.ndarray:
        """Of the quantity itself."""
        return self.base.mean(eta)

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Of the quantity itself."""
        return self.base.cdf(y, eta)

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Of the quantity itself."""
        return self.base.variance(eta)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        """As they are recorded: a value beyond its limit is the limit."""
        low, high = self._limits(extras)
        return np.clip(self.base.draw(rng, eta, ()), low, high)
