"""How certain a number of a single subject is.

The subject's posterior says how certain its effects are if the parameters are right. These are
estimated too, and the effects follow them: where an intercept is estimated too high, all deviations
from it come out too low. So the variance of a number g of a subject has two parts,

    R V_i R' + (J + R F_i) C (J + R F_i)',

with V_i the posterior covariance of its effects, C the covariance of the estimates, J and R the
derivatives of g in the parameters and in the effects, and F_i that of the posterior mean of the
effects in the parameters.

This takes V_i as it is at the estimates, and V_i depends on the variance of the effects between
subjects. Where that variance is hardly known, it may well be estimated far too small, and all
intervals with it: then there are none, and a note says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.components.param_info import Params
from avem.fits.uncertainty import (
    delta,
    noted,
    notes_on,
    parameter_covariance,
    parameter_slope,
    quantile,
    quantile_of_subjects,
)

if TYPE_CHECKING:
    from avem.fits.fit import Fit

_STEP = 1e-4
"""Of an effect, per standard deviation of what is not known of it."""
_KNOWN = 1.0
"""Standard errors that the variance of an effect must be away from 0 for subjects to have
intervals. It was chosen on 80 simulated panels of 24 subjects x 32 times with two effects on the
transitions, where nominal 95% intervals held the truth in 0.97 beyond it and in 0.75 below; on
others, intervals beyond it held in 0.96 (80 panels of that size, 68% of the intervals remained),
0.96 (60 of 12 x 60, 85%) and 0.95 (40 of 40 x 100, all)."""
_UNKNOWN = "the variance of the effects is hardly known: no interval would hold"
_ROUNDING = 1e-10
"""Standard errors, beside the number itself, that are rounding: there is none."""

Numbers = Callable[[Params, np.ndarray], np.ndarray]
"""(subjects, numbers) from a user's parameters and effects (subjects, d)."""


class Variability(NamedTuple):
    """What is not known of numbers of subjects, each (subjects, numbers)."""

    variance: np.ndarray
    shared: np.ndarray
    """The part of it that the parameters have."""
    note: np.ndarray
    """Why there is none; empty where there is one."""


def with_subject_intervals(
    fit: Fit,
    table: pd.DataFrame,
    numbers: Numbers,
    mean: np.ndarray,
    scales: Any,
    level: float | None,
    *,
    errors: str = "observed",
    parameters: str = "estimated",
) -> pd.DataFrame:
    """`table`, whose rows are each subject's numbers, with estimate, se, lower, upper and note.

    ``mean`` (subjects, d) are the effects, ``scales`` ("log", "logit" or "", for each row or for
    all) says where its interval is made; with a level of None there are estimates alone.
    """
    table = table.assign(estimate=numbers(fit.params, mean).ravel())
    if level is None:
        return table
    variance, shared, note = (
        part.ravel() for part in subject_spread(fit, numbers, mean, errors, parameters)
    )
    se = np.sqrt(variance)
    if fit.model.n_effects:
        half = quantile_of_subjects(fit, level, shared, variance) * se
    else:
        half = quantile(fit, level) * se
    return noted(fit, table, se, half, scales, note)


def subject_spread(
    fit: Fit, numbers: Numbers, mean: np.ndarray, errors: str, parameters: str
) -> Variability:
    """The variance of numbers of each subject, by the delta method."""
    cov = fit._posterior("adaptive")[1]
    reach = effect_slope(lambda f: numbers(fit.params, f), mean, cov)
    variance = np.einsum("nrd,nde,nre->nr", reach, cov, reach)
    shared, note = np.zeros_like(variance), np.full(variance.shape, "", dtype=object)
    if parameters == "estimated":
        curvature, model = fit._curvature, fit.model

        def rows(theta: Params) -> np.ndarray:
            return numbers(model.params_out(theta), mean).ravel()

        covariance, undetermined = parameter_covariance(curvature, errors)
        direct = parameter_slope(rows, fit.theta, curvature).reshape(*variance.shape, -1)
        following = np.einsum("de,pen->ndp", model.effect_units, curvature.following)
        slope = direct + reach @ following
        shared = np.maximum(np.einsum("nrp,pq,nrq->nr", slope, covariance, slope), 0.0)
        note = notes_on(direct.reshape(variance.size, -1), undetermined).reshape(note.shape)
        touched = (np.abs(reach @ model.effect_units) > 0) & _hardly_known(fit)
        note = np.where(touched.any(axis=2) & (note == ""), _UNKNOWN, note)
    variance = variance + shared
    none = variance <= (_ROUNDING * numbers(fit.params, mean)) ** 2
    return Variability(np.where(none, np.nan, variance), shared, note)


def _hardly_known(fit: Fit) -> np.ndarray:
    """(d,) bool: the effects whose variance between subjects may as well be 0."""
    if "effect_covariance" in fit.model.held(fit.info.fixed):
        return np.zeros(fit.model.n_effects, bool)

    def variances(theta: Params) -> np.ndarray:
        return np.diagonal(theta["effect_covariance"])

    se, _ = delta(variances, fit.theta, fit._curvature, "observed")
    return ~(variances(fit.theta) >= _KNOWN * se)  # also without a standard error


def effect_slope(
    numbers: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, cov: np.ndarray
) -> np.ndarray:
    """(subjects, numbers, d) derivatives of what follows from effects `mean` (subjects, d)."""
    sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    steps = _STEP * np.where(sd > 0, sd, 1.0)
    slopes = []
    for j, step in enumerate(steps.T):
        move = step[:, None] * (np.arange(mean.shape[1]) == j)
        slopes.append((numbers(mean + move) - numbers(mean - move)) / (2 * step[:, None]))
    return np.stack(slopes, axis=-1) if slopes else np.zeros((*numbers(mean).shape, 0))
