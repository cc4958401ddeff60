"""Local passes at nodes around every subject's centres, weighed by the posterior."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.inference.methods.adaptive.mixture import (
    LEAST_SHARE,
    Centres,
    around_centres,
    factors,
    log_normal,
    log_parts,
)
from avem.inference.passes import Nodes, Pass, local_at_nodes, pass_at_nodes, weigh
from avem.inference.tuning import BETWEEN
from avem.kernels.inverse import inverse_and_logdet
from avem.models.kernel import Kernel


@partial(jax.jit, static_argnames=("kernel", "form"))
def node_pass(
    kernel: Kernel,
    theta: Theta,
    centres: Centres,
    points: Array,
    log_weights: Array,
    chunk: Chunk,
    form: str,
) -> Pass:
    """The E-step of a chunk by Gauss-Hermite nodes."""
    low = factors(centres)
    at = around_centres(centres.mean, low, points)
    local = local_at_nodes(kernel, theta, at, chunk, form)
    height, log_part = heights(
        theta["effect_covariance"], centres, low, at, log_weights, local.loglik
    )
    loglik = logsumexp(height, axis=0)
    share = jnp.exp(height - loglik)
    nodes = Nodes(at, None, share, weigh(kernel, local, share, chunk))
    found = pass_at_nodes(kernel, theta, nodes, loglik, loglik, chunk)
    around = following(centres, at, share, log_part, found.quality)
    return found._replace(around=around)


def heights(
    sigma: Array, centres: Centres, low: Array, at: Array, log_weights: Array, loglik: Array
) -> tuple[Array, Array]:
    """(node, subject) log of what each node adds, and (centre, node, subject) of whose it is."""
    n = centres.mean.shape[-1]
    parts = log_parts(centres, low, at, np.inf)
    mixture = logsumexp(parts, axis=0)
    own = (centres.log_share[:, None] + log_weights[None, :, None]).reshape(len(at), n)
    return own + loglik + log_normal(sigma, at) - mixture, parts - mixture


def following(
    centres: Centres, at: Array, share: Array, log_part: Array, quality: Array
) -> Centres:
    """The centres with the moments of the posterior near them."""
    n_centres, d, n = centres.mean.shape
    if d == 0:
        return centres
    own = share * jnp.exp(log_part)  # (centre, node, subject)
    mass = own.sum(1)
    safe = jnp.maximum(mass, 1e-12)[:, None]
    mean = (own[:, :, None] * at[None]).sum(1) / safe
    away = at[None] - mean[:, None]  # (centre, node, d, subject)
    cov = jnp.einsum("cjn,cjan,cjbn->cabn", own, away, away) / safe[:, :, None]
    # Never much narrower than before: the nodes must be able to find their way back.
    cov = cov + 1e-3 * centres.covariance
    # The mixture must cover what lies between its parts.
    several = jnp.isfinite(centres.log_share).sum(0) > 1
    cov = jnp.where(several, BETWEEN, 1.0) * cov
    flat = cov.transpose(1, 2, 0, 3).reshape(d, d, n_centres * n)
    sound = jnp.isfinite(inverse_and_logdet(flat)[1]).reshape(n_centres, n)
    used = (mass > 1e-6) & sound & jnp.isfinite(quality)
    log_share = jnp.where(
        jnp.isfinite(centres.log_share), jnp.log(jnp.maximum(mass, LEAST_SHARE)), -jnp.inf
    )
    log_share = jnp.where(jnp.isfinite(quality), log_share, centres.log_share)
    return Centres(
        log_share - logsumexp(log_share, axis=0),
        jnp.where(used[:, None], mean, centres.mean),
        jnp.where(used[:, None, None], cov, centres.covariance),
        centres.prior,
    )
