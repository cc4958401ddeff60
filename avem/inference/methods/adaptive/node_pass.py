"""Local passes at nodes around every subject's centres, weighed by the posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from jax.nn import softmax
from jax.scipy.special import logsumexp

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.adaptive.proposal import Proposal
from avem.inference.methods.adaptive.rules import Rule
from avem.inference.passes import Nodes, Pass, local_at_nodes, pass_at_nodes, weigh
from avem.inference.tuning import FEW_CELLS
from avem.models.kernel import Kernel
from avem.numerics.arrays import per_subject
from avem.numerics.jit import jit


def node_pass(
    kernel: Kernel, theta: Theta, centres: Centres, rule: Rule, chunk: Chunk, form: str
) -> Pass:
    """The E-step of a chunk by the nodes of a quadrature."""
    proposal = Proposal.of(centres, rule, np.asarray(theta["effect_covariance"]))
    at, log_weight = proposal.at, proposal.log_weight
    few = chunk.valid.size * len(at) <= FEW_CELLS
    if few and len(centres.mean) == 1 and kernel.has_twins:
        # Others will have two centres: one program serves both.
        at, log_weight = _as_for_two(at, log_weight)
    found = _weighed(kernel, theta, at, log_weight, chunk, form)
    nodes: Nodes = found.kept
    return found._replace(around=proposal.following(nodes.share))


@per_subject
def _as_for_two(xp: Any, at: Any, log_weight: Any) -> tuple[Any, Any]:
    """The nodes twice, of which the second ones weigh nothing."""
    nothing = xp.full_like(log_weight, -xp.inf)
    return xp.concatenate([at, at]), xp.concatenate([log_weight, nothing])


@jit("kernel", "form")
def _weighed(
    kernel: Kernel, theta: Theta, at: Array, log_weight: Array, chunk: Chunk, form: str
) -> Pass:
    """Where the nodes are, and what each weighs beside the likelihood there, is known."""
    local = local_at_nodes(kernel, theta, at, chunk, form)
    height = log_weight + local.loglik
    loglik = logsumexp(height, axis=0)
    share = softmax(height, axis=0)
    nodes = Nodes(at, None, share, weigh(kernel, local, share, chunk))
    return pass_at_nodes(kernel, theta, nodes, loglik, loglik, chunk)
