"""Covariance matrices that must stay away from singular."""

from __future__ import annotations

import numpy as np

_WORST_CONDITION = 1e-10
"""Smallest eigenvalue relative to the largest: beyond, factorisations fail."""


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
