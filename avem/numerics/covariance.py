"""Covariance matrices that must stay away from singular."""

from __future__ import annotations

import numpy as np


def floor_eigenvalues(covariance: np.ndarray, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The covariance made no smaller than ``diag(floor)`` in any direction.

    Also (d,) which variables make up the directions that had to be raised.
    """
    unit = np.sqrt(floor)
    scaled = (covariance + covariance.T) / (2 * np.outer(unit, unit))
    values, vectors = np.linalg.eigh(scaled)
    low = values < 1.0
    if not low.any():
        return covariance, np.zeros(len(covariance), bool)
    raised = (vectors * np.maximum(values, 1.0)) @ vectors.T * np.outer(unit, unit)
    return raised, (vectors[:, low] ** 2).max(1) > 0.1
