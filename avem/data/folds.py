"""Parts of a panel to hold out: whole subjects, or a stretch of every sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from avem.data.frames import column
from avem.data.panel import Panel
from avem.errors import DataError


def subject_folds(panel: Any, n_folds: int, seed: int, n_needed: int = 1) -> list[np.ndarray]:
    """For each fold, (rows,) bool: the rows of the subjects that are held out.

    Of a scan, (subjects,) bool.

    Subjects are dealt out at random, equally many to each fold where that is possible; at least
    `n_needed` must be left to fit.
    """
    n = panel.n_subjects
    what = f"by='subjects' with {n_folds} folds holds out whole subjects"
    if n < 2:
        raise DataError(
            f"There is 1 subject ({panel.subjects.tolist()[0]!r} in column {panel.subject!r}); "
            f"{what}, so 2 or more are needed. Use by='time'."
        )
    if n < n_folds:
        raise DataError(
            f"There are {n} subjects; {what}, so {n_folds} or more are needed. "
            f"Use folds={n}, or by='time'."
        )
    left = n - -(-n // n_folds)
    if left < n_needed:
        raise DataError(
            f"There are {n} subjects; {what}, which leaves {left} to fit, and the spread of "
            f"effects between subjects needs {n_needed} or more. Use by='time'"
            + (f", or folds={n}." if n - 1 >= n_needed else ".")
        )
    order = np.random.default_rng(seed).permutation(n)
    fold_of = np.empty(n, int)
    fold_of[order] = np.arange(n) % n_folds
    of_unit = fold_of[panel.row_subject] if panel.in_memory else fold_of
    return [of_unit == fold for fold in range(n_folds)]


def subjects_in(panel: Any, rows: np.ndarray) -> np.ndarray:
    """(subjects,) bool: who has some of the rows (bool); of a scan, these are its subjects."""
    if not panel.in_memory:
        return rows
    return np.bincount(panel.row_subject, rows, panel.n_subjects) > 0


def time_folds(panel: Panel, n_folds: int) -> list[np.ndarray]:
    """For each fold, (rows,) bool: one stretch of every sequence, the first fold has the first."""
    shortest = int(panel.lane_length.argmin())
    length = int(panel.lane_length[shortest])
    if length < n_folds:
        label = panel.subjects.tolist()[panel.lane_subject[shortest]]
        n_short = int((panel.lane_length < n_folds).sum())
        raise DataError(
            f"A sequence of subject {label!r} has {length} row(s) ({n_short} of {panel.n_lanes} "
            f"sequences have fewer than {n_folds}); by='time' cuts each one into {n_folds} "
            "stretches. "
            + (f"Use folds={length}, drop" if length > 1 else "Drop")
            + " the short ones, or use by='subjects'."
        )
    stretch = panel.row_step * n_folds // panel.lane_length[panel.row_lane]
    return [stretch == fold for fold in range(n_folds)]


def with_rows(panel: Any, rows: np.ndarray) -> Any:
    """The panel of some of its rows (bool); of a scan, of some of its subjects."""
    if not panel.in_memory:
        return panel.of_subjects(rows)
    return panel.part(panel.table, np.flatnonzero(rows))


def with_hidden(panel: Panel, outcomes: Sequence[str], rows: np.ndarray) -> Panel:
    """The panel with these outcomes missing in these rows (bool)."""
    hidden = {name: _hidden(column(panel.table, name, "an outcome"), rows) for name in outcomes}
    return replace(panel, table=panel.table.assign(**hidden))


def _hidden(values: pd.Series, rows: np.ndarray) -> pd.Series:
    # pandas' own way from True and False to missing leads through a deprecated downcast.
    values = values.astype("boolean") if values.dtype == bool else values
    return values.mask(rows)
