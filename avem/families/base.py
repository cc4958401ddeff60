"""What a family of emissions is: a density in its linear predictors, and a few plain facts.

To add a family, write one leaf class with the members below; `families/__init__.py` lists it, and
the conformance test runs over the list. A family knows one outcome in one state: states, subjects,
effects and missing values are other people's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jax import Array
from scipy.special import expit, logit

Etas = tuple[Any, ...]
"""One array per linear predictor; they broadcast against each other."""


class Link(NamedTuple):
    """How a parameter's natural value goes with its linear predictor."""

    name: str
    to_eta: Callable[[Any], Any]
    to_natural: Callable[[Any], Any]


IDENTITY = Link("identity", np.asarray, np.asarray)
LOG = Link("log", np.log, np.exp)
LOGIT = Link("logit", logit, expit)
ANGLE = Link("angle", np.asarray, lambda eta: np.angle(np.exp(1j * np.asarray(eta))))
"""The identity, read modulo a full turn: there is no boundary at the angle pi."""


class Parameter(NamedTuple):
    """One linear predictor of a family: what users call it, and its link."""

    name: str
    link: Link
    collapse: int = 0
    """-1 or 1: the density closes in on a single value as the predictor goes to -inf or inf."""


class Family(ABC):
    """The interface of an emission family. Leaves are frozen dataclasses, so that jit can key on
    them.

    ``y`` is a tuple: the outcome and, where a family reads more columns (`extras`), those.
    """

    name: ClassVar[str]
    """The word users type."""
    wanted: ClassVar[str]
    """What values it takes, for error messages: "counts (0, 1, 2, ...)"."""
    harmless: ClassVar[float] = 0.0
    """A value of the outcome at which density and gradient are finite: stands in for a missing."""
    takes_levels: ClassVar[bool] = False
    """Whether outcomes are labels, coded 0, 1, ... in the order of the field `levels`."""
    discrete: ClassVar[bool] = False
    """The outcome takes separate values, so that `log_density` is a log probability."""
    angular: ClassVar[bool] = False
    """The outcome is an angle in radians: its mean is a direction."""
    location_scale: ClassVar[bool] = False
    """The first two parameters are a location (identity) and a scale (log), in its unit."""
    concave: ClassVar[bool] = False
    """The log density is concave in its predictors, jointly."""
    n_location: int = 1
    """How many of `parameters`, from the first, the outcome's own formula describes."""
    emission: ClassVar[str] = "glm"
    """The component that emits it: a density in linear predictors."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """One for each linear predictor, location first."""

    @property
    def labels_levels(self) -> bool:
        """Its linear predictors are named by the levels they are about."""
        return self.n_location > 1

    @property
    def extras(self) -> tuple[str, ...]:
        """Further columns of the data that the density needs."""
        return ()

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

    def below(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Probability of an outcome less than `y`: less than `cdf` where single values have one."""
        return self.cdf(np.asarray(y) - 1.0 if self.discrete else y, eta, extras)

    @abstractmethod
    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Variance of the outcome; of an angle, 1 less the length of the mean unit vector."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        """One value per row."""

    def natural(self, eta: Etas) -> dict[str, np.ndarray]:
        """The parameters as people read them: names and values."""
        pairs = zip(self.parameters, eta, strict=True)
        return {parameter.name: parameter.link.to_natural(value) for parameter, value in pairs}
