"""Differences with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.fits.plots.effects import LABELLED
from avem.fits.plots.figures import DARK, GREY, Size, panels, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LESS = "\u2212"


def contrast_figure(table: pd.DataFrame, level: float, figsize: Size | None) -> Figure:
    """A panel per effect or parameter, a line per pair."""
    if "effect" in table:
        what = table["effect"]
        pairs = [
            f"{plain(one, 16)} {_LESS} {plain(other, 16)}"
            for one, other in zip(table.iloc[:, 0], table["other"], strict=True)
        ]
    else:
        names = [name for name in ("parameter", "outcome", "term", "other") if name in table]
        parts = table[names].astype(object)
        what = parts.apply(lambda row: ", ".join(str(v) for v in row if v is not None), axis=1)
        pairs = [
            f"state {a} {_LESS} {b}" for a, b in zip(table["state"], table["minus"], strict=True)
        ]
    keys = list(dict.fromkeys(what))
    n = max(int((what == key).sum()) for key in keys)
    tall = max(1.7, 1.1 + 0.26 * n) if n <= LABELLED else 5.4
    figure, axes = panels(len(keys), None, figsize, (4.2, tall), 3)
    for ax, key in zip(axes, keys, strict=True):
        own = (what == key).to_numpy()
        _draw(ax, table[own], [pair for pair, here in zip(pairs, own, strict=True) if here])
        ax.set_title(plain(key, 40), fontsize="medium")
    bare = " (a dot alone: see its note)" if np.isnan(table["lower"].to_numpy(float)).any() else ""
    figure.suptitle(f"Differences, {level:.0%} intervals{bare}", fontsize="medium")
    return figure


def _draw(ax: Axes, table: Any, names: list[str]) -> None:
    crowded = len(names) > LABELLED
    if crowded:
        table = table.sort_values(by="difference", ascending=False)
    place = np.arange(len(table))[::-1]
    middle, lower, upper = (table[key].to_numpy(float) for key in ("difference", "lower", "upper"))
    away = (lower > 0) | (upper < 0)
    ax.axvline(0, color=GREY, lw=0.8, zorder=0)
    for here, color in ((away, DARK), (~away, GREY)):
        ax.hlines(place[here], lower[here], upper[here], color=color, lw=0.8 if crowded else 1.8)
    ax.plot(middle, place, "o", color=DARK, ms=1.5 if crowded else 4.5, gid="difference")
    if not crowded:
        ax.set_yticks(place, names, fontsize="small")
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{len(names):,} pairs, sorted")
    ax.set_ylim(-0.7, len(table) - 0.3)
