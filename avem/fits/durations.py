"""Models with durations: where their fits begin, and what follows from how long stays last."""

from __future__ import annotations

from typing import Any

import numpy as np

from avem.components.duration import with_maximum
from avem.components.param_info import Params
from avem.data import Panel
from avem.fits.predict.at import average_moves
from avem.inference.stages import Guess
from avem.models.hmm import HMMModel
from avem.models.hmm_specification import Specification

_TIMES_MEAN, _LEAST = 4.0, 10
"""The maximum that is chosen: so many times the longest mean stay of the Markov chain, and least.
"""
_LIKELY = 0.05
"""Share of stays that go beyond the maximum from which on it matters what is there."""
_VARIANCE = 0.1
"""Of the durations' effects, at the start."""


def with_max(spec: Specification, panel: Panel, init: Any, before: Any) -> Specification:
    """With the maximum of an earlier fit `init`, or from the stays of one without durations."""
    assert spec.duration is not None
    rows = int(panel.lane_length.max(initial=1))
    earlier = getattr(getattr(init, "model", None), "duration", None)
    if earlier is not None:
        rows = earlier.longest
    elif before is not None:
        rows = min(rows, max(_LEAST, int(np.ceil(_TIMES_MEAN * _mean_stays(before).max()))))
    return spec._replace(duration=with_maximum(spec.duration, rows))


def _mean_stays(fit: Any) -> np.ndarray:
    """(states,) how many rows a stay lasts, of a fit without durations."""
    away = 1 - np.diagonal(average_moves(fit))
    return 1 / np.maximum(away, 1e-3)


def guess_from(before: Any, model: HMMModel, held: Params) -> Guess:
    """Where a fit begins whose stays were those of a Markov chain `before`."""
    stays = model.duration
    assert stays is not None
    begin = model.chain_start(_mean_stays(before))
    params = {**before.params, **stays.params_out(begin, model.scaling)}
    away = np.where(np.eye(model.n_states, dtype=bool), 0.0, average_moves(before))
    # EM never leaves a probability of 0.
    even = model.transition.middle()["transition"]
    share = away / np.maximum(away.sum(1, keepdims=True), 1e-300)
    params["transition"] = (
        0.95 * np.where(away.sum(1, keepdims=True) > 0, share, even) + 0.05 * even
    )
    d, own = model.n_effects, before.model.n_effects
    sigma = np.eye(d) * _VARIANCE
    sigma[:own, :own] = before.params["effect_covariance"]
    effects = np.zeros((d, before.effects_mean.shape[0]))
    effects[:own] = before.model.effects_in(before.effects_mean)
    if model.effect_covariance == "isotropic" and d:
        sigma = np.eye(d) * np.diagonal(sigma).mean()
    return Guess({**params, "effect_covariance": sigma, **held}, effects)


def beyond(model: HMMModel, theta: Params) -> list[str]:
    """A sentence for every state whose stays often go beyond the maximum."""
    stays = model.duration
    if stays is None or not stays.tails.any():
        return []
    _, a = model.scaling.data_in(np.zeros((1, len(model.scaling.scale))), model.averages[None])
    at = stays.at(theta, a, np.zeros((1, model.n_effects)))
    return [
        f"In state {k} a stay lasts max={stays.longest} rows or longer with probability "
        f"{chance:.2f}; from there on the chance of ending does not change any more. Give the "
        "Duration a larger max."
        for k, chance in enumerate(at.reach[0, :, -1])
        if chance > _LIKELY and stays.tails[k]
    ]
