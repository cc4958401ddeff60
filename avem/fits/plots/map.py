"""Tracks on a map, coloured by state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.data.movement import positions
from avem.fits.plots.figures import (
    DARK,
    Size,
    dot,
    legend,
    panels,
    plain,
    state_colors,
    state_dots,
    title,
)
from avem.fits.plots.states import decoded
from avem.fits.plots.timeline import choose_subjects, make_stretches

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit

_FAINTEST = 0.15
"""How much of its colour is left to a row whose state is as good as unknown."""


def map_figure(
    fit: HMMFit,
    subjects: Any,
    columns: tuple[str, str],
    kind: str,
    max_subjects: int,
    ax: Any,
    figsize: Size | None,
) -> Figure:
    """A panel per subject; the way from each row to the next has the colour of the row's state."""
    panel = fit._panel(None)
    x, y = positions(panel, *columns, kind)
    shown = choose_subjects(panel, subjects, max_subjects)
    state, chance = decoded(fit), fit._state_probabilities(fit._encode(None))
    n_states = fit.model.n_states
    known = chance[np.arange(len(state)), state]
    lowest = 1 / n_states
    sure = (known - lowest) / (1 - lowest) if n_states > 1 else known
    ink = _FAINTEST + (1 - _FAINTEST) * np.clip(sure, 0, 1)
    stretches, _, _ = make_stretches(panel, shown, panel.n_rows)
    each = (5.6, 5.0) if len(shown) == 1 else (3.8, 3.8)
    figure, axes = panels(len(shown), ax, figsize, each, 2 if len(shown) == 4 else 3)
    colors = np.array(state_colors(n_states))
    for one, along in zip(axes, stretches, strict=True):
        rows = along.rows
        joined = ~along.starts[1:]
        _draw_way(one, x[rows], y[rows], joined, colors[state[rows]], ink[rows])
        one.set_title(plain(along.label), fontsize="medium", fontweight="bold")
        one.set(xlabel=plain(columns[0]), ylabel=plain(columns[1]))
        middle = np.nanmean(y[rows]) if not np.isnan(y[rows]).all() else 0.0
        one.set_aspect(1 / np.cos(np.radians(middle)) if kind == "lonlat" else "equal", "datalim")
        one.ticklabel_format(useOffset=False, style="plain")
        one.locator_params(nbins=4)
        one.tick_params(labelsize="small")
    words = (
        f"Tracks of {len(shown):,} of {panel.n_subjects:,} subject{'s'[: panel.n_subjects != 1]}"
    )
    title(figure, ax, f"{words} (faint: the state is uncertain)", fontsize="medium")
    ends = [dot("first", DARK, "^", size=7), dot("last", DARK, "s", size=6)]
    legend(figure, ax, [*state_dots(fit), *ends], 7)
    return figure


def _draw_way(
    ax: Axes, x: np.ndarray, y: np.ndarray, joined: np.ndarray, color: np.ndarray, ink: np.ndarray
) -> None:
    """Steps and positions of one subject; a missing position leaves its steps out."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    there = ~(np.isnan(x) | np.isnan(y))
    paint = np.array([to_rgba(c, a) for c, a in zip(color, ink, strict=True)])
    steps = np.flatnonzero(joined & there[1:] & there[:-1])
    ends = np.stack([np.stack([x[steps + i], y[steps + i]], axis=1) for i in (0, 1)], axis=1)
    ax.add_collection(LineCollection(list(ends), colors=paint[steps], lw=1.3, gid="steps"))
    size = float(np.clip(900 / max(len(x), 1), 3, 18))
    ax.scatter(x[there], y[there], size, color=paint[there], lw=0, zorder=3, gid="positions")
    if there.any():
        first, last = np.flatnonzero(there)[[0, -1]]
        mark: dict[str, Any] = {"ls": "", "color": DARK, "mfc": "white", "mew": 1.4, "zorder": 4}
        ax.plot(x[first], y[first], "^", ms=8, **mark)
        ax.plot(x[last], y[last], "s", ms=6.5, **mark)
    ax.margins(0.06)
