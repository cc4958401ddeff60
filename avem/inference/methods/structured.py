"""The structured factorisation (the paper's Lemma 1): p(U | D_i, f) q_i(f), with q_i Gaussian.

The conditional of the states is exact at every f, so the bound is E_q log p(D_i | f) - KL(q_i ||
prior), and the only approximation is that q_i is Gaussian. The expectation runs over nodes of q_i.
By Fisher's identity the local pass gives the slope of log p(D_i | f) at every node, and by Stein's
the slopes give the expected curvature: together they are the natural gradient step of q_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.components.lanes import Theta
from avem.components.param_info import check_count
from avem.data.layout import Chunk
from avem.inference.em import EM
from avem.inference.methods.base import EStep, Method
from avem.inference.passes import (
    Nodes,
    Pass,
    Spread,
    local_at_nodes,
    over_nodes,
    pass_at_nodes,
    spread_of,
    weigh,
)
from avem.inference.tuning import STRUCTURED_DRAWS, STRUCTURED_NODES
from avem.kernels.inverse import cholesky, inverse_and_logdet
from avem.kernels.posterior import divergence
from avem.models.kernel import Kernel
from avem.numerics.jit import jit
from avem.numerics.nodes import gauss_hermite, sobol_normal


@dataclass(frozen=True)
class Structured(Method):
    """A Gaussian posterior of the effects, and that of the states exact given it.

    Parameters
    ----------
    n_nodes : int, optional
        Gauss-Hermite nodes per effect; by default 9 for one effect and 5 for two or three, and
        quasi-random draws for more.

    Examples
    --------
    >>> avem.Structured(n_nodes=15)
    Structured(n_nodes=15)
    """

    n_nodes: int | None = None

    word = "structured"

    def __post_init__(self) -> None:
        if self.n_nodes is not None:
            check_count("n_nodes", self.n_nodes)
            object.__setattr__(self, "n_nodes", int(self.n_nodes))

    def bind(
        self, em: EM, effect_names: Sequence[str], plain: bool, rng: np.random.Generator
    ) -> EStep:
        """Nodes of q_i."""
        return StructuredNodes.make(len(effect_names), self.n_nodes)


@dataclass(frozen=True, eq=False)
class StructuredNodes(EStep):
    """A Gaussian q_i with the exact conditional of the states."""

    points: np.ndarray
    """(nodes, d) as if q_i were standard normal."""
    log_weights: np.ndarray

    has_q = True

    @classmethod
    def make(cls, n_effects: int, n_nodes: int | None) -> StructuredNodes:
        """Gauss-Hermite nodes for few effects, quasi-random ones for many."""
        if n_effects in STRUCTURED_NODES or n_nodes is not None:
            points, weights = gauss_hermite(n_effects, n_nodes or STRUCTURED_NODES[n_effects])
        else:
            points, weights = sobol_normal(n_effects, STRUCTURED_DRAWS)
        return cls(points, np.log(weights))

    @property
    def n_nodes(self) -> int:
        """Local passes per subject."""
        return len(self.points)

    def e_step(self, kernel, theta, anchor, around, chunk, form) -> Pass:
        """Local passes at the nodes of q_i, and the natural gradient step of q_i."""
        cov = spread_of(theta, anchor, around)
        return _pass(kernel, theta, anchor, cov, self.points, self.log_weights, chunk, form)


@jit("kernel", "form")
def _pass(
    kernel: Kernel,
    theta: Theta,
    mean: Array,
    cov: Array,
    points: Array,
    log_weights: Array,
    chunk: Chunk,
    form: str,
) -> Pass:
    low = cholesky(cov)
    at = mean[None] + jnp.einsum("abn,jb->jan", low, points)
    local = local_at_nodes(kernel, theta, at, chunk, form)
    share = jnp.broadcast_to(jnp.exp(log_weights)[:, None], local.loglik.shape)
    nodes = Nodes(at, None, share, weigh(kernel, local, share, chunk))
    expected = (share * local.loglik).sum(0)
    prior, prior_logdet = inverse_and_logdet(theta["effect_covariance"][:, :, None])
    inverse, logdet = inverse_and_logdet(cov)
    bound = expected - divergence(prior, prior_logdet, mean, cov, -logdet)
    found = pass_at_nodes(kernel, theta, nodes, expected, bound, chunk)
    # The step of q: precision = prior + E[-H], with E[H] = cov^-1 E[(f - mean) slope'] (Stein).
    slope = slopes_at_nodes(kernel, theta, at, local, chunk)
    outer = (share[:, None, None] * (at - mean)[:, :, None] * slope[:, None]).sum(0)
    bend = jnp.einsum("abn,bcn->acn", inverse, outer)
    target = prior - 0.5 * (bend + jnp.swapaxes(bend, 0, 1))
    stepped, target_logdet = inverse_and_logdet(target)
    is_precision = jnp.isfinite(target_logdet)
    stepped = jnp.where(is_precision, stepped, cov)
    pull = (share[:, None] * slope).sum(0) - (prior * mean[None]).sum(1)
    moved = mean + (stepped * pull[None]).sum(1)
    return found._replace(mean=moved, covariance=stepped, around=Spread(stepped))


def slopes_at_nodes(kernel: Kernel, theta: Theta, at: Array, local, chunk: Chunk) -> Array:
    """(node, d, subject) derivatives of log p(D_i | f) at every node, by Fisher's identity."""

    def slope(part, f: Array) -> Array:
        quadratic = kernel.quadratic(theta, part)
        return kernel.effect_terms(theta, f, None, part, quadratic, chunk).gradient

    return over_nodes(slope, (local, at), chunk)
