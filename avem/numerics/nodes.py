"""Points and weights that stand for a standard normal distribution in a few dimensions."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtri

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
    from scipy.stats import qmc  # which takes long to import

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


@cache
def cross_rule(n_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """The middle and a pair of points on every axis: right for cubics, all weights positive."""
    middle = max(1.0 - n_dims / 3.0, 1.0 / (n_dims + 1))
    axes = np.sqrt(n_dims / (1.0 - middle)) * np.eye(n_dims)
    outer = np.full(2 * n_dims, (1.0 - middle) / (2 * n_dims))
    points = np.concatenate([np.zeros((1, n_dims)), axes, -axes])
    return points, np.concatenate([[middle], outer])


@cache
def fifth_degree(n_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Mysovskikh's rule, right for polynomials of degree 5; from 7 dimensions on not positive.

    The middle, the vertices of a simplex and the middles of its edges, both with their opposites,
    on a sphere: d^2 + 3d + 3 points.
    """
    d = n_dims
    vertices = np.zeros((d + 1, d))
    for j in range(d):  # of a regular simplex on the unit sphere
        vertices[j, j] = np.sqrt(max(0.0, 1.0 - (vertices[j, :j] ** 2).sum()))
        rest = (-1.0 / d - vertices[j + 1 :, :j] @ vertices[j, :j]) / vertices[j, j]
        vertices[j + 1 :, j] = rest
    pairs = np.array(np.triu_indices(d + 1, 1))
    edges = np.sqrt(d / (2.0 * (d - 1))) * (vertices[pairs[0]] + vertices[pairs[1]])
    points = np.sqrt(d + 2.0) * np.concatenate([vertices, -vertices, edges, -edges])
    scale = ((d + 1) * (d + 2)) ** 2
    of_vertices, of_edges = d**2 * (7 - d) / (2 * scale), 2 * (d - 1) ** 2 / scale
    weights = np.repeat([of_vertices, of_edges], [2 * (d + 1), 2 * len(edges)])
    return np.concatenate([np.zeros((1, d)), points]), np.concatenate([[2 / (d + 2)], weights])
