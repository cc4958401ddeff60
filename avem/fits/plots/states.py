"""A subject's rows over time, coloured by state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from avem.data import Panel
from avem.fits.plots.figures import DARK, GREY, plain
from avem.fits.plots.timeline import Stretch, make_stretches
from avem.fits.predict.at import row_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from avem.fits.hmm_fit import HMMFit

_MAX_TICKS = 12


class Track(NamedTuple):
    """One subject's rows in order, ready to draw."""

    along: Stretch
    y: np.ndarray
    """(rows, outcomes), levels as 0, 1, ..."""
    mean: np.ndarray
    """(rows, outcomes) the decoded state's mean for the subject; NaN where y is, or has none."""
    state: np.ndarray


def make_tracks(
    fit: HMMFit, panel: Panel, shown: np.ndarray, max_rows: int
) -> tuple[list[Track], str, bool]:
    """The subjects to draw, what their x is, and whether it is dates."""
    data, state = fit.model.read(panel), fit._decoded()
    y = data.Y[:, fit.model.outcome_columns]
    mean = np.where(np.isnan(y), np.nan, row_means(fit, data, state, panel.row_subject))
    stretches, label, are_dates = make_stretches(panel, shown, max_rows)
    tracks = [Track(one, y[one.rows], mean[one.rows], state[one.rows]) for one in stretches]
    return tracks, label, are_dates


def draw_track(ax: Axes, track: Track, j: int, colors: list[str]) -> None:
    x, y, mean, edges = track.along.x, track.y[:, j], track.mean[:, j], track.along.edges
    breaks = track.along.breaks
    line = (np.insert(x, breaks, np.nan), np.insert(y, breaks, np.nan))
    ax.plot(*line, color=GREY, lw=0.6, zorder=2, gid="data")
    apart = np.isin(np.arange(1, len(x) + 1), [*breaks, len(x)])
    steps = np.stack([mean, mean, np.where(apart, np.nan, mean)], axis=1)
    ax.plot(edges[:, [0, 1, 1]].ravel(), steps.ravel(), color=DARK, lw=1.2, zorder=3, gid="mean")
    size = float(np.clip(60 / np.sqrt(len(x)), 1.5, 4))
    background: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "alpha": 0.2, "lw": 0}
    for k, color in enumerate(colors):
        here = track.state == k
        bars = np.stack([edges[here, 0], edges[here, 1] - edges[here, 0]], axis=1)
        ax.broken_barh(bars.tolist(), (0, 1), color=color, zorder=0, **background)
        ax.plot(x[here], y[here], "o", ms=size, color=color, mec="none", zorder=4, gid=f"state {k}")
    for border in track.along.borders:
        ax.axvline(border, color=DARK, lw=0.8, ls=(0, (4, 3)))
    ax.margins(x=0.01)


def label_levels(ax: Axes, levels: tuple | None) -> None:
    """Names of the levels at the axis of an outcome that has them."""
    if levels is not None and len(levels) <= _MAX_TICKS:
        ax.set_yticks(range(len(levels)), [plain(level, 12) for level in levels])
        ax.set_ylim(-0.3, len(levels) - 0.7)
