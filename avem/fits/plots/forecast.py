"""The end of some sequences of an HMM, and what is to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.families.base import Family
from avem.fits.plots.ends import End, axis_words, last_rows
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
    whole_ticks,
)
from avem.fits.plots.scales import is_heavy
from avem.fits.plots.states import decoded, label_levels
from avem.fits.plots.timeline import choose_subjects
from avem.fits.predict import hmm as later
from avem.fits.predict.at import Place, places
from avem.fits.predict.mixture import Drawn, Mixture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit

LEVELS = (0.5, 0.8, 0.95)
_FAN = "#6a6a6a"


def ahead_figure(
    fit: HMMFit,
    subjects: Any,
    horizon: int,
    outcomes: list[int],
    with_states: bool,
    max_subjects: int,
    future: Any,
    effects: str,
    max_rows: int | None,
    ax: Any,
    figsize: Size | None,
) -> Figure:
    """Outcomes of the past by decoded state, then fans of intervals; beneath, the states."""
    encoded = fit._encode(None)
    panel, model = encoded.panel, fit.model
    shown = choose_subjects(panel, subjects, max_subjects)
    ends = last_rows(fit, panel, shown, horizon, max_rows, future)
    lanes = np.array([end.lane for end in ends])
    _, found = later.predictive(fit, encoded, horizon, future, effects, lanes=lanes)
    of_lane = np.repeat(np.sort(lanes), horizon)
    every = places(model)
    y = encoded.in_user_units(model.scaling)[0][:, model.outcome_columns]
    state = decoded(fit)
    past = fit._state_probabilities(encoded)
    n, colors = len(ends), state_colors(model.n_states)
    heights = [2.0] * len(outcomes) + [1.2 if outcomes else 2.0] * with_states
    size = figsize or (max(6.4, 3.9 * n), 1.5 + sum(heights))
    shared: dict[str, Any] = {"sharex": "all", "sharey": "row", "height_ratios": heights}
    figure, axes = grid(len(heights), n, ax, size, **shared)
    mixtures = {place.name: (mixture, known) for _, place, mixture, known in found.each()}
    for column, end in zip(axes.T, ends, strict=True):
        column[0].set_title(plain(end.label), fontsize="medium", fontweight="bold")
        column[-1].set_xlabel(axis_words(fit))
        ahead = np.flatnonzero(of_lane == end.lane)
        for one, j in zip(column, outcomes, strict=False):
            family = every[j].piece.family
            if family.angular:
                angle_ticks(one.yaxis, -np.pi)
            elif family.levels is None:
                one.plot(end.before, y[end.rows, j], color=GREY, lw=0.6, zorder=2)
            _draw_past(one, end.before, _as_drawn(family, y[end.rows, j]), state[end.rows], colors)
            _draw_fan(one, every[j], *mixtures[every[j].name], ahead, end)
            label_levels(one, family.levels)
            if is_heavy(family, y[:, j]):
                one.set_yscale("log")
        if with_states:
            chance = np.concatenate([past[end.rows], found.chance[ahead]])
            _draw_chances(column[-1], end, chance, colors)
        for one in column:
            one.axvline(end.now, color=DARK, lw=0.9, zorder=5)
            one.margins(x=0.01)
            if not model.continuous:
                whole_ticks(one)
    names = [every[j].name for j in outcomes] + ["p(state)"] * with_states
    for row, name in zip(axes, names, strict=True):
        row[0].set_ylabel(plain(name))
    for one in axes[-1] if with_states else ():
        one.set(ylim=(0, 1), yticks=[0, 0.5, 1])
    words = f"Predictions for {n:,} of {panel.n_subjects:,} subject{'s'[: panel.n_subjects != 1]}"
    words += first_outcomes(len(outcomes), len(every)) if outcomes else ""
    title(figure, ax, words)
    shades = _shades() if outcomes else []
    legend(figure, ax, [*state_dots(fit), *shades], 4 if n == 1 else 8)
    return figure


def _as_drawn(family: Family, y: np.ndarray) -> np.ndarray:
    """Angles between -pi and pi, as those to come are; all else as it is."""
    return np.angle(np.exp(1j * y)) if family.angular else y


def _draw_past(ax: Axes, x: np.ndarray, y: np.ndarray, state: np.ndarray, colors: list[str]):
    size = float(np.clip(50 / np.sqrt(max(len(x), 1)), 2.2, 4.5))
    for k, color in enumerate(colors):
        here = state == k
        ax.plot(x[here], y[here], "o", ms=size, color=color, mec="none", zorder=4, gid=f"state {k}")


def _draw_fan(
    ax: Axes,
    place: Place,
    mixture: Mixture | Drawn,
    known: np.ndarray,
    rows: np.ndarray,
    end: End,
) -> None:
    """Intervals that widen, one inside the other; for labels, dots as large as their chances."""
    steps, width = end.after[known[rows]], 0.9 * end.width[-len(rows) :][known[rows]]
    if len(steps) < len(rows):
        words = "lag() looks back\nat a missing value"
        how: Any = {"ha": "right", "va": "center", "fontsize": "small", "color": DARK}
        ax.text(0.98, 0.5, words, transform=ax.transAxes, **how)
    rows = rows[known[rows]]
    own = mixture.some(rows)
    levels = place.piece.family.levels
    if levels is not None:
        chance = own.chances(len(levels))
        x, code = np.broadcast_arrays(steps[:, None], np.arange(len(levels)))
        ax.scatter(x, code, 90 * chance, color=_FAN, lw=0, zorder=3, gid="fan")
        return
    bars: dict[str, Any] = {"color": _FAN, "alpha": 0.22, "lw": 0, "zorder": 1}
    for level in LEVELS[::-1]:
        low, high = own.interval(level)
        wraps = high < low  # an arc across half a turn
        ax.bar(steps[~wraps], (high - low)[~wraps], width[~wraps], low[~wraps], **bars)
        ax.bar(steps[wraps], np.pi - low[wraps], width[wraps], low[wraps], **bars)
        ax.bar(steps[wraps], high[wraps] + np.pi, width[wraps], -np.pi, **bars)
    for left, right, middle in zip(steps - width / 2, steps + width / 2, own.mean, strict=True):
        ax.plot([left, right], [middle] * 2, color=DARK, lw=1.4, zorder=3, gid="mean")


def _draw_chances(ax: Axes, end: End, chance: np.ndarray, colors: list[str]) -> None:
    x, base = np.concatenate([end.before, end.after]), np.zeros(len(chance))
    for k, color in enumerate(colors):
        ax.bar(x, chance[:, k], end.width, base, color=color, alpha=0.75, lw=0)
        base = base + chance[:, k]


def _shades() -> list[Any]:
    """Handles of a legend: what is to come."""
    from matplotlib.patches import Patch

    shades = (0.22 * 3, 0.22 * 2, 0.22)
    patches = [
        Patch(color=_FAN, alpha=shade, lw=0, label=f"{level:.0%}")
        for level, shade in zip(LEVELS, shades, strict=True)
    ]
    return [line("expected", DARK, lw=1.4), *patches]
