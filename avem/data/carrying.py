"""Covariates that are missing: the last value before, carried forward within a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from avem.data.frames import column
from avem.errors import DataError

if TYPE_CHECKING:
    from avem.data.panel import Panel


class Carried(NamedTuple):
    """What was filled in."""

    columns: tuple[str, ...]
    counts: tuple[int, ...]
    """Of the rows, per column."""

    @property
    def words(self) -> str:
        """What was done, for a fit's notes; empty where nothing was."""
        pairs = zip(self.columns, self.counts, strict=True)
        parts = [f"{name!r} in {n:,} row{'' if n == 1 else 's'}" for name, n in pairs if n]
        if not parts:
            return ""
        return (
            f"Missing values of covariates were given the last value before them in their sequence "
            f"(missing='carry'): {', '.join(parts)}. Standard errors take them as known."
        )


def check_listed(columns: object) -> None:
    """Raise where columns are one name."""
    if isinstance(columns, str):
        raise DataError(f"columns is {columns!r}; a list of names is wanted: [{columns!r}].")


def carried_forward(panel: Panel, columns: Sequence[str]) -> tuple[Any, Carried]:
    """The panel's table with gaps in these columns filled, and what was filled.

    Rows at the start of a sequence, before any value is known, stay as they are.
    """
    table: Any = panel.table.copy()
    order, counts = panel.order, []
    for name in columns:
        values = column(table, name, "a covariate")
        ordered = values.iloc[order]
        filled = ordered.groupby(panel.row_lane[order]).ffill()
        place = np.empty(panel.n_rows, int)
        place[order] = np.arange(panel.n_rows)
        counts.append(int((ordered.isna() & filled.notna()).sum()))
        table[name] = filled.iloc[place].set_axis(table.index)
    return table, Carried(tuple(columns), tuple(counts))


def nothing_before(columns: Sequence[str], error: DataError) -> DataError:
    """An error of values that are still missing, with why."""
    if not any(f"{name!r} is missing" in str(error) for name in columns):
        return error
    return DataError(
        f"{error} missing='carry' takes the last value before in the sequence, and there is none."
    )
