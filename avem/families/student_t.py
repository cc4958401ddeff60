"""Real numbers with outliers: y ~ location + scale t(df)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import stdtr, stdtrit

from avem.families.base import IDENTITY, LOG, Etas, Parameter
from avem.families.log_gamma import log_gamma_rest
from avem.families.normal import spread
from avem.families.univariate import Univariate

_DF = np.array([30.0, 15.0, 10.0, 7.0, 5.0, 4.0, 3.0, 2.0, 1.5, 1.0])
"""Degrees of freedom between which `start` interpolates, from light tails to heavy ones."""


@dataclass(frozen=True)
class StudentT(Univariate):
    """A real number with heavy tails: the heavier, the smaller df.

    Examples
    --------
    >>> [p.name for p in avem.StudentT().parameters]
    ['location', 'scale', 'df']
    """

    name = "student_t"
    other_names = ("t",)
    wanted = "numbers"
    location_scale = True

    def describe(self) -> str:
        return "Student t"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("location", IDENTITY), Parameter("scale", LOG, -1), Parameter("df", LOG)

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.isfinite(y[0])

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        # log gamma(half + 1/2) - log gamma(half) - log(half) / 2 in one piece: its parts are large
        half = 0.5 * jnp.exp(eta[2])
        rest = log_gamma_rest(half + 0.5) - log_gamma_rest(half)
        constant = half * jnp.log1p(0.5 / half) - 0.5 * (1 + np.log(2 * np.pi)) + rest
        z = (y[0] - eta[0]) * jnp.exp(-eta[1])
        return (constant - eta[1]) - (half + 0.5) * jnp.log1p(z**2 * jnp.exp(-eta[2]))

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        low, q1, middle, q3, high = np.quantile(y[0], [0.025, 0.25, 0.5, 0.75, 0.975])
        if q3 - q1 <= 1e-9 * np.abs(y[0]).max():  # half of the values are equal
            return float(middle), float(np.log(spread(y[0]))), float(np.log(5.0))
        tails = stdtrit(_DF, 0.975) / stdtrit(_DF, 0.75)  # rises as df falls
        df = np.exp(np.interp((high - low) / (q3 - q1), tails, np.log(_DF)))
        scale = 0.5 * (q3 - q1) / stdtrit(df, 0.75)
        return float(middle), float(np.log(scale)), float(np.log(df))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        # linear in the middle, logarithmic in the tails: outliers must not set the scale
        location, log_scale, _ = self.start(y)
        return np.arcsinh((y[0] - location) / np.exp(log_scale))[:, None]

    def mean(self, eta: Etas) -> np.ndarray:
        """The location, also where df is so small that there is no mean."""
        return np.asarray(eta[0])

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        return stdtr(np.exp(eta[2]), (y - np.asarray(eta[0])) * np.exp(-np.asarray(eta[1])))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Infinite where df is 2 or less."""
        df, square = np.broadcast_arrays(np.exp(eta[2]), np.exp(2 * np.asarray(eta[1])))
        finite = df > 2
        return np.where(finite, square * df / np.where(finite, df - 2, 1.0), np.inf)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        location, scale, df = np.broadcast_arrays(eta[0], np.exp(eta[1]), np.exp(eta[2]))
        return location + scale * rng.standard_t(df)
