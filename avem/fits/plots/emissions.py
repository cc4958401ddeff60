"""What the states emit: their densities or probabilities, in front of the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from avem.families.base import Family
from avem.families.univariate import Univariate
from avem.fits.plots.figures import DARK, plain, state_colors
from avem.fits.predict.at import (
    Place,
    at_words,
    average_predictors,
    distribution,
    occupancy,
    user_theta,
)
from avem.numerics.precision import in_float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from avem.fits.hmm_fit import HMMFit

_BARS = "#d0d0d0"
_MAX_BARS = 60
_N_DRAWS = 2000
"""Per state, to find out where a density lies when there are no data to say it."""


class View(NamedTuple):
    """One outcome, ready to draw."""

    label: str
    y: np.ndarray | None
    """Observed values; None for a fit without its data."""
    weight: np.ndarray
    """(states,) occupancy."""
    density: Callable[[np.ndarray], np.ndarray] | None
    """(states, points) at given values, not weighted; None where it cannot be drawn."""
    span: np.ndarray
    """Some values that the states emit, when there are no data."""
    ends: tuple[float, float] | None = None
    """Of the axis, when there are no data; None: as `span` has it."""


class Emissions:
    """What all panels of a fit share."""

    def __init__(self, fit: HMMFit) -> None:
        self.fit, self.weight = fit, occupancy(fit)
        self.data = self.state = None
        if fit.panel is not None:
            self.data, self.state = fit.model.read(fit.panel), fit._decoded()

    def draw(self, ax: Axes, place: Place) -> None:
        """The panel of one outcome."""
        family = place.piece.family
        view = self._over_subjects(place) if family.linear_gaussian else self._at_average(place)
        if view.density is None:
            why = f"A {family.name} density is not drawn."
            if family.extras:
                why = f"Not drawn without {' and '.join(family.extras)} of every row."
            ax.text(0.5, 0.9, why, ha="center", transform=ax.transAxes)
        if family.levels is not None:
            _draw_levels(ax, view, family.levels)
        elif family.discrete:
            _draw_counts(ax, view)
        else:
            _draw_numbers(ax, view, _ends(family, view), family.zeros_apart)

    def _observed(self, place: Place) -> np.ndarray | None:
        if self.data is None:
            return None
        y = self.data.Y[:, place.column]
        return y[~np.isnan(y)]

    def _over_subjects(self, place: Place) -> View:
        """Densities of noise and effects together; data brought to average covariates."""
        fit, (name, piece, j, column, _) = self.fit, place
        model, line, theta = fit.model, place.piece.lines[place.number], user_theta(fit)
        z = model.averages[list(line.z_cols)]
        sigma = fit.params["effect_covariance"]
        between = np.array([z @ sigma[np.ix_(own, own)] @ z for own in line.effects])
        averages = average_predictors(fit, piece)
        family, eta = distribution(place, theta, averages, np.arange(model.n_states))
        mean, sd = family.mean(eta), np.sqrt(family.variance(eta) + between)
        y = self._observed(place)
        if self.data is not None and self.state is not None and fit.panel is not None:
            effects = fit.effects_mean[fit.panel.row_subject]
            a = self.data.A - model.averages
            moved = piece.etas(theta[piece.key + "coef"], a, self.state, effects)[j]
            y = (self.data.Y[:, column] - moved)[~np.isnan(self.data.Y[:, column])]
        covariates = any(term != "Intercept" for term in line.terms) or len(z) > 1
        label = plain(name, 40) + (" at average covariates" if covariates else "")
        ends = float((mean - 4 * sd).min()), float((mean + 4 * sd).max())
        density = partial(_normal, mean=mean, sd=sd)
        return View(label, y, self.weight, density, np.array(ends), ends)

    def _at_average(self, place: Place) -> View:
        """Densities at effect 0 and average covariates; data as they are."""
        y, label, nothing = self._observed(place), plain(place.name, 40), np.zeros(2)
        if place.piece.family.alone(place.number) is None:
            return View(label, y, self.weight, None, nothing)
        label += at_words(place.piece.lines)
        averages, states = average_predictors(self.fit, place.piece), np.arange(len(self.weight))
        family, etas = distribution(place, user_theta(self.fit), averages, states)
        if not place.extras:
            many = tuple(np.tile(eta, (_N_DRAWS, 1)) for eta in etas)
            span = nothing if y is not None else family.draw(np.random.default_rng(0), many, ())
            return View(label, y, self.weight, partial(_density, family, etas), span)
        if self.data is None:
            return View(label, None, self.weight, None, nothing)
        extras = self.data.Y[:, list(place.extras)][~np.isnan(self.data.Y[:, place.column])]
        kinds, counts = np.unique(extras, axis=0, return_counts=True)
        mixed = partial(_mixed_density, family, etas, kinds, counts / counts.sum())
        return View(label, y, self.weight, mixed, nothing)


# --- densities ----------------------------------------------------------------------------------


def _normal(x: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    z = (x - mean[:, None]) / sd[:, None]
    return np.exp(-0.5 * z**2) / (sd[:, None] * np.sqrt(2 * np.pi))


@in_float64
def _density(family: Univariate, etas: Any, x: np.ndarray, *extras: float) -> np.ndarray:
    """(states, points), 0 where the family takes no such value."""
    columns = (x, *(np.full(len(x), value) for value in extras))
    valid = family.valid(columns)
    inside: Any = tuple(np.where(valid, column, family.harmless)[None] for column in columns)
    log = np.asarray(family.log_density(inside, tuple(eta[:, None] for eta in etas)))
    with np.errstate(over="ignore"):
        return np.where(valid, np.exp(log), 0.0)


def _mixed_density(
    family: Univariate, etas: Any, kinds: np.ndarray, share: np.ndarray, x: np.ndarray
) -> np.ndarray:
    """The density over the kinds of further columns that occur, such as numbers of trials."""
    parts = (_density(family, etas, x, *kind) * p for kind, p in zip(kinds, share, strict=True))
    return np.asarray(sum(parts))


# --- panels -------------------------------------------------------------------------------------


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
    low, high = np.quantile(y, [0.001, 0.999])
    room = 0.1 * (high - low) or 1.0
    low, high = float(low - room), float(high + room)
    # no axis below 0 for what is positive, above 1 for shares
    below, above = family.valid((np.array([-1.0, 2.0]),))
    return (low if below else max(low, 0.0)), (high if above else min(high, 1.0))


def _draw_numbers(ax: Axes, view: View, ends: tuple[float, float], zeros_apart: bool) -> None:
    (low, high), label, tallest = ends, view.label, np.inf
    if zeros_apart:  # a share of exact zeros has no density: it is told in words
        low = 0.0
        label += _zeros(view)
    if view.y is not None:
        y = view.y
        beyond = int(((y < low) | (y > high)).sum())
        label += f" ({beyond:,} of {len(y):,} lie beyond)" if beyond else ""
        bins = int(np.clip(2 * len(y) ** (1 / 3), 10, 80))
        share = np.full(len(y), bins / (high - low) / len(y)) * (y != 0 if zeros_apart else 1)
        drawn = ax.hist(y, bins, range=(low, high), weights=share, color=_BARS, label="data")
        tallest = 4 * np.max(drawn[0])
    if view.density is not None:
        step = (high - low) / 600
        grid = np.arange(low, high, step) + step / 2
        density = view.weight[:, None] * view.density(grid)
        for k, color in enumerate(state_colors(len(density))):
            ax.plot(grid, density[k], color=color, lw=2, label=_state(view, k))
        ax.plot(grid, density.sum(0), color=DARK, lw=1, ls="--", label="all states")
        # A density may go to infinity at the edge; the bars must stay visible.
        top = density.sum(0).max()
        ax.set_ylim(0, 1.05 * tallest if top > tallest else None)
    ax.set(xlabel=label, ylabel="density", xlim=(low, high))


def _draw_counts(ax: Axes, view: View) -> None:
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


def _draw_levels(ax: Axes, view: View, levels: tuple) -> None:
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


def _zeros(view: View) -> str:
    said = []
    if view.y is not None:
        said.append(f"{np.mean(view.y == 0):.0%} of the data")
    if view.density is not None:
        said += [f"{p:.0%} in state {k}" for k, p in enumerate(view.density(np.zeros(1))[:, 0])]
    return f"\nzeros: {', '.join(said)}"


def _state(view: View, k: int) -> str:
    return f"state {k} ({view.weight[k]:.0%})"
