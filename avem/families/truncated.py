"""Numbers that can only lie between limits: what is beyond them never becomes a row.

The density is that of a known family, divided by its probability of the stretch that is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.families.base import Etas
from avem.families.limited import Limited

_BISECTIONS = 80
_TINY = 1e-300


@dataclass(frozen=True)
class Truncated(Limited):
    """A number of which there are only values between limits.

    As response times that are recorded from 0.2 s on, or bodies that are caught from a size on. The
    coefficients are those of the quantity before anything was cut off; predictions, intervals and
    simulated values lie within the limits, as the data do.

    Parameters
    ----------
    family : {"gaussian", "log_normal", "gamma", "weibull", "exponential"}
        Of the quantity before it was cut: the word, or the class.
    lower, upper : float, optional
        The limits.

    Examples
    --------
    >>> family = avem.Truncated("gaussian", lower=0)
    >>> float(family.expected((np.array(0.0), np.array(0.0))).round(3))
    0.798
    """

    lower: float | None = None
    upper: float | None = None

    name = "truncated"
    other_names = ("trunc",)

    # --- facts ----------------------------------------------------------------------------------

    @property
    def wanted(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        low, high = self._limits
        return f"{self.base.wanted} from {low:g} to {high:g}"

    @property
    def _limits(self) -> tuple[float, float]:
        """In the user's unit, infinite where there is none."""
        low = -np.inf if self.lower is None else self.lower
        return low, np.inf if self.upper is None else self.upper

    @property
    def n_beside(self) -> int:
        """Two: how far the limits are below and above the value."""
        return 2

    @property
    def beside_in_unit(self) -> bool:
        return True

    # --- values ---------------------------------------------------------------------------------

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        low, high = self._limits
        return self.base.valid(y[:1]) & (y[0] >= low) & (y[0] <= high)

    def columns(self, y: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """The value and its distances from the limits, which have its unit."""
        low, high = self._limits
        away = (y[0] - low, high - y[0])
        below, above = (np.where(np.isfinite(part), part, 1.0) for part in away)
        return y[0], below, above

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        value, below, above = y
        inside = self.base.log_density((value,), eta)
        if self.lower is None:
            return inside - self._tails(value + above, eta)[0]
        if self.upper is None:
            return inside - self._tails(value - below, eta)[1]
        (to_low, beyond_low), (to_high, beyond_high) = (
            self._tails(at, eta) for at in (value - below, value + above)
        )
        # The difference of two small probabilities, on whichever side these are.
        right = to_low > beyond_low
        large, small = jnp.where(right, beyond_low, to_high), jnp.where(right, beyond_high, to_low)
        return inside - large - jnp.log(-jnp.expm1(jnp.minimum(small - large, -1e-12)))

    def _tails(self, at: Array, eta: tuple[Array, ...]) -> tuple[Array, Array]:
        positive = not self.base.location_scale
        return self.base._log_tails(jnp.maximum(at, _TINY) if positive else at, eta)

    def mean(self, eta: Etas) -> np.ndarray:
        """Of the quantity before it was cut: where a state lies."""
        return self.base.mean(eta)

    def _share(self, power: int, y: Any, eta: Etas) -> np.ndarray:
        """E(quantity^power; lower < quantity < y), relative to the probability between limits."""
        low, high = self._limits
        top = np.clip(y, low, high)
        mass = self.base._partial_moment(0, low, high, eta)
        part = self.base._partial_moment(power, low, top, eta)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(mass > _TINY, part / mass, np.nan)

    def _nearest(self, eta: Etas) -> np.ndarray:
        """The limit that all values are at, where none are probable to within what is computed."""
        return np.clip(self.base.mean(eta), *self._limits)

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        share = self._share(0, y, eta)
        return np.clip(np.where(np.isnan(share), y >= self._nearest(eta), share), 0.0, 1.0)

    def expected(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        found = self._share(1, np.inf, eta)
        return np.clip(np.where(np.isnan(found), self._nearest(eta), found), *self._limits)

    def mean_values(self, eta: Etas) -> np.ndarray:
        return self.expected(eta)[:, None]

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        found = self._share(2, np.inf, eta) - self._share(1, np.inf, eta) ** 2
        return np.where(np.isnan(found), 0.0, np.maximum(found, 0.0))

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        """By inversion: halving the stretch in which the value is."""
        mean, sd = self.base.mean(eta), np.sqrt(self.base.variance(eta))
        low, high = (np.clip(mean + way * 40 * sd, *self._limits) for way in (-1, 1))
        wanted = rng.random(np.shape(low))
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            above = self.cdf(middle, eta) < wanted
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return high
