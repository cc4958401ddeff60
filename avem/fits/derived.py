"""Numbers that follow from a fit's parameters, with standard errors by the delta method."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.components.param_info import Params, check_level
from avem.fits.uncertainty import BOUNDARY, delta, intervals, quantile
from avem.fits.words import ERRORS, check_word

if TYPE_CHECKING:
    from avem.fits.fit import Fit

_STEP = 1e-5

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
    more: np.ndarray | float = 0.0,
) -> pd.DataFrame:
    """`table` with columns estimate, se, lower, upper and note; with a level of None, estimate.

    ``rows`` gives the estimates, ``scales`` ("log", "logit" or "", for each row or for all) says
    where its interval is made, and ``more`` is a variance beside that of the parameters. Where
    there is no interval, the note says why.
    """
    check_band(level, errors)
    table = table.assign(estimate=rows(fit.params))
    if level is None:
        return table
    model = fit.model
    estimate = table["estimate"].to_numpy(float)
    se, note = delta(lambda theta: rows(model.params_out(theta)), fit.theta, fit._curvature, errors)
    se = np.sqrt(se**2 + more)
    n_units = len(fit.subjects) if model.n_effects else None
    scales = np.broadcast_to(np.asarray(scales, dtype=object), estimate.shape)
    lower, upper = intervals(estimate, quantile(n_units, level) * se, scales)
    known = np.isfinite(se) & ~np.isnan(lower) & ~np.isnan(upper)
    note[~known & (note == "")] = BOUNDARY
    if fit.info.fixed:
        note[note == BOUNDARY] = f"held, or {BOUNDARY}"
    ends = (np.where(note == "", end, np.nan) for end in (se, lower, upper))
    return table.assign(**dict(zip(("se", "lower", "upper"), ends, strict=True)), note=note)


def effect_variance(
    numbers: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, cov: np.ndarray
) -> np.ndarray:
    """(subjects, numbers) variance of what follows from effects N(mean, cov) of each subject.

    ``numbers`` takes effects (subjects, d); the delta method again.
    """
    slopes = [
        (numbers(mean + _STEP * unit) - numbers(mean - _STEP * unit)) / (2 * _STEP)
        for unit in np.eye(mean.shape[1])
    ]
    if not slopes:
        return np.zeros_like(numbers(mean))
    return np.einsum("dik,ide,eik->ik", np.stack(slopes), cov, np.stack(slopes))
