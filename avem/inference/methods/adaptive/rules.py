"""Rules: nodes and weights of a standard distribution, from few to many.

A posterior that is nearly Gaussian is integrated by a handful of nodes, a skewed one needs many.
So there is a ladder of rules, and every subject gets the first one that a finer one confirms.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from avem.inference.methods.adaptive.importance import TAIL, student_draws
from avem.inference.tuning import ADAPTIVE_DRAWS, LADDER, MOST_ON_AXES
from avem.numerics.nodes import cross_rule, fifth_degree, gauss_hermite

_OTHER_SEED = 2**31 - 1


class Rule(NamedTuple):
    """Nodes and weights that stand for a distribution in d dimensions."""

    points: np.ndarray
    """(nodes, d)."""
    log_weights: np.ndarray
    tail: float = np.inf
    """Degrees of freedom of that distribution; infinite: normal, and the nodes are a quadrature."""

    @property
    def by_draws(self) -> bool:
        """Importance sampling, not quadrature."""
        return self.tail < np.inf


@cache
def grid(n_effects: int, per_effect: int) -> Rule:
    """Gauss-Hermite nodes."""
    points, weights = gauss_hermite(n_effects, per_effect)
    return Rule(points, np.log(weights))


@cache
def draws(n_effects: int, n_draws: int, seed: int = 0) -> Rule:
    """Quasi-random draws."""
    return Rule(*student_draws(n_effects, n_draws, seed), TAIL)


def again(rule: Rule) -> Rule:
    """As many other draws."""
    n_draws, n_effects = rule.points.shape
    return draws(n_effects, n_draws, _OTHER_SEED)


@cache
def ladder(n_effects: int) -> tuple[Rule, ...]:
    """The rules for so many effects, the coarsest first."""
    if n_effects == 0:
        return (grid(0, 1),)
    if n_effects == 1:
        return tuple(grid(1, per_effect) for per_effect in LADDER[1])
    if n_effects > MOST_ON_AXES:
        return (draws(n_effects, ADAPTIVE_DRAWS),)
    points, weights = cross_rule(n_effects)
    first = Rule(points, np.log(weights))
    if n_effects in LADDER:
        return (first, *(grid(n_effects, per_effect) for per_effect in LADDER[n_effects]))
    points, weights = fifth_degree(n_effects)
    second = Rule(points, np.log(weights))
    return (first, second, draws(n_effects, ADAPTIVE_DRAWS))
