"""The model of a fit at given effects, through the public interface.

Given its effect a subject follows the HMM without effects, whose linear predictors are moved by a
known amount. So a copy of the subject for every value of the effect, with the amounts as covariates
whose coefficients are held at 1, and all other parameters held at those of the fit, has
log p(D_i | f) as its log likelihood, and p(U_t | D_i, f) as its state probabilities.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import avem


def given_effects(fit: avem.HMMFit, y: np.ndarray, level: np.ndarray) -> avem.HMMFit:
    """The HMM without effects on copies of subjects.

    Parameters
    ----------
    fit
        Of an intercept and effects, outcomes of one family.
    y, level
        (copies, T, outcomes) the data, and what the effects add to the linear predictors.
    """
    copies, n_times, p = y.shape
    outcomes, moves = ([f"{letter}{j + 1}" for j in range(p)] for letter in "yg")
    frame = pd.DataFrame(
        np.concatenate([y, level], axis=2).reshape(-1, 2 * p), columns=[*outcomes, *moves]
    ).assign(copy=np.repeat(np.arange(copies), n_times), time=np.tile(np.arange(n_times), copies))
    spec = fit.model.spec
    model = avem.MixedHMM(
        f"{' + '.join(outcomes)} ~ 1 + {' + '.join(moves)}",
        spec.n_states,
        spec.outcomes[0].family,
    )
    params = {name: value for name, value in fit.params.items() if name != "effect_covariance"}
    own = np.broadcast_to(np.eye(p), (spec.n_states, p, p))
    params["coef"] = np.concatenate([fit.params["coef"], own], axis=2)
    panel = avem.Panel.from_frame(frame, "copy", time="time")
    return model.fit(panel, subject="copy", fixed=params, plain=True, max_iter=1)


def log_likelihoods(fit: avem.HMMFit, y: np.ndarray, level: np.ndarray) -> np.ndarray:
    """(copies,) log p(D_i | f)."""
    return given_effects(fit, y, level).loglik().by_subject


def state_weights(fit: avem.HMMFit, y: np.ndarray, level: np.ndarray) -> np.ndarray:
    """(copies, T, states) p(U_t | D_i, f)."""
    found = np.asarray(given_effects(fit, y, level).state_probabilities())
    return found.reshape(*y.shape[:2], -1)
