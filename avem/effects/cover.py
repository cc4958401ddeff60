"""Nodes that serve a subject's effect from when nothing is known of it to its posterior.

Filtering needs the distribution of the effect after every row: at first the prior, wide, in the end
a posterior that may be narrow, in between something in between. One set of nodes serves them all.
With z such that the posterior is about N(0, I) and the prior N(centre, diag(variance)), a product
grid is even in u, z = sinh(u): as dense as the posterior needs in its middle, and ever coarser
outwards, as distributions that reach there are wider. The rule is the trapezoid's, which is nearly
exact for smooth integrands. With more effects than a grid is possible for, nodes are drawn from a
mixture of the prior, the posterior and one between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from avem.numerics.nodes import sobol_normal

_PER_EFFECT = {0: 1, 1: 65, 2: 25, 3: 13}
_N_DRAWS = 3 * 1024
_REACH = 6.0
"""How many standard deviations of the prior and of the posterior the grid covers."""
_FEWEST = 5
_LEAST_SHARE = 1e-8
"""Of the prior's variance, that a posterior's has at least."""


class Beliefs(NamedTuple):
    """Normal distributions of the effects of some subjects."""

    mean: np.ndarray
    """(d, subjects)."""
    cov: np.ndarray
    """(d, d, subjects)."""


@dataclass(frozen=True, eq=False)
class Cover:
    """The nodes of every subject, one at a time."""

    middle: np.ndarray
    """(subjects, d) of the posterior."""
    root: np.ndarray
    """(subjects, d, d) from z to effects."""
    centre: np.ndarray
    """(subjects, d) of the prior, in z."""
    sd: np.ndarray
    """(subjects, d) of the prior, in z."""
    per_effect: int
    """Nodes on each axis; 0: nodes are drawn."""
    n_nodes: int

    @classmethod
    def make(cls, prior: Beliefs, posterior: Beliefs, n_nodes: int | None = None) -> Cover:
        """Nodes from a prior to about this posterior; `n_nodes` in all, or so."""
        d = len(prior.mean)
        per_effect = _PER_EFFECT.get(d, 0)
        if n_nodes is not None and per_effect:
            per_effect = max(_FEWEST, round(n_nodes ** (1 / max(d, 1)))) if d else 1
        n = (
            per_effect**d
            if per_effect
            else 3 * 2 ** round(np.log2(max(n_nodes or _N_DRAWS, 24) / 3))
        )
        wide, narrow = (np.moveaxis(beliefs.cov, -1, 0) for beliefs in (prior, posterior))
        values, vectors = np.linalg.eigh(wide)
        outer = vectors * np.sqrt(np.maximum(values, 1e-300))[:, None]  # of the prior
        inner = np.linalg.solve(outer, np.swapaxes(np.linalg.solve(outer, narrow), 1, 2))
        share, turn = np.linalg.eigh(0.5 * (inner + np.swapaxes(inner, 1, 2)))
        share = np.sqrt(np.maximum(share, _LEAST_SHARE))
        root = (outer @ turn) * share[:, None]
        away = (prior.mean - posterior.mean).T[:, :, None]
        centre = np.linalg.solve(root, away)[:, :, 0]
        return cls(posterior.mean.T, root, centre, 1.0 / share, per_effect, n)

    def at(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Effects (d, subjects) at one node, and the log of its weight (subjects,) in the prior."""
        z, log_volume = self._on_grid(node) if self.per_effect else self._drawn(node)
        left = (z - self.centre) / self.sd
        log_prior = -0.5 * (left**2 + np.log(2 * np.pi)) - np.log(self.sd)
        effects = self.middle + np.einsum("nde,ne->nd", self.root, z)
        return effects.T, log_prior.sum(1) + log_volume

    def all_at(self) -> tuple[np.ndarray, np.ndarray]:
        """(d, nodes) of the first subject, and their log weights (nodes,)."""
        found = [self.at(node) for node in range(self.n_nodes)]
        effects = np.stack([at[:, 0] for at, _ in found], axis=1)
        return effects, np.array([log_weight[0] for _, log_weight in found])

    def _on_grid(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        low = np.arcsinh(np.minimum(-_REACH, self.centre - _REACH * self.sd))
        high = np.arcsinh(np.maximum(_REACH, self.centre + _REACH * self.sd))
        step = (high - low) / max(self.per_effect - 1, 1)
        d = self.centre.shape[1]
        u = low + step * np.array(np.unravel_index(node, (self.per_effect,) * d), float)
        return np.sinh(u), np.log(step * np.cosh(u)).sum(1)

    def _drawn(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        shares = np.array([0.0, 0.5, 1.0])[:, None, None]
        """How far the mixture's parts are from the posterior to the prior."""
        middles, sds = shares * self.centre, 1.3 * self.sd**shares
        part, point = node % 3, node // 3
        z = middles[part] + sds[part] * self._points[point]
        left = (z - middles) / sds
        logs = (-0.5 * (left**2 + np.log(2 * np.pi)) - np.log(sds)).sum(2)
        return z, np.log(3 / self.n_nodes) - logsumexp(logs, axis=0)

    @cached_property
    def _points(self) -> np.ndarray:
        return sobol_normal(self.centre.shape[1], self.n_nodes // 3)[0]

    @property
    def least(self) -> float:
        """How many effective nodes, 1 over the sum of squared shares, there must be."""
        d = self.centre.shape[1]
        # 2 on an axis: nodes 1.8 standard deviations apart, where the rule errs by about 0.1%.
        return 0.0 if not d else 2.0**d if self.per_effect else 20.0
