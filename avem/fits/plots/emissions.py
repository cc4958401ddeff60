"""What the states emit: their densities or probabilities, in front of the data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.families.evaluate import log_densities
from avem.families.univariate import Univariate
from avem.fits.plots.covariate import draw_curve, find_curves
from avem.fits.plots.emission_panels import (
    View,
    draw_counts,
    draw_levels,
    draw_numbers,
    draw_on_log_scale,
    draw_rose,
)
from avem.fits.plots.figures import Size, legend, panels, plain, short_states, whole
from avem.fits.plots.scales import is_heavy
from avem.fits.plots.states import decoded
from avem.fits.predict.at import (
    Place,
    at_words,
    average_predictors,
    distribution,
    occupancy,
    places,
    user_theta,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit

_N_DRAWS = 2000
"""Per state, to find out where a density lies when there are no data to say it."""
_FIRST, _LAST = "data", "all states"


def emissions_figure(
    fit: HMMFit, outcomes: list[int], level: float | None, ax: Any, figsize: Size | None
) -> Figure:
    """A panel per outcome, and one per response to a covariate in which states differ."""
    curves = find_curves(fit, outcomes, level) if whole(ax) else []
    n, every = len(outcomes) + len(curves), places(fit.model)
    angular = [i for i, j in enumerate(outcomes) if every[j].piece.family.angular]
    each, columns = (6.4 if n == 1 else 4.8, 3.6), 2 if n == 4 else 3
    figure, axes = panels(n, ax, figsize, each, columns, angular)
    emissions = Emissions(fit)
    for panel, curve in zip(axes[len(outcomes) :], curves, strict=True):
        draw_curve(panel, curve, fit)
    found: dict[str, Any] = {}
    for panel, j in zip(axes, outcomes, strict=False):
        emissions.draw(panel, every[j])
        handles, labels = panel.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    ends = {_FIRST: 0, _LAST: 2}
    handles = [found[name] for name in sorted(found, key=lambda name: ends.get(name, 1))]
    if handles:
        legend(figure, ax, handles, 3 * min(len(axes), 2))
    return figure


class Emissions:
    """What all panels of a fit share."""

    def __init__(self, fit: HMMFit) -> None:
        self.fit, self.weight = fit, occupancy(fit)
        self.data = self.state = None
        if fit.panel is not None:
            self.data, self.state = fit.model.read(fit.panel), decoded(fit)
        self.labels = tuple(short_states(fit))

    def draw(self, ax: Axes, place: Place) -> None:
        """The panel of one outcome."""
        family = place.piece.family
        view = self._over_subjects(place) if family.linear_gaussian else self._at_average(place)
        if view.density is None:
            why = f"A {family.name} density is not drawn."
            if family.extras:
                why = f"Not drawn without {' and '.join(family.extras)} of every row."
            ax.text(0.5, 0.9, why, ha="center", transform=ax.transAxes)
        seen = view.span if view.y is None else view.y
        if family.levels is not None:
            draw_levels(ax, view, family.levels)
        elif family.discrete:
            draw_counts(ax, view)
        elif family.angular and ax.name == "polar":
            draw_rose(ax, view)
        elif is_heavy(family, seen[family.has_density((seen,))]):
            draw_on_log_scale(ax, view, family)
        else:
            draw_numbers(ax, view, family)

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
        return View(label, y, self.weight, self.labels, density, np.array(ends), ends)

    def _at_average(self, place: Place) -> View:
        """Densities at effect 0 and average covariates; data as they are."""
        y, label, nothing = self._observed(place), plain(place.name, 40), np.zeros(2)
        if place.piece.family.alone(place.number) is None:
            return View(label, y, self.weight, self.labels, None, nothing)
        label += at_words(place.piece.lines)
        averages, states = average_predictors(self.fit, place.piece), np.arange(len(self.weight))
        family, etas = distribution(place, user_theta(self.fit), averages, states)
        if not place.extras:
            many = tuple(np.tile(eta, (_N_DRAWS, 1)) for eta in etas)
            span = nothing if y is not None else family.draw(np.random.default_rng(0), many, ())
            density = partial(_density, family, etas)
            return View(label, y, self.weight, self.labels, density, np.ravel(span))
        if self.data is None:
            return View(label, None, self.weight, self.labels, None, nothing)
        extras = self.data.Y[:, list(place.extras)][~np.isnan(self.data.Y[:, place.column])]
        kinds, counts = np.unique(extras, axis=0, return_counts=True)
        mixed = partial(_mixed_density, family, etas, kinds, counts / counts.sum())
        return View(label, y, self.weight, self.labels, mixed, nothing)


# --- densities ----------------------------------------------------------------------------------


def _normal(x: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    z = (x - mean[:, None]) / sd[:, None]
    return np.exp(-0.5 * z**2) / (sd[:, None] * np.sqrt(2 * np.pi))


def _density(family: Univariate, etas: Any, x: np.ndarray, *extras: float) -> np.ndarray:
    """(states, points), 0 where the family takes no such value."""
    columns = (x, *(np.full(len(x), value) for value in extras))
    valid = family.valid(columns)
    inside: Any = tuple(np.where(valid, column, family.harmless)[None] for column in columns)
    log = log_densities(family, inside, tuple(eta[:, None] for eta in etas))
    with np.errstate(over="ignore"):
        return np.where(valid, np.exp(log), 0.0)


def _mixed_density(
    family: Univariate, etas: Any, kinds: np.ndarray, share: np.ndarray, x: np.ndarray
) -> np.ndarray:
    """The density over the kinds of further columns that occur, such as numbers of trials."""
    parts = (_density(family, etas, x, *kind) * p for kind, p in zip(kinds, share, strict=True))
    return np.asarray(sum(parts))
