"""Residuals of an HMM: quantiles, autocorrelations, and which states they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from avem.errors import DataError
from avem.results import _ssm_drawing as drawing
from avem.results._figures import DARK, Size, new_figure, state_colors
from avem.results._hmm_residuals import residual_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.results.hmm_fit import HMMFit

_REACH = 4.0


def residuals_figure(
    fit: HMMFit,
    outcomes: list[int],
    lags: int,
    kind: str,
    effects: str,
    seed: int,
    figsize: Size | None,
) -> Figure:
    """A column per outcome."""
    encoded = fit._encode(None)
    panel, names = encoded.panel, fit.model.outcomes
    lags = min(lags, int(panel.lane_length.max()) - 1)
    if lags < 1:
        raise DataError("No sequence has two rows, so there are no autocorrelations to draw.")
    values = residual_values(fit, encoded, kind, "randomised", effects, seed)
    state, colors = np.asarray(fit.decode()), state_colors(fit.model.n_states)
    figure = new_figure(figsize or (max(5.2, 3.1 * len(outcomes)), 8.2))
    grid = figure.subplots(3, len(outcomes), squeeze=False, sharey="row")
    height = 0.0
    for (top, middle, bottom), j in zip(grid.T, outcomes, strict=True):
        drawing.draw_quantiles(top, values[:, j], names[j])
        height = max(height, drawing.draw_autocorrelation(middle, panel, values[:, j], lags))
        _draw_by_state(bottom, values[:, j], state, colors)
    grid[1, 0].set_ylim(-height, height)
    for row, label in zip(grid, ("residual", "autocorrelation", "density"), strict=True):
        row[0].set_ylabel(label)
    title = "Forecast" if kind == "forecast" else "Ordinary"
    n, every = len(outcomes), len(names)
    more = f", first {n} of {every} outcomes" if 1 < n < every else ""
    figure.suptitle(f"{title} pseudo-residuals{more}")
    handles = [
        *(drawing.dot(f"state {k}", color, "s") for k, color in enumerate(colors)),
        *drawing.lines({"standard normal": DARK}),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5))
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
    ax.plot(x, norm.pdf(x), color=DARK, lw=1.4, gid="normal")
    ax.set_xlabel("residual, by decoded state")
