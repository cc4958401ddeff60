"""Standard errors and intervals of all parameters, from the curvature of the log likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtri, stdtrit

from avem.errors import ModelError
from avem.inference.score import Curvature
from avem.models.param_info import ParamInfo, Params

KINDS = ("observed", "sandwich")
_STEP = 1e-5
_FLAT = 1e-7
"""An eigenvalue of the information, each parameter in its own unit, that is as good as 0."""
_CONCERNED = 0.1
"""Share in a flat direction from which a parameter counts as undetermined."""
_BOUNDARY = "at its boundary: no standard error"
_FLAT_WORDS = "not determined by the data"
_SADDLE_WORDS = "the log likelihood is not at its maximum: refine the fit"


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


def standard_errors(at: Estimates, curvature: Curvature, kind: str, level: float) -> pd.DataFrame:
    """The table of parameters with standard errors, intervals, and notes where there are none."""
    if kind not in KINDS:
        raise ModelError(f"kind is {kind!r}; choose 'observed' or 'sandwich'.")
    table = at.table
    estimate = table["estimate"].to_numpy(float)
    slope = _slope(at, curvature)
    covariance, undetermined = _covariance(curvature, kind)
    se = np.sqrt(np.maximum(np.einsum("rp,pq,rq->r", slope, covariance, slope), 0.0))
    note = np.full(len(table), "", dtype=object)
    for words, share in undetermined.items():
        concerned = (np.abs(slope) * (share > _CONCERNED)).sum(1) > 1e-8
        note[concerned & (note == "")] = words
    still = (np.abs(slope).sum(1) < 1e-10) & (note == "")
    held = table["parameter"].isin(at.fixed).to_numpy()
    note[still] = _BOUNDARY
    note[held] = "held"
    note[at.constant & ~held] = ""
    lacking = (note != "") | at.constant
    se = np.where(lacking, np.nan, se)
    lower, upper = _intervals(at, estimate, se, level)
    return table.assign(se=se, lower=lower, upper=upper, note=note)


def _slope(at: Estimates, curvature: Curvature) -> np.ndarray:
    """(rows, free) derivative of every row of the table in the free parameters."""
    free, theta = curvature.free, at.theta
    vector = free.vector(theta)

    def rows(there: np.ndarray) -> np.ndarray:
        return at.rows(free.theta(there, theta))

    columns = [
        (rows(vector + _STEP * unit) - rows(vector - _STEP * unit)) / (2 * _STEP)
        for unit in np.eye(free.size)
    ]
    return np.array(columns).T.reshape(len(at.table), free.size)


def _covariance(curvature: Curvature, kind: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
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
    if kind == "sandwich":
        meat = curvature.slopes.T @ curvature.slopes
        inverse = inverse @ meat @ inverse
    return inverse, undetermined


def _intervals(
    at: Estimates, estimate: np.ndarray, se: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals on the scale where each parameter is free: log, log odds, or its own."""
    half = _quantile(at.n_units, level) * se
    kinds = _scales(at)
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


def _quantile(n_units: int | None, level: float) -> float:
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
