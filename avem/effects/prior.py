"""The covariance Sigma of the random effects: its structures and their M-step."""

from __future__ import annotations

from typing import Any

import numpy as np

from avem.numerics.arrays import per_subject

STRUCTURES = ("full", "block", "diagonal", "isotropic")


def project_covariance(moment: np.ndarray, structure: str, blocks: np.ndarray) -> np.ndarray:
    """The covariance of the given structure that maximises the likelihood of the second moment.

    ``moment`` is the mean over subjects of Omega_i + nu_i nu_i' (eq. update_sigma). Effects of
    different ``blocks`` (separate group terms of the formula) are independent.
    """
    if structure == "isotropic":
        return np.eye(len(moment)) * np.trace(moment) / len(moment)
    if structure == "diagonal":
        return np.diag(np.diag(moment))
    return np.where(blocks[:, None] == blocks[None], moment, 0.0)


@per_subject
def log_joint(xp: Any, loglik: Any, covariance: Any, f: Any) -> Any:
    """log p(D_i, f_i) of each subject, from log p(D_i | f_i); -inf where that is not finite."""
    height = loglik + _log_density(xp, covariance, f)
    return xp.where(xp.isfinite(height), height, -xp.inf)


def _log_density(xp: Any, covariance: Any, f: Any) -> Any:
    """log N(f; 0, Sigma) of each column of f (d, subjects)."""
    factor = xp.linalg.cholesky(covariance)
    whitened = xp.linalg.solve(factor, f)
    logdet = 2.0 * xp.log(xp.diagonal(factor)).sum()
    return -0.5 * ((whitened**2).sum(0) + logdet + len(f) * np.log(2.0 * np.pi))
