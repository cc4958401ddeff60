"""The methods by name: what each needs to know, and the object that does it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avem.errors import ModelError
from avem.inference.e_steps import Method
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.anchored import TO_THE_END, Anchored, MeanField
from avem.inference.methods.partial import Partial
from avem.inference.methods.prior_nodes import PriorNodes
from avem.inference.methods.structured import Structured
from avem.numerics.nodes import gauss_hermite

METHODS = (
    "avem",
    "partial",
    "mean_field",
    "structured",
    "quadrature",
    "monte_carlo",
    "adaptive",
)
MARGINAL = ("quadrature", "monte_carlo", "adaptive")
"""The methods whose objective is the marginal likelihood."""
_PRIOR_NODES = 9
_PRIOR_DRAWS = 100
_MOST_NODES = 20_000


@dataclass(frozen=True)
class Integration:
    """How the effects are integrated."""

    method: str = "avem"
    q_update: str = "laplace"
    newton_steps: int = TO_THE_END
    n_nodes: int | None = None
    """Per dimension, for Gauss-Hermite rules."""
    n_draws: int | None = None
    """For Monte Carlo."""
    fresh_draws: bool = False
    unanchored: tuple[int, ...] | None = None
    """The effects that partial anchoring integrates; None: those of which most is lost."""
    follow: bool = True
    """The nodes of partial anchoring follow the posterior."""
    lost: tuple[float, ...] = ()
    """Share of the information on each effect that is lost by not seeing the states."""
    refined: bool = False
    """The adaptive tier went on from there."""


def make_method(how: Integration, n_effects: int, rng: np.random.Generator) -> Method:
    """The method; AVEM where there is nothing to integrate."""
    if how.method == "avem" or n_effects == 0:
        return Anchored(how.q_update, how.newton_steps)
    if how.method == "mean_field":
        return MeanField("quadrature", how.newton_steps)
    if how.method == "partial":
        assert how.unanchored is not None
        points, weights = _rule(len(how.unanchored), how.n_nodes or _PRIOR_NODES)
        return Partial(
            how.unanchored, points, np.log(weights), how.q_update, how.newton_steps, how.follow
        )
    if how.method == "structured":
        return Structured.make(n_effects, how.n_nodes)
    if how.method == "adaptive":
        return Adaptive.make(n_effects, how.n_nodes, how.n_draws)
    if how.method == "monte_carlo":
        n_draws = how.n_draws or _PRIOR_DRAWS

        def draw() -> np.ndarray:
            return rng.standard_normal((n_draws, n_effects))

        log_weights = np.full(n_draws, -np.log(n_draws))
        return PriorNodes(draw(), log_weights, draw if how.fresh_draws else None)
    points, weights = _rule(n_effects, how.n_nodes or _PRIOR_NODES)
    return PriorNodes(points, np.log(weights))


def _rule(n_effects: int, per_effect: int) -> tuple[np.ndarray, np.ndarray]:
    if per_effect**n_effects > _MOST_NODES:
        raise ModelError(
            f"Quadrature with {per_effect} nodes for each of {n_effects} effects needs "
            f"{per_effect**n_effects:,} local passes per subject and iteration. Use fewer "
            "(n_nodes=), or another method: 'adaptive', 'monte_carlo' or 'avem'."
        )
    return gauss_hermite(n_effects, per_effect)
