"""Where a subject's rows stand in time, for pictures of it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.data.frames import examples, numbers
from avem.errors import DataError


class Stretch(NamedTuple):
    """One subject's rows in order."""

    label: object
    rows: np.ndarray
    """Places in the panel of those to draw."""
    x: np.ndarray
    edges: np.ndarray
    """(rows, 2) where each row's stretch starts and ends."""
    starts: np.ndarray
    """(rows,) whether a sequence starts here."""
    n_rows: int
    """Rows of the subject, drawn or not."""

    @property
    def breaks(self) -> np.ndarray:
        """Where lines break: between sequences, and where a pause leaves rows apart."""
        apart = self.edges[1:, 0] - self.edges[:-1, 1] > 1e-9 * np.ptp(self.edges)
        return np.flatnonzero(self.starts[1:] | apart) + 1

    @property
    def borders(self) -> np.ndarray:
        """Between sequences."""
        later = np.flatnonzero(self.starts)[1:]
        return (self.edges[later - 1, 1] + self.edges[later, 0]) / 2


def choose_subjects(panel: Panel, wanted: Any, max_subjects: int) -> np.ndarray:
    """Places in `panel.subjects` of the subjects to draw."""
    if wanted is None:
        by_length = np.argsort(np.bincount(panel.row_subject), kind="stable")
        n = max(1, min(max_subjects, panel.n_subjects))
        return np.sort(by_length[np.linspace(0, panel.n_subjects - 1, n).round().astype(int)])
    return places_of(panel.subjects, wanted)


def places_of(subjects: np.ndarray, wanted: Any) -> np.ndarray:
    """Places of a subject, or of several, among all of them."""
    is_list = isinstance(wanted, list | tuple | set | np.ndarray | pd.Index | pd.Series)
    labels = list(wanted) if is_list else [wanted]
    places = np.full(len(labels), -1)
    if all(isinstance(label, Hashable) for label in labels):
        places = pd.Index(subjects).get_indexer(pd.Index(labels, tupleize_cols=False))
    unknown = [label for label, place in zip(labels, places, strict=True) if place < 0]
    if unknown or not labels:
        known = examples(subjects.tolist())
        what = f"There is no subject {examples(unknown)}" if labels else "subjects is empty"
        text = {str(label) for label in unknown} & {str(label) for label in subjects}
        hint = " (a number is not its text)" if text else ""
        raise DataError(f"{what}{hint}. The subjects are {known}.")
    return places


def make_stretches(
    panel: Panel, shown: np.ndarray, max_rows: int
) -> tuple[list[Stretch], str, bool]:
    """The subjects to draw, what their x is, and whether it is dates."""
    time, are_dates = times(panel)
    orders = in_order(panel, shown, time)
    if time is not None and not read_as_time(panel, orders, time):
        time = None
    found = []
    for i, order in zip(shown, orders, strict=True):
        rows = order[: max(1, max_rows)]
        x = np.arange(len(rows), dtype=float) if time is None else time[rows]
        starts = np.diff(panel.row_lane[rows], prepend=-1) != 0
        found.append(Stretch(panel.subjects[i], rows, x, edges_of(x, starts), starts, len(order)))
    if time is not None:
        return found, str(panel.time), are_dates
    return found, row_words(panel), False


def row_words(panel: Panel) -> str:
    """What an axis shows where the time column does not do for it."""
    return "row" if panel.sequence is None else "row, sequences side by side"


def share_time(stretches: list[Stretch]) -> bool:
    """Whether one axis does for all: subjects of different years would each be a sliver of it."""
    ends = np.concatenate([one.edges for one in stretches])
    return bool(np.ptp(ends) <= 2 * max(np.ptp(one.edges) for one in stretches))


def times(panel: Panel) -> tuple[np.ndarray | None, bool]:
    """(rows,) the time column as numbers, if it can be, and whether they are dates."""
    if panel.time is None:
        return None, False
    column = pd.Series(panel.table[panel.time])
    values = numbers(column)
    if values is not None:
        return values, False
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_localize(None)
    if pd.api.types.infer_dtype(column) not in ("datetime", "datetime64", "date"):
        return None, False
    from matplotlib.dates import date2num

    return np.asarray(date2num(pd.to_datetime(column).to_numpy("datetime64[ns]")), float), True


def in_order(panel: Panel, shown: np.ndarray, time: np.ndarray | None) -> list[np.ndarray]:
    """Each subject's rows, sequence after sequence, sequences by their first time."""
    first = np.zeros(panel.n_lanes)
    if time is not None:
        first[:] = np.inf
        np.minimum.at(first, panel.row_lane, time)
    lane, subject = panel.row_lane, panel.row_subject
    order = np.lexsort((panel.row_step, lane, first[lane], subject))
    ends = np.cumsum(np.bincount(subject, minlength=panel.n_subjects))
    pieces = np.split(order, ends[:-1])
    return [pieces[i] for i in shown]


def read_as_time(panel: Panel, orders: list[np.ndarray], time: np.ndarray) -> bool:
    """Whether subjects' sequences follow each other in time, without pauses that dwarf them."""
    return all(_reads_as_time(time[rows], panel.row_lane[rows]) for rows in orders)


def _reads_as_time(x: np.ndarray, lane: np.ndarray) -> bool:
    step = np.diff(x)
    pauses = step[np.diff(lane) != 0].sum()
    return bool((step > 0).all() and 2 * pauses <= np.ptp(x))


def edges_of(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(rows, 2) each row's stretch: half way to its neighbours, but not far into a pause."""
    step = np.diff(x)
    inside = step[~starts[1:]]
    usual = float(np.median(inside)) if len(inside) else 1.0
    half = np.minimum(step / 2, np.where(starts[1:], usual / 2, usual))
    end = [usual / 2]
    return np.stack([x - np.concatenate([end, half]), x + np.concatenate([half, end])], axis=1)
