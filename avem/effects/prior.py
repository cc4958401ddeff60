"""The covariance Sigma of the random effects: its structures and their M-step."""

from __future__ import annotations

import numpy as np

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


def log_joint(loglik: np.ndarray, covariance: np.ndarray, f: np.ndarray) -> np.ndarray:
    """log p(D_i, f_i) of each subject, from log p(D_i | f_i); -inf where that is not finite."""
    height = np.asarray(loglik) + log_density(covariance, f)
    return np.where(np.isfinite(height), height, -np.inf)


def log_density(covariance: np.ndarray, f: np.ndarray) -> np.ndarray:
    """log N(f; 0, Sigma) of each column of f (d, subjects)."""
    factor = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(factor, f)
    logdet = 2.0 * np.log(np.diagonal(factor)).sum()
    with np.errstate(over="ignore"):  # an effect out of all bounds has density 0
        return -0.5 * ((whitened**2).sum(0) + logdet + len(f) * np.log(2.0 * np.pi))
