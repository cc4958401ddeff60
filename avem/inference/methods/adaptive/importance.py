"""The adaptive tier's E-step by importance sampling, for more effects than nodes can cover.

A subject's centres are the Laplace approximations of its posterior's modes at the present
parameters: in every pass each takes a Newton step, with the observed information (differences of
exact slopes), and the draws go where it then is. So the draws fit the posterior at any parameters,
and the parameters cannot win by moving to where the draws happen to lie well.

Where a subject's weights rest on too few draws, it gets the Laplace form instead: points at equal
weights around its centre, and the volume of a Gaussian there. In between it gets some of both, so
that nothing jumps while the parameters move.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import softmax
from jax.scipy.special import logsumexp
from scipy.special import ndtri

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.inference.methods.adaptive.mixture import (
    LEAST_SHARE,
    LOG_2PI,
    Centres,
    around_centres,
    factors,
    log_base,
    log_normal,
    log_parts,
)
from avem.inference.passes import (
    Nodes,
    Pass,
    effect_terms,
    local_at_nodes,
    over_nodes,
    pass_at_nodes,
    weigh,
)
from avem.kernels.inverse import inverse_and_logdet
from avem.models.kernel import Kernel
from avem.numerics.jit import jit

TAIL = 6.0
"""Degrees of freedom of the draws."""
_TOO_FEW, _ENOUGH = 0.02, 0.05
"""Effective draws, as a share of all, below which importance weights do not count, and above which
they alone do."""
_FLAT = 1e-3
"""Least variance of the draws in any direction, below which they are not stretched."""
_STEP = 0.05
"""Of the differences, in standard deviations of the centre."""
_PARTLY = 0.3
"""Of the information that there would be if the states were seen: where the curvature is none."""


def student_draws(d: int, n_draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Quasi-random draws from a standard Student t, and their log weights.

    They come in pairs, x and -x, and are stretched and weighed so that importance sampling of a
    standard normal has its mass, mean and covariance exactly: all subjects share them, so that what
    they get wrong of a Gaussian posterior would not average out. Too few draws for that in so many
    dimensions stay where they fell.
    """
    from scipy.stats import chi2, qmc  # which take long to import

    uniform = qmc.Sobol(d + 1, scramble=True, rng=seed).random(n_draws // 2)
    uniform = np.clip(uniform, 1e-9, 1 - 1e-9)
    half = ndtri(uniform[:, :-1]) * np.sqrt(TAIL / chi2.ppf(uniform[:, -1:], TAIL))
    drawn = points = np.concatenate([half, -half])
    for _ in range(20):  # stretching changes the weights a little
        weights = _weights(points)
        second = (weights[:, None] * points).T @ points / weights.sum()
        if d and not np.linalg.eigvalsh(second)[0] > _FLAT:
            points, weights = drawn, _weights(drawn)
            break
        points = np.linalg.solve(np.linalg.cholesky(second), points.T).T
    return points, np.full(n_draws, -np.log(weights.sum()))


def _weights(points: np.ndarray) -> np.ndarray:
    """A standard normal density over that of the draws."""
    square, d = (points**2).sum(1), points.shape[1]
    return np.exp(log_base(square, d, np.inf, np) - log_base(square, d, TAIL, np))


@jit("kernel", "form")
def importance_pass(
    kernel: Kernel,
    theta: Theta,
    centres: Centres,
    points: Array,
    log_weights: Array,
    chunk: Chunk,
    form: str,
) -> Pass:
    """Local passes at draws around the centres, weighed by the posterior."""
    centres = _laplace(kernel, theta, centres, chunk, form)
    n_centres, d, n = centres.mean.shape
    low = factors(centres)
    main = n_centres * len(points)
    # The middle, and points at equal weights around it, of the Laplace form.
    cross = np.sqrt(d) * np.concatenate([np.zeros((1, d)), np.eye(d), -np.eye(d)])
    middle = around_centres(centres.mean[:1], low[:, :, :1], cross)
    at = jnp.concatenate([around_centres(centres.mean, low, points), middle])
    local = local_at_nodes(kernel, theta, at, chunk, form)
    joint = local.loglik + log_normal(theta["effect_covariance"], at)

    parts = log_parts(centres, low, at[:main], TAIL)
    mixture = logsumexp(parts, axis=0)
    own = (centres.log_share[:, None] + log_weights[None, :, None]).reshape(main, n)
    height = own + joint[:main] - mixture
    # Weights much larger than the average are cut off.
    height = jnp.minimum(height, logsumexp(height, axis=0) - 0.5 * np.log(main))
    loglik = logsumexp(height, axis=0)
    share = softmax(height, axis=0)
    quality = 1.0 / (share**2).sum(0)

    trust = jnp.clip((quality / main - _TOO_FEW) / (_ENOUGH - _TOO_FEW), 0.0, 1.0)
    trust = jnp.where(jnp.isfinite(quality), trust, 0.0)
    volume = jnp.log(jnp.diagonal(low[:, :, 0])).sum(-1) + 0.5 * d * LOG_2PI
    laplace = joint[main] + volume
    level = trust * jnp.where(trust > 0, loglik, 0.0) + (1.0 - trust) * laplace
    weights = jnp.concatenate(
        [
            jnp.where(trust > 0, trust * share, 0.0),
            jnp.zeros((1, n)),
            jnp.broadcast_to((1.0 - trust) / (2 * d), (2 * d, n)),
        ]
    )
    nodes = Nodes(at, None, weights, weigh(kernel, local, weights, chunk))
    found = pass_at_nodes(kernel, theta, nodes, level, level, chunk)
    mass = (share * jnp.exp(parts - mixture)).sum(1)
    mass = jnp.where(trust > 0, mass, jnp.exp(centres.log_share))
    return found._replace(
        around=_with_shares(centres, mass), quality=jnp.where(trust < 0.5, 0.0, quality)
    )


def _with_shares(centres: Centres, mass: Array) -> Centres:
    """The centres with the shares of the posterior found near them."""
    log_share = jnp.where(
        jnp.isfinite(centres.log_share), jnp.log(jnp.maximum(mass, LEAST_SHARE)), -jnp.inf
    )
    return centres._replace(log_share=log_share - logsumexp(log_share, axis=0))


def _laplace(kernel: Kernel, theta: Theta, centres: Centres, chunk: Chunk, form: str) -> Centres:
    """The centres one Newton step nearer to their modes, as wide as the curvature says."""
    n_centres, d, n = centres.mean.shape
    sd = jnp.sqrt(jnp.diagonal(centres.covariance, axis1=1, axis2=2))  # (centre, subject, d)
    sd = jnp.swapaxes(sd, 1, 2)
    step = _STEP * sd[:, None] * jnp.eye(d)[None, :, :, None]  # (centre, direction, d, subject)
    middle = centres.mean[:, None]
    at = jnp.concatenate([middle, middle + step, middle - step], axis=1)
    at = at.reshape(-1, d, n)
    terms = over_nodes(lambda f: effect_terms(kernel, theta, f, chunk, form), (at,), chunk)
    slope = terms.gradient.reshape(n_centres, 1 + 2 * d, d, n)
    bend = (slope[:, 1 + d :] - slope[:, 1 : 1 + d]) / (2.0 * _STEP * sd[:, :, None])
    prior = jnp.linalg.inv(theta["effect_covariance"])
    precision = 0.5 * (bend + jnp.swapaxes(bend, 1, 2)) + prior[None, :, :, None]
    complete = terms.majorant.reshape(n_centres, 1 + 2 * d, d, d, n)[:, 0]
    cov = _inverses(precision, _PARTLY * complete + prior[None, :, :, None])
    pull = slope[:, 0] - jnp.einsum("ab,cbn->can", prior, centres.mean)
    move = jnp.einsum("cabn,cbn->can", cov, jnp.where(jnp.isfinite(pull), pull, 0.0))
    length = jnp.sqrt((move * move / jnp.einsum("caan->can", cov)).sum(1, keepdims=True))
    mean = centres.mean + move / jnp.maximum(1.0, length)
    return Centres(centres.log_share, mean, cov, theta["effect_covariance"])


def _inverses(precision: Array, instead: Array) -> Array:
    """(centre, d, d, subject) covariances; of `instead` where the first is no precision."""
    n_centres, d, _, n = precision.shape

    def flat(matrices: Array) -> Array:
        return jnp.moveaxis(matrices, 0, 2).reshape(d, d, n_centres * n)

    cov, logdet = inverse_and_logdet(flat(precision))
    other, _ = inverse_and_logdet(flat(instead))
    cov = jnp.where(jnp.isfinite(logdet), cov, other).reshape(d, d, n_centres, n)
    return jnp.moveaxis(cov, 2, 0)
