"""The panels that pictures of a state-space fit are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, ndtri

from avem.data import Panel
from avem.fits.plots.figures import DARK, GREY, OKABE_ITO, plain, whole_ticks
from avem.fits.plots.timeline import Stretch
from avem.fits.questions.whiteness import autocorrelations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIGNAL, AHEAD, EXPECTED = OKABE_ITO[0], OKABE_ITO[1], OKABE_ITO[5]
_QUANTILES = 400
"""Points of a Q-Q plot; more would only be ink."""
_SEPARATE = 400
"""Up to how many subjects have a dot of their own."""


# --- over time ----------------------------------------------------------------------------------


def draw_band(
    ax: Axes, along: Stretch, mean: np.ndarray, half: np.ndarray, color: str, **line: Any
) -> None:
    """A line with its interval, broken where rows are apart."""
    x, mean, half = (
        np.insert(v.astype(float), along.breaks, np.nan) for v in (along.x, mean, half)
    )
    ax.fill_between(x, mean - half, mean + half, color=color, alpha=0.22, lw=0, zorder=1)
    ax.plot(x, mean, color=color, lw=1.4, zorder=3, **line)
    # A row between two gaps has no line to either side.
    alone = ~np.isnan(mean) & np.isnan(np.append(mean, np.nan)[1:])
    alone &= np.isnan(np.insert(mean, 0, np.nan)[:-1])
    ax.errorbar(x[alone], mean[alone], half[alone], color=color, fmt="_", lw=1.2, zorder=3)


def draw_points(ax: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Outcomes as they are."""
    size = float(np.clip(50 / np.sqrt(max(len(x), 1)), 1.8, 4.5))
    ax.plot(x, y, "o", ms=size, color=DARK, mec="none", alpha=0.75, zorder=4, gid="data")


def draw_borders(ax: Axes, along: Stretch) -> None:
    """Lines between sequences."""
    for border in along.borders:
        ax.axvline(border, color=DARK, lw=0.8, ls=(0, (4, 3)), zorder=0)
    ax.margins(x=0.01)


def draw_ahead(
    ax: Axes,
    past: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    ahead: tuple[np.ndarray, ...],
    now: float,
) -> None:
    """The last rows of a sequence, (time, outcome, level, sd), and of those after.

    These are (time, mean, lower, upper), and begin at `now`.
    """
    steps, y, level, sd = past
    z = ndtri(0.975)
    ax.axvline(now, color=GREY, lw=0.8, zorder=0)
    ax.fill_between(steps, level - z * sd, level + z * sd, color=EXPECTED, alpha=0.22, lw=0)
    ax.plot(steps, level, color=EXPECTED, lw=1.4, zorder=3)
    draw_points(ax, steps, y)
    later, mean, lower, upper = ahead
    ax.fill_between(later, lower, upper, color=AHEAD, alpha=0.22, lw=0)
    mark = "o-" if len(later) <= 30 else "-"
    ax.plot(later, mean, mark, ms=3, color=AHEAD, lw=1.4, zorder=3, gid="forecast")
    ax.margins(x=0.02)


# --- loadings -----------------------------------------------------------------------------------


def draw_loadings(
    ax: Axes, mean: np.ndarray, sd: np.ndarray, own: np.ndarray, first: int, rng: Any
) -> None:
    """One state's loadings (p,) with their sd between subjects, and those of subjects (n, p).

    Those before `first` are 0 by definition.
    """
    n, p = own.shape
    free = np.arange(first, p)
    ax.axvline(0, color=GREY, lw=0.8, zorder=0)
    reach = ndtri(0.975) * sd[free]
    if reach.any():
        ends = (mean[free] - reach, mean[free] + reach)
        ax.hlines(free, *ends, color=DARK, lw=1.6, zorder=3, gid="population")
        shown = own if n <= _SEPARATE else own[rng.choice(n, _SEPARATE, replace=False)]
        place = free + rng.uniform(-0.22, 0.22, (len(shown), 1)) * (n > 1)
        size = float(np.clip(40 / np.sqrt(n), 1.5, 5))
        ax.plot(shown[:, free], place, "o", ms=size, color=SIGNAL, mec="none", alpha=0.45)
    ax.plot(mean[free], free, "D", ms=6, color=DARK, mec="white", zorder=4)
    held = np.arange(first)
    ax.plot(np.zeros(first), held, "x", ms=5, color=GREY, zorder=2)
    for j in held:
        ax.annotate("0 by definition", (0, j), (6, 4), textcoords="offset points", color=GREY,
                    fontsize="x-small")  # fmt: skip
    ax.set_ylim(p - 0.5, -0.5)


# --- residuals ----------------------------------------------------------------------------------


def draw_quantiles(ax: Axes, values: np.ndarray, name: str) -> None:
    """Against standard normal ones, with the band that 95% of such points keep to."""
    values = np.sort(values[~np.isnan(values)])
    n = len(values)
    if not n:
        ax.set_title(f"{plain(name)}: nothing seen", fontsize="medium")
        return
    rank = np.unique(np.linspace(1, n, min(n, _QUANTILES)).round().astype(int))
    expected = ndtri((rank - 0.5) / n)
    for_rank = [ndtri(betaincinv(rank, n + 1 - rank, level)) for level in (0.025, 0.975)]
    ax.fill_between(expected, *for_rank, color=GREY, alpha=0.3, lw=0)
    ax.plot(expected[[0, -1]], expected[[0, -1]], color=GREY, lw=0.8)
    ax.plot(expected, values[rank - 1], "o", ms=2.2, color=SIGNAL, mec="none", gid="quantiles")
    ax.set_title(plain(name), fontsize="medium")
    ax.set_xlabel("standard normal")


def draw_autocorrelation(ax: Axes, panel: Panel, values: np.ndarray, lags: int) -> float:
    """At each lag, pooled over sequences, with the band that 95% of white residuals keep to.

    Returns how high the axis has to be, which panels may share.
    """
    found = autocorrelations(panel, values, lags)
    r = np.array([each for each, _ in found])
    limit = ndtri(0.975) / np.sqrt(np.maximum([n for _, n in found], 1))
    lag = np.arange(1, lags + 1)
    ax.fill_between(lag, -limit, limit, color=GREY, alpha=0.3, lw=0, step="mid")
    ax.axhline(0, color=GREY, lw=0.8)
    ax.vlines(lag, 0, r, color=SIGNAL, lw=2)
    ax.plot(lag, r, "o", ms=4, color=SIGNAL, gid="autocorrelation")
    ax.set(xlabel="lag", xlim=(0.4, lags + 0.6))
    whole_ticks(ax)
    told = limit <= max(0.3, 3 * limit.min())  # a lag with a few pairs would flatten the others
    return min(1.05, max(0.1, 1.25 * float(np.nanmax([*np.abs(r[told]), *limit[told]]))))
