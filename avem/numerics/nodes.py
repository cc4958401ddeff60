"""Points and weights that stand for a standard normal distribution in a few dimensions."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

_PER_DIMENSION = {1: 7, 2: 5}
_N_DRAWS = 64


def gauss_hermite(n_dims: int, per_dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (J, dims) and weights (J,) of the product Gauss-Hermite rule for N(0, I)."""
    if n_dims == 0:
        return np.zeros((1, 0)), np.ones(1)
    x, w = np.polynomial.hermite_e.hermegauss(per_dimension)
    grids = np.meshgrid(*[x] * n_dims, indexing="ij")
    weights = np.meshgrid(*[w / w.sum()] * n_dims, indexing="ij")
    return np.stack([g.ravel() for g in grids], 1), np.prod(weights, axis=0).ravel()


def sobol_normal(n_dims: int, n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Equally weighted Sobol points made normal; their mean and covariance are exactly 0 and I."""
    uniform = qmc.Sobol(n_dims, scramble=False).random(n_points) + 0.5 / n_points
    points = ndtri(uniform)
    points -= points.mean(0)
    root = np.linalg.cholesky(np.atleast_2d(np.cov(points.T, bias=True)))
    return np.linalg.solve(root, points.T).T, np.full(n_points, 1 / n_points)


@cache
def normal_rule(n_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights for E over N(0, I): Gauss-Hermite in 1 or 2 dimensions, QMC above."""
    if n_dims in _PER_DIMENSION:
        return gauss_hermite(n_dims, _PER_DIMENSION[n_dims])
    return sobol_normal(n_dims, _N_DRAWS)


@cache
def small_rule(n_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """The fewest points that are right for cubics: where one evaluation is dear."""
    if n_dims == 1:
        return gauss_hermite(1, 3)
    axes = np.sqrt(n_dims) * np.eye(n_dims)
    return np.concatenate([axes, -axes]), np.full(2 * n_dims, 0.5 / n_dims)
