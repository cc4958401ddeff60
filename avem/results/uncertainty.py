"""Standard errors and intervals of all parameters, from the curvature of the log likelihood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtri, stdtrit

from avem.errors import ModelError
from avem.inference.score import Curvature
from avem.models.params import param_info, params_out
from avem.results.tables import parameter_rows, parameter_table

if TYPE_CHECKING:
    from avem.results.hmm_fit import HMMFit

KINDS = ("observed", "sandwich")
_STEP = 1e-5
_FLAT = 1e-7
"""An eigenvalue of the information, each parameter in its own unit, that is as good as 0."""
_CONCERNED = 0.1
"""Share in a flat direction from which a parameter counts as undetermined."""
_BOUNDARY = "at its boundary: no standard error"
_FLAT_WORDS = "not determined by the data"
_SADDLE_WORDS = "the log likelihood is not at its maximum: refine the fit"


def standard_errors(fit: HMMFit, curvature: Curvature, kind: str, level: float) -> pd.DataFrame:
    """The table of parameters with standard errors, intervals, and notes where there are none."""
    if kind not in KINDS:
        raise ModelError(f"kind is {kind!r}; choose 'observed' or 'sandwich'.")
    table = parameter_table(fit)
    estimate = table["estimate"].to_numpy(float)
    slope = _slope(fit, curvature)
    covariance, undetermined = _covariance(curvature, kind)
    se = np.sqrt(np.maximum(np.einsum("rp,pq,rq->r", slope, covariance, slope), 0.0))
    note = np.full(len(table), "", dtype=object)
    for words, share in undetermined.items():
        concerned = (np.abs(slope) * (share > _CONCERNED)).sum(1) > 1e-8
        note[concerned & (note == "")] = words
    still = (np.abs(slope).sum(1) < 1e-10) & (note == "")
    held = table["parameter"].isin(fit.info.fixed).to_numpy()
    constant = _constants(fit, table)
    note[still] = _BOUNDARY
    note[held] = "held"
    note[constant & ~held] = ""
    lacking = (note != "") | constant
    se = np.where(lacking, np.nan, se)
    lower, upper = _intervals(fit, table, estimate, se, level)
    return table.assign(se=se, lower=lower, upper=upper, note=note)


def _slope(fit: HMMFit, curvature: Curvature) -> np.ndarray:
    """(rows, free) derivative of every row of the table in the free parameters."""
    free, model, theta = curvature.free, fit.model, fit.theta
    vector = free.vector(theta)

    def rows(at: np.ndarray) -> np.ndarray:
        params = params_out(model, free.theta(at, theta))
        return np.array([value for *_, value in parameter_rows(model, params)])

    columns = [
        (rows(vector + _STEP * unit) - rows(vector - _STEP * unit)) / (2 * _STEP)
        for unit in np.eye(free.size)
    ]
    n_rows = sum(1 for _ in parameter_rows(model, fit.params))
    return np.array(columns).T.reshape(n_rows, free.size)


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


def _constants(fit: HMMFit, table: pd.DataFrame) -> np.ndarray:
    """Rows that are what they are by definition."""
    first = (table["parameter"] == "initial_coef") & (table["state"] == 0)
    alone = table["parameter"].isin(["initial", "transition"]) & (fit.model.n_states == 1)
    return (first | alone).fillna(False).to_numpy(bool)


def _intervals(
    fit: HMMFit, table: pd.DataFrame, estimate: np.ndarray, se: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals on the scale where each parameter is free: log, log odds, or its own."""
    half = _quantile(fit, level) * se
    kinds = _scales(fit, table)
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


def _quantile(fit: HMMFit, level: float) -> float:
    """How many standard errors to go: with effects, the n subjects are all there is to judge by."""
    if fit.model.n_effects:
        return float(stdtrit(len(fit.subjects) - 1, 0.5 + level / 2))
    return float(ndtri(0.5 + level / 2))


def _scales(fit: HMMFit, table: pd.DataFrame) -> np.ndarray:
    """ "log", "logit" or "" for every row."""
    info = param_info(fit.model)
    own: list[str] = []
    for name, rows in table.groupby("parameter", sort=False):
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
