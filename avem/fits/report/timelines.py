"""What the page needs to draw every subject over time, in the order in which it is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.errors import ModelError
from avem.fits.fit import Fit
from avem.fits.plots.timeline import choose_subjects, in_order, read_as_time, row_words, times
from avem.fits.report.pack import Packed, pack, pack_roughly, pack_times

BUDGET = 8_000_000
"""Characters that the timelines of a page may take."""
_FEWEST = 100
"""Rows that are kept in any case."""
_PER_BYTE = 4 / 3
_PER_DAY = 864e5


@dataclass(frozen=True, eq=False)
class Timelines:
    """Some subjects' rows, packed, and how many there are of how many."""

    data: dict[str, Any]
    n_shown: int
    n_subjects: int
    n_cut: int
    """Subjects of whom only the first rows are kept."""


def make_timelines(fit: Fit, wanted: Any = None) -> Timelines:
    """The timelines of a fit that has its data.

    Parameters
    ----------
    wanted
        None: all subjects if they fit into `BUDGET`, else some from the shortest to the longest. A
        number: at most so many. A list of labels: these.
    """
    panel = fit._panel(None)
    columns = fit._parts().columns(panel)
    most_rows = max(_FEWEST, int(BUDGET / _PER_BYTE / (5 + _bytes_per_row(columns))))
    shown = _chosen(panel, wanted, most_rows)
    time, are_dates = times(panel)
    whole = in_order(panel, shown, time)
    on_time = time is not None and read_as_time(panel, whole, time)
    each = most_rows if wanted is None or isinstance(wanted, int) else panel.n_rows
    orders = [rows[:each] for rows in whole]
    rows = np.concatenate(orders)
    data = {
        "subjects": shown.tolist(),
        "counts": [len(order) for order in orders],
        "rows": [len(order) for order in whole],
        "axis": "row" if not on_time else "date" if are_dates else "time",
        "axisLabel": str(panel.time) if on_time else row_words(panel),
        "time": _packed_times(panel, time, are_dates, rows),
        **_sequences(panel, rows),
        **_packed_columns(columns, rows),
    }
    n_cut = sum(len(all_rows) > each for all_rows in whole)
    return Timelines(data, len(shown), panel.n_subjects, n_cut)


def _chosen(panel: Panel, wanted: Any, most_rows: int) -> np.ndarray:
    """Places of the subjects to keep."""
    if isinstance(wanted, bool) or (isinstance(wanted, int | np.integer) and wanted < 1):
        raise ModelError(
            f"timelines is {wanted!r}; a positive number of subjects, or a list of their labels, "
            "is wanted."
        )
    if isinstance(wanted, int | np.integer):
        return choose_subjects(panel, None, int(wanted))
    if wanted is not None:
        return choose_subjects(panel, wanted, panel.n_subjects)
    lengths = np.bincount(panel.row_subject, minlength=panel.n_subjects)
    n = panel.n_subjects
    shown = choose_subjects(panel, None, n)
    while len(shown) > 1 and (total := lengths[shown].sum()) > most_rows:
        n = max(1, min(n - 1, int(n * most_rows / total)))
        shown = choose_subjects(panel, None, n)
    return shown


def _bytes_per_row(columns: dict[str, Any]) -> int:
    """About how many a row will take: 4 for a value, 2 for what is only drawn."""
    drawn = len(columns.get("chance", ())) + 2 * len(columns.get("latent", ()))
    return 2 * drawn + sum(4 + 2 * ("fit" in o) + 2 * ("sd" in o) for o in columns["outcomes"])


# --- packed -------------------------------------------------------------------------------------


def _packed_columns(columns: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    out: dict[str, Any] = {"outcomes": []}
    if "state" in columns:
        out["state"] = pack(columns["state"][rows])
        out["chance"] = [pack_roughly(p[rows], 0.0, 1.0) for p in columns["chance"]]
    if "latent" in columns:
        out["latent"] = [
            {name: pack_roughly(values[rows]) for name, values in one.items()}
            for one in columns["latent"]
        ]
    for one in columns["outcomes"]:
        drawn = {name: pack_roughly(one[name][rows]) for name in ("fit", "sd") if name in one}
        said = {name: one[name] for name in ("name", "levels", "fitName")}
        out["outcomes"].append(said | drawn | {"y": pack(one["y"][rows])})
    return out


def _packed_times(
    panel: Panel, time: np.ndarray | None, are_dates: bool, rows: np.ndarray
) -> dict[str, Any] | None:
    """What the time column says at each row: numbers, dates (milliseconds) or texts."""
    if panel.time is None:
        return None
    name = str(panel.time)
    if time is not None:
        moment = np.rint(time * _PER_DAY) if are_dates else time
        return {"name": name, "dates": are_dates, "values": pack_times(moment[rows])}
    return {"name": name, **_texts(pd.Series(panel.table[panel.time]).iloc[rows])}


def _sequences(panel: Panel, rows: np.ndarray) -> dict[str, Any]:
    """Where sequences start, and their names."""
    starts = np.flatnonzero(np.diff(panel.row_lane[rows], prepend=-1))
    steps = np.diff(starts, append=len(rows))
    out: dict[str, Any] = {"sequenceLengths": pack(steps), "sequence": None}
    if panel.sequence is not None:
        names = pd.Series(panel.table[panel.sequence]).iloc[rows[starts]]
        out["sequence"] = {"name": str(panel.sequence), **_texts(names)}
    return out


def _texts(values: pd.Series) -> dict[str, list[str] | Packed]:
    codes, labels = pd.factorize(values.astype(str))
    return {"texts": [str(label) for label in labels], "codes": pack(codes)}
