"""Quadrature and Monte Carlo EM (the paper's Appendix A.2): nodes of the effects' prior.

The nodes f_j = C x_j, with C the Cholesky factor of Sigma, and weights v_j stand for the prior, so
that p(D_i) is the sum of v_j p(D_i | f_j).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import softmax
from jax.scipy.special import logsumexp

from avem.components.lanes import Theta
from avem.components.param_info import check_count
from avem.data.layout import Chunk
from avem.errors import ModelError
from avem.inference.em import EM
from avem.inference.methods.base import EStep, Method
from avem.inference.passes import Nodes, Pass, local_at_nodes, pass_at_nodes, weigh
from avem.inference.tuning import MOST_PRIOR_NODES, PRIOR_DRAWS, PRIOR_NODES
from avem.models.kernel import Kernel
from avem.numerics.jit import jit
from avem.numerics.nodes import gauss_hermite


@dataclass(frozen=True)
class Quadrature(Method):
    """Maximum likelihood with Gauss-Hermite nodes of the effects' prior.

    Parameters
    ----------
    n_nodes : int
        Nodes per effect. Long sequences need many.

    Examples
    --------
    >>> avem.Quadrature(n_nodes=21)
    Quadrature(n_nodes=21)
    """

    n_nodes: int = PRIOR_NODES

    word = "quadrature"
    likelihood = True

    def __post_init__(self) -> None:
        check_count("n_nodes", self.n_nodes)
        object.__setattr__(self, "n_nodes", int(self.n_nodes))

    def check(self, effect_names: Sequence[str], plain: bool) -> None:
        """Not more nodes than anyone can wait for."""
        check_grid(len(effect_names), self.n_nodes)

    def bind(
        self, em: EM, effect_names: Sequence[str], plain: bool, rng: np.random.Generator
    ) -> EStep:
        """The nodes of a standard normal prior."""
        points, weights = gauss_hermite(len(effect_names), self.n_nodes)
        return PriorNodes(points, np.log(weights))


@dataclass(frozen=True)
class MonteCarlo(Method):
    """Maximum likelihood with draws from the effects' prior.

    Parameters
    ----------
    n_draws : int
        Draws for every subject. Long sequences need many.
    fresh_draws : bool
        Draw anew in every iteration.

    Examples
    --------
    >>> avem.MonteCarlo(n_draws=500, fresh_draws=True)
    MonteCarlo(n_draws=500, fresh_draws=True)
    """

    n_draws: int = PRIOR_DRAWS
    fresh_draws: bool = False

    word = "monte_carlo"
    likelihood = True

    def __post_init__(self) -> None:
        check_count("n_draws", self.n_draws)
        object.__setattr__(self, "n_draws", int(self.n_draws))
        object.__setattr__(self, "fresh_draws", bool(self.fresh_draws))

    def bind(
        self, em: EM, effect_names: Sequence[str], plain: bool, rng: np.random.Generator
    ) -> EStep:
        """Draws from a standard normal prior."""

        def draw() -> np.ndarray:
            return rng.standard_normal((self.n_draws, len(effect_names)))

        log_weights = np.full(self.n_draws, -np.log(self.n_draws))
        return PriorNodes(draw(), log_weights, draw if self.fresh_draws else None)


@dataclass(frozen=True, eq=False)
class PriorNodes(EStep):
    """EM on the marginal likelihood, the same nodes for every subject."""

    points: np.ndarray
    """(nodes, d) as if the prior were standard normal."""
    log_weights: np.ndarray
    """(nodes,)."""
    draw: Callable[[], np.ndarray] | None = None
    """New points for the next iteration: Monte Carlo EM with fresh draws."""

    @property
    def n_nodes(self) -> int:
        """Local passes per subject."""
        return len(self.points)

    @property
    def redraws(self) -> bool:
        """With fresh draws."""
        return self.draw is not None

    def redrawn(self) -> EStep:
        """With fresh draws."""
        return self if self.draw is None else replace(self, points=self.draw())

    def e_step(self, kernel, theta, anchor, around, chunk, form) -> Pass:
        """Local passes at all nodes, weighed by the likelihood."""
        return _pass(kernel, theta, self.points, self.log_weights, chunk, form)


def check_grid(
    n_effects: int,
    per_effect: int,
    instead: str = "another method: 'adaptive', 'monte_carlo' or 'avem'",
) -> None:
    """Raise if a grid of Gauss-Hermite nodes would be too large."""
    if per_effect**n_effects > MOST_PRIOR_NODES:
        raise ModelError(
            f"Quadrature with {per_effect} nodes for each of {n_effects} effects needs "
            f"{per_effect**n_effects:,} local passes per subject and iteration. Use fewer "
            f"(n_nodes=), or {instead}."
        )


@jit("kernel", "form")
def _pass(
    kernel: Kernel, theta: Theta, points: Array, log_weights: Array, chunk: Chunk, form: str
) -> Pass:
    at = points @ jnp.linalg.cholesky(theta["effect_covariance"]).T
    at = jnp.broadcast_to(at[:, :, None], (*at.shape, chunk.real.shape[0]))
    local = local_at_nodes(kernel, theta, at, chunk, form)
    height = log_weights[:, None] + local.loglik
    loglik = logsumexp(height, axis=0)
    share = softmax(height, axis=0)
    nodes = Nodes(at, None, share, weigh(kernel, local, share, chunk))
    return pass_at_nodes(kernel, theta, nodes, loglik, loglik, chunk)
