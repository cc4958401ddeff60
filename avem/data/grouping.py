"""Which rows belong together: the subject's column, and the panel of a user's data by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from avem.data.formula import Formula
from avem.data.panel import Panel
from avem.data.scanning.scan import Scan, open_scan
from avem.data.scanning.sources import lazy_kind
from avem.errors import DataError, ModelError, did_you_mean

MOST_ROWS = 100_000_000
MISSING = ("error", "carry")
"""What may be done about covariates that are missing."""
Missing = Literal["error", "carry"]


def group_of(formulas: Iterable[Formula]) -> str | None:
    """The column that all group terms name, the subject's; None without any."""
    groups = {group for formula in formulas for _, group in formula.groups}
    if len(groups) > 1:
        raise ModelError(
            f"The formulas group by {', '.join(sorted(groups))}; all group terms must "
            "name the same column, the subject."
        )
    return next(iter(groups), None)


def subject_column(group: str | None, subject: str | None) -> str | None:
    """The subject's column, from the model's own group and what was said beside it."""
    if group is not None and subject not in (None, group):
        raise ModelError(
            f"subject={subject!r}, but the formula groups by {group!r}. Leave subject= out."
        )
    return group or subject


def read_panel(data: Any, group: str | None, time: str | None, sequence: str | None) -> Any:
    """A user's data as a panel of the subjects in the column `group`; lazy tables as a scan."""
    if isinstance(data, Panel | Scan):
        if time is not None or sequence is not None:
            raise ModelError("A Panel already knows its time and sequence; leave them out here.")
        if group is not None and group != data.subject:
            raise ModelError(
                f"The formula groups by {group!r}, but the panel's subject column is "
                f"{data.subject!r}."
            )
        return data
    if group is None:
        raise ModelError(
            "Which rows belong together? The formula has no (... | subject) term, so give "
            "fit(data, subject='column')."
        )
    if lazy_kind(data) is not None:
        return open_scan(data, group, time, sequence)
    return Panel.from_frame(data, group, time=time, sequence=sequence)


def with_weights(panel: Panel, weights: str | None, kind: str) -> Panel:
    """The panel with a user's weights; by default with its own, if it has any."""
    if weights is None:
        if kind != "survey":
            raise ModelError(f"weights_kind={kind!r} says what weights= are, but there are none.")
        return panel
    if panel.weights is not None:
        raise ModelError("The Panel already has weights; leave weights= out here.")
    return panel.weighted(weights, kind)  # pyright: ignore[reportArgumentType]


def with_carried(panel: Any, missing: str, columns: Sequence[str]) -> Any:
    """The panel with gaps in these covariates treated as `missing` says."""
    if missing not in MISSING:
        raise ModelError(
            f"missing is {missing!r}; choose one of {', '.join(map(repr, MISSING))}."
            f"{did_you_mean(missing, MISSING)}"
        )
    return panel if missing == "error" else panel.carry_forward(columns)


def check_size(n_rows: int, what: str) -> None:
    """Raise if so many new rows are asked for that it can only be a slip."""
    if n_rows > MOST_ROWS:
        raise DataError(
            f"{what} are {n_rows:,} rows; at most {MOST_ROWS:,} are made at once. Make fewer, or "
            "several tables."
        )


def blank_frame(
    group: str, n_subjects: int, n_times: int, time: str = "time", first: int = 0
) -> pd.DataFrame:
    """Rows of subjects and times that are numbered from `first` on, with nothing else."""
    check_size(n_subjects * n_times, f"{n_subjects:,} subjects with {n_times:,} times each")
    who, when = (first + np.arange(n) for n in (n_subjects, n_times))
    return pd.DataFrame({group: np.repeat(who, n_times), time: np.tile(when, n_subjects)})
