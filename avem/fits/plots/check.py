"""Simulated statistics, and where the data's own lie among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.fits.plots.figures import DARK, OKABE_ITO, Size, panels, plain, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.questions.check import Check

_OUT = 0.05
"""A two-sided p below this is marked."""


def check_figure(check: Check, ax: Any, figsize: Size | None) -> Figure:
    """A panel per statistic."""
    table = check.table
    figure, axes = panels(len(table), ax, figsize, (2.9 if len(table) > 2 else 4.4, 2.3), 4)
    for one, row, drawn in zip(axes, table.to_dict("records"), check.simulated.T, strict=True):
        _draw(one, row, drawn[~np.isnan(drawn)])
    done = len(check.simulated)
    title(
        figure,
        ax,
        f"Statistics of {done:,} simulated data sets, effects {check.effects} (line: the data)",
        fontsize="medium" if len(table) > 1 else "x-small",
    )
    return figure


def _draw(ax: Axes, row: dict, drawn: np.ndarray) -> None:
    observed, p = float(row["observed"]), float(row["p"])
    out = p < _OUT
    if len(drawn) and np.ptp(drawn) == 0:  # a histogram would give one value some width
        ax.axvline(drawn[0], color=OKABE_ITO[5], alpha=0.7, lw=8)
    elif len(drawn):
        bins = int(np.clip(np.sqrt(len(drawn)) * 1.5, 5, 40))
        ax.hist(drawn, bins=bins, color=OKABE_ITO[5], alpha=0.7)
    if not np.isnan(observed):
        ax.axvline(observed, color=OKABE_ITO[1] if out else DARK, lw=2.2 if out else 1.6)
    name = plain(row["statistic"], 30)
    if row["outcome"] is not None and row["outcome"] == row["outcome"]:
        name = f"{name}, {plain(row['outcome'], 24)}"
    words = "" if np.isnan(p) else f"\np = {p:.3f}" if p >= 0.0005 else "\np < 0.001"
    ax.set_title(name + words, fontsize="small", color=OKABE_ITO[1] if out else DARK)
    ax.set_yticks([])
    ax.locator_params(axis="x", nbins=4)
    ax.tick_params(labelsize="small")
    ax.margins(x=0.08)
    for side in ("left", "right", "top"):
        ax.spines[side].set_visible(False)
