"""Who spends how much time in which state, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.data.frames import numbers
from avem.fits.plots.figures import (
    LABELLED,
    Size,
    legend,
    name_ticks,
    panels,
    plain,
    state_colors,
    state_dots,
    write_dates,
)
from avem.fits.questions.occupancy import means_subjects, occupancy_table, with_one_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit


def occupancy_figure(fit: HMMFit, by: Any, level: float, ax: Any, figsize: Size | None) -> Figure:
    """Stacked bars of subjects; over anything else, a line or points per state."""
    n = fit.model.n_states
    if by is None or means_subjects(fit._panel(None), by):
        figure = _subjects_figure(fit, ax, figsize)
    else:
        table = with_one_key(occupancy_table(fit, by, level))
        figure, (panel,) = panels(1, ax, figsize, (7.0, 3.8), 1)
        draw_by_state(panel, table, table.columns[0], "share", state_colors(n))
        panel.set(ylim=(0, 1), ylabel="share of rows")
        panel.set_title(f"Share of each state, {level:.0%} intervals", fontsize="medium")
    legend(figure, ax, state_dots(fit), 7)
    return figure


def _subjects_figure(fit: HMMFit, ax: Any, figsize: Size | None) -> Figure:
    table = occupancy_table(fit, fit._panel(None).row_subject)  # quick: its errors are not drawn
    n, states = len(fit.subjects), fit.model.n_states
    share = table["share"].to_numpy().reshape(n, states)
    order = np.lexsort(share[:, ::-1].T)
    every = occupancy_table(fit)["share"].to_numpy()
    height = max(2.6, 1.4 + 0.19 * n) if n <= LABELLED else 5.4
    figure, (panel,) = panels(1, ax, figsize, (6.4, height), 1)
    place, left = np.arange(n), np.zeros(n)
    room = 0.03 * n + 0.7
    top, thick = n - 0.5 + room, max(0.8, 0.03 * n)
    so_far = 0.0
    for k, color in enumerate(state_colors(states)):
        tall = 0.85 if n <= LABELLED else 1.0
        panel.barh(place, share[order, k], tall, left, color=color, gid=f"state {k}")
        panel.barh(top, every[k], thick, so_far, color=color)
        left, so_far = left + share[order, k], so_far + every[k]
    if n <= LABELLED:
        names = [plain(label) for label in np.asarray(fit.subjects)[order]]
        panel.set_yticks([*place, top], [*names, "all"], fontsize="small")
    else:
        panel.set_yticks([n / 2 - 0.5, top], [f"{n:,} subjects,\nsorted", "all"])
        panel.tick_params(axis="y", length=0)
    panel.set(xlim=(0, 1), ylim=(-0.7, top + thick / 2 + 0.3), xlabel="share of time")
    for side in ("left", "right", "top"):
        panel.spines[side].set_visible(False)
    return figure


def draw_by_state(
    ax: Axes, table: pd.DataFrame, x: str, y: str, colors: list[str], state: str = "state"
) -> None:
    """A line with its band for each state over numbers or dates; points beside each other else."""
    values = pd.Series(table[x])
    dates = pd.api.types.is_datetime64_any_dtype(values.dtype)
    if not dates and (numbers(values) is None or values.dtype == bool):
        _draw_points(ax, table, x, y, colors, state)
        ax.set_xlabel(plain(x, 60))
        return
    with_bands = "lower" in table
    for k, own in table.groupby(state, sort=True):
        color, along = colors[int(str(k))], own[x].to_numpy()
        marker = {"marker": "o", "ms": 4} if len(own) <= 15 else {}
        ax.plot(along, own[y], color=color, lw=1.6, gid=f"state {k}", **marker)
        if with_bands:
            low, high = (own[name].to_numpy(float) for name in ("lower", "upper"))
            ax.fill_between(along, low, high, color=color, alpha=0.2, lw=0)
    if dates:
        write_dates(ax)
    ax.margins(x=0.02)
    ax.set_xlabel(plain(x, 60))


def _draw_points(ax: Axes, table: pd.DataFrame, x: str, y: str, colors: list[str], state: str):
    levels = list(dict.fromkeys(table[x].tolist()))
    n = len(colors)
    for k, own in table.groupby(state, sort=True):
        number = int(str(k))
        place = np.array([levels.index(level) for level in own[x]], float)
        place += 0.5 * (number - (n - 1) / 2) / n
        middle = own[y].to_numpy(float)
        if "lower" in own:
            low, high = (own[name].to_numpy(float) for name in ("lower", "upper"))
            ax.vlines(place, low, high, color=colors[number], lw=1.8)
        ax.plot(place, middle, "o", color=colors[number], ms=6, gid=f"state {k}")
    name_ticks(ax, [plain(level, 16) for level in levels])
    ax.set_xlim(-0.6, len(levels) - 0.4)
