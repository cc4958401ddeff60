"""Standard errors and intervals: of all parameters, and of what follows from them.

From the curvature of the log likelihood, by the delta method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtr, ndtri, stdtr, stdtrit

from avem.components.param_info import ParamInfo, Params, check_level
from avem.fits.words import ERRORS, check_word
from avem.inference.after.curvature import Curvature
from avem.inference.methods.adaptive.method import MOST_BY_QUADRATURE
from avem.inference.tuning import MOST_ON_AXES

if TYPE_CHECKING:
    from avem.fits.fit import Fit
    from avem.fits.wide_table import EffectSpread

CHEAP, CHEAP_ON_AXES, CHEAP_WITH_DRAWS = 200_000, 50_000, 5_000
"""Rows times effects up to which standard errors are computed unasked: where effects are integrated
over a grid, as up to three are, over nodes on their axes, as up to six, and over draws."""
_STEP = 1e-5
_FLAT = 1e-7
"""An eigenvalue of the information, each parameter in its own unit, that is as good as 0."""
_CONCERNED = 0.1
"""Share in a flat direction from which a parameter counts as undetermined."""
_FAR = 20.0
"""A standard error in logs, or in log odds, from which a number is 0 (or 1) in all but name: of a
probability p in n rows it is 1 / sqrt(n p (1 - p)), so that n p, the events, are below 1 / 400."""
_AWAY = 8.0
"""A coefficient, from which a standard error `_FAR` times as large says that it has no end."""
BOUNDARY = "at its boundary: no standard error"
_CONSTANT = "by definition"
PINNED = "held by a constraint"
_FLAT_WORDS = "not determined by the data"
_SADDLE_WORDS = (
    "the log likelihood is not at its maximum: refine the fit; if it is refined, lower tol, or use "
    "more n_draws where effects are integrated over draws"
)


def standard_errors(
    fit: Fit, curvature: Curvature, errors: str, level: float, spread: EffectSpread | None = None
) -> pd.DataFrame:
    """The table of parameters with standard errors, intervals, and notes where there are none.

    With a `spread`, that of the effects is in standard deviations and correlations.
    """
    model, table = fit.model, fit._table()
    scales = scales_of(table, model.param_info())
    values = fit.values_of
    if spread is not None:
        table, scales, values = spread.table(table), spread.scales(scales), spread.values
    se, note = parameter_delta(fit, values, curvature, errors)
    constant, held = (
        model.constant_rows(),
        fit._table()["parameter"].isin(fit.info.fixed).to_numpy(),
    )
    note[fit.model.pinned_rows(fit.info.fixed, fit.theta)] = PINNED
    note[held] = "held"
    note[constant & ~held] = _CONSTANT
    estimate = table["estimate"].to_numpy(float)
    note[at_boundary(estimate, se, scales) & (note == "")] = BOUNDARY
    se = np.where((note != "") | constant, np.nan, se)
    lower, upper = intervals(estimate, quantile(fit, level) * se, scales)
    return table.assign(se=se, lower=lower, upper=upper, note=note)


def parameter_delta(
    fit: Fit, rows: Callable[[Params], np.ndarray], curvature: Curvature, errors: str
) -> tuple[np.ndarray, np.ndarray]:
    """`delta` of numbers that follow from a fit's parameters as the user knows them."""
    return delta(lambda theta: rows(fit.model.params_out(theta)), fit.theta, curvature, errors)


def delta(
    rows: Callable[[Params], np.ndarray], theta: Params, curvature: Curvature, errors: str
) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors of numbers that follow from theta, by the delta method, and notes.

    Where there is none, it is NaN and the note says why; elsewhere the note is empty.
    """
    slope = parameter_slope(rows, theta, curvature)
    covariance, undetermined = parameter_covariance(curvature, errors)
    se = np.sqrt(np.maximum(np.einsum("rp,pq,rq->r", slope, covariance, slope), 0.0))
    note = notes_on(slope, undetermined)
    note[(np.abs(slope).sum(1) < 1e-10) & (note == "")] = BOUNDARY
    return np.where(note == "", se, np.nan), note


def notes_on(slope: np.ndarray, undetermined: Mapping[str, np.ndarray]) -> np.ndarray:
    """(rows,) why numbers with slopes (rows, free) are not determined; empty where they are."""
    note = np.full(len(slope), "", dtype=object)
    for words, share in undetermined.items():
        concerned = (np.abs(slope) * (share > _CONCERNED)).sum(1) > 1e-8
        note[concerned & (note == "")] = words
    return note


def covariance_of_estimates(fit: Fit) -> np.ndarray:
    """(free, free) of the free parameters, by the observed information."""
    return parameter_covariance(fit._curvature, "observed")[0]


def parameter_slope(
    rows: Callable[[Params], np.ndarray], theta: Params, curvature: Curvature
) -> np.ndarray:
    """(rows, free) derivative of every number in the free parameters."""
    free = curvature.free
    vector = free.vector(theta)

    def at(there: np.ndarray) -> np.ndarray:
        return rows(free.theta(there, theta))

    columns = [
        (at(vector + _STEP * unit) - at(vector - _STEP * unit)) / (2 * _STEP)
        for unit in np.eye(free.size)
    ]
    return np.array(columns).T.reshape(len(rows(theta)), free.size)


def parameter_covariance(
    curvature: Curvature, errors: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Covariance of the free parameters, and their share in directions that have none."""
    information = curvature.information
    unit = 1.0 / np.sqrt(np.maximum(np.abs(np.diagonal(information)), 1e-300))
    values, vectors = np.linalg.eigh(information * np.outer(unit, unit))
    good = values > _FLAT
    inverse = (vectors[:, good] / values[good]) @ vectors[:, good].T * np.outer(unit, unit)
    undetermined = {
        _FLAT_WORDS: (vectors[:, np.abs(values) <= _FLAT] ** 2).sum(1),
        _SADDLE_WORDS: (vectors[:, values < -_FLAT] ** 2).sum(1),
    }
    if errors == "sandwich" or curvature.survey:
        inverse = inverse @ curvature.meat @ inverse
    return inverse, undetermined


def intervals(
    estimate: np.ndarray, half: np.ndarray, kinds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of half-widths `half`, made where each number is free.

    ``kinds``: "log", "log above 1" (the mean of stays, of at least one row), "logit", "atanh" of a
    correlation, or "" for its own scale.
    """
    out, (log, least) = [], _logs(kinds)
    for sign in (-1, 1):
        bound = estimate + sign * half
        odds = kinds == "logit"
        with np.errstate(all="ignore"):
            beyond = (estimate - least)[log]
            bound[log] = least[log] + beyond * np.exp(sign * half[log] / beyond)
            p = estimate[odds]
            bound[odds] = expit(logit(p) + sign * half[odds] / (p * (1 - p)))
            r = estimate[kinds == "atanh"]
            bound[kinds == "atanh"] = np.tanh(
                np.arctanh(r) + sign * half[kinds == "atanh"] / (1 - r**2)
            )
        out.append(bound)
    return out[0], out[1]


def at_boundary(estimate: np.ndarray, se: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """(rows,) whether a number is as good as at the end of its range, and an interval all of it."""
    is_log, least = _logs(kinds)
    with np.errstate(all="ignore"):
        log, odds = se / np.abs(estimate - least), se / (estimate * (1 - estimate))
        away = (kinds == "") & (np.abs(estimate) > _AWAY) & (se > _FAR * np.abs(estimate))
    return away | (is_log & (log > _FAR)) | ((kinds == "logit") & (odds > _FAR))


def _logs(kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which numbers are free as logarithms, and above what."""
    above = kinds == "log above 1"
    return (kinds == "log") | above, above.astype(float)


def normal_interval(mean: np.ndarray, sd: np.ndarray, level: float) -> dict[str, np.ndarray]:
    """Mean, sd, lower and upper of normal distributions, as columns of a table."""
    half = ndtri(0.5 + level / 2) * sd
    return {"mean": mean, "sd": sd, "lower": mean - half, "upper": mean + half}


def quantile(fit: Fit, level: float) -> float:
    """How many standard errors to go: with effects, the n subjects are all there is to judge by."""
    if fit.model.n_effects:
        return float(stdtrit(fit._n_units - 1, 0.5 + level / 2))
    return float(ndtri(0.5 + level / 2))


def wald(fit: Fit, estimate: np.ndarray, se: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimates over their standard errors, and two-sided p, which goes with the intervals."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = estimate / np.where(se > 0, se, np.nan)
    if fit.model.n_effects:
        return z, 2 * stdtr(fit._n_units - 1, -np.abs(z))
    return z, 2 * ndtr(-np.abs(z))


def errors_are_cheap(fit: Fit) -> bool:
    """Whether standard errors are known, or quick to compute: then they are shown unasked."""
    if fit.panel is None or "_curvature" in vars(fit):
        return fit.panel is not None
    d = fit.model.n_effects
    few = CHEAP if d <= MOST_BY_QUADRATURE else CHEAP_ON_AXES
    return fit.info.n_rows * max(1, d) <= (few if d <= MOST_ON_AXES else CHEAP_WITH_DRAWS)


def quantile_of_subjects(
    fit: Fit, level: float, shared: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """The same for numbers of single subjects, by Satterthwaite's rule.

    Only the part of a variance that is `shared`, the parameters', rests on the few subjects.
    """
    part = np.maximum(shared / np.maximum(variance, 1e-300), 1e-3)
    return np.asarray(stdtrit(max(fit._n_units - 1, 1) / part**2, 0.5 + level / 2))


def scales_of(table: pd.DataFrame, info: Mapping[str, ParamInfo]) -> np.ndarray:
    """ "log", "logit" or "" for every row."""
    own: list[str] = []
    for name, rows in table.groupby("parameter", sort=False):
        kind, link = info[str(name)].kind, info[str(name)].link
        if kind == "covariance":
            own += _of_covariance(len(rows), info[str(name)].shape)
        elif kind == "natural" and link is not None:
            own += [link.name if link.name in ("log", "logit") else ""] * len(rows)
        else:
            own += [{"simplex": "logit", "positive": "log", "rate": "log"}.get(kind, "")] * len(
                rows
            )
    return np.array(own)


def _of_covariance(n_rows: int, shape: tuple[int, ...]) -> list[str]:
    size = shape[-1]
    triangle = ["log" if j == i else "" for i in range(size) for j in range(i + 1)]
    return triangle * (n_rows // max(len(triangle), 1))


# --- numbers that follow from the parameters ------------------------------------------------------


Rows = Callable[[Params], np.ndarray]
"""(rows,) from a model's parameters as the user knows them."""


def check_band(level: float | None, errors: str) -> None:
    """Raise unless these can say what intervals are wanted; a level of None means none."""
    check_word("errors", errors, ERRORS)
    if level is not None:
        check_level(level)


def with_intervals(
    fit: Fit,
    table: pd.DataFrame,
    rows: Rows,
    scales: Any,
    level: float | None,
    errors: str = "observed",
) -> pd.DataFrame:
    """`table` with columns estimate, se, lower, upper and note; with a level of None, estimate.

    ``rows`` gives the estimates, and ``scales`` ("log", "logit" or "", for each row or for all)
    says where its interval is made. Where there is no interval, the note says why.
    """
    check_band(level, errors)
    table = table.assign(estimate=rows(fit.params))
    if level is None:
        return table
    se, note = parameter_delta(fit, rows, fit._curvature, errors)
    return noted(fit, table, se, quantile(fit, level) * se, scales, note)


def noted(
    fit: Fit, table: pd.DataFrame, se: np.ndarray, half: np.ndarray, scales: Any, note: np.ndarray
) -> pd.DataFrame:
    """`table`, which has estimates, with se, intervals of half-widths `half`, and notes."""
    estimate = table["estimate"].to_numpy(float)
    scales = np.broadcast_to(np.asarray(scales, dtype=object), estimate.shape)
    lower, upper = intervals(estimate, half, scales)
    known = np.isfinite(se) & ~np.isnan(lower) & ~np.isnan(upper)
    known &= ~at_boundary(estimate, se, scales)
    note = np.where(known | (note != ""), note, BOUNDARY)
    if fit.info.fixed:
        note[note == BOUNDARY] = f"held, or {BOUNDARY}"
    ends = (np.where(note == "", end, np.nan) for end in (se, lower, upper))
    return table.assign(**dict(zip(("se", "lower", "upper"), ends, strict=True)), note=note)
