"""What is known of the effects of a panel's subjects, as nodes with weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from avem.effects.draws import roots
from avem.fits.common import marginal_of_new, positions
from avem.fits.words import check_word
from avem.inference.after.marginal import PosteriorNodes, posterior_nodes
from avem.inference.methods.adaptive.method import MOST_BY_QUADRATURE
from avem.models.encoded import Encoded
from avem.numerics.nodes import gauss_hermite, normal_rule

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit
    from avem.fits.ssm_fit import SSMFit

EFFECTS = ("integrated", "fitted")
_PER_EFFECT = {1: 15, 2: 7, 3: 5}
"""Nodes that stand for a Gaussian posterior."""


def nodes_for(fit: HMMFit | SSMFit, data: Encoded, effects: str = "integrated") -> PosteriorNodes:
    """The posterior of the effects of the data's subjects, on the scale of the fit.

    ``"integrated"``: of the fit's subjects, given the rows of the fit (from the Gaussian that the
    fit keeps, where it has lost its rows); of others, given these rows. ``"fitted"``: one node,
    where `decode` has each subject.
    """
    check_word("effects", effects, EFFECTS)
    n = data.panel.n_subjects
    if not fit.model.n_effects or effects == "fitted":
        return PosteriorNodes(fit._effects_for(data)[None], np.ones((1, n)))
    known = positions(fit, data.panel)
    if data.panel is fit.panel:
        return fit._nodes
    found = None
    if (known >= 0).any():
        of_fit = _gaussian(fit) if fit.panel is None else fit._nodes
        found = PosteriorNodes(of_fit.at[..., known], of_fit.share[:, known])
    if (known < 0).any():
        new = posterior_nodes(marginal_of_new(fit, data))
        found = new if found is None else _combined(found, new, known)
    assert found is not None
    return found


def node_moments(nodes: PosteriorNodes) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d, subjects) and covariance (d, d, subjects) of the effects."""
    mean = np.einsum("jn,jdn->dn", nodes.share, nodes.at)
    away = nodes.at - mean
    return mean, np.einsum("jn,jdn,jen->den", nodes.share, away, away)


def averaged(nodes: PosteriorNodes, least: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Effects (d, subjects) and their weights (subjects,): nodes that somebody has `least` of."""
    kept = nodes.share.max(1) > least
    share = nodes.share[kept] / nodes.share[kept].sum(0)
    yield from zip(nodes.at[kept], share, strict=True)


def in_user_units(fit: HMMFit, nodes: PosteriorNodes) -> np.ndarray:
    """(subjects, nodes, d) the nodes in the user's units."""
    d, n = nodes.at.shape[1:]
    no_cov = np.zeros((d, d, n))
    return np.stack([fit.model.effects_out(at, no_cov)[0] for at in nodes.at], axis=1)


def _gaussian(fit: HMMFit | SSMFit) -> PosteriorNodes:
    d = fit.model.n_effects
    small = d <= MOST_BY_QUADRATURE
    points, weights = gauss_hermite(d, _PER_EFFECT[d]) if small else normal_rule(d)
    mean = fit.model.effects_in(fit.effects_mean)
    root = roots(fit.model.effects_cov_in(fit.effects_cov))
    at = mean + np.einsum("den,je->jdn", root, points)
    return PosteriorNodes(at, np.repeat(weights[:, None], mean.shape[1], axis=1))


def _combined(known: PosteriorNodes, new: PosteriorNodes, places: np.ndarray) -> PosteriorNodes:
    most = max(len(known.share), len(new.share))
    pairs = zip(known.padded(most), new.padded(most), strict=True)
    return PosteriorNodes(*(np.where(places < 0, other, own) for own, other in pairs))
