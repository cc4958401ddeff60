"""A mixture of centres with nodes around them: what each node weighs, and where centres follow to.

It is little work beside the local passes, and on a processor nothing of it is compiled, whatever
the number of nodes and centres (`per_subject`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from avem.inference.methods.adaptive.mixture import LEAST_SHARE, Centres, log_base
from avem.inference.methods.adaptive.rules import Rule
from avem.inference.tuning import BETWEEN
from avem.numerics.arrays import log_sum, per_subject
from avem.numerics.small import factor


class Proposal(NamedTuple):
    """The nodes of a chunk's subjects, under an effect covariance."""

    centres: Centres
    at: Any
    """(node, d, subject)."""
    log_weight: Any
    """(node, subject) log of what a node weighs, beside the likelihood at it."""
    part: Any
    """(centre, node, subject) whose a node is."""

    @classmethod
    def of(cls, centres: Centres, rule: Rule, sigma: np.ndarray) -> Proposal:
        """The nodes of a rule around every centre."""
        return cls(centres, *_nodes(*centres[:3], rule.points, rule.log_weights, sigma))

    def integral(self, logliks: tuple[Any, ...]) -> tuple[Any, Centres]:
        """(subject,) log p(D_i), from log p(D_i | f) at the nodes; and the centres that follow.

        `logliks` come in blocks of nodes, the last one padded.
        """
        total, share = _weighed(self.log_weight, logliks)
        return total, self.following(share)

    def following(self, share: Any) -> Centres:
        """The centres with the moments of the posterior near them.

        `share` (node, subject) may be of more nodes: the first ones are these.
        """
        old = self.centres
        if not self.at.shape[1]:
            return old
        return Centres(*_following(*old[:3], self.at, self.part, share), prior=old.prior)


@per_subject
def _nodes(
    xp: Any, log_share: Any, mean: Any, covariance: Any, points: Any, log_weights: Any, sigma: Any
) -> tuple[Any, Any, Any]:
    """Where the nodes are, what they weigh, and whose they are."""
    low = factor(xp, xp.moveaxis(covariance, 0, 2))  # (d, d, centre, subject)
    at = _places(xp, mean, low, points)
    parts = log_share[:, None] + _log_normal(xp, at - mean[:, None], low)
    mixture = log_sum(xp, parts)
    weight = log_share[:, None] + log_weights[None, :, None]
    prior = _log_normal(xp, at[None], factor(xp, sigma[:, :, None, None]))[0]
    return at, weight.reshape(mixture.shape) + prior - mixture, xp.exp(parts - mixture)


@per_subject
def _weighed(xp: Any, log_weight: Any, logliks: tuple[Any, ...]) -> tuple[Any, Any]:
    """log p(D_i), and the posterior shares of the nodes."""
    height = log_weight + xp.concatenate(logliks)[: len(log_weight)]
    total = log_sum(xp, height)
    return total, xp.exp(height - total)


@per_subject
def _following(
    xp: Any, log_share: Any, old_mean: Any, old_covariance: Any, at: Any, part: Any, share: Any
) -> tuple[Any, Any, Any]:
    share = share[: len(at)]
    own = share * part
    mass = own.sum(1)
    safe = xp.maximum(mass, 1e-12)
    mean = xp.stack([(one[:, None] * at).sum(0) for one in own]) / safe[:, None]
    cov = xp.stack([_second(xp, *one, at) for one in zip(own, mean, strict=True)])
    cov = cov / safe[:, None, None]
    # Never much narrower than before: the nodes must be able to find their way back. And the
    # mixture must cover what lies between its parts.
    in_use = xp.isfinite(log_share)
    cov = xp.where(in_use.sum(0) > 1, BETWEEN, 1.0) * (cov + 1e-3 * old_covariance)
    sound = xp.isfinite(share).all(0)
    used = xp.isfinite(cov).all((1, 2)) & (mass > 1e-6) & sound
    new_share = xp.where(in_use, xp.log(xp.maximum(mass, LEAST_SHARE)), -xp.inf)
    new_share = xp.where(sound, new_share, log_share)
    return (
        new_share - log_sum(xp, new_share),
        xp.where(used[:, None], mean, old_mean),
        xp.where(used[:, None, None], cov, old_covariance),
    )


def _places(xp: Any, mean: Any, low: Any, points: Any) -> Any:
    """(centre x point, d, n) around means (centre, d, n)."""
    n_centres, d, n = mean.shape
    at = xp.broadcast_to(mean[:, None], (n_centres, len(points), d, n))
    if d:
        rows = enumerate(low)
        away = [sum(points[:, j, None] * row[j][:, None] for j in range(i + 1)) for i, row in rows]
        at = at + xp.stack(away, axis=2)
    return at.reshape(n_centres * len(points), d, n)


def _log_normal(xp: Any, away: Any, low: Any) -> Any:
    """(centre, node, n) log density at distances (centre, node, d, n) from the means."""
    white: list[Any] = []
    for i, row in enumerate(low):
        left = away[:, :, i]
        for j, done in enumerate(white):
            left = left - row[j][:, None] * done
        white.append(left / row[i][:, None])
    square = sum((one * one for one in white), xp.zeros((*away.shape[:2], away.shape[-1])))
    volume: Any = sum((xp.log(low[i, i]) for i in range(len(low))), xp.zeros((1, 1)))
    return log_base(square, len(low), np.inf, xp) - volume[:, None]


def _second(xp: Any, share: Any, mean: Any, at: Any) -> Any:
    """(d, d, n) sums of products of distances from the mean."""
    away, d = at - mean, range(len(mean))
    rows = [[(share * away[:, i] * away[:, j]).sum(0) for j in range(i + 1)] for i in d]
    return xp.stack([xp.stack([rows[max(i, j)][min(i, j)] for j in d]) for i in d])
