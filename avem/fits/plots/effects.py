"""Effects of subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.errors import ModelError
from avem.fits.plots.figures import DARK, GREY, OKABE_ITO, Size, one_of, panels, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELLED, _SEPARATE = 60, 2000
"""Up to how many subjects are named, and have an interval of their own."""


def effects_figure(fit: Any, effect: str | None, ax: Axes | None, figsize: Size | None) -> Figure:
    """One panel per effect, of any kind of fit."""
    names = list(fit.model.effect_names)
    if not names:
        raise ModelError("No effects to draw: the subjects of this model are all alike.")
    chosen = names if effect is None else [one_of(effect, names, "effect")]
    n = len(fit.subjects)
    height = max(2.6, 1.2 + 0.19 * n) if n <= LABELLED else (5.0 if len(chosen) <= 4 else 3.4)
    figure, axes = panels(len(chosen), ax, figsize, (3.6, height), 4)
    table = fit._effects()
    for panel, name in zip(axes, chosen, strict=True):
        draw_effect(panel, table.loc[table["effect"] == name].sort_values(by="mean"), name)
    if ax is None:
        figure.suptitle(f"Effects of {n:,} subject{'s'[: n != 1]}, 95% intervals")
    return figure


def draw_effect(ax: Axes, table: pd.DataFrame, name: str) -> None:
    """A caterpillar: rows of `table` are subjects in order of their mean."""
    n = len(table)
    place = np.arange(n)
    mean, lower, upper = (table[column].to_numpy() for column in ("mean", "lower", "upper"))
    color = OKABE_ITO[0]
    ax.axvline(0, color=GREY, lw=0.8, zorder=0)
    if n > _SEPARATE:
        ax.fill_betweenx(place, lower, upper, color=color, alpha=0.3, lw=0)
        ax.plot(mean, place, color=DARK, lw=1.2)
    else:
        room = 280 / n  # points for each subject
        ax.hlines(place, lower, upper, color=color, lw=np.clip(room / 2, 0.3, 1.4), alpha=0.7)
        ax.plot(mean, place, "o", color=DARK, mec="none", ms=np.clip(room, 0.9, 4))
    if n <= LABELLED:
        ax.set_yticks(place, [plain(label) for label in table.iloc[:, 0]], fontsize="small")
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{n:,} subjects, sorted")
    ax.set_ylim(-0.7, n - 0.3)
    ax.set_title(plain(name, 40), fontsize="medium")
