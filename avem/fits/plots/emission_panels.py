"""Panels of what the states emit: bars are the data, and each state has its line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from avem.families.base import Family
from avem.fits.plots.figures import DARK, angle_ticks, plain, state_colors
from avem.fits.plots.scales import upper_end

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BARS = "#d0d0d0"
_MAX_BARS = 60
_PETALS = 36
_POINTS = 600


class View(NamedTuple):
    """One outcome, ready to draw."""

    label: str
    y: np.ndarray | None
    """Observed values; None for a fit without its data."""
    weight: np.ndarray
    """(states,) occupancy."""
    labels: tuple[str, ...]
    """(states,) what they are called."""
    density: Callable[[np.ndarray], np.ndarray] | None
    """(states, points) at given values, not weighted; None where it cannot be drawn."""
    span: np.ndarray
    """Some values that the states emit, when there are no data."""
    ends: tuple[float, float] | None = None
    """Of the axis, when there are no data; None: as `span` has it."""


# --- numbers --------------------------------------------------------------------------------------


def draw_numbers(ax: Axes, view: View, family: Family) -> None:
    """Densities over a stretch of numbers, or of angles."""
    (low, high), label = _ends(family, view), view.label
    if family.zeros_apart:
        low = 0.0
        label += _apart(view, family)
    tallest = np.inf
    if view.y is not None:
        y = view.y
        label += _beyond(y, low, high)
        bins = _bins(y)
        share = np.full(len(y), bins / (high - low) / len(y)) * (
            family.has_density((y,)) if family.zeros_apart else 1
        )
        drawn = ax.hist(y, bins, range=(low, high), weights=share, color=_BARS, label="data")
        tallest = 4 * np.max(drawn[0])
    step = (high - low) / _POINTS
    grid = np.arange(low, high, step) + step / 2
    _draw_densities(ax, view, grid, 1.0, tallest)
    ax.set(xlabel=label, ylabel="density", xlim=(low, high))
    if family.angular:
        angle_ticks(ax.xaxis, low, high)


def draw_on_log_scale(ax: Axes, view: View, family: Family) -> None:
    """Positive numbers of very different sizes: densities of their logarithms."""
    y = view.span if view.y is None else view.y
    n_seen, y = len(y), y[family.has_density((y,))]
    low, high = (float(end) for end in np.log(np.quantile(y, [0.001, 0.999])))
    room = 0.05 * (high - low)
    low, high = low - room, high + room
    label, tallest = view.label + (_apart(view, family) if family.zeros_apart else ""), np.inf
    if view.y is not None:
        label += _beyond(y, np.exp(low), np.exp(high))
        edges = np.exp(np.linspace(low, high, _bins(y) + 1))
        share = np.full(len(y), 1 / n_seen / np.log(edges[1] / edges[0]))
        drawn = ax.hist(y, edges.tolist(), weights=share, color=_BARS, label="data")
        tallest = 4 * np.max(drawn[0])
    grid = np.exp(np.linspace(low, high, _POINTS))
    _draw_densities(ax, view, grid, grid, tallest)
    ax.set_xscale("log")
    ax.set(xlabel=label, ylabel="density of the logarithm", xlim=(np.exp(low), np.exp(high)))


def draw_rose(ax: Any, view: View) -> None:
    """Angles round a circle, 0 at the top and positive ones to the left."""
    from matplotlib.ticker import MaxNLocator

    tallest = np.inf
    if view.y is not None:
        edges = np.linspace(-np.pi, np.pi, _PETALS + 1)
        count, _ = np.histogram(np.angle(np.exp(1j * view.y)), edges)
        wide = edges[1] - edges[0]
        share = count / len(view.y) / wide
        ax.bar(edges[:-1] + wide / 2, share, wide, color=_BARS, ec="white", lw=0.4, label="data")
        tallest = 4 * np.max(share)
    _draw_densities(ax, view, np.linspace(-np.pi, np.pi, _POINTS + 1), 1.0, tallest)
    ax.set_theta_zero_location("N")
    ax.set_thetalim(-np.pi, np.pi)
    angle_ticks(ax.xaxis, -np.pi / 2, np.pi)  # -pi is pi
    ax.set_rlabel_position(135)
    ax.tick_params(axis="y", labelsize="x-small", labelcolor=DARK)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.grid(color="#e4e4e4", lw=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(view.label)


def _draw_densities(ax: Axes, view: View, grid: np.ndarray, times: Any, tallest: float) -> None:
    """A line per state and one of all; low enough that the bars stay visible."""
    if view.density is None:
        return
    density = view.weight[:, None] * view.density(grid) * times
    for k, color in enumerate(state_colors(len(density))):
        ax.plot(grid, density[k], color=color, lw=2, label=_state(view, k))
    ax.plot(grid, density.sum(0), color=DARK, lw=1, ls="--", label="all states")
    # A density may go to infinity at the edge.
    top = density.sum(0).max()
    ax.set_ylim(0, 1.05 * tallest if top > tallest else None)


def _ends(family: Family, view: View) -> tuple[float, float]:
    """Where the axis of a continuous outcome starts and ends."""
    y = view.span if view.y is None else view.y
    if family.angular:
        half = np.pi + 1e-3  # as written, rounded
        if np.abs(y).max() <= half:
            return -np.pi, np.pi
        return (0.0 if y.min() >= 0 else -2 * np.pi), 2 * np.pi
    if view.y is None and view.ends is not None:
        return view.ends
    # A single wild value must not squeeze everything else into one bar.
    low, high = float(np.quantile(y, 0.001)), upper_end(family, y)
    room = 0.1 * (high - low) or 1.0
    low, high = low - room, high + room
    # no axis below 0 for what is positive, above 1 for shares
    below, above = family.valid((np.array([-1.0, 2.0]),))
    return (low if below else max(low, 0.0)), (high if above else min(high, 1.0))


def _bins(y: np.ndarray) -> int:
    return int(np.clip(2 * len(y) ** (1 / 3), 10, 80))


def _beyond(y: np.ndarray, low: float, high: float) -> str:
    beyond = int(((y < low) | (y > high)).sum())
    return f" ({beyond:,} of {len(y):,} lie beyond)" if beyond else ""


# --- counts and labels ----------------------------------------------------------------------------


def draw_counts(ax: Axes, view: View) -> None:
    """Bars and probabilities at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    y = view.span if view.y is None else view.y
    low, high = int(y.min()), int(np.ceil(np.quantile(y, 0.999)))
    width = -(-(high - low + 1) // _MAX_BARS)
    label = view.label
    if view.y is not None:
        beyond = int((y > high).sum())
        label += f" ({beyond:,} of {len(y):,} lie beyond)" if beyond else ""
        edges = np.arange(low, high + width + 1, width) - 0.5
        count, _ = np.histogram(y, edges)
        share = count / len(y) / width
        ax.bar(edges[:-1], share, 0.9 * width, align="edge", color=_BARS, label="data")
    if view.density is not None:
        grid = np.arange(low, high + 1)
        chance = view.weight[:, None] * view.density(grid.astype(float))
        mark = "o-" if len(grid) <= _MAX_BARS else "-"
        for k, color in enumerate(state_colors(len(chance))):
            ax.plot(grid, chance[k], mark, color=color, lw=1.2, ms=4, label=_state(view, k))
        ax.plot(grid, chance.sum(0), color=DARK, lw=1, ls="--", label="all states")
    ax.set(xlabel=label, ylabel="probability", ylim=(0, None))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def draw_levels(ax: Axes, view: View, levels: tuple) -> None:
    """Bars and probabilities of labels."""
    at = np.arange(len(levels))
    if view.y is not None:
        share = np.bincount(view.y.astype(int), minlength=len(levels)) / len(view.y)
        ax.bar(at, share, 0.9, color=_BARS, label="data")
    if view.density is not None:
        chance = view.weight[:, None] * view.density(at.astype(float))
        width = 0.7 / len(chance)
        for k, color in enumerate(state_colors(len(chance))):
            shift = (k - (len(chance) - 1) / 2) * width
            ax.bar(at + shift, chance[k], width, color=color, label=_state(view, k))
        total = chance.sum(0)
        ax.hlines(total, at - 0.45, at + 0.45, color=DARK, lw=1, ls="--", label="all states")
    ax.set_xticks(at, [plain(level, 12) for level in levels])
    ax.set(xlabel=view.label, ylabel="probability", ylim=(0, None))


def _apart(view: View, family: Family) -> str:
    """Exact zeros, and ones, which have a share and no density: told in words."""
    ones = not family.has_density((np.ones(1),))[0]
    return _single(view, 0.0, "zeros") + (_single(view, 1.0, "ones") if ones else "")


def _single(view: View, value: float, word: str) -> str:
    said = []
    if view.y is not None:
        said.append(f"{np.mean(view.y == value):.0%} of the data")
    if view.density is not None:
        chance = view.density(np.full(1, value))[:, 0]
        said += [f"{p:.0%} in {label}" for label, p in zip(view.labels, chance, strict=True)]
    return f"\n{word}: {', '.join(said)}"


def _state(view: View, k: int) -> str:
    return f"{view.labels[k]} ({view.weight[k]:.0%})"
