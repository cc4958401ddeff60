"""Shares of a whole, such as the parts of a day: several outcomes that add up to 1."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import log_softmax

from avem.data.formula import Formula
from avem.errors import ModelError
from avem.families.base import IDENTITY, LOG, Alone, Etas, Family, Parameter
from avem.families.beta import Beta
from avem.families.gamma import is_positive
from avem.families.log_gamma import log_gamma_rest
from avem.families.univariate import Univariate

_MOST = 20


@dataclass(frozen=True)
class Dirichlet(Univariate):
    """Several outcomes that are the parts of a whole: ``"sleep + work + rest ~ x"``.

    The formula describes the log ratio of the mean of each part after the first to that of the
    first. Within a state the variance of a part is mean (1 - mean) / (1 + precision). Alone, every
    part is a beta share.

    Parameters
    ----------
    parts : tuple of str
        Names of the outcomes; the formula has them, so that there is nothing to give.

    Examples
    --------
    >>> spec = avem.outcome("sleep + work + rest ~ 1", "dirichlet")
    >>> [parameter.name for parameter in spec.family.parameters]
    ['work', 'rest', 'precision']
    """

    parts: tuple[str, ...] = ()

    name = "dirichlet"
    emission = "joint"
    wanted = (
        "shares between 0 and 1, neither of them included, which add up to 1 in every row "
        "(divide by their sum)"
    )
    harmless = 1.0

    def describe(self) -> str:
        return "Dirichlet"

    def given(
        self, formula: Formula, parameters: Collection[str], effects_by_state: bool
    ) -> Family:
        n = len(formula.outcomes)
        if not 2 <= n <= _MOST:
            raise ModelError(
                f"A dirichlet outcome has from 2 to {_MOST} parts, and {formula.text!r} names {n}: "
                "write all of them, 'sleep + work + rest ~ x'."
            )
        if "precision" in formula.outcomes:
            raise ModelError("'precision' is a parameter of dirichlet outcomes: rename the column.")
        return replace(self, parts=formula.outcomes)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        ratios = (Parameter(part, IDENTITY) for part in self.parts[1:])
        return *ratios, Parameter("precision", LOG, 1)

    @property
    def n_location(self) -> int:
        """All but the precision."""
        return len(self.parts) - 1

    @property
    def location(self) -> str:
        return "mean share of every part"

    @property
    def coef_scale(self) -> str:
        return "log ratio to the first part"

    def code(self) -> str:
        return "avem.Dirichlet()"

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        """Of each part by itself."""
        return np.all([is_positive(part) & (part < 1) for part in y], axis=0)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        # The large parts of the log gammas cancel, as in `Beta`.
        *ratios, log_precision = eta
        alike = jnp.broadcast_arrays(jnp.zeros_like(ratios[0]), *ratios)
        log_means = jax.nn.log_softmax(jnp.stack(alike), axis=0)
        total = log_gamma_rest(jnp.exp(log_precision))
        total = total + 0.5 * (len(y) - 1) * (log_precision - np.log(2 * np.pi))
        for part, log_mean in zip(y, log_means, strict=True):
            a, log_y = jnp.exp(log_precision + log_mean), jnp.log(part)
            total = total + 0.5 * log_mean - log_gamma_rest(a) + a * (log_y - log_mean) - log_y
        return total

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        means = np.clip([part.mean() for part in y], 1e-6, None)
        spread, most = sum(part.var() for part in y), float((means * (1 - means)).sum())
        precision = np.clip(most / max(float(spread), 1e-4 * most) - 1, 0.1, None)
        return *np.log(means[1:] / means[0]).tolist(), float(np.log(precision))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        logs = np.log(np.stack(y, axis=1))
        return logs - logs.mean(1, keepdims=True)

    def means_of_parts(self, eta: Etas) -> np.ndarray:
        """Expected shares of all parts.

        Parameters
        ----------
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.

        Returns
        -------
        numpy.ndarray
            With the parts on a new last axis.

        Examples
        --------
        >>> avem.Dirichlet(("a", "b")).means_of_parts((np.zeros(1), np.zeros(1)))
        array([[0.5, 0.5]])
        """
        return np.exp(self._log_means(eta))

    def _log_means(self, eta: Etas) -> np.ndarray:
        *ratios, _ = np.broadcast_arrays(*(np.asarray(e, float) for e in eta))
        return log_softmax(np.stack([np.zeros_like(ratios[0]), *ratios], axis=-1), axis=-1)

    def mean(self, eta: Etas) -> np.ndarray:
        """Of the first part."""
        return self.means_of_parts(eta)[..., 0]

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Of the first part."""
        return Beta().cdf(y, self._alone(0, eta))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Of the first part."""
        return Beta().variance(self._alone(0, eta))

    def alone(self, number: int) -> Alone:
        """A beta share."""
        return Alone(Beta(), lambda etas, noise, state: self._alone(number, etas))

    def _alone(self, number: int, eta: Etas) -> Etas:
        """The predictors of one part as a beta share."""
        log_means = self._log_means(eta)
        others = np.delete(log_means, number, axis=-1)
        logit = log_means[..., number] - np.logaddexp.reduce(others, axis=-1)
        return logit, np.broadcast_to(eta[-1], logit.shape)

    def natural_location(self, outcome: str, eta: Etas) -> dict[str, np.ndarray]:
        """The mean of every part."""
        means = np.moveaxis(self.means_of_parts(eta), -1, 0)
        return dict(zip(self.parts, means, strict=True))

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        """(..., parts) shares that add up to 1."""
        log_precision = np.asarray(eta[-1])[..., None]
        # A gamma draw of shape a is one of shape a + 1 times u^(1/a): in logs, for small shapes.
        a = np.exp(self._log_means(eta) + log_precision)
        logs = np.log(rng.gamma(a + 1.0)) + np.log1p(-rng.random(a.shape)) / a
        shares = np.exp(log_softmax(np.maximum(logs, logs.max(-1, keepdims=True) - 600.0), axis=-1))
        return np.clip(shares, np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
