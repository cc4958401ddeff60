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
        log_share, mean = np.asarray(centres.log_share), np.asarray(centres.mean)
        self._log_share = log_share  # (centre, subject)
        low = [_factor(one) for one in np.asarray(centres.covariance)]
        own = zip(mean, low, strict=True)
        self.at = np.concatenate([_places(*one, rule.points) for one in own])
        """(node, d, subject)."""
        pairs = zip(log_share, mean, low, strict=True)
        parts = np.stack([share + _log_normal(self.at - m, root) for share, m, root in pairs])
        with np.errstate(invalid="ignore"):  # what is not finite is seen in the likelihood
            mixture = np.logaddexp.reduce(parts, axis=0)
            self._part = np.exp(parts - mixture)  # (centre, node, subject): whose a node is
        weight = log_share[:, None] + rule.log_weights[None, :, None]
        prior = _log_normal(self.at, _factor(sigma[:, :, None]))
        self.log_weight = weight.reshape(mixture.shape) + prior - mixture
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
        mean = np.stack([(one[:, None] * at).sum(0) for one in own]) / safe[:, None]
        cov = np.stack([_second(*one, at) for one in zip(own, mean, strict=True)])
        cov = cov / safe[:, None, None]
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


# Entry by entry of the small matrices, subjects last: long loops, and no products of tiny ones.


def _factor(covariance: np.ndarray) -> np.ndarray:
    """Lower Cholesky factors of (d, d, n); not a number where there is none."""
    low = np.zeros_like(covariance)
    with np.errstate(invalid="ignore", divide="ignore"):
        for i in range(len(low)):
            for j in range(i + 1):
                left = covariance[i, j] - (low[i, :j] * low[j, :j]).sum(0)
                low[i, j] = np.sqrt(left) if i == j else left / low[j, j]
    return np.where(np.isfinite(low).all((0, 1)), low, np.nan)


def _places(mean: np.ndarray, low: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(point, d, n) around means (d, n)."""
    at = np.repeat(mean[None], len(points), axis=0)
    for i, row in enumerate(low):
        for j in range(i + 1):
            at[:, i] += points[:, j, None] * row[j]
    return at


def _log_normal(away: np.ndarray, low: np.ndarray) -> np.ndarray:
    """(node, n) log density at distances (node, d, n) from the mean."""
    white: list[np.ndarray] = []
    for i, row in enumerate(low):
        left = away[:, i]
        for j, done in enumerate(white):
            left = left - row[j] * done
        white.append(left / row[i])
    square = sum((one * one for one in white), np.zeros((len(away), away.shape[-1])))
    volume = sum((np.log(low[i, i]) for i in range(len(low))), np.zeros(1))
    return log_base(square, len(low), np.inf, np) - volume


def _second(share: np.ndarray, mean: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(d, d, n) sums of products of distances from the mean."""
    away = at - mean
    out = np.empty((len(mean), *mean.shape))
    for i in range(len(mean)):
        weighed = share * away[:, i]
        for j in range(i + 1):
            out[i, j] = out[j, i] = (weighed * away[:, j]).sum(0)
    return out
