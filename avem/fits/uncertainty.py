"""Standard errors and intervals of all parameters, from the curvature of the log likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtri, stdtrit

from avem.components.param_info import ParamInfo, Params
from avem.inference.after.curvature import Curvature

_STEP = 1e-5
_FLAT = 1e-7
"""An eigenvalue of the information, each parameter in its own unit, that is as good as 0."""
_CONCERNED = 0.1
"""Share in a flat direction from which a parameter counts as undetermined."""
BOUNDARY = "at its boundary: no standard error"
_CONSTANT = "by definition"
_FLAT_WORDS = "not determined by the data"
_SADDLE_WORDS = (
    "the log likelihood is not at its maximum: refine the fit; if it is refined, use more n_draws"
)


@dataclass(frozen=True, eq=False)
class Estimates:
    """The estimates of a fit, one in a row, and how they follow from theta."""

    table: pd.DataFrame
    """`fit.table()`."""
    rows: Callable[[Params], np.ndarray]
    """The column "estimate" for any theta."""
    theta: Params
    info: Mapping[str, ParamInfo]
    constant: np.ndarray
    """(rows,) what is what it is by definition."""
    fixed: tuple[str, ...]
    n_units: int | None
    """Subjects, where they are all there is to judge by: with effects."""


def standard_errors(at: Estimates, curvature: Curvature, errors: str, level: float) -> pd.DataFrame:
    """The table of parameters with standard errors, intervals, and notes where there are none."""
    table = at.table
    estimate = table["estimate"].to_numpy(float)
    se, note = delta(at.rows, at.theta, curvature, errors)
    held = table["parameter"].isin(at.fixed).to_numpy()
    note[held] = "held"
    note[at.constant & ~held] = _CONSTANT
    se = np.where((note != "") | at.constant, np.nan, se)
    lower, upper = intervals(estimate, quantile(at.n_units, level) * se, _scales(at))
    return table.assign(se=se, lower=lower, upper=upper, note=note)


def delta(
    rows: Callable[[Params], np.ndarray], theta: Params, curvature: Curvature, errors: str
) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors of numbers that follow from theta, by the delta method, and notes.

    Where there is none, it is NaN and the note says why; elsewhere the note is empty.
    """
    slope = _slope(rows, theta, curvature)
    covariance, undetermined = _covariance(curvature, errors)
    se = np.sqrt(np.maximum(np.einsum("rp,pq,rq->r", slope, covariance, slope), 0.0))
    note = np.full(len(slope), "", dtype=object)
    for words, share in undetermined.items():
        concerned = (np.abs(slope) * (share > _CONCERNED)).sum(1) > 1e-8
        note[concerned & (note == "")] = words
    note[(np.abs(slope).sum(1) < 1e-10) & (note == "")] = BOUNDARY
    return np.where(note == "", se, np.nan), note


def _slope(rows: Callable[[Params], np.ndarray], theta: Params, curvature: Curvature) -> np.ndarray:
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


def _covariance(curvature: Curvature, errors: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
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
    if errors == "sandwich":
        meat = curvature.slopes.T @ curvature.slopes
        inverse = inverse @ meat @ inverse
    return inverse, undetermined


def intervals(
    estimate: np.ndarray, half: np.ndarray, kinds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of half-widths `half`, made where each number is free.

    ``kinds``: "log", "logit", or "" for its own scale.
    """
    out = []
    for sign in (-1, 1):
        bound = estimate + sign * half
        log, odds = kinds == "log", kinds == "logit"
        with np.errstate(all="ignore"):
            bound[log] = estimate[log] * np.exp(sign * half[log] / estimate[log])
            p = estimate[odds]
            bound[odds] = expit(logit(p) + sign * half[odds] / (p * (1 - p)))
        out.append(bound)
    return out[0], out[1]


def quantile(n_units: int | None, level: float) -> float:
    """How many standard errors to go: with effects, the n subjects are all there is to judge by."""
    if n_units is not None:
        return float(stdtrit(n_units - 1, 0.5 + level / 2))
    return float(ndtri(0.5 + level / 2))


def _scales(at: Estimates) -> np.ndarray:
    """ "log", "logit" or "" for every row."""
    info = at.info
    own: list[str] = []
    for name, rows in at.table.groupby("parameter", sort=False):
        kind, link = info[str(name)].kind, info[str(name)].link
        if kind == "covariance":
            own += _of_covariance(len(rows), info[str(name)].shape)
        elif kind == "natural" and link is not None:
            own += [link.name if link.name in ("log", "logit") else ""] * len(rows)
        else:
            own += [{"simplex": "logit", "positive": "log"}.get(kind, "")] * len(rows)
    return np.array(own)


def _of_covariance(n_rows: int, shape: tuple[int, ...]) -> list[str]:
    size = shape[-1]
    triangle = ["log" if j == i else "" for i in range(size) for j in range(i + 1)]
    return triangle * (n_rows // max(len(triangle), 1))
