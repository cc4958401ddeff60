"""Residuals against what they should be: normal, and white."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from avem.data import Panel
from avem.errors import DataError
from avem.results._figures import Size, new_figure
from avem.results._ssm_drawing import draw_autocorrelation, draw_quantiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def residuals_figure(
    panel: Panel,
    residuals: Mapping[str, np.ndarray],
    title: str,
    lags: int = 10,
    figsize: Size | None = None,
) -> Figure:
    """Of each outcome: quantiles against normal ones, above its autocorrelations."""
    lags = min(lags, int(panel.lane_length.max()) - 1)
    if lags < 1:
        raise DataError("No sequence has two rows, so there are no autocorrelations to draw.")
    figure = new_figure(figsize or (max(4.0, 2.9 * len(residuals)), 5.6))
    grid = figure.subplots(2, len(residuals), squeeze=False, sharey="row")
    height = 0.0
    for (top, bottom), (name, values) in zip(grid.T, residuals.items(), strict=True):
        draw_quantiles(top, values, name)
        height = max(height, draw_autocorrelation(bottom, panel, values, lags))
    grid[1, 0].set_ylim(-height, height)
    grid[0, 0].set_ylabel("residual")
    grid[1, 0].set_ylabel("autocorrelation")
    figure.suptitle(title)
    return figure
