"""Rows by their labels and times: numbers for labels, and times that can be sorted."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from avem.data.frames import N_EXAMPLES, Source, as_dates, column, numbers, shown
from avem.errors import DataError


def codes(
    table: pd.DataFrame, name: str, use: str, source: Source, sort: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows,) integer codes of a column, and the label of each code."""
    values = column(table, name, use)
    if sort:
        refuse_unsortable(values, name, source)
    try:
        codes, labels = pd.factorize(values, sort=sort)
    except TypeError:  # lists, dicts and the like
        raise DataError(
            f"Column {name!r}, {use}, holds values that cannot be labels, such as "
            f"{values.iloc[0]!r}. Make them text, numbers or dates."
        ) from None
    if (codes < 0).any():
        raise DataError(
            f"Column {name!r}, {use}, is missing at {source.name_rows(codes < 0)}. "
            "Fill it in or drop these rows."
        )
    # A copy, because pandas may hand out its own buffer and the panel's arrays are read-only.
    return codes.astype(np.int64), np.array(labels)


def refuse_unsortable(values: pd.Series, name: str, source: Source) -> None:
    """Raise for times that have no order, or whose order as text is not the one meant."""
    array = numbers(values)
    if array is not None and np.isinf(array).any():
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
