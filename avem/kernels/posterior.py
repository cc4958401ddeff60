"""The Gaussian posterior of every subject's effects where their log likelihood is quadratic."""

from __future__ import annotations

from jax import Array
from jaxtyping import Float

from avem.kernels.dispatch import engine
from avem.kernels.inverse import inverse_and_logdet

Posteriors = tuple[
    Float[Array, "d n"], Float[Array, "d d n"], Float[Array, " n"], Float[Array, " n"]
]


def posterior(
    prior: Float[Array, "d d 1"],
    prior_logdet: Float[Array, " 1"],
    curvature: Float[Array, "d d n"],
    linear: Float[Array, "d n"],
    origin: Float[Array, "d n"] | None,
) -> Posteriors:
    """Mean and covariance of q, KL(q || prior) and E_q Q(f).

    Q(f) = h'(f - o) - (f - o)'Lambda(f - o) / 2 with Lambda the `curvature`, h `linear` and o the
    `origin` (0 if None); `prior` is Sigma^-1, with `prior_logdet` = log |Sigma|.
    """
    d, n = linear.shape
    run = engine("posterior", linear.dtype, rows=d, lanes=n)
    mean, cov, distance, height = (run or definition)(
        prior, prior_logdet, curvature, linear, origin
    )
    return mean, cov, distance, height


def definition(
    prior: Float[Array, "d d 1"],
    prior_logdet: Float[Array, " 1"],
    curvature: Float[Array, "d d n"],
    linear: Float[Array, "d n"],
    origin: Float[Array, "d n"] | None,
) -> Posteriors:
    """What `posterior` computes, from the inverse of Sigma^-1 + Lambda."""
    cov, precision_logdet = inverse_and_logdet(prior + curvature)
    if origin is None:
        mean = away = (cov * linear[None]).sum(1)
    else:
        pull = linear - (prior * origin[None]).sum(1)
        mean = origin + (cov * pull[None]).sum(1)
        away = mean - origin
    distance = divergence(prior, prior_logdet, mean, cov, precision_logdet)
    return mean, cov, distance, expected_quadratic(curvature, linear, away, cov)


def expected_quadratic(
    curvature: Float[Array, "d d n"],
    linear: Float[Array, "d n"],
    away: Float[Array, "d n"],
    cov: Float[Array, "d d n"] | None,
) -> Float[Array, " n"]:
    """E Q(f) where f - o has mean `away` and covariance `cov`, 0 if None."""
    second = away[:, None] * away[None] + (0.0 if cov is None else cov)
    return (linear * away).sum(0) - 0.5 * (curvature * second).sum((0, 1))


def divergence(
    prior: Array, prior_logdet: Array, mean: Array, cov: Array, precision_logdet: Array
) -> Float[Array, " subject"]:
    """KL(N(mean, cov) || N(0, prior^-1))."""
    spread = cov + mean[:, None] * mean[None]
    return 0.5 * ((prior * spread).sum((0, 1)) - len(mean) + prior_logdet + precision_logdet)
