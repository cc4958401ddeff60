"""How long states last, and their shares in the long run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.fits.plots.figures import (
    DARK,
    GREY,
    Size,
    legend,
    line,
    name_ticks,
    panels,
    short_states,
    state_colors,
    whole_ticks,
)
from avem.fits.predict.at import at_words, need_one_cluster
from avem.fits.questions.dwell import dwell_table, stationary_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit

_REST = 0.01
"""Lengths are drawn until no more than this share of stays is longer."""
_ENOUGH = 5
"""Or until fewer stays than this are left to judge by."""


def dwell_figure(fit: HMMFit, level: float | None, ax: Any, figsize: Size | None) -> Figure:
    """A panel per state: how many stays last longer than so long, decoded and implied."""
    need_one_cluster(fit.model, "The picture of stays")
    table, lengths = dwell_table(fit, None, level), dwell_table(fit, "length")
    n, named = fit.model.n_states, short_states(fit)
    figure, axes = panels(n, ax, figsize, (3.6, 3.0), 4)
    for k, (one, color) in enumerate(zip(axes, state_colors(n), strict=True)):
        row = table[table["state"] == k].iloc[0]
        _draw_lengths(one, lengths[lengths["state"] == k], color)
        words = f"{named[k]}: {_number(row['expected'])} rows expected"
        if level is not None and not np.isnan(row["lower"]):
            words += f"\n{level:.0%} interval {_number(row['lower'])} to {_number(row['upper'])}"
        one.set_title(words, fontsize="medium", color=color)
        one.set_xlabel("rows in the state")
    axes[0].set_ylabel("stays that last longer")
    decoded = line("decoded (ends of sequences allowed for)", GREY)
    implied = line("implied by the model", DARK, None, marker="o", markersize=3.5)
    legend(figure, ax, [decoded, implied], 2, fontsize="small")
    return figure


def _number(rows: Any) -> str:
    return "∞" if np.isinf(rows) else f"{rows:.3g}" if rows < 100 else f"{rows:,.0f}"


def _draw_lengths(ax: Axes, table: Any, color: str) -> None:
    if not len(table):
        ax.text(0.5, 0.5, "No stay was seen to begin.", ha="center", transform=ax.transAxes)
        return
    known = table["at_risk"].to_numpy() >= _ENOUGH
    longer = {name: 1 - np.cumsum(table[name].to_numpy(float)) for name in ("decoded", "implied")}
    gone = np.flatnonzero(np.maximum(*longer.values()) < _REST)
    last = max(1, min(int(known.sum()), int(gone[0]) + 1 if len(gone) else len(table)))
    length = np.arange(last + 1)
    decoded, implied = (np.concatenate([[1.0], values[:last]]) for values in longer.values())
    ax.fill_between(length, decoded, step="post", color=color, alpha=0.2, lw=0)
    ax.plot(length, decoded, color=color, lw=1.8, drawstyle="steps-post", gid="decoded")
    marker = {"marker": "o", "ms": 3.5} if last <= 30 else {}
    ax.plot(length, implied, color=DARK, lw=1.4, gid="implied", **marker)
    ax.set_ylim(0, 1.03)
    ax.set_xlim(0, None)
    whole_ticks(ax)


def stationary_figure(fit: HMMFit, level: float | None, ax: Any, figsize: Size | None) -> Figure:
    """Every state's share: the group's with its interval, and the subjects' where they differ."""
    need_one_cluster(fit.model, "The picture of shares in the long run")
    n, table = fit.model.n_states, stationary_table(fit, None, level)
    figure, (panel,) = panels(1, ax, figsize, (max(4.2, 1.8 + 0.9 * n), 3.4), 1)
    share = table["share"].to_numpy()
    stays = fit.model.duration
    moves = (*fit.model.transition.lines, *(() if stays is None else stays.lines[:1]))
    differ = bool(moves) and (bool(moves[0].z_cols) or len(moves[0].terms) > 1)
    rng = np.random.default_rng(0)
    for k, color in enumerate(state_colors(n)):
        if differ and fit.panel is not None:
            if k == 0:
                every = stationary_table(fit, "subject", None)
            own = every.loc[every["state"] == k, "share"].to_numpy()
            x = k + rng.uniform(-0.28, 0.28, len(own))
            size = float(np.clip(60 / np.sqrt(len(own)), 2, 5))
            panel.plot(x, own, "o", ms=size, color=color, alpha=0.35, mec="none", gid="subjects")
        if level is not None:
            low, high = (table[name].to_numpy()[k] for name in ("lower", "upper"))
            panel.plot([k, k], [low, high], color=DARK, lw=2, zorder=4)
        panel.plot(k, share[k], "D", color=color, mec=DARK, ms=8, zorder=5, gid=f"state {k}")
    name_ticks(panel, short_states(fit, 16))
    for tick, color in zip(panel.get_xticklabels(), state_colors(n), strict=True):
        tick.set(color=color, fontweight="bold")
    panel.set(xlim=(-0.6, n - 0.4), ylim=(0, 1), ylabel="share of time")
    where = at_words(moves).strip()
    title = "Shares in the long run"
    if differ and fit.panel is not None:
        title += " (dots: subjects)"
    title += f",\n{where}" if where else ""
    panel.set_title(title, fontsize="medium")
    return figure
