"""Subjects' rows over time, coloured by state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from avem.data import Panel
from avem.families.base import Family
from avem.fits.plots.figures import (
    DARK,
    GREY,
    Size,
    angle_ticks,
    first_outcomes,
    grid,
    legend,
    line,
    plain,
    state_colors,
    state_dots,
    title,
    write_dates,
)
from avem.fits.plots.scales import is_heavy
from avem.fits.plots.timeline import Stretch, choose_subjects, make_stretches, share_time
from avem.fits.predict.at import places, row_means
from avem.inference.after.hmm_states import viterbi

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit

_MAX_TICKS = 12
_STRIP = (0.0, 1.03, 1.0, 0.13)
"""Where the probabilities of the states are, in parts of the panel beneath them."""


class Track(NamedTuple):
    """One subject's rows in order, ready to draw."""

    along: Stretch
    y: np.ndarray
    """(rows, outcomes), levels as 0, 1, ..."""
    mean: np.ndarray
    """(rows, outcomes) the decoded state's mean for the subject; NaN where y is, or has none."""
    state: np.ndarray
    chance: np.ndarray
    """(rows, states)."""


def decoded(fit: HMMFit) -> np.ndarray:
    """(rows,) the number of the state of each row of the fit's data, on the most probable path."""
    encoded = fit._encode(None)
    return viterbi(encoded, fit.theta, fit._effects_for(encoded))


def states_figure(
    fit: HMMFit,
    subjects: Any,
    outcomes: list[int],
    max_subjects: int,
    max_rows: int,
    ax: Any,
    figsize: Size | None,
) -> Figure:
    """A row of panels per subject, a column per outcome; above each, the states' probabilities."""
    panel, every = fit._panel(None), places(fit.model)
    shown = choose_subjects(panel, subjects, max_subjects)
    tracks, time_label, are_dates = make_tracks(fit, panel, shown, max_rows)
    together = share_time([track.along for track in tracks])
    width = 10.0 if len(outcomes) < 3 else 4.0 * len(outcomes)
    size = figsize or (width, 1.2 + 1.75 * len(shown))
    figure, axes = grid(len(shown), len(outcomes), ax, size, sharey="col", sharex=together)
    colors = state_colors(fit.model.n_states)
    y = fit.model.read(panel).Y
    heavy = {j: is_heavy(every[j].piece.family, y[:, every[j].column]) for j in outcomes}
    for row, track in zip(axes, tracks, strict=True):
        name = {"rotation": 0, "ha": "right", "va": "center", "fontweight": "bold"}
        row[0].set_ylabel(plain(track.along.label), **name)
        for one, j in zip(row, outcomes, strict=True):
            draw_track(one, track, j, colors, every[j].piece.family)
            if heavy[j]:
                one.set_yscale("log")
            if fit.model.n_states > 1:
                _draw_strip(one, track, colors)
            if are_dates:
                write_dates(one)
    for j, top, bottom in zip(outcomes, axes[0], axes[-1], strict=True):
        levels, name = every[j].piece.family.levels, plain(every[j].name, 60)
        if levels is not None and len(levels) == 2:
            name += f" (line: probability of {plain(levels[1])})"
        top.set_title(name, fontsize="medium", pad=20 if fit.model.n_states > 1 else None)
        bottom.set_xlabel(plain(time_label, 60))
    words = f"States of {len(tracks):,} of {panel.n_subjects:,} subjects"
    words += first_outcomes(len(outcomes), len(every))
    if any(track.along.n_rows > max_rows for track in tracks):
        words += f", first {max_rows:,} rows of each"
    title(figure, ax, words)
    with_mean = any(not np.isnan(track.mean[:, outcomes]).all() for track in tracks)
    mean = [line("state's mean for the subject", DARK, lw=1.4)] if with_mean else []
    legend(figure, ax, [*state_dots(fit), *mean], 7)
    return figure


def make_tracks(
    fit: HMMFit, panel: Panel, shown: np.ndarray, max_rows: int
) -> tuple[list[Track], str, bool]:
    """The subjects to draw, what their x is, and whether it is dates."""
    data, state = fit.model.read(panel), decoded(fit)
    chance = fit._state_probabilities(fit._encode(None))
    y = data.Y[:, fit.model.outcome_columns]
    mean = np.where(np.isnan(y), np.nan, row_means(fit, data, state, panel.row_subject))
    for j, place in enumerate(places(fit.model)):
        if place.piece.family.angular and np.nanmin(y[:, j], initial=0.0) >= 0:
            mean[:, j] = np.mod(mean[:, j], 2 * np.pi)  # as the user counts angles
    stretches, label, are_dates = make_stretches(panel, shown, max_rows)
    tracks = [
        Track(one, *(values[one.rows] for values in (y, mean, state, chance))) for one in stretches
    ]
    return tracks, label, are_dates


def draw_track(ax: Axes, track: Track, j: int, colors: list[str], family: Family) -> None:
    """One outcome of one subject."""
    x, y, mean, edges = track.along.x, track.y[:, j], track.mean[:, j], track.along.edges
    breaks, two = track.along.breaks, len(family.levels or ()) == 2
    if family.levels is None and not family.angular:  # between labels or angles lies nothing
        path = (np.insert(x, breaks, np.nan), np.insert(y, breaks, np.nan))
        ax.plot(*path, color=GREY, lw=0.6, zorder=2, gid="data")
    apart = np.isin(np.arange(1, len(x) + 1), [*breaks, len(x)])
    if family.angular:  # no riser the long way round
        apart[:-1] |= np.abs(np.diff(mean)) > np.pi
    steps = np.stack([mean, mean, np.where(apart, np.nan, mean)], axis=1)
    ax.plot(edges[:, [0, 1, 1]].ravel(), steps.ravel(), color=DARK, lw=1.2, zorder=3, gid="mean")
    size = float(np.clip(60 / np.sqrt(len(x)), 1.5, 4))
    mark: dict[str, Any] = {"marker": "o", "ms": size, "mec": "none"}
    if two:
        mark = {"marker": "|", "ms": 9, "mew": float(np.clip(200 / len(x), 0.6, 2))}
    background: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "alpha": 0.2, "lw": 0}
    for k, color in enumerate(colors):
        here = track.state == k
        bars = np.stack([edges[here, 0], edges[here, 1] - edges[here, 0]], axis=1)
        ax.broken_barh(bars.tolist(), (0, 1), color=color, zorder=0, **background)
        ax.plot(x[here], y[here], ls="", color=color, zorder=4, gid=f"state {k}", **mark)
    for border in track.along.borders:
        ax.axvline(border, color=DARK, lw=0.8, ls=(0, (4, 3)))
    ax.margins(x=0.01)
    label_levels(ax, family.levels)
    if family.angular:
        angle_ticks(ax.yaxis, 0.0 if np.nanmin(track.y[:, j], initial=0.0) >= 0 else -np.pi)


def _draw_strip(ax: Axes, track: Track, colors: list[str]) -> None:
    """The probabilities of the states, stacked, above a panel."""
    strip = ax.inset_axes(_STRIP, sharex=ax)
    gaps = 2 * track.along.breaks
    x = np.insert(track.along.edges.ravel(), gaps, track.along.edges.ravel()[gaps])
    tops = np.cumsum(np.insert(track.chance, 0, 0.0, axis=1), axis=1).T
    tops = [np.insert(np.repeat(top, 2), gaps, np.nan) for top in tops]
    for low, high, color in zip(tops[:-1], tops[1:], colors, strict=True):
        strip.fill_between(x, low, high, color=color, alpha=0.85, lw=0)
    strip.set(ylim=(0, 1), yticks=[], gid="p(state)")
    strip.margins(x=0.01)  # as of the panel, with which it shares its x axis
    strip.tick_params(labelbottom=False, bottom=False)
    for side in strip.spines.values():
        side.set_visible(False)


def label_levels(ax: Axes, levels: tuple | None) -> None:
    """Names of the levels at the axis of an outcome that has them."""
    if levels is not None and len(levels) <= _MAX_TICKS:
        ax.set_yticks(range(len(levels)), [plain(level, 12) for level in levels])
        ax.set_ylim(-0.3, len(levels) - 0.7)
