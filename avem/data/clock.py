"""Times as they are: the interval that leads to each row, and what happened exactly at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from avem.data.frames import as_dates, column, numbers, whole_numbers
from avem.data.panel import Panel
from avem.data.sorting import step_sizes
from avem.errors import DataError, ModelError, did_you_mean
from avem.numerics.order_statistics import quantiles_of

SECONDS = {
    "seconds": 1.0,
    "minutes": 60.0,
    "hours": 3600.0,
    "days": 86400.0,
    "weeks": 7 * 86400.0,
    "years": 365.25 * 86400.0,
}
"""Of the units that dates can be counted in."""
_ROUNDING = 4 * float(np.finfo(float).eps)
"""Of a time that is a decimal number, relative to it: intervals that differ by less are equal."""


@dataclass(frozen=True)
class Clock:
    """How intervals are read from a panel's times: two design columns.

    The first is the time since the row before in the same sequence, 0 in its first row. The second
    is 1 where something happened at exactly that time, else 0.
    """

    unit: str | None = None
    """Of dates, days by default. Of numbers, what 1 is called."""
    event: str | None = None
    """The column that is true where something happened exactly then."""

    keys = (("clock", "interval"), ("clock", "event"))
    """(term, name) of the columns; no formula has such a term."""

    def __post_init__(self) -> None:
        for name, value in (("unit", self.unit), ("event", self.event)):
            if value is not None and not (isinstance(value, str) and value):
                raise ModelError(f"{name} is {value!r}; text is wanted.")

    def columns(self, panel: Panel) -> np.ndarray:
        """(rows, 2) the interval that leads to each row, and whether the event came at its end."""
        return np.stack([self.intervals(panel), self.marks(panel) == 1.0], axis=1)

    def marks(self, panel: Panel) -> np.ndarray:
        """(rows,) 1 where the event came, 0 where it did not, NaN where that is not known."""
        if self.event is None or self.event not in panel.table.columns:
            return np.full(panel.n_rows, np.nan)
        values = column(panel.table, self.event, "event=")
        known = numbers(values)
        odd = np.zeros(panel.n_rows, bool) if known is None else ~np.isin(known, (0.0, 1.0))
        odd &= ~values.isna().to_numpy()
        if known is None or odd.any():
            where = f" at {panel.source.name_rows(odd)}" if odd.any() else ""
            raise DataError(
                f"event={self.event!r} has other values than true and false, or 1 and 0{where} (it "
                f"is {values.dtype}). True is wanted where the state was entered at exactly that "
                "time."
            )
        return known

    def intervals(self, panel: Panel) -> np.ndarray:
        """(rows,) the time since the row before in the sequence, in `unit`; 0 in its first row."""
        if panel.time is None:
            raise DataError(
                "time_scale='continuous' needs times: give time=, a column of numbers or dates."
            )
        values = column(panel.table, panel.time, "the time")
        dates = as_dates(values)
        if dates is None:
            found, scale = _exact(values, panel.time), 1.0
        else:
            found, scale = dates, 1e9 * self._seconds()
        order, gaps = panel.order, np.zeros(panel.n_rows)
        if panel.in_order:
            order = slice(None)
        steps = np.diff(found[order], prepend=found[:1]) / scale
        gaps[order] = np.where(panel.row_step[order] > 0, steps, 0.0)
        return _rounded(gaps, found) if found.dtype.kind == "f" else gaps

    def moved(self, panel: Panel, rows: np.ndarray, early: np.ndarray) -> pd.Series:
        """The times, those of some rows by so much earlier."""
        assert panel.time is not None
        values = column(panel.table, panel.time, "the time")
        if as_dates(values) is None:
            found: Any = values.astype(float)
            found.iloc[rows] -= early
            return found
        less = np.zeros(panel.n_rows)
        less[rows] = early * self._seconds()
        return pd.to_datetime(values) - pd.to_timedelta(less, unit="s")

    def _seconds(self) -> float:
        unit = "days" if self.unit is None else self.unit
        if unit not in SECONDS:
            raise ModelError(
                f"unit is {unit!r}; of dates it is one of {', '.join(SECONDS)}."
                f"{did_you_mean(unit, SECONDS)}"
            )
        return SECONDS[unit]


def is_date(panel: Panel) -> bool:
    """Whether the times of a panel are dates."""
    if panel.time is None:
        return False
    return as_dates(column(panel.table, panel.time, "the time")) is not None


def varied_intervals(panel: Panel) -> tuple[float, float] | None:
    """The short and the long ones (10% and 90%), where a sequence's rows come at uneven times.

    None where times cannot be subtracted, or intervals are much the same.
    """
    if panel.time is None:
        return None
    values = column(panel.table, panel.time, "the time")
    dates = as_dates(values)
    if _even(panel, values if dates is None else pd.Series(dates)):
        return None
    if dates is None and (numbers(values) is None or pd.api.types.is_bool_dtype(values.dtype)):
        return None
    gaps = Clock("days").intervals(panel)[panel.row_step > 0]
    if not len(gaps):
        return None
    short, long = quantiles_of(gaps, [0.1, 0.9])
    return (float(short), float(long)) if long >= 2 * short > 0 else None


def _even(panel: Panel, values: pd.Series) -> bool:
    """Whether all rows of sequences are surely equally far apart."""
    time = whole_numbers(values)
    if time is None:
        return False
    order = slice(None) if panel.in_order else panel.order
    return len(step_sizes(time[order], panel.row_step[order])[0]) < 2


def _exact(values: pd.Series, name: str) -> np.ndarray:
    whole, found = whole_numbers(values), numbers(values)
    if found is None or pd.api.types.is_bool_dtype(values.dtype):
        raise DataError(
            f"The time column {name!r} is {values.dtype}; time_scale='continuous' needs numbers or "
            "dates (as text: 2024-01-25)."
        )
    if not np.isfinite(found).all():
        raise DataError(f"The time column {name!r} has values that are missing or infinite.")
    return found if whole is None else whole


def _rounded(gaps: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Equal intervals between decimal times, such as 0.3 - 0.2 and 0.2 - 0.1, made equal."""
    noise = _ROUNDING * np.abs(times).max(initial=0.0)
    if not noise > 0:
        return gaps
    rounded = np.round(gaps, int(np.floor(-np.log10(noise))))
    return np.where(rounded > 0, rounded, gaps)
