"""The bound over the iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.fits.plots.figures import OKABE_ITO, Size, panels, whole_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bound_figure(fit: Any, ax: Any, figsize: Size | None) -> Figure:
    """Of any kind of fit; in a single `ax`, without the distance."""
    history = np.asarray(fit.bound_history, float)
    iteration = np.arange(1, len(history) + 1)
    figure, axes = panels(
        1 if hasattr(ax, "get_xaxis_transform") else 2, ax, figsize, (4.6, 3.4), 2
    )
    mark = "o-" if len(history) <= 40 else "-"
    axes[0].plot(iteration, history, mark, color=OKABE_ITO[0], ms=3.5)
    name = fit.bound_name
    axes[0].set(xlabel="iteration", ylabel=name, title=name[0].upper() + name[1:])
    axes[0].ticklabel_format(axis="y", useOffset=False)
    if np.ptp(history) < 1:  # less than 1 is next to nothing, and must look so
        axes[0].set_ylim(history.mean() + np.array([-1, 1]))
    for later in axes[1:]:
        distance = max(history.max(), fit.bound) - history
        left = distance > 0
        later.plot(iteration[left], distance[left], mark, color=OKABE_ITO[1], ms=3.5)
        later.set(xlabel="iteration", ylabel="distance", title="Distance to the best")
        later.set_yscale("log" if left.any() else "linear")
    for panel in axes:
        panel.set_xlim(0.5, len(history) + 0.5)
        whole_ticks(panel)
    return figure
