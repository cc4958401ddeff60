"""Local passes at nodes around every subject's centres, weighed by the posterior."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.adaptive.proposal import Proposal
from avem.inference.methods.adaptive.rules import Rule
from avem.inference.passes import Nodes, Pass, local_at_nodes, pass_at_nodes, weigh
from avem.models.kernel import Kernel
from avem.numerics.jit import jit


def node_pass(
    kernel: Kernel, theta: Theta, centres: Centres, rule: Rule, chunk: Chunk, form: str
) -> Pass:
    """The E-step of a chunk by the nodes of a quadrature."""
    proposal = Proposal.of(centres, rule, np.asarray(theta["effect_covariance"]))
    found = _weighed(kernel, theta, proposal.at, proposal.log_weight, chunk, form)
    nodes: Nodes = found.kept
    return found._replace(around=proposal.following(nodes.share))


@jit("kernel", "form")
def _weighed(
    kernel: Kernel, theta: Theta, at: Array, log_weight: Array, chunk: Chunk, form: str
) -> Pass:
    """Where the nodes are, and what each weighs beside the likelihood there, is known."""
    local = local_at_nodes(kernel, theta, at, chunk, form)
    height = log_weight + local.loglik
    loglik = logsumexp(height, axis=0)
    share = jnp.exp(height - loglik)
    nodes = Nodes(at, None, share, weigh(kernel, local, share, chunk))
    return pass_at_nodes(kernel, theta, nodes, loglik, loglik, chunk)
