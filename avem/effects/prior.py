"""The covariance Sigma of the random effects: its structures and their M-step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from avem.numerics.arrays import per_subject
from avem.numerics.small import contract

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


class EffectDensity(NamedTuple):
    """What log N(f; 0, Sigma) is computed from: little, so that the driver computes it."""

    half: np.ndarray
    """(d, d) the inverse of Sigma's Cholesky factor."""
    log_height: np.ndarray
    """The log density at 0."""

    @classmethod
    def of(cls, covariance: np.ndarray) -> EffectDensity:
        """Of effects with this covariance."""
        factor = np.linalg.cholesky(covariance)
        constant = 0.5 * len(factor) * np.log(2.0 * np.pi)
        return cls(np.linalg.inv(factor), -np.log(np.diagonal(factor)).sum() - constant)


@per_subject
def log_joint(xp: Any, loglik: Any, density: EffectDensity, f: Any) -> Any:
    """log p(D_i, f_i) of each subject, from log p(D_i | f_i); -inf where that is not finite."""
    white = contract(xp, "ab,bn->an", density.half, f)
    height = loglik + density.log_height - 0.5 * (white**2).sum(0)
    return xp.where(xp.isfinite(height), height, -xp.inf)
