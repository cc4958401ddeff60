"""Draws of parameters and effects together, as a likelihood makes them probable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from avem.components.free import Free
from avem.components.param_info import Params
from avem.data.layout import Chunk
from avem.inference.after.marginal import Marginal
from avem.inference.catch_up import whole
from avem.inference.e_steps import State
from avem.inference.methods.adaptive.parts import all_nodes
from avem.inference.on_shard import Setting, Subjects
from avem.numerics.precision import in_float64

_DF, _WIDER = 5.0, 1.2
"""Of the t that parameters are drawn from, and its scale beside that of their normal."""


class ParameterDraw(NamedTuple):
    """Parameters, effects, and how much the pair counts."""

    theta: Params
    effects: np.ndarray
    """(d, subjects), of the posterior at these parameters."""
    log_weight: float


def parameter_draws(
    at: Marginal, free: Free, root: np.ndarray, n_draws: int, rng: np.random.Generator
) -> Iterator[ParameterDraw]:
    """Draws from a t around the estimates, weighed by what their likelihood is beside it.

    ``root``, of full column rank, is a square root of the covariance of the free parameters. Draws
    count as under a flat prior on them, whatever the shape of the likelihood: with few subjects it
    falls more slowly than a normal density, and so does a t. Where it is 0, there is no draw.
    """
    vector, size = free.vector(at.state.theta), root.shape[1]
    for _ in range(n_draws):
        unit = rng.standard_normal(size) * np.sqrt(_DF / rng.chisquare(_DF))
        theta = free.theta(vector + _WIDER * (root @ unit), at.state.theta)
        found = _effects_at(at, theta, rng)
        if found is not None:
            effects, loglik = found
            rarer = 0.5 * (_DF + size) * np.log1p(float(unit @ unit) / _DF)
            yield ParameterDraw(theta, effects, loglik - at.loglik.sum() + rarer)


@in_float64
def _effects_at(
    at: Marginal, theta: Params, rng: np.random.Generator
) -> tuple[np.ndarray, float] | None:
    """Effects drawn at parameters, and the log likelihood there; None where it is 0."""
    e, state = at.e, at.state
    found = e.try_e_step(State(theta, state.subjects, form=state.form))
    if not np.isfinite(found.bound):
        return None
    if not e.kernel.n_effects:
        return at.mean, found.bound
    seeds = e.data.place([int(rng.integers(2**32)) for _ in e.data.shards])
    there = (found.state.subjects, seeds)
    return e.data.join(e.data.map(_drawn_nodes, there, e.setting(found.state))), found.bound


def _drawn_nodes(
    chunk: Chunk, subjects: Subjects | None, seed: int, setting: Setting
) -> np.ndarray:
    """(d, subject) one node of everyone, chosen by the nodes' shares."""
    places, share = all_nodes(whole(chunk, subjects, setting), chunk)
    level = np.random.default_rng(seed).random(share.shape[1])
    chosen = (share.cumsum(0) < level * share.sum(0)).sum(0)
    return places[np.minimum(chosen, len(share) - 1), :, np.arange(share.shape[1])].T
