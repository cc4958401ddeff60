"""Draws of the effects from what is known of them."""

from __future__ import annotations

import numpy as np


def roots(cov: np.ndarray) -> np.ndarray:
    """(d, d, subjects) square roots of covariances, some of which may be singular."""
    values, vectors = np.linalg.eigh(np.moveaxis(cov, -1, 0))
    return np.moveaxis(vectors * np.sqrt(np.maximum(values, 0.0))[:, None], 0, -1)


def draw_new_effects(sigma: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, d) effects of subjects never seen, from N(0, Sigma)."""
    return rng.standard_normal((n, len(sigma))) @ roots(sigma[:, :, None])[:, :, 0].T


def draw_effects(mean: np.ndarray, cov: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(d, subjects) one draw of every subject's effects from N(mean, cov)."""
    z = rng.standard_normal(mean.shape)
    return mean + np.einsum("dei,ei->di", roots(cov), z)
