"""Probabilities of states that know that effects, and parameters, are not known.

At the means of its effects a subject's states look more certain than they are. Averaged over the
posterior of the effects they are as certain as the data make them if the parameters are right;
averaged over draws of the parameters, too, each with the effects that go with it, they are as
certain as the data make them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from avem.components.param_info import Params
from avem.fits.predict.posterior import averaged
from avem.fits.uncertainty import covariance_of_estimates
from avem.inference.after.hmm_states import state_probabilities
from avem.inference.after.parameter_draws import parameter_draws

if TYPE_CHECKING:
    from avem.fits.states_of_rows import StatesOfRows

STATE_DRAWS = 300
"""Of parameters and effects together."""
_HEAVIEST = 3.0
"""Of a draw, log weight beside the estimates' own: one alone shall not decide."""
_NOTHING = 1e-3
"""Share of a node, for everyone, that is not worth a pass."""


def integrated_states(fit: StatesOfRows) -> np.ndarray:
    """(rows, states) averaged over the posterior of the effects."""
    data, total = fit._own_data, 0.0
    row_subject = data.panel.row_subject
    for at, weight in averaged(fit._nodes, _NOTHING):
        found = state_probabilities(data, fit.theta, at)
        total = total + weight[row_subject][:, None] * found
    return np.asarray(total)


def drawn_states(fit: StatesOfRows, n_draws: int, seed: int) -> np.ndarray:
    """(rows, states) averaged over draws of parameters and effects."""
    data, total, weights = fit._own_data, 0.0, 0.0
    for weight, theta, effects in weighted_draws(fit, n_draws, seed):
        total = total + weight * state_probabilities(data, theta, effects)
        weights += weight
    return np.asarray(total) / weights


def weighted_draws(
    fit: StatesOfRows, n_draws: int, seed: int
) -> Iterator[tuple[float, Params, np.ndarray]]:
    """How much a draw counts, its parameters, and the effects (d, subjects) that go with them."""
    rng, root = np.random.default_rng(seed), _root(covariance_of_estimates(fit))
    for draw in parameter_draws(fit._marginal, fit._curvature.free, root, n_draws, rng):
        yield float(np.exp(min(draw.log_weight, _HEAVIEST))), draw.theta, draw.effects


def _root(covariance: np.ndarray) -> np.ndarray:
    """A square root of a covariance that may be singular, of full column rank."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-12 * values.max(initial=0.0)
    return vectors[:, kept] * np.sqrt(values[kept])
