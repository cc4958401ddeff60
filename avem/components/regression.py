"""Least squares within clusters of rows, for starting values."""

from __future__ import annotations

import numpy as np


def regress(
    x: np.ndarray, y: np.ndarray, label: np.ndarray, n_states: int, rng: np.random.Generator
) -> np.ndarray:
    """(state, outcome, term) least squares within clusters; an empty cluster takes a random row."""
    pooled = _least_squares(x, y)
    coef = np.repeat(pooled[None], n_states, axis=0)
    for k in range(n_states):
        members = label == k
        if members.sum() > x.shape[1]:
            coef[k] = _least_squares(x[members], y[members])
        else:
            row = rng.integers(len(y))
            miss = y[row] - pooled @ x[row]
            coef[k] = pooled + np.outer(miss, x[row]) / max(x[row] @ x[row], 1e-12)
    return coef


def _least_squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(outcome, term) by the normal equations: columns have unit size, and a start may be rough."""
    square = x.T @ x
    if square.shape == (1, 1) and square[0, 0] > 0:  # an intercept alone: the mean
        return (x.T @ y / square).T
    return (np.linalg.pinv(square, rcond=1e-10, hermitian=True) @ (x.T @ y)).T
