"""Rows beyond the end of every sequence, to be predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from avem.data.frames import examples, numbers
from avem.data.grouping import check_size
from avem.data.panel import Panel
from avem.errors import DataError


class Ahead(NamedTuple):
    """A panel that goes on."""

    panel: Panel
    """The old rows by sequence and time, each sequence followed by its new rows."""
    rows: np.ndarray
    """(sequences * horizon,) where the new ones are, sequence after sequence."""
    keys: pd.DataFrame
    """Their subject, sequence, time (where it can be told) and step from 1."""


def look_ahead(
    panel: Panel,
    horizon: int,
    outcomes: Sequence[str],
    covariates: Sequence[str],
    future: Any,
    timed: bool = False,
) -> Ahead:
    """The panel with `horizon` more rows after each sequence, whose outcomes are missing.

    `covariates` are the columns that must be known there, from `future`: a frame, or a dict of
    values. Times go on by themselves where their steps are regular; with `timed`, the new panel
    has them, too.
    """
    is_whole = isinstance(horizon, int | np.integer) and not isinstance(horizon, bool)
    if not (is_whole and horizon >= 1):
        raise DataError(f"horizon is {horizon!r}; a whole number of steps, at least 1, is wanted.")
    check_size(panel.n_lanes * int(horizon), f"{horizon:,} steps after {panel.n_lanes:,} sequences")
    lane = np.repeat(np.arange(panel.n_lanes), horizon)
    old: Any = panel.table
    names = [name for name in (panel.subject, panel.sequence) if name is not None]
    keys: Any = old[names].iloc[_first_rows(panel)[lane]].reset_index(drop=True)
    later: Any = None
    if isinstance(future, Mapping):
        later = _rows_alike(panel, future, horizon, covariates)
    elif future is not None:
        later = _rows_of(panel, future, horizon)
    if panel.time is not None:
        times = times_ahead(panel, horizon)
        if later is not None and panel.time in later:
            times = later[panel.time]
        if times is not None:
            keys[panel.time] = times
    absent = [
        name
        for name in covariates
        if name not in keys and (later is None or name not in later or later[name].isna().any())
    ]
    if absent:
        wanted = [n for n in (panel.subject, panel.sequence, panel.time) if n is not None]
        columns = ", ".join(dict.fromkeys([*wanted, *covariates]))
        raise DataError(
            f"A prediction needs {', '.join(map(repr, absent))} at every step ahead"
            + (". Pass future=, " if future is None else ", where future lacks it. Wanted is ")
            + f"a frame with the columns {columns} and {horizon} complete rows for each sequence, "
            "or a dict with a value for each, or one for each step."
        )
    new = keys.copy()
    for name in covariates:
        if later is not None and name not in new:
            new[name] = later[name]
    if timed and panel.time not in keys:
        raise DataError(
            f"The times ahead cannot be told from {panel.time!r}. Pass future=, a frame with them."
        )
    kept = [n for n in dict.fromkeys([*keys, *outcomes, *covariates]) if n in old]
    table: Any = pd.concat([old[kept], new], ignore_index=True)
    step = np.tile(np.arange(horizon), panel.n_lanes)
    lanes = np.concatenate([panel.row_lane, lane])
    order = np.lexsort((np.concatenate([panel.row_step, panel.lane_length[lane] + step]), lanes))
    # The rows are in order already, so times need not have one: text may, and may not, go on.
    time = panel.time if timed else None
    longer = Panel.from_frame(table.iloc[order], panel.subject, time, panel.sequence)
    keys["step"] = step + 1
    return Ahead(longer, np.flatnonzero(order >= panel.n_rows), keys)


_USUAL = 0.1
"""Share of the steps between rows that the most frequent one has, to be the usual one; else the
median is."""


def times_ahead(panel: Panel, horizon: int) -> pd.Series | None:
    """(sequences * horizon,) the times that follow, one usual step apart; None if none is usual."""
    if panel.time is None:
        return None
    values: Any = panel.table[panel.time]
    is_date = pd.api.types.is_datetime64_any_dtype(values.dtype)
    if not is_date and (numbers(values) is None or pd.api.types.is_bool_dtype(values.dtype)):
        return None
    ordered = values.iloc[panel.order].reset_index(drop=True)
    steps = ordered.diff()[np.diff(panel.row_lane[panel.order], prepend=-1) == 0]
    if not len(steps):
        return None
    usual = steps.mode().iloc[0]
    if (steps == usual).mean() < _USUAL:
        usual = steps.median()
    last = ordered.iloc[np.cumsum(panel.lane_length) - 1]
    ahead = np.tile(np.arange(1, horizon + 1), panel.n_lanes)
    found = last.repeat(horizon).reset_index(drop=True) + ahead * usual
    whole = pd.api.types.is_integer_dtype(values.dtype)
    return found.astype(values.dtype) if whole else found  # steps are floats, whatever times are


def _rows_alike(
    panel: Panel, future: Mapping[str, Any], horizon: int, covariates: Sequence[str]
) -> pd.DataFrame:
    """The same values ahead of every sequence; what never changes within subjects goes on."""
    unknown = [name for name in future if name not in covariates]
    if unknown:
        raise DataError(
            f"future has {examples(unknown)}; what this model needs ahead is "
            f"{', '.join(map(repr, covariates)) or 'nothing'}."
        )
    found = pd.DataFrame(index=range(panel.n_lanes * horizon))
    for name, value in future.items():
        steps = [value] * horizon if np.ndim(value) == 0 else list(value)
        if len(steps) != horizon:
            raise DataError(
                f"future has {len(steps)} values of {name!r}; one is wanted, or one for each of "
                f"the {horizon} steps."
            )
        found[name] = steps * panel.n_lanes
    table: Any = panel.table
    first = np.repeat(_first_rows(panel), horizon)
    for name in covariates:
        if name in found or name not in table or panel.n_rows == panel.n_subjects:
            continue
        if (table[name].groupby(panel.row_subject).nunique(dropna=False) == 1).all():
            found[name] = table[name].iloc[first].to_numpy()
    return found


def _rows_of(panel: Panel, future: Any, horizon: int) -> pd.DataFrame:
    """The first rows of `future` for every sequence of the panel, sequence after sequence."""
    names = [name for name in (panel.subject, panel.sequence) if name is not None]
    try:
        later = Panel.from_frame(future, panel.subject, sequence=panel.sequence)
        if panel.time is not None and panel.time in later.table:
            later = Panel.from_frame(future, panel.subject, panel.time, panel.sequence)
    except DataError as error:
        raise DataError(f"In future: {error}") from error

    def labels(of: Panel) -> pd.MultiIndex:
        table: Any = of.table
        return pd.MultiIndex.from_frame(table[names].iloc[_first_rows(of)])

    own = labels(panel)
    places = labels(later).get_indexer(own)
    enough = (places >= 0) & (later.lane_length[places] >= horizon)
    if not enough.all():
        lane = int(np.flatnonzero(~enough)[0])
        n = int(later.lane_length[places[lane]]) if places[lane] >= 0 else 0
        raise DataError(
            f"future has {n} rows for {_name(panel, own[lane])}; {horizon} are wanted for each "
            f"sequence ({int((~enough).sum())} have fewer)."
        )
    start = (np.cumsum(later.lane_length) - later.lane_length)[places]
    rows = later.order[start[:, None] + np.arange(horizon)].ravel()
    found: pd.DataFrame = later.table.iloc[rows].reset_index(drop=True)
    if later.time is not None:
        _refuse_the_past(panel, found[later.time].iloc[::horizon], own)
    return found


def _name(panel: Panel, label: Any) -> str:
    """A sequence in words."""
    names = [name for name in (panel.subject, panel.sequence) if name is not None]
    values = [value.item() if isinstance(value, np.generic) else value for value in label]
    return ", ".join(f"{name} {value!r}" for name, value in zip(names, values, strict=True))


def _first_rows(panel: Panel) -> np.ndarray:
    """(sequences,) the row each begins with."""
    return panel.order[np.cumsum(panel.lane_length) - panel.lane_length]


def _refuse_the_past(panel: Panel, begin: Any, own: pd.MultiIndex) -> None:
    """Raise unless every sequence's new times, which begin so, come after its old ones."""
    ends: Any = panel.table[panel.time].iloc[panel.order[np.cumsum(panel.lane_length) - 1]]
    for label, new, old in zip(own, begin.tolist(), ends.tolist(), strict=True):
        if not new > old:
            raise DataError(
                f"future begins at {new!r} for {_name(panel, label)}, whose data end at {old!r}; "
                "rows after the end are wanted."
            )
