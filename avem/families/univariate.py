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

    Examples
    --------
    >>> isinstance(avem.Poisson(), avem.families.Univariate)
    True
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
        """Log density, elementwise; traced by JAX and differentiated twice in each `eta`.

        Parameters
        ----------
        y : tuple of array
            (rows,) the outcome and the further columns that the family reads (`extras`).
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.

        Returns
        -------
        jax.Array
            Log probability where the outcome takes separate values.

        Examples
        --------
        >>> round(float(avem.Poisson().log_density((2.0,), (np.log(3.0),))), 3)
        -1.496
        """

    @abstractmethod
    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        """Linear predictors that fit all observed values together: moments, not a search.

        Parameters
        ----------
        y : tuple of numpy.ndarray
            (rows,) the outcome and the further columns that the family reads (`extras`).

        Returns
        -------
        tuple of float

        Examples
        --------
        >>> [round(eta, 3) for eta in avem.Poisson().start((np.array([1.0, 3.0]),))]
        [0.693]
        """

    @abstractmethod
    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        """Numbers of comparable size in which different states lie apart.

        Parameters
        ----------
        y : tuple of numpy.ndarray
            (rows,) the outcome and the further columns that the family reads (`extras`).

        Returns
        -------
        numpy.ndarray
            (rows, columns)

        Examples
        --------
        >>> avem.Poisson().features((np.array([1.0, 4.0]),))
        array([[1.],
               [2.]])
        """

    @abstractmethod
    def mean(self, eta: Etas) -> np.ndarray:
        """Expected outcome: orders the states and draws the fitted line.

        Parameters
        ----------
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.

        Returns
        -------
        numpy.ndarray

        Examples
        --------
        >>> avem.Poisson().mean((np.log([2.0, 5.0]),))
        array([2., 5.])
        """

    @abstractmethod
    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Probability of an outcome of at most `y`, elementwise; of an angle, of -pi to `y`.

        Parameters
        ----------
        y : array
            Values of the outcome.
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.
        extras : tuple of array
            The further columns that the family reads.

        Returns
        -------
        numpy.ndarray

        Examples
        --------
        >>> avem.Poisson().cdf(np.array([0.0, 1.0]), (0.0,)).round(3)
        array([0.368, 0.736])
        """

    @abstractmethod
    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Variance of the outcome; of an angle, 1 less the length of the mean unit vector.

        Parameters
        ----------
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.
        extras : tuple of array
            The further columns that the family reads.

        Returns
        -------
        numpy.ndarray

        Examples
        --------
        >>> avem.Poisson().variance((np.log([2.0, 5.0]),))
        array([2., 5.])
        """

    @abstractmethod
    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        """One value per row.

        Parameters
        ----------
        rng : numpy.random.Generator
            The source of randomness.
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.
        extras : tuple of array
            The further columns that the family reads.

        Returns
        -------
        numpy.ndarray

        Examples
        --------
        >>> avem.Poisson().draw(np.random.default_rng(0), (np.zeros(4),), ()).shape
        (4,)
        """

    # --- what follows -------------------------------------------------------------------------

    def below(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Probability of an outcome less than `y`: less than `cdf` where single values have one.

        Parameters
        ----------
        y : array
            Values of the outcome.
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.
        extras : tuple of array
            The further columns that the family reads.

        Returns
        -------
        numpy.ndarray

        Examples
        --------
        >>> avem.Poisson().below(np.array([0.0, 1.0]), (0.0,)).round(3)
        array([0.   , 0.368])
        """
        return self.cdf(np.asarray(y) - 1.0 if self.discrete else y, eta, extras)

    def expected(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Expected outcome where the further columns are known.

        Parameters
        ----------
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.
        extras : tuple of array
            The further columns that the family reads.

        Returns
        -------
        numpy.ndarray

        Examples
        --------
        >>> avem.Binomial(trials="n").expected((np.zeros(2),), (np.array([4.0, 10.0]),))
        array([2., 5.])
        """
        return np.asarray(self.mean(eta))

    def natural(self, eta: Etas) -> dict[str, np.ndarray]:
        """The parameters as people read them: names and values.

        Parameters
        ----------
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.

        Returns
        -------
        dict of str to numpy.ndarray

        Examples
        --------
        >>> {name: float(value) for name, value in avem.Gamma().natural((0.0, 0.0)).items()}
        {'mean': 1.0, 'shape': 1.0}
        """
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
        """What the outcome's own formula describes, as people read it: names and values.

        Parameters
        ----------
        outcome : str
            Its name.
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.

        Returns
        -------
        dict of str to numpy.ndarray

        Examples
        --------
        >>> avem.Poisson().natural_location("n_calls", (np.zeros(2),))
        {'n_calls': array([1., 1.])}
        """
        return {outcome: self.parameters[0].link.to_natural(eta[0])}

    def means(self, outcome: str) -> list[Mean]:
        """What the columns of `mean_values` are.

        Parameters
        ----------
        outcome : str
            Its name.

        Returns
        -------
        list of Mean

        Examples
        --------
        >>> [mean.label for mean in avem.Categorical(("a", "b", "c")).means("kind")]
        ['kind[a]', 'kind[b]', 'kind[c]']
        """
        if self.levels is None:
            link = self.parameters[0].link.name
            return [Mean(outcome, outcome, link if link in ("log", "logit") else "")]
        if tuple(self.levels) == (0, 1):
            return [Mean(outcome, outcome, "logit")]
        shown = self.levels if len(self.levels) > 2 else self.levels[1:]
        return [Mean(outcome, f"{outcome}[{level}]", "logit") for level in shown]

    def mean_values(self, eta: Etas) -> np.ndarray:
        """The mean of the outcome; of levels, the probability of the second of two, or of all.

        Parameters
        ----------
        eta : tuple of array
            One array per linear predictor; they broadcast against each other.

        Returns
        -------
        numpy.ndarray
            (rows, numbers)

        Examples
        --------
        >>> avem.Categorical(("a", "b", "c")).mean_values((np.zeros(2), np.zeros(2))).shape
        (2, 3)
        """
        if len(self.levels or ()) > 2:
            return np.stack(list(self.natural(eta).values()), axis=1)
        return self.mean(eta)[:, None]
