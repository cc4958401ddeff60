"""The log likelihood of a fit as a number that knows how good it is, and what is made of it."""

from __future__ import annotations

import numpy as np


class LogLik(float):
    """A marginal log likelihood: a number, with its error and its parts.

    Attributes
    ----------
    error : float
        How far it may be off: the difference to a coarser rule, or between two sets of draws.
    by_subject : numpy.ndarray
        (subjects,) the parts, in the order of the data's subjects.
    n_laplace : int
        How many subjects' integrals are Laplace approximations, because importance weights failed.

    Examples
    --------
    >>> loglik = fit.loglik()
    >>> bool(np.isclose(loglik, loglik.by_subject.sum()))
    True
    """

    error: float
    by_subject: np.ndarray
    n_laplace: int

    def __new__(cls, by_subject: np.ndarray, error: np.ndarray, n_laplace: int = 0) -> LogLik:
        """From the subjects' parts and the error of each."""
        self = super().__new__(cls, float(np.sum(by_subject)))
        self.error = float(np.sqrt(np.sum(np.square(error))))
        self.by_subject = np.asarray(by_subject, float)
        self.n_laplace = int(n_laplace)
        return self

    def __repr__(self) -> str:
        rest = f", {self.n_laplace} subjects by Laplace" if self.n_laplace else ""
        return f"{float(self):.4f} (error {self.error:.1g}{rest})"


def aic(loglik: float, n_params: int) -> float:
    """Akaike's criterion."""
    return float(-2.0 * loglik + 2.0 * n_params)


def bic(loglik: float, n_params: int, n_subjects: float) -> float:
    """Schwarz's criterion; the independent units are the subjects."""
    return float(-2.0 * loglik + np.log(n_subjects) * n_params)
