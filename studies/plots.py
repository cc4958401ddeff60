"""Figures in the paper's layouts. Matplotlib, without a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

WORDS = {
    "mu_rmse": "RMSE of mu",
    "beta_rmse": "RMSE of beta",
    "contrast_rmse": "RMSE of contrasts",
    "sigma2_rmse": "RMSE of sigma2",
    "gamma_abs": "error of Gamma",
    "f_mse": "MSE of f",
    "tau2_abs": "error of tau2",
    "state_acc": "states found",
    "seconds": "seconds",
}
"""Of a measure, for an axis."""
_STYLE = {"paper": "-", "converged": "--"}


def lines_by_panel(
    frame: pd.DataFrame,
    rows: Mapping[str, str],
    across: str,
    x: str,
    lines: str,
    theirs: pd.DataFrame | None,
) -> Figure:
    """A row of panels per measure, a panel per value of `across`, a line per value of `lines`.

    The paper protocol is drawn through, the converged one dashed; crosses are the authors' means.
    """
    columns = list(dict.fromkeys(frame[across]))
    figure, axes = _grid(len(rows), len(columns))
    levels = sorted(frame[lines].unique())
    colours = colormaps["viridis"](np.linspace(0, 0.85, len(levels)))
    for r, (measure, words) in enumerate(rows.items()):
        for c, value in enumerate(columns):
            ax, own = axes[r, c], frame[frame[across] == value]
            for level, colour in zip(levels, colours, strict=True):
                for protocol, part in own[own[lines] == level].groupby("protocol"):
                    # Times hold compilation in the first replicates; errors are means as theirs.
                    how = "median" if "seconds" in measure else "mean"
                    line = part.groupby(x)[measure].agg(how)
                    style, label = _STYLE[str(protocol)], f"{lines}={level}"
                    ax.plot(line.index, line, style, color=colour, marker=".", label=label)
                if theirs is not None and measure in theirs:
                    known = theirs[(theirs[across] == value) & (theirs[lines] == level)]
                    ax.plot(known[x], known[measure], "x", color=colour, ms=5)
            _label(ax, r, c, len(rows), f"{across} {value}", x, words)
        if "seconds" in measure:
            _logarithmic(axes[r, 0])
        else:
            axes[r, 0].set_ylim(bottom=0)
    for protocol in frame["protocol"].unique() if across != "protocol" else ():
        axes[0, 0].plot([], [], _STYLE[protocol], color="grey", label=f"{protocol} protocol")
    if theirs is not None:
        axes[0, 0].plot([], [], "x", color="grey", ms=5, label="the authors")
    _legend(figure, axes[0, 0])
    return figure


def bars_by_panel(
    frame: pd.DataFrame,
    rows: Mapping[str, str],
    keys: Sequence[str],
    methods: Sequence[str],
    theirs: pd.DataFrame | None = None,
) -> Figure | None:
    """A row of panels per measure, a panel per setting, a bar per method.

    Bars are medians and lines reach from the 5th to the 95th percentile; crosses are the authors'
    medians. Without rows there is no figure.
    """
    if frame.empty:
        return None
    cells = list(frame.groupby(list(keys), sort=False))
    figure, axes = _grid(len(rows), len(cells))
    colours = colormaps["tab10"](np.arange(len(methods)) % 10)
    for r, (measure, words) in enumerate(rows.items()):
        for c, (values, own) in enumerate(cells):
            ax = axes[r, c]
            low, middle, high = (
                own.groupby("method")[measure].quantile(q).reindex(methods)
                for q in (0.05, 0.5, 0.95)
            )
            reach = np.abs([middle - low, high - middle])
            ax.bar(range(len(methods)), middle, yerr=reach, color=colours, capsize=2)
            if theirs is not None:
                known = theirs[theirs["measure"] == measure]
                for key, value in zip(keys, values, strict=True):
                    known = known[known[key] == value]
                known = known.set_index("method")["median"].reindex(methods)
                ax.plot(range(len(methods)), known, "kx", ms=4)
            if "seconds" in measure:
                _logarithmic(ax)
            ax.set_xticks(range(len(methods)), methods, rotation=90, fontsize=7)
            title = ", ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True))
            _label(ax, r, c, len(rows), title, "", words)
            ax.tick_params(labelbottom=r == len(rows) - 1)
    return figure


def _grid(n_rows: int, n_columns: int):
    size = (max(2.1 * n_columns, 4) + 1, 1.6 * n_rows + 1)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, sharey="row", squeeze=False)


def _label(ax, row: int, column: int, n_rows: int, title: str, x: str, y: str) -> None:
    if row == 0:
        ax.set_title(title, fontsize=9)
    if row == n_rows - 1:
        ax.set_xlabel(x)
    if column == 0:
        ax.set_ylabel(y, fontsize=8)
    ax.tick_params(labelsize=7)


def _logarithmic(ax) -> None:
    """Seconds, with as few labels as a small panel can hold."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, ax) -> None:
    handles, labels = ax.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=6, fontsize=8)
