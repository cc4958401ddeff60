"""The Gaussian q_i(f_i) = N(nu_i, Omega_i) of every subject, subjects on the last axis."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array
from jaxtyping import Float

from avem.numerics.linalg import inverse_and_logdet


class GaussianQ(NamedTuple):
    """Mean and covariance of q_i, and its divergence from the prior."""

    mean: Float[Array, "effect subject"]
    covariance: Float[Array, "effect effect subject"]
    divergence: Float[Array, " subject"]
    """KL(q_i || N(0, Sigma))."""

    def second_moment(self) -> Float[Array, "effect effect subject"]:
        """E_q[f f'] = Omega + nu nu'."""
        return self.covariance + self.mean[:, None] * self.mean[None]


def update_from_quadratic(
    sigma: Float[Array, "effect effect"],
    precision: Float[Array, "effect effect subject"],
    linear: Float[Array, "effect subject"],
) -> GaussianQ:
    """The q_i that maximises the anchored bound when E[log p(D, U | f)] = h'f - f'Lambda f / 2.

    This is the paper's closed form (Section 4.5) for any Gaussian emission: Omega = (Sigma^-1 +
    Lambda)^-1 and nu = Omega h.
    """
    d = sigma.shape[0]
    prior, prior_logdet = inverse_and_logdet(sigma[:, :, None])
    covariance, precision_logdet = inverse_and_logdet(prior + precision)
    mean = (covariance * linear[None]).sum(1)
    spread = covariance + mean[:, None] * mean[None]
    divergence = 0.5 * ((prior * spread).sum((0, 1)) - d + prior_logdet + precision_logdet)
    return GaussianQ(mean, covariance, divergence)


def expected_quadratic_gain(
    precision: Float[Array, "effect effect subject"],
    linear: Float[Array, "effect subject"],
    q: GaussianQ,
    anchor: Float[Array, "effect subject"],
) -> Float[Array, " subject"]:
    """E_q Q(f) - Q(anchor) for Q(f) = h'f - f'Lambda f / 2."""
    at_anchor = anchor[:, None] * anchor[None]
    return (linear * (q.mean - anchor)).sum(0) - 0.5 * (
        precision * (q.second_moment() - at_anchor)
    ).sum((0, 1))
