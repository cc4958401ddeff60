"""Quadrature and Monte Carlo EM (the paper's Appendix A.2): nodes of the effects' prior.

The nodes f_j = C x_j, with C the Cholesky factor of Sigma, and weights v_j stand for the prior, so
that p(D_i) is the sum of v_j p(D_i | f_j).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.inference.passes import Nodes, Pass, local_at_nodes, pass_at_nodes, weigh
from avem.models.kernel import Kernel


@dataclass(frozen=True, eq=False)
class PriorNodes:
    """EM on the marginal likelihood, the same nodes for every subject."""

    points: np.ndarray
    """(nodes, d) as if the prior were standard normal."""
    log_weights: np.ndarray
    """(nodes,)."""
    redraw: Callable[[], np.ndarray] | None = None
    """New points for the next iteration: Monte Carlo EM with fresh draws."""

    anchored = False
    has_q = False
    nodes_stay = False

    def e_step(self, kernel, theta, anchor, around, chunk, form) -> Pass:
        """Local passes at all nodes, weighed by the likelihood."""
        return _pass(kernel, theta, self.points, self.log_weights, chunk, form)


@partial(jax.jit, static_argnames=("kernel", "form"))
def _pass(
    kernel: Kernel, theta: Theta, points: Array, log_weights: Array, chunk: Chunk, form: str
) -> Pass:
    at = points @ jnp.linalg.cholesky(theta["effect_covariance"]).T
    at = jnp.broadcast_to(at[:, :, None], (*at.shape, chunk.real.shape[0]))
    local = local_at_nodes(kernel, theta, at, chunk, form)
    height = log_weights[:, None] + local.loglik
    loglik = logsumexp(height, axis=0)
    share = jnp.exp(height - loglik)
    nodes = Nodes(at, None, share, weigh(kernel, local, share, chunk))
    return pass_at_nodes(kernel, theta, nodes, loglik, loglik, chunk)
