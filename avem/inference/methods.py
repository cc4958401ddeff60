"""Where each method puts its nodes: the paper's rivals of anchoring (Appendix A.2).

Every method is a choice of nodes (see `nodes_pass`); AVEM itself has one, the anchor, and is the
case of no `Nodes` at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avem.errors import ModelError
from avem.inference.avem import Nodes
from avem.numerics.nodes import gauss_hermite

METHODS = ("avem", "quadrature", "monte_carlo")
_PRIOR_NODES = 9
_PRIOR_DRAWS = 100
_MOST_NODES = 20_000


@dataclass(frozen=True)
class Integration:
    """How the effects are integrated."""

    method: str = "avem"
    n_nodes: int | None = None
    """Per dimension, for Gauss-Hermite rules."""
    n_draws: int | None = None
    """For Monte Carlo."""


def make_nodes(how: Integration, n_effects: int, rng: np.random.Generator) -> Nodes | None:
    """The nodes of a method; None for AVEM, and where there is nothing to integrate."""
    if how.method == "avem" or n_effects == 0:
        return None
    if how.method == "monte_carlo":
        n_draws = how.n_draws or _PRIOR_DRAWS
        points = rng.standard_normal((n_draws, n_effects))
        weights = np.full(n_draws, 1 / n_draws)
    else:
        per_effect = how.n_nodes or _PRIOR_NODES
        if per_effect**n_effects > _MOST_NODES:
            raise ModelError(
                f"Quadrature with {per_effect} nodes for each of {n_effects} effects needs "
                f"{per_effect**n_effects:,} local passes per subject and iteration. Use fewer "
                "(n_nodes=), method='monte_carlo', or method='avem'."
            )
        points, weights = gauss_hermite(n_effects, per_effect)
    return Nodes(points, np.log(weights))
