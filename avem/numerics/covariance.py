"""Covariance matrices that must stay away from singular."""

from __future__ import annotations

import numpy as np

from avem.numerics.small import factor

_WORST_CONDITION = 1e-10
"""Smallest eigenvalue relative to the largest: beyond, factorisations fail."""
_WITHIN_ROUNDING = 1e-12
"""Added to variances where rounding has made correlations singular."""
_LEAST = 1e-7
"""Of the diagonal of their factor: the square is what is left of the variance."""


def factorable(covariances: np.ndarray) -> np.ndarray:
    """Those (d, d, n) that rounding has made singular, or less, with a little more variance."""
    d = len(covariances)
    if d < 2:
        return covariances
    variance = covariances[np.arange(d), np.arange(d)]
    unit = np.sqrt(np.where(variance > 0, variance, 1.0))
    with np.errstate(all="ignore"):
        low = factor(np, covariances / (unit[:, None] * unit))
    lost = ~(low[np.arange(d), np.arange(d)] > _LEAST).all(0)
    more = np.where(lost, _WITHIN_ROUNDING * variance, 0.0)
    return covariances + np.eye(d)[:, :, None] * more


def floor_eigenvalues(covariance: np.ndarray, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The covariance made symmetric, and no smaller than ``diag(floor)`` in any direction.

    Also (d,) which variables make up the directions that had to be raised.
    """
    unit, even = np.sqrt(floor), (covariance + covariance.T) / 2
    scaled = even / np.outer(unit, unit)
    values, vectors = np.linalg.eigh(scaled)
    smallest = max(1.0, _WORST_CONDITION * values.max(initial=0.0))
    low = values < smallest
    if not low.any():
        return even, np.zeros(len(covariance), bool)
    raised = (vectors * np.maximum(values, smallest)) @ vectors.T * np.outer(unit, unit)
    return (raised + raised.T) / 2, (vectors[:, low] ** 2).max(1) > 0.1
