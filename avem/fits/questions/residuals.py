"""Residuals of a fit: where each value stands in what the rows before it say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from avem.components.param_info import check_seed
from avem.effects.draws import draw_effects
from avem.fits.common import posterior_for
from avem.fits.predict.at import user_theta
from avem.fits.predict.circle import passed_round
from avem.fits.predict.mixture import mixtures, need_distributions
from avem.fits.predict.posterior import in_user_units, node_moments, nodes_for
from avem.fits.words import check_word
from avem.inference.after.hmm_states import states_given
from avem.inference.after.ssm_states import residuals as one_step_residuals
from avem.models.encoded import Encoded
from avem.models.memory import refuse_memory

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit
    from avem.fits.ssm_fit import SSMFit

KINDS = {"forecast": "before", "ordinary": "others"}
DISCRETE = ("randomised", "mid")
EFFECTS = ("fitted", "drawn")
"""A draw from the posterior and the data are together distributed as the true effects and the data
are, so that residuals at drawn effects are independent and standard normal if the model holds."""
_SMALLEST = 1e-300


def hmm_residuals(
    fit: HMMFit, encoded: Encoded, kind: str, discrete: str, effects: str, seed: int
) -> np.ndarray:
    """(rows, outcomes) normal pseudo-residuals, NaN where missing.

    Each is the quantile of a standard normal that the value is of its predictive distribution, the
    mixture over the states: 0 in its middle, beyond 2 or -2 where it surprises.

    Parameters
    ----------
    kind
        ``"forecast"``: given the rows before it in its sequence. If the model holds, these are
        independent over time. ``"ordinary"``: given all other rows of the sequence, before and
        after. They show single outliers more clearly, but are correlated over time even if the
        model holds. The other outcomes of the same row are left out of both.
    discrete
        Where single values have a probability (counts, choices, labels, exact zeros), a value is a
        stretch of its distribution, not a point. ``"randomised"``: a random point of it, by `seed`,
        which makes the residuals normal if the model holds. ``"mid"``: its middle, which does not
        depend on chance, but is not normal. Labels count in the order of their levels. The circle
        of an angle is cut where its density is lowest, and an angle at the cut is randomised, too.
    effects
        ``"fitted"``: every subject at the mean of its effects, which were fitted to these very
        rows, so the residuals are a little too small and too well-behaved. ``"drawn"``: at one
        draw from what is known of them, the states integrated out, by `seed`. Such residuals are
        standard normal if the model holds: a draw from the posterior and the data are together
        distributed as the true effects and the data are.
    """
    check_word("kind", kind, tuple(KINDS))
    check_word("discrete", discrete, DISCRETE)
    check_word("effects", effects, EFFECTS)
    check_seed(seed)
    model, panel = fit.model, encoded.panel
    need_distributions(model, "Residuals")
    if kind == "ordinary":
        refuse_memory(model.spec, "kind='ordinary' takes rows given those after them", "forecast")
    rng = np.random.default_rng(seed)
    nodes = nodes_for(fit, encoded, "fitted" if effects == "fitted" else "integrated")
    if effects == "drawn" and model.n_effects:
        at = draw_effects(*node_moments(nodes), rng)
        nodes = nodes._replace(at=at[None], share=np.ones((1, panel.n_subjects)))
    chance = states_given(encoded, fit.theta, nodes.at, KINDS[kind])
    Y, A = encoded.in_user_units(model.scaling)
    own = in_user_units(fit, nodes)[panel.row_subject]
    uniform = np.empty((panel.n_rows, len(model.outcomes)))
    uniform[panel.order] = rng.random(uniform.shape)  # by sequence and time, not by row
    out = np.full(uniform.shape, np.nan)
    seen = np.flatnonzero((~np.isnan(Y[:, model.outcome_columns])).any(axis=1))
    for rows, j, place, mixture in mixtures(model, user_theta(fit), seen, A, Y, own, chance):
        y = Y[rows, place.column]
        there = ~np.isnan(y)
        y = np.where(there, y, mixture.family.harmless)
        share = uniform[rows, j] if discrete == "randomised" else None
        if mixture.family.angular:
            passed = passed_round(mixture, y, share)
        else:
            beside = tuple(Y[rows, column] for column in place.extras)
            low, high = place.piece.family.ends(mixture.below(y), mixture.cdf(y), beside)
            passed = low + (0.5 if share is None else share) * (high - low)
            passed = np.clip(passed, _SMALLEST, 1.0 - np.finfo(float).epsneg)
        out[rows, j] = np.where(there, ndtri(passed), np.nan)
    return out


def ssm_residuals(
    fit: SSMFit, encoded: Encoded, effects: str, joint: bool, seed: int
) -> np.ndarray:
    """(rows, outcomes) one-step residuals over their standard deviations, NaN where missing."""
    check_word("effects", effects, EFFECTS)
    if effects == "fitted":
        f = fit._effects_for(encoded)
    else:
        check_seed(seed)
        f = draw_effects(*posterior_for(fit, encoded), np.random.default_rng(seed))
    return one_step_residuals(fit.model, encoded, fit.theta, f, joint)
