"""Rows for steps in time that a panel skips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from avem.data.frames import MAX_WHOLE, as_python, column, numbers, shown, whole_numbers
from avem.errors import DataError

if TYPE_CHECKING:
    from avem.data.panel import Panel

MAX_GROWTH = 20  # filling in beyond this is almost always a wrong step


def filled(panel: Panel, step: float, constant: str | Sequence[str]) -> pd.DataFrame:
    """The table of `Panel.fill_gaps`: rows by sequence and time, those put in among them."""
    place = _places(panel, step)
    last = np.zeros(panel.n_lanes, dtype=np.int64)
    np.maximum.at(last, panel.row_lane, place)
    start = np.concatenate([[0], np.cumsum(last + 1)])
    origin = np.full(start[-1], -1)  # the input row of each new row; -1 where inserted
    origin[start[panel.row_lane] + place] = np.arange(panel.n_rows)
    lane = np.repeat(np.arange(panel.n_lanes), last + 1)
    first = origin[start[:-1]]
    table = _with_room_for_missing(panel.table).reindex(origin).reset_index(drop=True)
    for name in (panel.subject, panel.sequence):
        if name is not None:
            table[name] = panel.table[name].take(first[lane]).reset_index(drop=True)
    for name in [constant] if isinstance(constant, str) else constant:
        row = np.where(origin >= 0, origin, _only_value(panel, name)[lane])
        table[name] = panel.table[name].take(row).reset_index(drop=True)
    times = panel.table[panel.time]
    whole = pd.api.types.is_integer_dtype(times.dtype)
    time = times.to_numpy(dtype=np.int64 if whole else np.float64)
    regular = time[first[lane]] + step * (np.arange(start[-1]) - start[lane])
    table[panel.time] = np.where(origin >= 0, time[origin], regular)
    return table


def _only_value(panel: Panel, name: str) -> np.ndarray:
    """Return (lanes,) a row with the one value that a column has in each sequence."""
    values = column(panel.table, name, "constant=")
    seen = np.flatnonzero(values.notna())
    row = panel.order[np.cumsum(panel.lane_length) - panel.lane_length]
    row[panel.row_lane[seen[::-1]]] = seen[::-1]
    found, only = values.take(seen), values.take(row[panel.row_lane[seen]])
    other = seen[np.asarray(found.array != only.array, dtype=bool)]
    if len(other):
        lane = int(panel.row_lane[other[0]])
        told = [shown(value) for value in values.take([row[lane], other[0]]).tolist()]
        raise DataError(
            f"constant= has {name!r}, which has several values in one sequence of subject "
            f"{_label(panel, panel.lane_subject[lane])}: {told[0]} and {told[1]}. Leave it out; "
            "if the transitions need it, put in the missing rows yourself, with its values."
        )
    return row


def _places(panel: Panel, step: float) -> np.ndarray:
    """Return (rows,) how many steps each row is after the first of its lane."""
    if panel.time is None:
        raise DataError("fill_gaps needs times: give time= when making the panel.")
    is_number = isinstance(step, int | float | np.number) and not isinstance(step, bool)
    if not (is_number and np.isfinite(step) and step > 0):
        raise DataError(
            f"step is {step!r}; a positive number is wanted. Turn dates into numbers first, "
            "e.g. days since the first."
        )
    time = column(panel.table, panel.time, "the time")
    values = numbers(time)
    if values is None or pd.api.types.is_bool_dtype(time.dtype):
        raise DataError(
            f"The time column {panel.time!r} is {time.dtype}; fill_gaps needs numbers. "
            "Convert dates to a count of steps first, e.g. days since the first."
        )
    whole = whole_numbers(time)
    if whole is not None:
        values = whole  # exact beyond 2**53, where floats are not
    elif pd.api.types.is_integer_dtype(time.dtype):
        raise DataError(
            f"The time column {panel.time!r} has whole numbers beyond {MAX_WHOLE:,}. Count from "
            "the first instead."
        )
    first = np.zeros(panel.n_lanes, values.dtype)
    first[panel.row_lane[panel.row_step == 0]] = values[panel.row_step == 0]
    after = panel.order
    with np.errstate(over="ignore", invalid="ignore"):
        exact = (values - first[panel.row_lane]) / step
        place = np.rint(exact)
        # 1e-6 of a step forgives decimal steps such as 0.1, which floats cannot hold exactly.
        off = np.abs(exact - place) > 1e-6
        same = (np.diff(place[after]) == 0) & (np.diff(panel.row_lane[after]) == 0)
    off[after[1:][same]] = True
    if off.any():
        row = int(np.flatnonzero(off)[0])
        raise DataError(
            f"Times are not multiples of step={step} from the start of their sequence, at "
            f"{panel.source.name_rows(off)}: subject "
            f"{_label(panel, panel.row_subject[row])} starts at {first[panel.row_lane[row]]} "
            f"and has a row at {values[row]}. Try a smaller step, or round the times."
        )
    _refuse_growth(panel, place, step)
    return place.astype(np.int64)


def _refuse_growth(panel: Panel, place: np.ndarray, step: float) -> None:
    """Raise where rows are so many steps apart that filling in would exhaust the memory."""
    lengths = np.zeros(panel.n_lanes)
    np.maximum.at(lengths, panel.row_lane, place + 1)
    if lengths.sum() > MAX_GROWTH * panel.n_rows:
        longest = int(np.argmax(lengths))
        raise DataError(
            f"Filling gaps with step={step} would turn {panel.n_rows} rows into "
            f"{lengths.sum():.16g}, more than {MAX_GROWTH} times as many (the longest "
            f"sequence, of subject {_label(panel, panel.lane_subject[longest])}, would have "
            f"{lengths[longest]:.16g}). Try a larger step, or split long pauses into sequences "
            "with sequence=."
        )


def _with_room_for_missing(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with integer and boolean columns nullable, so that gaps lose no digits."""
    nullable = {"i": "Int64", "u": "UInt64", "b": "boolean"}
    return table.astype(
        {
            name: nullable[dtype.kind]
            for name, dtype in table.dtypes.items()
            if isinstance(dtype, np.dtype) and dtype.kind in nullable
        }
    )


def _label(panel: Panel, subject: int) -> str:
    return as_python(panel.subjects[subject])
