"""Pictures of the fit of a state-space model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from avem.fits.elsewhere import SSM_PLOTS
from avem.fits.plots import drawing
from avem.fits.plots.ends import axis_words, last_rows
from avem.fits.plots.figures import (
    DARK,
    Size,
    dot,
    first_outcomes,
    grid,
    legend,
    line,
    plain,
    state_colors,
    title,
    whole_ticks,
    write_dates,
)
from avem.fits.plots.fit_plots import MOST_OUTCOMES, FitPlots
from avem.fits.plots.timeline import choose_subjects, make_stretches, share_time
from avem.fits.predict.ssm import predict, smoothed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from avem.fits.ssm_fit import SSMFit

_FLAT = 3.0
"""How much more one subject's outcomes may move than another's on the same scale."""


class _Past(NamedTuple):
    """What is known of outcomes, or of states, at the rows of the fit."""

    names: Sequence[str]
    y: np.ndarray
    """(rows, names) as measured; NaN where nothing was."""
    level: np.ndarray
    """(rows, names) expected values."""
    cov: np.ndarray
    """(rows, names, names) of these."""


class SSMPlots(FitPlots):
    """The pictures of one fit: `fit.plot.states()`, `.forecast()`, `.loadings()`, ...

    Parameters
    ----------
    fit : SSMFit
        Of what; `fit.plot` makes this object.

    Examples
    --------
    >>> isinstance(ssm_fit.plot, avem.SSMPlots)
    True
    """

    _fit: SSMFit
    _elsewhere = SSM_PLOTS

    def states(
        self,
        subjects: Any = None,
        outcome: str | None = None,
        max_subjects: int = 3,
        *,
        max_rows: int = 300,
        ax: Any = None,
        figsize: Size | None = None,
    ) -> Figure:
        """Smoothed states over time with 95% bands; below, the outcomes and their expected values.

        Parameters
        ----------
        subjects : label or list of labels, optional
            By default `max_subjects` from the shortest to the longest.
        outcome : str, optional
            By default all, up to four.
        max_subjects : int
            How many subjects to draw where none are named.
        max_rows : int
            Only so many rows are drawn of each subject, from its first.
        ax : Axes, list of Axes, Figure or SubFigure, optional
            Where to draw: as many axes as there are panels, or a figure to fill; by default a
            figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(ssm_fit.plot.states("p01").axes)
        3
        """
        model, panel, found = self._fit.model, self._fit._panel(None), smoothed(self._fit)
        y = model.read(panel).Y
        outcomes = self._outcomes(outcome, MOST_OUTCOMES)
        shown = choose_subjects(panel, subjects, max_subjects)
        stretches, time_label, are_dates = make_stretches(panel, shown, max_rows)
        n, n_rows = len(shown), 1 + len(outcomes)
        size = figsize or (max(6.4, 4.2 * n), 1.2 + 1.9 * n_rows)
        together = "all" if share_time(stretches) else "col"
        share = self._share_height(y[:, outcomes], [along.rows for along in stretches])
        figure, axes = grid(n_rows, n, ax, size, sharey=share, sharex=together)
        z, colors = ndtri(0.975), state_colors(model.n_latent)
        for column, along in zip(axes.T, stretches, strict=True):
            rows = along.rows
            column[0].set_title(plain(along.label), fontsize="medium", fontweight="bold")
            for k, color in enumerate(colors):
                half = z * np.sqrt(np.maximum(found.state_cov[rows, k, k], 0.0))
                drawing.draw_band(column[0], along, found.state[rows, k], half, color)
            for one, j in zip(column[1:], outcomes, strict=True):
                half = z * np.sqrt(np.maximum(found.level_cov[rows, j, j], 0.0))
                drawing.draw_band(one, along, found.level[rows, j], half, drawing.EXPECTED)
                drawing.draw_points(one, along.x, y[rows, j])
            for one in column:
                drawing.draw_borders(one, along)
                if are_dates:
                    write_dates(one)
            column[-1].set_xlabel(plain(time_label, 60))
        self._label_rows(axes, ["states", *(model.outcomes[j] for j in outcomes)])
        words = f"Smoothed states of {n:,} of {panel.n_subjects:,} subjects, 95% bands"
        if any(along.n_rows > max_rows for along in stretches):
            words += f", first {max_rows:,} rows of each"
        title(figure, ax, words + self._of_outcomes(outcomes))
        named = zip(self._fit.state_labels, colors, strict=True)
        states = [line(plain(label), color) for label, color in named]
        expected = line("expected outcome", drawing.EXPECTED)
        legend(figure, ax, [*states, expected, dot("outcome")], 6)
        return figure

    def forecast(
        self,
        subjects: Any = None,
        horizon: int = 10,
        outcome: str | None = None,
        max_subjects: int = 3,
        *,
        of: Literal["outcomes", "states"] | None = None,
        future: Any = None,
        effects: Literal["integrated", "fitted"] = "integrated",
        max_rows: int | None = None,
        ax: Any = None,
        figsize: Size | None = None,
    ) -> Figure:
        """The end of each subject's last sequence, and what is to come with 95% intervals.

        Parameters
        ----------
        subjects : label or list of labels, optional
            As in `states`.
        horizon : int
            How many steps ahead, as for `fit.predict`.
        outcome : str, optional
            As in `states`.
        max_subjects : int
            As in `states`.
        of : {"outcomes", "states"}, optional
            New measurements, as by default, or the states themselves, as for `fit.predict`.
        future : DataFrame or dict, optional
            Covariates of the steps to come, as for `fit.predict`.
        effects : {"integrated", "fitted"}
            As for `fit.predict`.
        max_rows : int, optional
            How much of the past is drawn; by default three times the horizon.
        ax : Axes, list of Axes, Figure or SubFigure, optional
            Where to draw: as many axes as there are panels, or a figure to fill; by default a
            figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(ssm_fit.plot.forecast("p01", horizon=2).axes)
        2
        """
        outcomes = self._outcomes_ahead(of, outcome)
        panel, past = self._fit._panel(None), self._past(of)
        table = predict(self._fit, horizon, None, future, of or "outcomes", 0.95, effects)
        shape = (panel.n_lanes, horizon, len(past.names))
        names = ("mean", "lower", "upper")
        mean, *ends_of = (np.asarray(table[name]).reshape(shape) for name in names)
        places = outcomes or list(range(len(past.names)))
        shown = choose_subjects(panel, subjects, max_subjects)
        ends = last_rows(self._fit, panel, shown, horizon, max_rows, future)
        width = max(6.4, 4.2 * len(shown))
        size = figsize or (width, 1.3 + 2.1 * len(places))
        moving = past.y if outcomes else past.level
        share = self._share_height(moving[:, places], [end.of_subject for end in ends])
        figure, axes = grid(len(places), len(shown), ax, size, sharey=share, sharex="all")
        for column, end in zip(axes.T, ends, strict=True):
            rows, lane = end.rows, end.lane
            column[0].set_title(plain(end.label), fontsize="medium", fontweight="bold")
            column[-1].set_xlabel(axis_words(self._fit))
            for one, j in zip(column, places, strict=True):
                half = np.sqrt(np.maximum(past.cov[rows, j, j], 0.0))
                known = (end.before, past.y[rows, j], past.level[rows, j], half)
                later = (end.after, mean[lane, :, j], *(x[lane, :, j] for x in ends_of))
                drawing.draw_ahead(one, known, later, end.now)
                if not self._fit.model.continuous:
                    whole_ticks(one)
        self._label_rows(axes, [past.names[j] for j in places])
        words = f"Forecasts for {len(shown):,} of {panel.n_subjects:,} subjects, 95% bands"
        title(figure, ax, words + (self._of_outcomes(outcomes) if outcomes else ""))
        expected = line("expected outcome" if outcomes else "smoothed state", drawing.EXPECTED)
        ahead = line("forecast of a new outcome" if outcomes else "forecast", drawing.AHEAD)
        legend(figure, ax, [expected, ahead, *([dot("outcome")] if outcomes else [])], 3)
        return figure

    def _past(self, of: Any) -> _Past:
        """Outcomes, or states, of all rows."""
        model, found = self._fit.model, smoothed(self._fit)
        if of == "states":
            nothing = np.full_like(found.state, np.nan)
            return _Past(self._fit.state_labels, nothing, found.state, found.state_cov)
        y = model.read(self._fit._panel(None)).Y
        return _Past(model.outcomes, y, found.level, found.level_cov)

    def loadings(self, *, ax: Any = None, figsize: Size | None = None) -> Figure:
        """What each outcome reads off each state: of the population, and of every subject.

        In standard deviations of the outcomes where their units differ much.

        Parameters
        ----------
        ax : Axes, list of Axes, Figure or SubFigure, optional
            Where to draw: as many axes as there are panels, or a figure to fill; by default a
            figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(ssm_fit.plot.loadings().axes)
        1
        """
        fit, model = self._fit, self._fit.model
        p, q = len(model.outcomes), model.n_latent
        own, sd = fit.loadings, np.zeros((p, q))
        if model.shape.loading_effects:
            rows, columns = np.array(model.shape.loading_effects).T
            sd[rows, columns] = np.sqrt(np.diagonal(fit.params["loading_covariance"]))
        scale = model.scaling.scale
        apart = scale.max() > 5 * scale.min()
        unit = scale[:, None] if apart else np.ones((p, 1))
        size = figsize or (2.0 + 3.2 * q, 1.6 + 0.5 * p)
        figure, (axes,) = grid(1, q, ax, size, sharey=True)
        rng = np.random.default_rng(0)  # only for where dots are put
        mean = fit.params["loading_mean"] / unit
        for k, one in enumerate(axes):
            drawing.draw_loadings(one, mean[:, k], (sd / unit)[:, k], (own / unit)[:, :, k], k, rng)
            one.set_title(plain(fit.state_labels[k]), fontsize="medium")
            one.set_xlabel("loading, in sd of the outcome" if apart else "loading")
        axes[0].set_yticks(range(p), [plain(name) for name in model.outcomes])
        handles = [dot("population", DARK, "D")]
        if sd.any():
            handles += [line("95% of subjects", DARK), dot("a subject", drawing.SIGNAL)]
        legend(figure, ax, handles, 3)
        return figure

    def residuals(
        self,
        outcome: str | None = None,
        lags: int = 10,
        *,
        effects: Literal["drawn", "fitted"] = "drawn",
        ax: Any = None,
        figsize: Size | None = None,
    ) -> Figure:
        """One-step residuals: quantiles against normal ones, and autocorrelations.

        Both with the band that 95% keep to if the model holds; `fit.whiteness` tests it.

        Parameters
        ----------
        outcome : str, optional
            By default all, up to eight.
        lags : int
            Of the autocorrelations.
        effects : {"drawn", "fitted"}
            As for `fit.residuals`.
        ax : Axes, list of Axes, Figure or SubFigure, optional
            Where to draw: as many axes as there are panels, or a figure to fill; by default a
            figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(ssm_fit.plot.residuals(effects="fitted").axes)
        4
        """
        words, found = "Standardised one-step residuals", self._fit.residuals(effects=effects)
        return self._residuals(found, outcome, words, lags, ax, figsize)

    # --- inside ---------------------------------------------------------------------------------

    def _of_outcomes(self, outcomes: list[int]) -> str:
        n = len(self._fit.model.outcomes)
        return first_outcomes(len(outcomes), n)

    @staticmethod
    def _share_height(y: np.ndarray, rows: list[np.ndarray]) -> Literal["row", "none"]:
        """One scale for all subjects, unless one of them would flatten another."""
        spans = np.array([y[own].max(0, initial=-np.inf, where=~np.isnan(y[own])) for own in rows])
        spans -= [y[own].min(0, initial=np.inf, where=~np.isnan(y[own])) for own in rows]
        spans = np.where(np.isfinite(spans) & (spans > 0), spans, np.nan)
        flat = np.nanmax(spans, axis=0, initial=0) > _FLAT * np.nanmin(
            spans, axis=0, initial=np.inf
        )
        return "none" if flat.any() else "row"

    @staticmethod
    def _label_rows(grid: np.ndarray, names: list[str]) -> None:
        for row, name in zip(grid, names, strict=True):
            row[0].set_ylabel(plain(name))
