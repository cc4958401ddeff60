"""Gaussian outcomes, with noise that is spherical, diagonal or full."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from avem.data.formula import Formula
from avem.errors import ModelError, did_you_mean
from avem.families.base import Alone, Etas, Family, Table
from avem.families.normal import UnivariateGaussian

COVARIANCES = ("spherical", "diagonal", "full")


@dataclass(frozen=True)
class Gaussian(Family):
    """Gaussian outcomes.

    Parameters
    ----------
    covariance : {"diagonal", "spherical", "full"}
        Of the noise within a state. ``"diagonal"``: each outcome has its own variance in each state
        (the default); ``"spherical"``: one variance per state (the paper's model); ``"full"``:
        outcomes are correlated within a state.

    Examples
    --------
    >>> avem.Gaussian("full")
    Gaussian(covariance='full')
    """

    covariance: Literal["diagonal", "spherical", "full"] = "diagonal"

    name = "gaussian"
    other_names = ("normal",)
    emission = "gaussian"
    linear_gaussian = True
    concave = True

    def __post_init__(self) -> None:
        if self.covariance not in COVARIANCES:
            raise ModelError(
                f"Gaussian covariance is {self.covariance!r}; "
                f"choose one of {', '.join(COVARIANCES)}."
                f"{did_you_mean(self.covariance, COVARIANCES)}"
            )

    @property
    def noise_name(self) -> str:
        """Name of the noise parameter in `fit.params`."""
        return "covariance" if self.covariance == "full" else "variance"

    def noise_shape(self, n_states: int, n_outcomes: int) -> tuple[int, ...]:
        """Shape of the noise parameter in `fit.params`.

        Parameters
        ----------
        n_states : int
            Number of states.
        n_outcomes : int
            Number of outcomes.

        Returns
        -------
        tuple of int

        Examples
        --------
        >>> avem.Gaussian("full").noise_shape(n_states=2, n_outcomes=3)
        (2, 3, 3)
        """
        extra = {"spherical": 0, "diagonal": 1, "full": 2}[self.covariance]
        return (n_states, *(n_outcomes,) * extra)

    def noise_to_params(self, covariance: np.ndarray) -> np.ndarray:
        """The user's array from the one used inside.

        Parameters
        ----------
        covariance : numpy.ndarray
            (states, outcomes, outcomes)

        Returns
        -------
        numpy.ndarray
            Of the shape that `noise_shape` says.

        Examples
        --------
        >>> avem.Gaussian("spherical").noise_to_params(np.stack([np.eye(2), 4 * np.eye(2)]))
        array([1., 4.])
        """
        diagonal = np.diagonal(covariance, axis1=1, axis2=2)
        by_kind = {"spherical": diagonal[:, 0], "diagonal": diagonal, "full": covariance}
        return np.array(by_kind[self.covariance])

    def noise_from_params(self, noise: np.ndarray, n_outcomes: int) -> np.ndarray:
        """The inverse of `noise_to_params`.

        Parameters
        ----------
        noise : numpy.ndarray
            Of the shape that `noise_shape` says.
        n_outcomes : int
            Number of outcomes.

        Returns
        -------
        numpy.ndarray
            (states, outcomes, outcomes)

        Examples
        --------
        >>> avem.Gaussian("spherical").noise_from_params(np.array([1.0, 4.0]), n_outcomes=2).shape
        (2, 2, 2)
        """
        if self.covariance == "full":
            return np.array(noise, float)
        variance = noise[:, None] if noise.ndim == 1 else noise
        return np.eye(n_outcomes) * np.broadcast_to(variance, (len(noise), n_outcomes))[:, None]

    @property
    def location(self) -> str:
        return "mean"

    @property
    def with_formula(self) -> tuple[str, ...]:
        return ("sd",)

    @property
    def own_params(self) -> tuple[str, ...]:
        return (self.noise_name,)

    def given(
        self, formula: Formula, parameters: Collection[str], effects_by_state: bool
    ) -> Family:
        what = "A formula for sd=" if "sd" in parameters else "offset() in a formula"
        if "sd" not in parameters and not formula.offset:
            return self
        if self.covariance != "diagonal":
            raise ModelError(
                f'{what} needs outcomes that are independent given the state: Gaussian("diagonal").'
            )
        return UnivariateGaussian()

    def within(self, other: Family, numbers: tuple[int, int] = (1, 1)) -> bool:
        own, others = numbers
        if other.name == "normal":
            return own == 1 or self.covariance != "full"
        if not isinstance(other, Gaussian):
            return False
        if own == others == 1:
            return True
        # Together the parts of a larger whole are diagonal, or have correlations within parts.
        apart = "diagonal" if own == 1 else self.covariance
        mine = max(COVARIANCES.index(apart), int(own < others))
        theirs = COVARIANCES.index(other.covariance)
        return mine <= (min(theirs, 1) if others < own else theirs)

    def alone(self, number: int) -> Alone:
        """A normal distribution with the outcome's own variance."""

        def predictors(etas: Etas, covariance: np.ndarray, state: np.ndarray) -> Etas:
            variance = np.diagonal(covariance, axis1=1, axis2=2)[state, number]
            return etas[number], np.broadcast_to(0.5 * np.log(variance), np.shape(etas[number]))

        return Alone(UnivariateGaussian(), predictors)

    def describe(self) -> str:
        return f"Gaussian ({self.covariance})"

    @property
    def sentence(self) -> str:
        return "Gaussian"

    @property
    def noise_words(self) -> str:
        return {
            "spherical": "one variance for all outcomes",
            "diagonal": "a variance for each outcome",
            "full": "outcomes that are correlated within the state",
        }[self.covariance]

    def tables(self, params: Mapping[str, np.ndarray], outcomes: Sequence[str]) -> Iterator[Table]:
        covariance = self.noise_from_params(params[self.noise_name], len(outcomes))
        sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        yield "noise (standard deviation)", sd.T, outcomes
        if self.covariance == "full" and len(outcomes) > 1:
            pairs = [(i, j) for i in range(len(outcomes)) for j in range(i)]
            values = [covariance[:, i, j] / (sd[:, i] * sd[:, j]) for i, j in pairs]
            yield (
                "noise (correlation)",
                values,
                [f"{outcomes[i]} with {outcomes[j]}" for i, j in pairs],
            )

    def groups(self, observed: np.ndarray) -> tuple[tuple[tuple[int, ...], ...], np.ndarray]:
        """The groups of outcomes that are observed together, and which of them each row has.

        Parameters
        ----------
        observed : numpy.ndarray of bool
            (rows, outcomes) which cells are not missing.

        Returns
        -------
        tuple of (tuple of tuple of int, numpy.ndarray)
            The columns of each group, and (rows, groups) bool.

        Examples
        --------
        >>> seen = np.array([[True, True], [True, False]])
        >>> avem.Gaussian("diagonal").groups(seen)[0]
        ((0,), (1,))
        """
        n_outcomes = observed.shape[1]
        every = tuple(range(n_outcomes))
        whole_rows = observed.all() or (observed == observed[:, :1]).all()
        if whole_rows:
            return (every,), observed[:, :1]
        if self.covariance != "full":
            return tuple((j,) for j in every), observed
        patterns, which = np.unique(observed, axis=0, return_inverse=True)
        some = np.flatnonzero(patterns.any(1))
        groups = tuple(tuple(np.flatnonzero(patterns[c]).tolist()) for c in some)
        return groups, which.reshape(-1, 1) == some
