"""Every subject's own coefficients: the population's plus its deviation, and how certain they are.

The subject's posterior says how certain its effects are if the parameters are right. These are
estimated too, and the effects follow them: where an intercept is estimated too high, all deviations
from it come out too low. So the variance of a subject's coefficient has two parts,

    R V_i R' + (J + R F_i) C (J + R F_i)',

with V_i the posterior covariance of its effects, C the covariance of the estimates, J and F_i the
derivatives of the population's coefficients and of the posterior mean in the parameters, and R that
of the coefficients in the effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from avem.components.param_info import Params, check_level
from avem.fits.common import effects_table
from avem.fits.uncertainty import (
    covariance_of_estimates,
    quantile_of_subjects,
    slope_of,
)
from avem.fits.words import PARAMETERS, check_word

if TYPE_CHECKING:
    from avem.fits.fit import Fit

_PLACES = ("state", "to_state", "outcome", "term", "other")


def coefficients_table(fit: Fit, level: float, parameters: str) -> pd.DataFrame:
    """Per subject and coefficient that differs between subjects: estimate, se, interval."""
    check_level(level)
    check_word("parameters", parameters, PARAMETERS)
    mean, cov = fit._marginal.mean, fit._marginal.cov
    rows, added = fit.values_of(fit.params), _added(fit)
    who = np.flatnonzero(np.abs(added).max(1, initial=0.0) > 0)
    added = added[who]
    estimate = rows[who][None] + (added @ mean).T
    variance = np.einsum("ra,abn,rb->nr", added, cov, added)
    shared = np.zeros_like(variance)
    if parameters == "estimated":
        slope, following = slope_of(fit)[who], fit._curvature.following
        own = slope[None] + np.einsum("ra,pan->nrp", added, following)
        shared = _along(own, covariance_of_estimates(fit))
    table = fit._table()[["parameter", *_PLACES]].iloc[who]
    table = table.loc[:, [c for c in table if c == "parameter" or table[c].notna().any()]]
    n = len(fit.subjects)
    long = table.iloc[np.tile(np.arange(len(who)), n)].reset_index(drop=True)
    long.insert(0, str(fit.columns["subject"]), np.repeat(np.asarray(fit.subjects), len(who)))
    estimate, se = estimate.ravel(), np.sqrt((variance + shared).ravel())
    half = quantile_of_subjects(fit, level, shared.ravel(), se**2) * se
    return long.assign(estimate=estimate, se=se, lower=estimate - half, upper=estimate + half)


def uncertain_effects(fit: Fit, level: float) -> pd.DataFrame:
    """The subjects' effects, with what the parameters' uncertainty adds to theirs."""
    mean, cov = fit._posterior("adaptive")
    own = np.einsum("ab,pbn->nap", fit.model.effect_units, fit._curvature.following)
    shared = own @ covariance_of_estimates(fit) @ np.swapaxes(own, 1, 2)
    table = effects_table(fit, fit.subjects, mean, cov + shared, level)
    of_parameters = np.diagonal(shared, axis1=1, axis2=2).ravel()
    mean, sd = (table[name].to_numpy(float) for name in ("mean", "sd"))
    half = sd * quantile_of_subjects(fit, level, of_parameters, sd**2)
    return table.assign(lower=mean - half, upper=mean + half)


def _along(slopes: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """(n, r) variances along slopes (n, r, free)."""
    return np.maximum(np.einsum("nrp,pq,nrq->nr", slopes, covariance, slopes), 0.0)


def _added(fit: Fit) -> np.ndarray:
    """(rows of the parameters' table, d) what a unit of each internal effect adds to them."""
    model, theta = fit.model, fit.theta
    rows = fit.values_of(model.params_out(theta))
    columns = []
    for match in model.matches():
        moved: Params = dict(theta)
        if match is not None:
            coef = np.array(theta[match.key], float)
            coef[(slice(None) if match.state is None else match.state, *match.place)] += 1.0
            moved[match.key] = coef
        columns.append(fit.values_of(model.params_out(moved)) - rows)
    found = np.array(columns).T.reshape(len(rows), model.n_effects)
    return np.where(np.abs(found) > 1e-9, found, 0.0)
