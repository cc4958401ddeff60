"""Occupancy: how much of the time is spent in each state, by whom, and when."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv, ndtri, stdtrit

from avem.components.param_info import check_level
from avem.data import Panel
from avem.data.frames import column
from avem.errors import DataError
from avem.inference.after.hmm_states import rows_in_states

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_TILT = 1e-3
_STEP = 1e-4
"""Of an effect, in its own unit, per standard deviation of what is not known of it."""

_ALONE = "one subject: no sample to judge by"


def occupancy_table(fit: HMMFit, by: Any = None, level: float = 0.95) -> pd.DataFrame:
    """The table of `fit.occupancy`."""
    check_level(level)
    panel = fit._panel(None)
    if means_subjects(panel, by):
        return _of_subjects(fit, panel, level)
    name, values = _values(panel, by)
    return _of_groups(
        fit._state_probabilities(fit._own_data), panel.row_subject, name, values, level
    )


def means_subjects(panel: Panel, by: Any) -> bool:
    """Whether `by` asks for every subject: its column, or that word where no column has it."""
    if not isinstance(by, str):
        return False
    return by == panel.subject or (by == "subject" and by not in panel.table.columns)


def _values(panel: Panel, by: Any) -> tuple[str | None, pd.Series | None]:
    """What the rows are grouped by, and what it is called."""
    if by is None:
        return None, None
    if isinstance(by, Hashable) and not isinstance(by, tuple):
        return str(by), column(panel.table, by, "what to group by")  # type: ignore[arg-type]
    values = np.asarray(by)
    if values.shape != (panel.n_rows,):
        raise DataError(
            f"by has shape {values.shape}; the name of a column is wanted, or one value for each "
            f"of the {panel.n_rows:,} rows."
        )
    return str(getattr(by, "name", None) or "by"), pd.Series(values)


def _of_groups(
    chances: np.ndarray, subject: np.ndarray, name: str | None, values: Any, level: float
) -> pd.DataFrame:
    """Shares of the rows of each group, with errors as of a sample of subjects."""
    codes, labels = np.zeros(len(chances), int), np.zeros(1)
    if values is not None:
        try:
            codes, labels = pd.factorize(values, sort=True)
        except TypeError:  # numbers and text together have no order
            codes, labels = pd.factorize(values)
    known = codes >= 0
    if not known.any():
        raise DataError(f"The column {name!r} has no values to group by.")
    chances, codes, subject = chances[known], codes[known], subject[known]
    n_groups, n_states = len(labels), chances.shape[1]
    # Sums per group and subject, of which only those that occur are kept.
    cell, kept = pd.factorize(codes * (subject.max() + 1) + subject)
    group = np.asarray(kept) // (subject.max() + 1)
    rows = np.bincount(cell)
    inside = np.stack([np.bincount(cell, chances[:, k]) for k in range(n_states)], axis=1)
    n = np.bincount(group, minlength=n_groups)
    total = np.bincount(group, rows, minlength=n_groups)
    share, square = np.zeros((n_groups, n_states)), np.zeros((n_groups, n_states))
    for k in range(n_states):
        share[:, k] = np.bincount(group, inside[:, k], minlength=n_groups) / total
        apart = inside[:, k] - share[group, k] * rows
        square[:, k] = np.bincount(group, apart**2, minlength=n_groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        se = np.sqrt(square * (n / (n - 1))[:, None]) / total[:, None]
        se[n < 2] = np.nan
        # The subjects are few, and so is what is known of their spread.
        wider = stdtrit(np.maximum(n - 1, 1), 0.5 + level / 2) / ndtri(0.5 + level / 2)
    keys = {} if name is None else {name: np.repeat(np.asarray(labels), n_states)}
    table = pd.DataFrame({**keys, "state": np.tile(np.arange(n_states), n_groups)})
    lower, upper = _within(share, wider[:, None] * se, level)
    table = table.assign(share=share.ravel(), se=se.ravel(), lower=lower, upper=upper)
    return table.assign(
        subjects=np.repeat(n, n_states),
        rows=np.repeat(total, n_states).astype(int),
        note=np.repeat(np.where(n < 2, _ALONE, "").astype(object), n_states),
    )


def _of_subjects(fit: HMMFit, panel: Panel, level: float) -> pd.DataFrame:
    """Shares of each subject's rows, with what is not known of its states and its effects."""
    n, n_states = panel.n_subjects, fit.model.n_states
    rows = np.bincount(panel.row_subject, minlength=n)
    mean, var = time_in_states(fit)
    share, sd = mean / rows[:, None], np.sqrt(var) / rows[:, None]
    lower, upper = _within(share, sd, level)
    return pd.DataFrame(
        {
            str(fit.columns["subject"]): np.repeat(panel.subjects, n_states),
            "state": np.tile(np.arange(n_states), n),
            "share": share.ravel(),
            "se": sd.ravel(),
            "lower": lower,
            "upper": upper,
            "rows": np.repeat(rows, n_states),
        }
    )


def time_in_states(fit: HMMFit) -> tuple[np.ndarray, np.ndarray]:
    """(subjects, states) mean and variance of the numbers of rows in each state, given the data.

    The parameters are taken as known. The variance is that of the path at the subject's effect,
    and what the effect's own uncertainty adds to it.
    """
    data, n_states = fit._own_data, fit.model.n_states

    def counts(effects: np.ndarray, tilt: np.ndarray) -> np.ndarray:
        inside = fit.model.effects_in(effects)
        return rows_in_states(fit.model, data, fit.theta, inside, tilt).T

    none, at = np.zeros(n_states), fit.effects_mean
    var = np.zeros((len(at), n_states))
    for k, unit in enumerate(np.eye(n_states)):
        up, down = (counts(at, sign * _TILT * unit)[:, k] for sign in (1, -1))
        var[:, k] = np.maximum((up - down) / (2 * _TILT), 0.0)
    sd = np.sqrt(np.diagonal(fit.effects_cov, axis1=1, axis2=2))
    slopes = []
    for j in range(at.shape[1]):
        step = _STEP * np.maximum(sd[:, j], np.finfo(float).tiny)
        move = step[:, None] * (np.arange(at.shape[1]) == j)
        change = counts(at + move, none) - counts(at - move, none)
        slopes.append(change / (2 * step[:, None]))
    if slopes:
        slope = np.stack(slopes)
        var += np.einsum("dik,ide,eik->ik", slope, fit.effects_cov, slope)
    return counts(at, none), var


def _within(share: np.ndarray, sd: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of beta distributions with these moments; of a sure share, itself.

    On log odds, a share close to 0 with a standard error of its own size would reach up to 1.
    """
    share, sd = share.ravel(), sd.ravel()
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.maximum(share * (1 - share) / sd**2 - 1, 1e-6)
        ends = [betaincinv(share * n, (1 - share) * n, 0.5 + s * level / 2) for s in (-1, 1)]
    sure = (sd <= 1e-9) | (share <= 1e-12) | (share >= 1 - 1e-12)
    # 1e-308 is a way of saying 0 that fills a column of a table.
    lower, upper = (np.where(sure, share, np.where(end < 1e-9, 0.0, end)) for end in ends)
    return np.where(np.isnan(sd), np.nan, lower), np.where(np.isnan(sd), np.nan, upper)
