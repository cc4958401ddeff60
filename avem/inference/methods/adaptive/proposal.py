"""A mixture of centres with nodes around them: what each node weighs, and where centres follow to.

In NumPy: it is little work beside the local passes, and need not be compiled for every number of
nodes and centres.
"""

from __future__ import annotations

import numpy as np

from avem.inference.methods.adaptive.mixture import LEAST_SHARE, Centres, log_base
from avem.inference.methods.adaptive.rules import Rule
from avem.inference.tuning import BETWEEN


class Proposal:
    """The nodes of a chunk's subjects, under an effect covariance."""

    def __init__(self, centres: Centres, rule: Rule, sigma: np.ndarray) -> None:
        self._centres = centres
        self._log_share = np.asarray(centres.log_share)  # (centre, subject)
        mean = np.moveaxis(np.asarray(centres.mean), -1, 1)  # (centre, subject, d)
        low = _cholesky(np.moveaxis(np.asarray(centres.covariance), -1, 1))
        at = mean[:, None] + np.einsum("cnab,jb->cjna", low, rule.points)
        n_centres, n_points, n, d = at.shape
        at = at.reshape(n_centres * n_points, n, d)
        self.at = np.ascontiguousarray(np.moveaxis(at, 1, 2))
        """(node, d, subject)."""
        away = at[None] - mean[:, None]  # (centre, node, subject, d)
        parts = _log_normal(low[:, None], away) + self._log_share[:, None]
        with np.errstate(invalid="ignore"):  # what is not finite is seen in the likelihood
            mixture = np.logaddexp.reduce(parts, axis=0)
            self._part = np.exp(parts - mixture)  # (centre, node, subject): whose a node is
        own = self._log_share[:, None] + rule.log_weights[None, :, None]
        own = own.reshape(n_centres * n_points, n)
        self.log_weight = own + _log_normal(_cholesky(sigma), at) - mixture
        """(node, subject) log of what a node weighs, beside the likelihood at it."""

    def integral(self, loglik: np.ndarray) -> tuple[np.ndarray, Centres]:
        """(subject,) log p(D_i), from log p(D_i | f) at the nodes; and the centres that follow."""
        height = self.log_weight + loglik
        with np.errstate(invalid="ignore"):
            total = np.logaddexp.reduce(height, axis=0)
            share = np.exp(height - total)
        return total, self.following(share)

    def following(self, share: np.ndarray) -> Centres:
        """The centres with the moments of the posterior near them; `share` (node, subject)."""
        old, at = self._centres, self.at
        if not at.shape[1]:
            return old
        own = share * self._part
        mass = own.sum(1)
        safe = np.maximum(mass, 1e-12)
        mean = np.einsum("cjn,jan->can", own, at) / safe[:, None]
        away = at[None] - mean[:, None]
        cov = np.einsum("cjn,cjan,cjbn->cabn", own, away, away) / safe[:, None, None]
        # Never much narrower than before: the nodes must be able to find their way back. And the
        # mixture must cover what lies between its parts.
        several = np.isfinite(self._log_share).sum(0) > 1
        cov = np.where(several, BETWEEN, 1.0) * (cov + 1e-3 * np.asarray(old.covariance))
        sound = np.isfinite(share).all(0)
        used = np.isfinite(cov).all((1, 2)) & (mass > 1e-6) & sound
        log_share = np.where(
            np.isfinite(self._log_share), np.log(np.maximum(mass, LEAST_SHARE)), -np.inf
        )
        log_share = np.where(sound, log_share, self._log_share)
        return Centres(
            log_share - np.logaddexp.reduce(log_share, axis=0),
            np.where(used[:, None], mean, old.mean),
            np.where(used[:, None, None], cov, old.covariance),
            old.prior,
        )


def _log_normal(low: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Log density at a distance (..., d) from the mean, from the covariance's factor."""
    d = away.shape[-1]
    white = np.einsum("...ab,...b->...a", np.linalg.inv(low), away)
    volume = np.log(np.diagonal(low, axis1=-2, axis2=-1)).sum(-1)
    return log_base((white**2).sum(-1), d, np.inf, np) - volume


def _cholesky(matrices: np.ndarray) -> np.ndarray:
    """Lower factors (..., d, d); not a number where there is none."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        good = np.asarray(np.isfinite(matrices).all((-2, -1)))
        filled = np.where(good[..., None, None], matrices, np.eye(matrices.shape[-1]))
        good &= np.linalg.eigvalsh(filled)[..., 0] > 0
        filled = np.where(good[..., None, None], matrices, np.eye(matrices.shape[-1]))
        return np.where(good[..., None, None], np.linalg.cholesky(filled), np.nan)
