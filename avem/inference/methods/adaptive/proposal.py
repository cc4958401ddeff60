"""A mixture of centres with nodes around them: what each node weighs, and where centres follow to.

It is little work beside the local passes, and on a processor nothing of it is compiled, whatever
the number of nodes and centres (`per_subject`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from avem.inference.methods.adaptive.mixture import LEAST_SHARE, Centres, log_base
from avem.inference.methods.adaptive.rules import Rule
from avem.inference.tuning import BETWEEN
from avem.numerics.arrays import log_sum, per_subject
from avem.numerics.small import contract, factor

_BLOCK = 9
"""Nodes at a time."""


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

    def following(self, share: Any) -> Centres:
        """The centres with the moments of the posterior near them.

        `share` (node, subject) may be of more nodes: the first ones are these.
        """
        old = self.centres
        if not self.at.shape[1]:
            return old
        return Centres(*_following(*old[:3], self.at, self.part, share), prior=old.prior)


def integral(
    centres: Centres, rule: Rule, sigma: np.ndarray, loglik_at: Callable[[Any], Any]
) -> tuple[Any, Centres]:
    """(subject,) log p(D_i), from log p(D_i | f) (node, subject) at nodes; centres that follow.

    A few nodes of one centre at a time: whatever the rule, it takes the same code.
    """
    old = centres[:3]
    sums = _nothing(centres.mean)
    for c in range(len(centres.mean)):
        for points, log_weights in _in_blocks(rule):
            at, log_weight, part = _some_nodes(*old, np.int32(c), points, log_weights, sigma)
            sums = _added(sums, centres.mean, at, log_weight, loglik_at(at), part)
    total, moved = _integrated(*old, sums)
    return total, Centres(*moved, prior=centres.prior)


def _in_blocks(rule: Rule) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Nodes and log weights; the last ones are filled up with nodes that weigh nothing."""
    n = len(rule.points)
    for first in range(0, n, _BLOCK):
        own = np.arange(first, first + _BLOCK)
        points = rule.points[np.minimum(own, n - 1)]
        yield points, np.where(own < n, rule.log_weights[np.minimum(own, n - 1)], -np.inf)


@per_subject
def _nodes(
    xp: Any, log_share: Any, mean: Any, covariance: Any, points: Any, log_weights: Any, sigma: Any
) -> tuple[Any, Any, Any]:
    """Where the nodes are, what they weigh, and whose they are."""
    low = factor(xp, xp.moveaxis(covariance, 0, 2))  # (d, d, centre, subject)
    at = _places(xp, mean, low, points)
    over, part = _over_mixture(xp, log_share, mean, low, sigma, at)
    weight = log_share[:, None] + log_weights[None, :, None]
    return at, weight.reshape(over.shape) + over, part


@per_subject
def _some_nodes(
    xp: Any,
    log_share: Any,
    mean: Any,
    covariance: Any,
    which: Any,
    points: Any,
    log_weights: Any,
    sigma: Any,
) -> tuple[Any, Any, Any]:
    """The same of some nodes of one of the centres."""
    low = factor(xp, xp.moveaxis(covariance, 0, 2))
    at = _places(xp, mean[which][None], low[:, :, which][:, :, None], points)
    over, part = _over_mixture(xp, log_share, mean, low, sigma, at)
    return at, log_share[which] + log_weights[:, None] + over, part


def _over_mixture(
    xp: Any, log_share: Any, mean: Any, low: Any, sigma: Any, at: Any
) -> tuple[Any, Any]:
    """Log of prior over mixture at nodes, and the share of each centre (centre, node, n) in it."""
    parts = log_share[:, None] + _log_normal(xp, at - mean[:, None], low)
    mixture = log_sum(xp, parts)
    prior = _log_normal(xp, at[None], factor(xp, sigma[:, :, None, None]))[0]
    return prior - mixture, xp.exp(parts - mixture)


class _Sums(NamedTuple):
    """Over nodes, of what they weigh in the posterior, times a common factor of each subject."""

    top: Any
    """(subject,) log of what that is divided by."""
    mass: Any
    """(centre, subject)."""
    first: Any
    """(centre, d, subject) of the distance from the centre's mean."""
    second: Any
    """(centre, d, d, subject)."""


@per_subject
def _nothing(xp: Any, mean: Any) -> _Sums:
    zero = xp.zeros_like(mean)
    square = zero[:, :, None] * zero[:, None]
    return _Sums(xp.full(mean.shape[-1], -xp.inf, mean.dtype), zero.sum(1), zero, square)


@per_subject
def _added(
    xp: Any, sums: _Sums, mean: Any, at: Any, log_weight: Any, loglik: Any, part: Any
) -> _Sums:
    """With some more nodes."""
    height = log_weight + loglik
    top = xp.maximum(sums.top, height.max(0))
    known = xp.where(xp.isfinite(top), top, 0.0)
    more = _moments(xp, mean, at, xp.exp(height - known) * part)
    less = xp.exp(sums.top - known)
    return _Sums(top, *(old * less + new for old, new in zip(sums[1:], more, strict=True)))


@per_subject
def _integrated(
    xp: Any, log_share: Any, mean: Any, covariance: Any, sums: _Sums
) -> tuple[Any, tuple[Any, Any, Any]]:
    """log p(D_i), and the centres that follow."""
    mass = sums.mass.sum(0)
    share = (part / mass for part in sums[1:])
    total = xp.where(xp.isfinite(sums.top), sums.top, 0.0) + xp.log(mass)
    return total, _followed(xp, log_share, mean, covariance, *share)


@per_subject
def _following(
    xp: Any, log_share: Any, mean: Any, covariance: Any, at: Any, part: Any, share: Any
) -> tuple[Any, Any, Any]:
    moments = _moments(xp, mean, at, share[: len(at)] * part)
    return _followed(xp, log_share, mean, covariance, *moments)


def _moments(xp: Any, mean: Any, at: Any, own: Any) -> tuple[Any, Any, Any]:
    """Sums over nodes of `own` (centre, node, n), and by it of distances from each centre."""
    away = at - mean[:, None]
    once = own[:, :, None] * away
    return own.sum(1), once.sum(1), contract(xp, "cjan,cjbn->cabn", once, away)


def _followed(
    xp: Any, log_share: Any, old_mean: Any, old_cov: Any, mass: Any, first: Any, second: Any
) -> tuple[Any, Any, Any]:
    """The centres with these moments."""
    safe = xp.maximum(mass, 1e-12)
    shift = first / safe[:, None]
    cov = second / safe[:, None, None] - shift[:, :, None] * shift[:, None]
    # Never much narrower than before: the nodes must be able to find their way back. And the
    # mixture must cover what lies between its parts.
    in_use = xp.isfinite(log_share)
    cov = xp.where(in_use.sum(0) > 1, BETWEEN, 1.0) * (cov + 1e-3 * old_cov)
    sound = xp.isfinite(mass.sum(0))
    used = xp.isfinite(cov).all((1, 2)) & (mass > 1e-6) & sound
    new_share = xp.where(in_use, xp.log(xp.maximum(mass, LEAST_SHARE)), -xp.inf)
    new_share = xp.where(sound, new_share, log_share)
    return (
        new_share - log_sum(xp, new_share),
        xp.where(used[:, None], old_mean + shift, old_mean),
        xp.where(used[:, None, None], cov, old_cov),
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
