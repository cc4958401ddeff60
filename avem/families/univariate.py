"""Families of one outcome whose density is a function of linear predictors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jax import Array

from avem.families.base import Alone, Etas, Family, Parameter


class Mean(NamedTuple):
    """One number that says where an outcome lies."""

    outcome: str
    label: str
    """The outcome, or "outcome[level]" for the probability of a level."""
    scale: str
    """ "log", "logit" or "": where it is free."""


class Univariate(Family):
    """One outcome in one state: a density in its linear predictors, and what follows from it.

    ``y`` is a tuple: the outcome and, where a family reads more columns (`extras`), those.
    """

    harmless: ClassVar[float] = 0.0
    """A value of the outcome at which density and gradient are finite: stands in for a missing."""

    # --- to be written ------------------------------------------------------------------------

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """One for each linear predictor, location first."""

    @abstractmethod
    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        """(rows,) bool: which observed values the density can take."""

    @abstractmethod
    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        """Log density, elementwise; traced by JAX and differentiated twice in each `eta`."""

    @abstractmethod
    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        """Linear predictors that fit all observed values `y` together: moments, not a search."""

    @abstractmethod
    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        """(rows, columns) numbers of comparable size in which different states lie apart."""

    @abstractmethod
    def mean(self, eta: Etas) -> np.ndarray:
        """Expected outcome: orders the states and draws the fitted line."""

    @abstractmethod
    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Probability of an outcome of at most `y`, elementwise; of an angle, of -pi to `y`."""

    @abstractmethod
    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Variance of the outcome; of an angle, 1 less the length of the mean unit vector."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        """One value per row."""

    # --- what follows -------------------------------------------------------------------------

    def below(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Probability of an outcome less than `y`: less than `cdf` where single values have one."""
        return self.cdf(np.asarray(y) - 1.0 if self.discrete else y, eta, extras)

    def expected(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Expected outcome where the further columns are known."""
        return np.asarray(self.mean(eta))

    def natural(self, eta: Etas) -> dict[str, np.ndarray]:
        """The parameters as people read them: names and values."""
        pairs = zip(self.parameters, eta, strict=True)
        return {parameter.name: parameter.link.to_natural(value) for parameter, value in pairs}

    def alone(self, number: int) -> Alone | None:
        return Alone(self, lambda etas, noise, state: etas)

    @property
    def location(self) -> str:
        return self.parameters[0].name if self.n_location == 1 else "distribution of levels"

    @property
    def chances(self) -> bool:
        """The outcome's own formula describes probabilities."""
        return self.levels is not None or self.location == "probability"

    @property
    def coef_scale(self) -> str:
        link = self.parameters[0].link.name
        return "" if link in ("identity", "angle") else f"{link} scale"

    @property
    def with_formula(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters[self.n_location :])

    def natural_location(self, outcome: str, eta: Etas) -> dict[str, np.ndarray]:
        """What the outcome's own formula describes, as people read it: names and values."""
        return {outcome: self.parameters[0].link.to_natural(eta[0])}

    def means(self, outcome: str) -> list[Mean]:
        """What the columns of `mean_values` are."""
        if self.levels is None:
            link = self.parameters[0].link.name
            return [Mean(outcome, outcome, link if link in ("log", "logit") else "")]
        if tuple(self.levels) == (0, 1):
            return [Mean(outcome, outcome, "logit")]
        shown = self.levels if len(self.levels) > 2 else self.levels[1:]
        return [Mean(outcome, f"{outcome}[{level}]", "logit") for level in shown]

    def mean_values(self, eta: Etas) -> np.ndarray:
        """(rows, numbers) the mean; of levels, the probability of the second of two, or of all."""
        if len(self.levels or ()) > 2:
            return np.stack(list(self.natural(eta).values()), axis=1)
        return self.mean(eta)[:, None]
