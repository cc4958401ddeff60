"""A subject's rows over time, coloured by state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.data.frames import examples, numbers
from avem.errors import DataError
from avem.results._figures import DARK, GREY, plain
from avem.results._predict import places, row_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from avem.results.hmm_fit import HMMFit

_MAX_TICKS = 12


class Track(NamedTuple):
    """One subject's rows in order, ready to draw."""

    label: object
    x: np.ndarray
    edges: np.ndarray
    """(rows, 2) where the colour of each row starts and ends."""
    y: np.ndarray
    """(rows, outcomes), levels as 0, 1, ..."""
    mean: np.ndarray
    """(rows, outcomes) the decoded state's mean for the subject; NaN where y is, or has none."""
    state: np.ndarray
    starts: np.ndarray
    """(rows,) whether a sequence starts here."""
    n_rows: int
    """Rows of the subject, drawn or not."""


def choose_subjects(panel: Panel, wanted: Any, max_subjects: int) -> np.ndarray:
    """Places in `panel.subjects` of the subjects to draw."""
    if wanted is None:
        by_length = np.argsort(np.bincount(panel.row_subject), kind="stable")
        n = max(1, min(max_subjects, panel.n_subjects))
        return np.sort(by_length[np.linspace(0, panel.n_subjects - 1, n).round().astype(int)])
    is_list = isinstance(wanted, list | tuple | set | np.ndarray | pd.Index | pd.Series)
    labels = list(wanted) if is_list else [wanted]
    places = pd.Index(panel.subjects).get_indexer(pd.Index(labels))
    unknown = [label for label, place in zip(labels, places, strict=True) if place < 0]
    if unknown or not labels:
        known = examples(panel.subjects.tolist())
        what = f"There is no subject {examples(unknown)}" if labels else "subjects is empty"
        raise DataError(f"{what}. The subjects are {known}.")
    return places


def make_tracks(
    fit: HMMFit, panel: Panel, shown: np.ndarray, max_rows: int
) -> tuple[list[Track], str, bool]:
    """The subjects to draw, what their x is, and whether it is dates."""
    data, state = fit.model.read(panel), np.asarray(fit.decode())
    y = data.Y[:, [place.column for place in places(fit.model)]]
    mean = np.where(np.isnan(y), np.nan, row_means(fit, data, state, panel.row_subject))
    time, are_dates = _times(panel)
    orders = [_in_order(panel, np.flatnonzero(panel.row_subject == i), time) for i in shown]
    if time is not None and not all(_reads_as_time(time[o], panel.row_lane[o]) for o in orders):
        time = None
    tracks = []
    for i, order in zip(shown, orders, strict=True):
        rows = order[: max(1, max_rows)]
        x = np.arange(len(rows), dtype=float) if time is None else time[rows]
        starts = np.diff(panel.row_lane[rows], prepend=-1) != 0
        drawn = (y[rows], mean[rows], state[rows])
        tracks.append(Track(panel.subjects[i], x, _edges(x, starts), *drawn, starts, len(order)))
    if time is not None:
        return tracks, str(panel.time), are_dates
    return tracks, "row" if panel.sequence is None else "row, sequences side by side", False


def _times(panel: Panel) -> tuple[np.ndarray | None, bool]:
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


def _in_order(panel: Panel, rows: np.ndarray, time: np.ndarray | None) -> np.ndarray:
    """A subject's rows, sequence after sequence, sequences by their first time."""
    lane, step = panel.row_lane[rows], panel.row_step[rows]
    if time is None:
        return rows[np.lexsort((step, lane))]
    first = pd.Series(time[rows]).groupby(lane).transform("min").to_numpy()
    return rows[np.lexsort((step, lane, first))]


def _reads_as_time(x: np.ndarray, lane: np.ndarray) -> bool:
    """Whether sequences follow each other in time, without pauses that dwarf them."""
    step = np.diff(x)
    pauses = step[np.diff(lane) != 0].sum()
    return bool((step > 0).all() and 2 * pauses <= np.ptp(x))


def _edges(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(rows, 2) each row's stretch: half way to its neighbours, but not far into a pause."""
    step = np.diff(x)
    inside = step[~starts[1:]]
    usual = float(np.median(inside)) if len(inside) else 1.0
    half = np.minimum(step / 2, np.where(starts[1:], usual / 2, usual))
    end = [usual / 2]
    return np.stack([x - np.concatenate([end, half]), x + np.concatenate([half, end])], axis=1)


def draw_track(ax: Axes, track: Track, j: int, colors: list[str]) -> None:
    x, y, mean, starts, edges = track.x, track.y[:, j], track.mean[:, j], track.starts, track.edges
    # Lines break between sequences, and where a pause leaves rows apart.
    apart = starts[1:] | (edges[1:, 0] - edges[:-1, 1] > 1e-9 * np.ptp(edges))
    breaks = np.flatnonzero(apart) + 1
    line = (np.insert(x, breaks, np.nan), np.insert(y, breaks, np.nan))
    ax.plot(*line, color=GREY, lw=0.6, zorder=2, gid="data")
    apart = np.append(apart, True)
    steps = np.stack([mean, mean, np.where(apart, np.nan, mean)], axis=1)
    ax.plot(edges[:, [0, 1, 1]].ravel(), steps.ravel(), color=DARK, lw=1.2, zorder=3, gid="mean")
    size = float(np.clip(60 / np.sqrt(len(x)), 1.5, 4))
    background: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "alpha": 0.2, "lw": 0}
    for k, color in enumerate(colors):
        here = track.state == k
        bars = np.stack([edges[here, 0], edges[here, 1] - edges[here, 0]], axis=1)
        ax.broken_barh(bars.tolist(), (0, 1), color=color, zorder=0, **background)
        ax.plot(x[here], y[here], "o", ms=size, color=color, mec="none", zorder=4, gid=f"state {k}")
    for b in np.flatnonzero(starts)[1:]:
        ax.axvline((edges[b - 1, 1] + edges[b, 0]) / 2, color=DARK, lw=0.8, ls=(0, (4, 3)))
    ax.margins(x=0.01)


def label_levels(ax: Axes, levels: tuple | None) -> None:
    """Names of the levels at the axis of an outcome that has them."""
    if levels is not None and len(levels) <= _MAX_TICKS:
        ax.set_yticks(range(len(levels)), [plain(level, 12) for level in levels])
        ax.set_ylim(-0.3, len(levels) - 0.7)
