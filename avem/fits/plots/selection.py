"""A criterion against the number of states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from avem.fits.plots.figures import DARK, GREY, OKABE_ITO
from avem.fits.words import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_criterion(
    ax: Axes, table: pd.DataFrame, size: str, column: str, name: str, best: int
) -> None:
    """One panel: filled points converged, hollow ones did not, a ring marks the best."""
    from matplotlib.ticker import MaxNLocator

    known = table.dropna(subset=[column]).sort_values(by=size)
    x, y = known[size].to_numpy(), known[column].to_numpy(float)
    settled = (known["stop"] == "CONVERGED").to_numpy()
    color = OKABE_ITO[0]
    ax.axvline(best, color=GREY, lw=0.8, ls=":", zorder=0)
    ax.plot(x, y, color=color, lw=1.2, gid="line")
    if column == "held_out":
        ax.errorbar(x, y, known["held_out_se"], fmt="none", ecolor=color, capsize=3, lw=1.2)
    ax.plot(x[settled], y[settled], "o", color=color, ms=5)
    if not settled.all():
        ax.plot(x[~settled], y[~settled], "o", mfc="white", mec=color, ms=5, label="not converged")
        ax.legend(fontsize="small")
    at = x == best
    ax.plot(x[at], y[at], "o", mfc="none", mec=OKABE_ITO[1], mew=2, ms=11, gid="best")
    better = "higher" if column == "held_out" else "lower"
    of = {"n_states": "state", "n_clusters": "cluster"}.get(size, "latent state")
    ax.set(xlabel=f"number of {of}s", ylabel=f"{better} is better")
    title = f"{name[0].upper() + name[1:]}: {count(best, of)}"
    ax.set_title(title, fontsize="medium", color=DARK)
    for k in table.loc[table[column].isna(), size].tolist():
        words = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": "small"}
        ax.text(k, 0.03, "no value", transform=ax.get_xaxis_transform(), color=GREY, **words)
    tried = table[size].to_numpy()
    ax.set_xlim(tried.min() - 0.5, tried.max() + 0.5)
    ax.margins(y=0.15)
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
