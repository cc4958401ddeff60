"""Effects of subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from avem.results._figures import DARK, GREY, OKABE_ITO, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELLED, _SEPARATE = 60, 2000
"""Up to how many subjects are named, and have an interval of their own."""


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
