"""Probabilities of states that know that effects, and parameters, are not known.

At the means of its effects a subject's states look more certain than they are. Averaged over the
posterior of the effects they are as certain as the data make them if the parameters are right;
averaged over draws of the parameters, too, each with the effects that go with it, they are as
certain as the data make them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from avem.fits.uncertainty import covariance_of_estimates
from avem.inference.after.hmm_states import state_probabilities

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_NOTHING = 1e-3
"""Share of a node, for everyone, that is not worth a pass."""


def integrated_states(fit: HMMFit) -> np.ndarray:
    """(rows, states) averaged over the posterior of the effects."""
    data, nodes = fit._own_data, fit._nodes
    row_subject, total = data.panel.row_subject, 0.0
    kept = nodes.share.max(1) > _NOTHING
    share = nodes.share[kept] / nodes.share[kept].sum(0)
    for at, weight in zip(nodes.at[kept], share, strict=True):
        found = state_probabilities(fit.model, data, fit.theta, at)
        total = total + weight[row_subject][:, None] * found
    return np.asarray(total)


def drawn_states(fit: HMMFit, n_draws: int, seed: int) -> np.ndarray:
    """(rows, states) averaged over draws of parameters and effects."""
    data, found, free = fit._own_data, fit._marginal, fit._curvature.free
    rng = np.random.default_rng(seed)
    vector, root = free.vector(fit.theta), _root(covariance_of_estimates(fit))
    wide = np.linalg.cholesky(np.moveaxis(found.cov, -1, 0) + 1e-300 * np.eye(len(found.mean)))
    total = 0.0
    for _ in range(n_draws):
        moved = root @ rng.standard_normal(len(vector))
        follow = np.einsum("p,pan->an", moved, fit._curvature.following)
        own = np.einsum("nab,nb->an", wide, rng.standard_normal(wide.shape[:2]))
        theta = free.theta(vector + moved, fit.theta)
        total = total + state_probabilities(fit.model, data, theta, found.mean + follow + own)
    return np.asarray(total) / n_draws


def _root(covariance: np.ndarray) -> np.ndarray:
    """A square root of a covariance that may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
