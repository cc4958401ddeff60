"""A mixture of centres in NumPy: integrals by any number of nodes without compiling for each."""

from __future__ import annotations

import numpy as np

from avem.inference.methods.adaptive.mixture import LEAST_SHARE, Centres, log_base
from avem.inference.tuning import BETWEEN


class Proposal:
    """The centres of a chunk's subjects, subjects first."""

    def __init__(self, centres: Centres) -> None:
        self._centres = centres
        self._log_share = np.asarray(centres.log_share)  # (centre, subject)
        self._mean = np.moveaxis(np.asarray(centres.mean), -1, 1)  # (centre, subject, d)
        wide = np.moveaxis(np.asarray(centres.covariance), -1, 1)
        self._low = np.linalg.cholesky(wide)  # (centre, subject, d, d)
        self._high = np.linalg.inv(self._low)
        self._volume = np.log(np.diagonal(self._low, axis1=-2, axis2=-1)).sum(-1)

    def places(self, points: np.ndarray) -> np.ndarray:
        """(node, d, subject) the points of a standard normal around every centre."""
        at = self._mean[:, None] + np.einsum("cnab,jb->cjna", self._low, points)
        return np.moveaxis(at.reshape(-1, *at.shape[2:]), 1, 2)

    def integral(
        self, sigma: np.ndarray, at: np.ndarray, log_weights: np.ndarray, loglik: np.ndarray
    ) -> tuple[np.ndarray, Centres]:
        """(subject,) log p(D_i), from log p(D_i | f) at the nodes; and the centres that follow."""
        d, n = at.shape[1:]
        away = np.moveaxis(at, 2, 1)[None] - self._mean[:, None]  # (centre, node, subject, d)
        square = (np.einsum("cnab,cjnb->cjna", self._high, away) ** 2).sum(-1)
        parts = log_base(square, d, np.inf, np) - self._volume[:, None] + self._log_share[:, None]
        mixture = np.logaddexp.reduce(parts, axis=0)
        own = (self._log_share[:, None] + log_weights[None, :, None]).reshape(len(at), n)
        height = own + loglik + _log_prior(sigma, at) - mixture
        total = np.logaddexp.reduce(height, axis=0)
        return total, self._following(at, np.exp(height - total) * np.exp(parts - mixture))

    def _following(self, at: np.ndarray, share: np.ndarray) -> Centres:
        """The centres with the moments of the posterior near them; `share` (centre, node, n)."""
        old, mass = self._centres, share.sum(1)
        safe = np.maximum(mass, 1e-12)
        mean = np.einsum("cjn,jan->can", share, at) / safe[:, None]
        away = at[None] - mean[:, None]
        cov = np.einsum("cjn,cjan,cjbn->cabn", share, away, away) / safe[:, None, None]
        several = np.isfinite(self._log_share).sum(0) > 1
        cov = np.where(several, BETWEEN, 1.0) * (cov + 1e-3 * np.asarray(old.covariance))
        used = np.isfinite(cov).all((1, 2)) & (mass > 1e-6)
        log_share = np.where(
            np.isfinite(self._log_share), np.log(np.maximum(mass, LEAST_SHARE)), -np.inf
        )
        return Centres(
            log_share - np.logaddexp.reduce(log_share, axis=0),
            np.where(used[:, None], mean, old.mean),
            np.where(used[:, None, None], cov, old.covariance),
            old.prior,
        )


def _log_prior(sigma: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(node, subject)."""
    low = np.linalg.cholesky(sigma)
    white = np.einsum("ab,jbn->jan", np.linalg.inv(low), at)
    square = (white**2).sum(1)
    return log_base(square, len(sigma), np.inf, np) - np.log(np.diagonal(low)).sum()
