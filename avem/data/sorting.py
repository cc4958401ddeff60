"""Rows by their labels and times: numbers for labels, and times that can be sorted."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from avem.data.frames import N_EXAMPLES, Source, as_dates, column, numbers, shown
from avem.errors import DataError
from avem.numerics.rows import each, filled, in_every_pair, largest, repeated, rising


def codes(
    table: pd.DataFrame, name: str, use: str, source: Source, sort: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows,) integer codes of a column, and the label of each code."""
    values = column(table, name, use)
    if sort:
        refuse_unsortable(values, name, source)
    runs = _runs(values)
    try:
        codes, labels = pd.factorize(values if runs is None else values.iloc[runs], sort=sort)
    except TypeError:  # lists, dicts and the like
        raise DataError(
            f"Column {name!r}, {use}, holds values that cannot be labels, such as "
            f"{values.iloc[0]!r}. Make them text, numbers or dates."
        ) from None
    missing = bool((codes < 0).any())
    codes = codes.astype(np.int64)
    if runs is not None:
        codes = repeated(codes, runs, len(values))
    if missing:
        raise DataError(
            f"Column {name!r}, {use}, is missing at {source.name_rows(codes < 0)}. "
            "Fill it in or drop these rows."
        )
    # A copy, because pandas may hand out its own buffer and the panel's arrays are read-only.
    return codes, np.array(labels)


def _runs(values: pd.Series) -> np.ndarray | None:
    """Where other values begin than in the row before; None where that is nearly everywhere."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.cat.codes
    if not (isinstance(values.dtype, np.dtype) and values.dtype.kind in "iufbMm"):
        return None
    array = values.to_numpy()
    new = array[1:] != array[:-1]
    if 4 * np.count_nonzero(new) > len(array):
        return None
    return np.concatenate([[0], 1 + np.flatnonzero(new)])


def steps_in_time(
    table: pd.DataFrame,
    names: tuple[str, str | None, str | None],
    source: Source,
    row_lane: np.ndarray,
    lane_length: np.ndarray,
) -> np.ndarray:
    """(rows,) each row's position from 0 in its lane, by time, or as rows come where there is none.

    ``names`` are those of subject, time and sequence.
    """
    subject, time, sequence = names
    first = np.cumsum(lane_length) - lane_length
    if _sorted_as_they_come(table, time, source, row_lane):
        begins = repeated(first, first, len(table))
        return filled(begins, lambda at: np.arange(at.start, at.stop) - begins[at])
    row_time = np.zeros(len(table), dtype=np.int64)
    if time is not None:
        row_time, _ = codes(table, time, "the time", source, sort=True)
    order = np.lexsort((row_time, row_lane))  # stable, so ties keep the input order
    if time is not None:
        refuse_repeated_times(table, (subject, time, sequence), order, row_lane, row_time)
    row_step = np.empty(len(table), dtype=np.int64)
    row_step[order] = np.arange(len(table)) - first[row_lane[order]]
    return row_step


def _sorted_as_they_come(
    table: pd.DataFrame, time: str | None, source: Source, row_lane: np.ndarray
) -> bool:
    """Whether rows come by lane and, by a time that is a number or a date, in order within it."""
    if time is None:
        return ascending(row_lane)
    values = column(table, time, "the time")
    if not (isinstance(values.dtype, np.dtype) and values.dtype.kind in "iufMm"):
        return False
    refuse_unsortable(values, time, source)
    array = values.to_numpy()
    return bool(ascending(row_lane, array) and not pd.isna(array).any())


def ascending(lane: np.ndarray, value: np.ndarray | None = None) -> bool:
    """Whether rows come by lane, and in each with values that rise from row to row."""
    if value is None:
        return rising(lane)

    def fine(at: slice, after: slice) -> np.ndarray:
        same = lane[after] == lane[at]
        return (lane[after] > lane[at]) | (same & (value[after] > value[at]))

    return in_every_pair(fine, len(lane))


def step_sizes(time: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different steps of time within lanes, in order, and how often each comes.

    Both are of rows in order; ``step`` (rows,) is each row's position from 0 in its lane.
    """

    def count(at: slice) -> list[tuple[Any, int]]:
        after = slice(at.start + 1, at.stop + 1)
        sizes = (time[after] - time[at])[step[after] > 0]
        if not len(sizes):
            return []
        if (sizes == sizes[0]).all():
            return [(sizes[0].item(), len(sizes))]
        own, counts = np.unique(sizes, return_counts=True)
        return list(zip(own.tolist(), counts.tolist(), strict=True))

    found: dict[Any, int] = {}
    for size, number in chain.from_iterable(each(count, len(time) - 1)):
        found[size] = found.get(size, 0) + number
    sizes = sorted(found)
    return np.array(sizes, time.dtype), np.array([found[size] for size in sizes], np.int64)


def refuse_unsortable(values: pd.Series, name: str, source: Source) -> None:
    """Raise for times that have no order, or whose order as text is not the one meant."""
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iubMm":
        return
    array = numbers(values)
    if array is not None and np.isinf(largest(array)):
        where = source.name_rows(np.isinf(array))
        raise DataError(f"Column {name!r}, the time, is infinite at {where}.")
    if not (values.dtype == object or pd.api.types.is_string_dtype(values.dtype)):
        return
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind.startswith("mixed") and kind != "mixed-integer-float":
        raise DataError(
            f"Column {name!r}, the time, mixes types ({kind}) and so has no order. "
            "Make it all numbers, all dates or all text."
        )
    if kind == "string":
        text = np.sort(values.dropna().unique().astype(object))
        if not len(text):
            return  # missing everywhere, which is said where it is for other kinds of times
        as_number = np.asarray(pd.to_numeric(text, errors="coerce"))
        if np.isfinite(as_number).all() and (np.diff(as_number) < 0).any():
            raise DataError(
                f"Column {name!r}, the time, holds numbers as text, which sort as text ('10' "
                "before '9'). Convert it to numbers first."
            )
        dates = as_dates(pd.Series(text))
        if not _sorts_as_meant(text) or (dates is not None and (np.diff(dates) <= 0).any()):
            raise DataError(
                f"Column {name!r}, the time, holds text such as {str(text[0])!r}, whose order as "
                "text need not be its order in time. Convert it first, dates with pd.to_datetime, "
                "or use numbers or year-month-day (2024-01-25)."
            )


def _sorts_as_meant(text: np.ndarray) -> bool:
    """Whether text sorts as its author means: year first, or one number of fixed width."""
    shapes = {re.sub(r"\d", "0", str(value)) for value in text}
    if len(shapes) > 1:
        return False
    shape = shapes.pop()
    return shape.startswith("0000-00") or len(re.findall("0+", shape)) == 1


def refuse_repeated_times(
    table: pd.DataFrame,
    names: tuple[str, str, str | None],
    order: np.ndarray,
    row_lane: np.ndarray,
    row_time: np.ndarray,
) -> None:
    """Raise when two rows of one sequence have the same time."""
    subject, time, sequence = names
    same = (np.diff(row_lane[order]) == 0) & (np.diff(row_time[order]) == 0)
    rows = order[1:][same]
    if not len(rows):
        return
    some = table.iloc[rows][[subject, time]].drop_duplicates()[:N_EXAMPLES]
    pairs = zip(some[subject].tolist(), some[time].tolist(), strict=True)
    found = "; ".join(
        f"subject {shown(who)} has two rows at time {shown(when)}" for who, when in pairs
    )
    more = f"; ... ({len(rows)} repeats in all)" if len(rows) > N_EXAMPLES else ""
    advice = (
        "give sequence= if these are separate sessions"
        if sequence is None
        else f"times must differ within each sequence {sequence!r}"
    )
    raise DataError(f"{found}{more}: {advice}, or drop the repeated rows.")
