"""The marginal likelihood of a model on a data set: its value, its error, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from avem.components.free import Free
from avem.components.param_info import Params
from avem.data.layout import Chunk
from avem.errors import ModelError
from avem.inference.after.curvature import Curvature, curvature
from avem.inference.after.diagnose import effect_information, gaps
from avem.inference.catch_up import whole
from avem.inference.e_steps import ESteps, State, state_at
from avem.inference.methods.adaptive.centres import find_centres
from avem.inference.methods.adaptive.grade import grade
from avem.inference.methods.adaptive.method import MOST_BY_QUADRATURE, AdaptiveNodes
from avem.inference.methods.adaptive.parts import all_nodes
from avem.inference.on_shard import Setting, Subjects
from avem.numerics.precision import in_float64

_DRAWS_OF_ALL, _MOST_DRAWS = 1 << 16, 4096
"""Draws of all subjects together, where the fit used draws, and at most of one."""
_NOTHING = 1e-7
"""Share of a node that does not count."""


@dataclass(frozen=True, eq=False)
class Marginal:
    """A model on a data set, every subject's effects integrated."""

    e: ESteps
    method: AdaptiveNodes
    """Of `e`."""
    state: State
    loglik: np.ndarray
    """(subjects,) log p(D_i)."""
    error: np.ndarray
    """(subjects,) how far it may be off."""
    mean: np.ndarray
    """(d, subjects) of the posterior of the effects."""
    cov: np.ndarray
    """(d, d, subjects)."""
    quality: np.ndarray
    """(subjects,) effective number of nodes; 0 where the Laplace form stood in."""


@dataclass(frozen=True, eq=False)
class Anchoring:
    """What one anchor per subject loses."""

    bound: np.ndarray
    """(subjects,) the anchored ELBO."""
    structured: np.ndarray
    """(subjects,) the bound with the states free to follow the effect."""
    loglik: np.ndarray
    quality: np.ndarray
    complete: np.ndarray
    """(d, subjects) information on each effect if the states were seen."""
    observed: np.ndarray
    """(d, subjects) information that there is."""
    within: np.ndarray
    """(d,) share of the posteriors' variance that does not lie between modes."""


@in_float64
def marginal(e: ESteps, theta: Params, effects: np.ndarray) -> Marginal:
    """Log p(D_i) of every subject; `effects` (d, subjects) are where to look first."""
    method = AdaptiveNodes.make(e.kernel.n_effects).for_few(e.data)
    e = replace(e, method=method)
    found = grade(e, state_at(e.data, theta, effects), np.random.default_rng(0))
    there = e.e_step(found.state).state
    mean, cov, quality = e.of_subjects(there, "mean", "covariance", "quality")
    return Marginal(e, method, found.state, found.loglik, found.error, mean, cov, quality)


class PosteriorNodes(NamedTuple):
    """Places and weights that stand for the posterior of every subject's effects."""

    at: np.ndarray
    """(nodes, d, subjects)."""
    share: np.ndarray
    """(nodes, subjects), sums of 1."""

    def padded(self, n_nodes: int) -> PosteriorNodes:
        """So many nodes, the further ones of no weight."""
        more = n_nodes - len(self.share)
        parts = (np.concatenate([own, np.zeros((more, *own.shape[1:]))]) for own in self)
        return PosteriorNodes(*parts)


@in_float64
def posterior_nodes(at: Marginal) -> PosteriorNodes:
    """The nodes of the integration that matter, the heaviest first."""
    e = replace(at.e, method=at.method.finer())
    there = e.e_step(at.state).state
    kept = e.data.map(_nodes, (there.subjects,), e.setting(there))
    most = max(len(nodes.share) for nodes in kept)  # shards may differ in their numbers of centres
    found = e.data.join([nodes.padded(most) for nodes in kept])
    order = np.argsort(-found.share, axis=0, kind="stable")
    share = np.take_along_axis(found.share, order, axis=0)
    n_kept = max(1, int((share > _NOTHING).sum(0).max()))
    places = np.take_along_axis(found.at, order[:n_kept, None], axis=0)
    return PosteriorNodes(places, share[:n_kept] / share[:n_kept].sum(0))


def _nodes(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> PosteriorNodes:
    return PosteriorNodes(*all_nodes(whole(chunk, subjects, setting), chunk))


@in_float64
def uncertainty(
    at: Marginal,
    free: Free,
    n_draws: int | None = None,
    prior_slope: Callable[[Params], Params] = lambda theta: {},
) -> Curvature:
    """The curvature of the log likelihood, and of the priors, in the free parameters.

    Each subject is integrated by the nodes that it needs; with `n_draws`, by so many draws. Where
    there are only draws: by default, the fewer subjects there are to average over, the more, as
    the noise of a curvature is much larger than that of a maximum.
    """
    e, state = at.e, at.state
    drawn = at.method.by_draws
    if n_draws is not None and not drawn and e.kernel.n_effects <= MOST_BY_QUADRATURE:
        raise ModelError(
            f"n_draws is {n_draws}, but this model has at most three effects, which are "
            "integrated over a grid. Leave it out."
        )
    if n_draws is None and drawn:
        wanted = 2 ** int(np.ceil(np.log2(_DRAWS_OF_ALL / e.data.n_subjects)))
        n_draws = int(np.clip(wanted, at.method.n_nodes, _MOST_DRAWS))
    if n_draws is not None:
        e = replace(e, method=AdaptiveNodes.make(e.kernel.n_effects, n_draws=n_draws))
        state = find_centres(e, state, np.random.default_rng(0))
    return curvature(e, state, free, prior_slope)


@in_float64
def anchoring(e: ESteps, theta: Params, effects: np.ndarray) -> Anchoring:
    """The gaps and the information at settled anchors."""
    start = state_at(e.data, theta, effects)
    if not e.kernel.n_effects:
        (bound,) = e.of_subjects(e.e_step(start).state, "bound")
        return Anchoring(bound, bound, bound, np.ones(len(bound)), effects, effects, np.ones(0))
    state = e.e_step(start, 1e-9).state
    rng = np.random.default_rng(0)
    found = gaps(e, state, rng)
    info, within = effect_information(e, state, rng)
    return Anchoring(*found, complete=info.complete, observed=info.observed, within=within)
