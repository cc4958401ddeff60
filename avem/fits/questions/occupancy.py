"""Occupancy: how much of the time is spent in each state, by whom, and when."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import betaincinv, ndtri, stdtrit

from avem.components.param_info import check_level
from avem.data import Panel
from avem.data.frames import column
from avem.errors import DataError, ModelError
from avem.fits.questions.keys import check_keys, factorized
from avem.fits.questions.time_in_states import (
    MOST_PARTS,
    RowParts,
    drawn_time_in_states,
    time_in_states,
)
from avem.fits.words import PARAMETERS, check_word

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_COLUMNS = ("state", "share", "se", "lower", "upper", "subjects", "rows", "note")
_ALONE = "one subject: no sample to judge by"
_MANY = f"more than {MOST_PARTS} groups within one sequence: no interval"


def occupancy_table(
    fit: HMMFit, by: Any = None, level: float = 0.95, parameters: str = "fixed"
) -> pd.DataFrame:
    """The table of `fit.occupancy`."""
    check_level(level)
    check_word("parameters", parameters, PARAMETERS)
    panel = fit._panel(None)
    if means_subjects(panel, by):
        check_keys([panel.subject], _COLUMNS)
        labels = {panel.subject: panel.subjects}
        return _of_parts(fit, labels, RowParts.of(panel, panel.row_subject), level, parameters)
    keys = _values(panel, by)
    groups = _grouped(keys, panel.n_rows)
    if panel.subject in keys and _names_columns(panel, by):
        parts = RowParts.of(panel, groups.code)
        table = _of_parts(fit, groups.labels, parts, level, parameters)
        table.insert(list(table.columns).index("rows"), "subjects", 1)
        return table.assign(note=np.where(table["se"].isna(), _MANY, "").astype(object))
    if parameters == "estimated":
        raise ModelError(
            "parameters='estimated' is for single subjects, by='subject', or by a list of columns "
            "with the subject's: intervals of groups are those of a sample of subjects."
        )
    return _of_groups(fit._state_probabilities(fit._own_data), panel.row_subject, groups, level)


def with_one_key(table: pd.DataFrame) -> pd.DataFrame:
    """The table of several columns' groups with one column for all of them, as a picture has it."""
    keys = list(table.columns[: table.columns.get_loc("state")])
    if len(keys) < 2:
        return table
    labels = [", ".join(map(str, row)) for row in table[keys].itertuples(index=False)]
    rest = table.drop(columns=keys)
    rest.insert(0, ", ".join(keys), labels)
    return rest


def means_subjects(panel: Panel, by: Any) -> bool:
    """Whether `by` asks for every subject: its column, or that word where no column has it."""
    if isinstance(by, list | tuple) and len(by) == 1:
        return means_subjects(panel, by[0])
    if not isinstance(by, str):
        return False
    return by == panel.subject or (by == "subject" and by not in panel.table.columns)


def _values(panel: Panel, by: Any) -> dict[str, pd.Series]:
    """What the rows are grouped by, under the names it has."""
    if by is None:
        return {}
    if isinstance(by, Hashable) and not isinstance(by, tuple):
        return {str(by): column(panel.table, by, "what to group by")}  # type: ignore[arg-type]
    if _names_columns(panel, by):
        names = [panel.subject if means_subjects(panel, name) else name for name in by]
        return {name: column(panel.table, name, "what to group by") for name in names}
    values = np.asarray(by)
    if values.shape != (panel.n_rows,):
        raise DataError(
            f"by has shape {values.shape}; the name of a column is wanted, or a list of such "
            f"names, or one value for each of the {panel.n_rows:,} rows."
        )
    return {str(getattr(by, "name", None) or "by"): pd.Series(values)}


def _names_columns(panel: Panel, by: Any) -> bool:
    """Whether a list is one of columns: text that is no value for each row, or names them all."""
    if not isinstance(by, list | tuple) or not all(isinstance(name, str) for name in by):
        return False
    return len(by) > 0 and (len(by) != panel.n_rows or set(by) <= set(panel.table.columns))


class _Groups(NamedTuple):
    """Rows by what they are grouped by."""

    code: np.ndarray
    """(rows,) the group of each row; -1 where a value is missing."""
    labels: dict[str, np.ndarray]
    """By column, (groups,) its value in each."""
    n: int


def _grouped(keys: dict[str, pd.Series], n_rows: int) -> _Groups:
    """Only combinations that occur are groups, in the order of the first column, then the next."""
    check_keys(keys, _COLUMNS)
    parts = {name: factorized(values) for name, values in keys.items()}
    known = np.all([np.ones(n_rows, bool), *(c >= 0 for c, _ in parts.values())], axis=0)
    if not known.any():
        what = " and ".join(map(repr, parts))
        raise DataError(f"The column {what} has no values to group by.")
    together = np.stack([np.zeros(n_rows, int), *(c for c, _ in parts.values())], axis=1)
    groups, codes = np.unique(together[known], axis=0, return_inverse=True)
    labels = {name: of[groups[:, i]] for i, (name, (_, of)) in enumerate(parts.items(), 1)}
    every = np.full(n_rows, -1)
    every[known] = codes.ravel()
    return _Groups(every, labels, len(groups))


def _of_groups(
    chances: np.ndarray, subject: np.ndarray, groups: _Groups, level: float
) -> pd.DataFrame:
    """Shares of the rows of each group, with errors as of a sample of subjects."""
    known = groups.code >= 0
    codes, chances, subject = groups.code[known], chances[known], subject[known]
    n_groups, n_states = groups.n, chances.shape[1]
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
    repeated = {name: np.repeat(label, n_states) for name, label in groups.labels.items()}
    table = pd.DataFrame({**repeated, "state": np.tile(np.arange(n_states), n_groups)})
    lower, upper = _within(share, wider[:, None] * se, level)
    table = table.assign(share=share.ravel(), se=se.ravel(), lower=lower, upper=upper)
    return table.assign(
        subjects=np.repeat(n, n_states),
        rows=np.repeat(total, n_states).astype(int),
        note=np.repeat(np.where(n < 2, _ALONE, "").astype(object), n_states),
    )


def _of_parts(
    fit: HMMFit, labels: dict[str, np.ndarray], parts: RowParts, level: float, parameters: str
) -> pd.DataFrame:
    """Shares of parts of subjects' rows, with what is not known of their states and effects."""
    n, n_states, rows = len(parts.rows), fit.model.n_states, parts.rows[:, None]
    moments = time_in_states if parameters == "fixed" else drawn_time_in_states
    mean, var = moments(fit, parts)
    share, sd = mean / rows, np.sqrt(var) / rows
    lower, upper = _within(share, sd, level)
    return pd.DataFrame(
        {
            **{name: np.repeat(label, n_states) for name, label in labels.items()},
            "state": np.tile(np.arange(n_states), n),
            "share": share.ravel(),
            "se": sd.ravel(),
            "lower": lower,
            "upper": upper,
            "rows": np.repeat(parts.rows, n_states),
        }
    )


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
