"""The E-step by integration over the effects: local passes at nodes, weighed by the likelihood.

Where the nodes are is all that tells the methods apart: around the prior (quadrature and Monte
Carlo EM, the paper's Appendix A.2) or around each subject's posterior (adaptive). For nodes
f_j = m_i + C_i x_j and weights v_j that stand for a standard normal x, the integral of
p(D_i | f) p(f) is the sum of v_j p(D_i | f_j) p(f_j) |C_i| / phi(x_j).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import logsumexp

from avem.data._layout import Chunk
from avem.inference.passes import Pass, Totals
from avem.models.emissions import GaussianBlock, Theta
from avem.models.general import CoefTerms
from avem.models.hmm_kernel import HMMKernel, Local
from avem.numerics.linalg import cholesky, inverse_and_logdet


class KeptNodes(NamedTuple):
    """What Newton's steps need: the nodes (node, d, subject), and what was collected at each."""

    nodes: Array
    weighed: Local


def place_nodes(
    sigma: Array, centre: Array, spread: Array, points: Array, log_weights: Array
) -> tuple[Array, Array]:
    """Nodes (node, d, subject) and the logs of what multiplies p(D_i | f_j) (node, subject)."""
    low = cholesky(spread)
    nodes = centre[None] + jnp.einsum("abs,jbs->jas", low, points)
    precision, logdet = inverse_and_logdet(sigma[:, :, None])
    distance = (precision[:, :, 0, None] * nodes[:, :, None] * nodes[:, None]).sum((1, 2))
    log_prior = -0.5 * (distance + logdet)
    log_normal = -0.5 * (points**2).sum(1)
    log_size = jnp.log(jnp.diagonal(low)).sum(-1)
    return nodes, log_weights[:, None] + log_prior - log_normal + log_size


@partial(jax.jit, static_argnames=("kernel", "form"))
def node_pass(
    kernel: HMMKernel,
    theta: Theta,
    centre: Array,
    spread: Array,
    points: Array,
    log_weights: Array,
    chunk: Chunk,
    form: str,
) -> Pass:
    """E-step of the subjects of one chunk; `points` (node, d, subject or 1) are standard normal."""
    nodes, log_factor = place_nodes(theta["effect_covariance"], centre, spread, points, log_weights)
    local = lax.map(lambda f: kernel.local(theta, f, chunk, form), nodes)
    height = log_factor + local.loglik
    loglik = logsumexp(height, axis=0)
    share = jnp.exp(height - loglik)
    mean = (share[:, None] * nodes).sum(0)
    second = (share[:, None, None] * nodes[:, :, None] * nodes[:, None]).sum(0)
    weighed = jax.vmap(lambda part, s: kernel.weigh(part, s, chunk))(local, share)
    totals = Totals(
        first=weighed.chain[0].sum((0, -1)),
        pair=weighed.chain[1].sum((0, 1, -1)),
        emissions=tuple(
            _sum_over_nodes(
                lambda part, f, s, block=block: block.totals(part, f, f[:, None] * f[None]),
                (weighed.emissions[i], nodes, share),
            )
            if isinstance(block, GaussianBlock)
            else None
            for i, block in enumerate(kernel.blocks)
        ),
        effect_mean=jnp.where(chunk.real, mean, 0.0).sum(-1),
        effect_second=jnp.where(chunk.real, second, 0.0).sum(-1),
    )
    terms = tuple(
        node_coef_terms(kernel, key, theta[key], nodes, weighed, chunk)
        for key in kernel.newton_keys
    )
    kept = KeptNodes(nodes, weighed)
    cov = second - mean[:, None] * mean[None]
    bound = jnp.where(chunk.real, loglik, 0.0)
    return Pass(mean, cov, jnp.where(chunk.real, loglik, 0.0), bound, totals, kept, terms)


def node_coef_terms(
    kernel: HMMKernel, key: str, coef: Array, nodes: Array, weighed: Local, chunk: Chunk
) -> CoefTerms:
    """The M-step's terms: a sum over nodes, each a point with its share of the weights."""
    return _sum_over_nodes(
        lambda part, f: kernel.coef_terms(key, coef, f, None, part, chunk),
        (weighed, nodes),
    )


def _sum_over_nodes(function, stacked):
    """The sum over the leading axis, one node at a time."""
    first = jax.tree.map(lambda leaf: leaf[0], stacked)
    zero = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(function, *first)
    )
    total, _ = lax.scan(
        lambda sums, parts: (jax.tree.map(jnp.add, sums, function(*parts)), None), zero, stacked
    )
    return total


@partial(jax.jit, static_argnames=("kernel", "key"))
def node_coef_pass(
    kernel: HMMKernel, key: str, coef: Array, kept: KeptNodes, chunk: Chunk
) -> CoefTerms:
    """A chunk's part of a further Newton step of theta[key]."""
    return node_coef_terms(kernel, key, coef, kept.nodes, kept.weighed, chunk)


@partial(jax.jit, static_argnames=("kernel", "key"))
def node_coef_height(
    kernel: HMMKernel, key: str, coef: Array, kept: KeptNodes, chunk: Chunk
) -> Array:
    """The value alone of `node_coef_pass`."""
    return node_coef_terms(kernel, key, coef, kept.nodes, kept.weighed, chunk).value
