"""The Gaussian centres around which the adaptive tier puts its nodes, and their densities."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from avem.models.lanes import Theta
from avem.numerics.linalg import cholesky, lower_solve

LOG_2PI = float(np.log(2 * np.pi))
_OFF, _WIDER, _LITTLE = 0.5, 2.0, 0.1
"""Nodes may be so many standard deviations off, and so many times as wide (variance); parts of a
mixture with a smaller share do not matter."""
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

    def shifted(self, shift: Array) -> Centres:
        """The same when `shift` moves from the effects into the coefficients."""
        return self._replace(mean=self.mean - shift[:, None])

    def unless_outgrown(self, found: Centres) -> Centres:
        """Itself, for subjects whose posterior it still fits; elsewhere what was found since.

        Where nodes stand much wider apart than the posterior is wide, one of them may count for far
        more than there is: the likelihood seems to rise as a variance shrinks between the nodes.
        With several effects there are too few nodes for each to tell, and fits would not settle.
        """
        if self.mean.shape[1] != 1:
            return self
        old, new = self.covariance[:, 0, 0], found.covariance[:, 0, 0]
        far = np.abs(found.mean - self.mean)[:, 0] > _OFF * np.sqrt(old)
        stays = ~(far | (new > _WIDER * old) | (old > _WIDER * new))
        # What hardly weighs is hardly known, and does no harm.
        stays = (stays | (found.log_share < np.log(_LITTLE))).all(0)
        return Centres(*(np.where(stays, old, new) for old, new in zip(self, found, strict=True)))


def prior_centres(theta: Theta, anchor: Array) -> Centres:
    """One centre per subject: its anchor, as wide as the prior."""
    d, n = anchor.shape
    wide = np.broadcast_to(np.asarray(theta["effect_covariance"])[:, :, None], (d, d, n))
    return Centres(np.zeros((1, n)), np.asarray(anchor)[None], wide[None])


def factors(centres: Centres) -> Array:
    """(d, d, centre, subject) lower Cholesky factors of the covariances."""
    n_centres, d, n = centres.mean.shape
    batch = centres.covariance.transpose(1, 2, 0, 3).reshape(d, d, n_centres * n)
    return cholesky(batch).reshape(d, d, n_centres, n) if d else batch.reshape(0, 0, n_centres, n)


def around_centres(centres: Centres, low: Array, points: Array) -> Array:
    """(centre x point, d, subject) the points of a standard distribution around every centre."""
    n_centres, d, n = centres.mean.shape
    at = centres.mean[:, None] + jnp.einsum("abcn,jb->cjan", low, points)
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
