"""The E-step by integration over the effects: local passes at nodes, weighed by the likelihood.

Quadrature and Monte Carlo EM (the paper's Appendix A.2): the nodes f_j = C x_j, with C the Cholesky
factor of Sigma, and weights v_j stand for the prior, so that p(D_i) is the sum of v_j p(D_i | f_j).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import logsumexp

from avem.data._layout import Chunk
from avem.inference.passes import Pass, Totals, first_terms
from avem.models.emissions import GaussianBlock, Theta
from avem.models.general import CoefTerms
from avem.models.hmm_kernel import HMMKernel, Local


class KeptNodes(NamedTuple):
    """What Newton's steps need: the nodes (node, d, subject), and what was collected at each."""

    nodes: Array
    weighed: Local

    def coef_terms(self, kernel: HMMKernel, key: str, coef: Array, chunk: Chunk) -> CoefTerms:
        """A sum over nodes, each a point with its share of the weights."""
        return _sum_over_nodes(
            lambda part, f: kernel.coef_terms(key, coef, f, None, part, chunk),
            (self.weighed, self.nodes),
        )


@partial(jax.jit, static_argnames=("kernel", "form"))
def node_pass(
    kernel: HMMKernel,
    theta: Theta,
    points: Array,
    log_weights: Array,
    chunk: Chunk,
    form: str,
) -> Pass:
    """E-step of the subjects of one chunk; `points` (node, d) stand for a standard normal."""
    at = points @ jnp.linalg.cholesky(theta["effect_covariance"]).T
    nodes = jnp.broadcast_to(at[:, :, None], (*at.shape, chunk.real.shape[0]))
    local = lax.map(lambda f: kernel.local(theta, f, chunk, form), nodes)
    height = log_weights[:, None] + local.loglik
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
                lambda part, f, block=block: block.totals(part, f, f[:, None] * f[None]),
                (weighed.emissions[i], nodes),
            )
            if isinstance(block, GaussianBlock)
            else None
            for i, block in enumerate(kernel.blocks)
        ),
        effect_mean=jnp.where(chunk.real, mean, 0.0).sum(-1),
        effect_second=jnp.where(chunk.real, second, 0.0).sum(-1),
    )
    kept = KeptNodes(nodes, weighed)
    cov = second - mean[:, None] * mean[None]
    loglik = jnp.where(chunk.real, loglik, 0.0)
    terms = first_terms(kernel, theta, kept, chunk)
    return Pass(mean, cov, loglik, loglik, totals, kept, terms)


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
