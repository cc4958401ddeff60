"""Residuals against what they should be: normal, and white; and which states they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.param_info import check_count
from avem.data import Panel
from avem.errors import DataError
from avem.fits.plots import drawing
from avem.fits.plots.figures import DARK, Size, grid, legend, line, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_REACH = 4.0


def residuals_figure(
    panel: Panel,
    residuals: Mapping[str, np.ndarray],
    words: str,
    lags: int = 10,
    ax: Any = None,
    figsize: Size | None = None,
    states: np.ndarray | None = None,
    dots: list[Any] | None = None,
) -> Figure:
    """A column per outcome: quantiles against normal ones, autocorrelations, and a histogram.

    The histogram only with `states`, the decoded state of every row, and `dots`, their legend.
    """
    check_count("lags", lags)
    lags = min(lags, int(panel.lane_length.max()) - 1)
    if lags < 1:
        raise DataError("No sequence has two rows, so there are no autocorrelations to draw.")
    labels = ["residual", "autocorrelation", "density"][: 2 if states is None else 3]
    width = max(4.0 if states is None else 5.2, 3.0 * len(residuals))
    size = figsize or (width, 2.75 * len(labels))
    figure, axes = grid(len(labels), len(residuals), ax, size, sharey="row")
    colors = [str(each.get_color()) for each in dots or []]
    height = 0.0
    for column, (name, values) in zip(axes.T, residuals.items(), strict=True):
        drawing.draw_quantiles(column[0], values, name)
        height = max(height, drawing.draw_autocorrelation(column[1], panel, values, lags))
        if states is not None:
            _draw_by_state(column[2], values, states, colors)
    for one in axes[1]:
        one.set_ylim(-height, height)
    for row, label in zip(axes, labels, strict=True):
        row[0].set_ylabel(label)
    title(figure, ax, words)
    if dots:
        legend(figure, ax, [*dots, line("standard normal", DARK)], 5)
    return figure


def _draw_by_state(ax: Axes, values: np.ndarray, state: np.ndarray, colors: list[str]) -> None:
    """All residuals as one histogram, each bar made up of the states that its rows decode to."""
    seen = ~np.isnan(values)
    n = int(seen.sum())
    if not n:
        return
    edges = np.linspace(-_REACH, _REACH, int(np.clip(2 * n ** (1 / 3), 12, 50)) + 1)
    inside = np.clip(values, -_REACH + 1e-9, _REACH - 1e-9)
    parts = [inside[seen & (state == k)] for k in range(len(colors))]
    share = [np.full(len(part), 1 / (n * (edges[1] - edges[0]))) for part in parts]
    ax.hist(parts, edges.tolist(), weights=share, stacked=True, color=colors, alpha=0.75, lw=0)
    x = np.linspace(-_REACH, _REACH, 201)
    ax.plot(x, np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi), color=DARK, lw=1.4, gid="normal")
    ax.set_xlabel("residual, by decoded state")
