"""The Gaussian centres around which the adaptive tier puts its nodes, and their densities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from avem.components.lanes import Theta
from avem.kernels.inverse import cholesky, lower_solve
from avem.numerics.arrays import (
    first_ones,
    less,
    per_subject,
    places,
    taken,
    unstacked,
    with_entries,
)
from avem.numerics.small import contract, inverse, spectral

LOG_2PI = float(np.log(2 * np.pi))
_LEAST = -0.5
"""Information in a likelihood, over that in the prior: a posterior at most twice as wide."""
_NEXT_TO_NOTHING = 1e-12
"""Of the prior's covariance, added to others so that they can be inverted."""
LEAST_SHARE = 0.02
"""A centre keeps at least this share of the proposal."""


class Centres(NamedTuple):
    """A mixture of Gaussians for every subject, like its posterior. NumPy's arrays or JAX's."""

    log_share: Any
    """(centre, subject); -inf: the centre is not in use."""
    mean: Any
    """(centre, d, subject)."""
    covariance: Any
    """(centre, d, d, subject)."""
    prior: Any
    """(d, d) the effects' covariance for which they were found."""

    def under(self, sigma: np.ndarray) -> Centres:
        """The centres under another effect covariance; exact where likelihoods are Gaussian.

        Nodes that stood much wider apart than a posterior is wide, because the prior has become
        narrow, would find a likelihood that is not there.
        """
        if not sigma.size or np.array_equal(sigma, self.prior):
            return self
        prior = np.asarray(self.prior)
        told = _NEXT_TO_NOTHING * prior, np.linalg.inv(prior), np.linalg.cholesky(sigma)
        moved = _under(self.mean, self.covariance, *told)
        return Centres(self.log_share, *moved, prior=sigma)

    def each(self, change: Callable[[Any], Any]) -> Centres:
        """Shares, means and covariances changed in the same way."""
        parts = (change(part) for part in (self.log_share, self.mean, self.covariance))
        return Centres(*parts, prior=self.prior)

    def first(self, count: int) -> Centres:
        """The first few centres of everyone."""
        if count == len(self.log_share):
            return self
        return Centres(*first_ones(self[:3], np.empty(count)), prior=self.prior)

    def of(self, members: np.ndarray) -> Centres:
        """Those of some subjects."""
        return Centres(*taken(self[:3], members), prior=self.prior)

    def filled(self, count: int) -> Centres:
        """With more centres, not in use, where the first ones are."""
        if count == len(self.log_share):
            return self
        return Centres(*_filled(self[:3], np.empty(count - len(self.log_share))), prior=self.prior)

    def put(self, members: np.ndarray, other: Centres) -> Centres:
        """With the first few centres of some subjects from others, which have theirs in front."""
        where = places(members, other.log_share.shape[-1])
        return Centres(*_put(self[:3], other[:3], where), prior=self.prior)

    def put_where(self, mask: np.ndarray, other: Centres) -> Centres:
        """With the first few centres of the subjects of `mask` from those of everyone."""
        return Centres(*_put_where(self[:3], other[:3], mask), prior=self.prior)

    def modes(self) -> list[np.ndarray]:
        """The means (d, subject), every subject's heaviest first."""
        return list(unstacked(_heaviest_first(self.log_share, self.mean)))

    @classmethod
    def single(cls, mean: Any, covariance: Any, prior: Any) -> Centres:
        """One centre for every subject; (d, subject) and (d, d, subject)."""
        return cls(np.zeros((1, mean.shape[1])), mean[None], covariance[None], prior)

    def shifted(self, shift: Array) -> Centres:
        """The centres when `shift` moves from the effects into the coefficients."""
        return self._replace(mean=less(self.mean, shift))

    def stepped(self, towards: Centres, stride: np.ndarray) -> Centres:
        """Themselves: nodes stay where they are while a q_i takes its steps."""
        return self


@per_subject
def _under(
    xp: Any, mean: Any, covariance: Any, little: Any, before: Any, low: Any
) -> tuple[Any, Any]:
    """Means and covariances under another prior; those that are not finite stay as they are.

    `little` is added so that covariances can be inverted, `before` is the inverse of the old
    prior's, `low` the Cholesky factor of the new one's.
    """

    def between(left: Any, middle: Any) -> Any:
        half = contract(xp, "ab,bdcn->adcn", left, middle)
        return contract(xp, "adcn,ed->aecn", half, left)

    precision = inverse(xp, xp.moveaxis(covariance + little[:, :, None], 0, 2))
    known = between(low.T, precision - before[:, :, None, None])  # (d, d, centre, subject)
    new = between(low, spectral(xp, known, lambda x: 1.0 / (1.0 + xp.maximum(x, _LEAST))))
    pull = contract(xp, "bdcn,cdn->bcn", precision, mean)
    moved, new = contract(xp, "abcn,bcn->can", new, pull), xp.moveaxis(new, 2, 0)
    finite = xp.isfinite(covariance).all((1, 2)) & xp.isfinite(mean).all(1)
    return xp.where(finite[:, None], moved, mean), xp.where(finite[:, None, None], new, covariance)


@per_subject
def _put(xp: Any, old: tuple[Any, ...], new: tuple[Any, ...], members: Any) -> tuple[Any, ...]:
    first, n = slice(len(new[0])), len(members)
    pairs = zip(old, new, strict=True)
    return tuple(with_entries(a, (first, ..., members), b[..., :n]) for a, b in pairs)


@per_subject
def _put_where(xp: Any, old: tuple[Any, ...], new: tuple[Any, ...], mask: Any) -> tuple[Any, ...]:
    first = len(new[0])
    pairs = zip(old, new, strict=True)
    return tuple(xp.concatenate([xp.where(mask, b, a[:first]), a[first:]]) for a, b in pairs)


@per_subject
def _filled(xp: Any, parts: tuple[Any, ...], more: Any) -> tuple[Any, ...]:
    unused = xp.full((len(more), parts[0].shape[1]), -xp.inf)
    rest = (xp.concatenate([part] + [part[:1]] * len(more)) for part in parts[1:])
    return xp.concatenate([parts[0], unused]), *rest


@per_subject
def _heaviest_first(xp: Any, log_share: Any, mean: Any) -> Any:
    order = xp.argsort(-log_share, axis=0, stable=True)
    return xp.take_along_axis(mean, order[:, None], axis=0)


def prior_centres(theta: Theta, anchor: Array) -> Centres:
    """One centre per subject: its anchor, as wide as the prior."""
    d, n = anchor.shape
    sigma = np.asarray(theta["effect_covariance"])
    wide = np.broadcast_to(sigma[:, :, None], (d, d, n))
    return Centres.single(np.asarray(anchor), wide, sigma)


def factors(centres: Centres) -> Array:
    """(d, d, centre, subject) lower Cholesky factors of the covariances."""
    n_centres, d, n = centres.mean.shape
    batch = centres.covariance.transpose(1, 2, 0, 3).reshape(d, d, n_centres * n)
    return cholesky(batch).reshape(d, d, n_centres, n) if d else batch.reshape(0, 0, n_centres, n)


def around_centres(mean: Array, low: Array, points: Array) -> Array:
    """(centre x point, d, subject) the points of a standard distribution around every centre."""
    n_centres, d, n = mean.shape
    at = mean[:, None] + jnp.einsum("abcn,jb->cjan", low, points)
    return at.reshape(n_centres * len(points), d, n)


def log_normal(sigma: Array, at: Array) -> Array:
    """(node, subject) log density of the prior."""
    d = at.shape[1]
    if d == 0:
        return jnp.zeros((at.shape[0], at.shape[2]))
    factor = jnp.linalg.cholesky(sigma)
    half = jnp.linalg.inv(factor)
    white = jnp.einsum("ab,jbn->jan", half, at)
    return -0.5 * ((white**2).sum(1) + d * LOG_2PI) - jnp.log(jnp.diagonal(factor)).sum()


def log_parts(centres: Centres, low: Array, at: Array, tail: float) -> Array:
    """(centre, node, subject) log of share x density of every centre at every node."""
    n_centres, d, n = centres.mean.shape
    if d == 0:
        return jnp.broadcast_to(centres.log_share[:, None], (n_centres, at.shape[0], n))
    parts = []
    for c in range(n_centres):
        white = lower_solve(low[:, :, c], at - centres.mean[c])
        logdet = jnp.log(jnp.diagonal(low[:, :, c])).sum(-1)
        parts.append(centres.log_share[c] + log_base((white**2).sum(1), d, tail) - logdet)
    return jnp.stack(parts)


def log_base(square: Any, d: int, tail: float, numpy: Any = jnp) -> Any:
    """Log density of the nodes' standard distribution at a squared distance."""
    if tail == np.inf:
        return -0.5 * (square + d * LOG_2PI)
    constant = gammaln(0.5 * (tail + d)) - gammaln(0.5 * tail) - 0.5 * d * np.log(tail * np.pi)
    return constant - 0.5 * (tail + d) * numpy.log1p(square / tail)
