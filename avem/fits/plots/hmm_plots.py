"""Pictures of the fit of an HMM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from avem.fits.plots.covariate import covariate_figure, draw_curve, find_curves
from avem.fits.plots.dwell import dwell_figure, stationary_figure
from avem.fits.plots.emissions import Emissions
from avem.fits.plots.figures import (
    DARK,
    Size,
    first_outcomes,
    new_figure,
    panels,
    plain,
    state_colors,
    state_legend,
    write_dates,
)
from avem.fits.plots.fit_plots import MOST_OUTCOMES, FitPlots
from avem.fits.plots.forecast import ahead_figure
from avem.fits.plots.occupancy import occupancy_figure
from avem.fits.plots.states import draw_track, label_levels, make_tracks
from avem.fits.plots.timeline import choose_subjects, share_time
from avem.fits.predict.at import at_words, average_moves, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit


class Plots(FitPlots):
    """The pictures of one fit: `fit.plot.states()`, `.effects()`, `.bound()`, ...

    Parameters
    ----------
    fit : HMMFit
        Of what; `fit.plot` makes this object.

    Examples
    --------
    >>> isinstance(fit.plot, avem.Plots)
    True
    """

    _fit: HMMFit

    def states(
        self,
        subjects: Any = None,
        outcome: str | None = None,
        max_subjects: int = 6,
        *,
        max_rows: int = 300,
        figsize: Size | None = None,
    ) -> Figure:
        """Outcomes over time, coloured by decoded state, with each state's mean for the subject.

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
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.states(["p01", "p02"]).axes)
        2
        """
        fit, panel = self._fit, self._fit._panel(None)
        every = places(fit.model)
        outcomes = self._outcomes(outcome, MOST_OUTCOMES)
        shown = choose_subjects(panel, subjects, max_subjects)
        tracks, time_label, are_dates = make_tracks(fit, panel, shown, max_rows)
        together = share_time([track.along for track in tracks])
        width = 10.0 if len(outcomes) < 3 else 4.0 * len(outcomes)
        figure = new_figure(figsize or (width, 1.2 + 1.55 * len(shown)))
        grid = figure.subplots(
            len(shown), len(outcomes), squeeze=False, sharey="col", sharex=together
        )
        colors = state_colors(fit.model.n_states)
        for row, track in zip(grid, tracks, strict=True):
            name = {"rotation": 0, "ha": "right", "va": "center", "fontweight": "bold"}
            row[0].set_ylabel(plain(track.along.label), **name)
            for ax, j in zip(row, outcomes, strict=True):
                draw_track(ax, track, j, colors)
                label_levels(ax, every[j].piece.family.levels)
                if are_dates:
                    write_dates(ax)
        for j, top, bottom in zip(outcomes, grid[0], grid[-1], strict=True):
            levels, name = every[j].piece.family.levels, plain(every[j].name, 60)
            if levels is not None and len(levels) == 2:
                name += f" (line: probability of {plain(levels[1])})"
            top.set_title(name, fontsize="medium")
            bottom.set_xlabel(plain(time_label, 60))
        title = f"States of {len(tracks):,} of {panel.n_subjects:,} subjects"
        title += first_outcomes(len(outcomes), len(every))
        if any(track.along.n_rows > max_rows for track in tracks):
            title += f", first {max_rows:,} rows of each"
        figure.suptitle(title)
        with_mean = any(not np.isnan(track.mean[:, outcomes]).all() for track in tracks)
        state_legend(figure, colors, with_mean)
        return figure

    def forecast(
        self,
        subjects: Any = None,
        horizon: int = 10,
        outcome: str | None = None,
        max_subjects: int = 3,
        *,
        future: Any = None,
        effects: Literal["integrated", "fitted"] = "integrated",
        max_rows: int | None = None,
        figsize: Size | None = None,
    ) -> Figure:
        """The end of each subject's last sequence by decoded state, and what is to come.

        Shades hold 50, 80 and 95% of the predictive distribution; of labels, dots are as large as
        their probability. Beneath, the probabilities of the states.

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
        future : DataFrame or dict, optional
            Covariates of the steps to come, as for `fit.predict`.
        effects : {"integrated", "fitted"}
            As for `fit.predict`.
        max_rows : int, optional
            How much of the past is drawn; by default three times the horizon.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> figure = fit.plot.forecast("p01", horizon=2, effects="fitted")
        """
        outcomes = self._outcomes(outcome, MOST_OUTCOMES)
        chosen = (subjects, horizon, outcomes, max_subjects)
        return ahead_figure(self._fit, *chosen, future, effects, max_rows, figsize)

    def residuals(
        self,
        outcome: str | None = None,
        lags: int = 10,
        *,
        kind: Literal["forecast", "ordinary"] = "forecast",
        effects: Literal["drawn", "fitted"] = "drawn",
        seed: int = 0,
        figsize: Size | None = None,
    ) -> Figure:
        """Pseudo-residuals: quantiles against normal ones, autocorrelations, and a histogram.

        The first two with the band that 95% keep to if the model holds (autocorrelations only of
        ``kind="forecast"``); `fit.whiteness` tests it. Colours in the histogram say which states
        the rows decode to.

        Parameters
        ----------
        outcome : str, optional
            By default all, up to eight.
        lags : int
            Of the autocorrelations.
        kind : {"forecast", "ordinary"}
            As for `fit.residuals`.
        effects : {"drawn", "fitted"}
            As for `fit.residuals`.
        seed : int
            As for `fit.residuals`.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.residuals(effects="fitted").axes)
        3
        """
        found = self._fit.residuals(kind=kind, effects=effects, seed=seed)
        title, state = f"{kind.capitalize()} pseudo-residuals", self._fit._decoded()
        return self._residuals(found, outcome, title, lags, figsize, state)

    def emissions(
        self, outcome: str | None = None, *, ax: Axes | None = None, figsize: Size | None = None
    ) -> Figure:
        """What each state emits: densities or probabilities weighted by the states' occupancy.

        The bars are the data. For Gaussian outcomes the spread is that of the noise plus that of
        the effects, and with covariates both are at average covariates: each value less what its
        own add to the mean. For other families the bars are the data as they are, and the states
        are drawn at effect 0 and average covariates, as the labels say.

        Where states respond differently to covariates, panels with these responses follow, at
        effect 0: up to six, and none in an `ax` of your own (`fit.plot.covariate` has bands).

        Parameters
        ----------
        outcome : str, optional
            By default all.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.emissions().axes)
        1
        """
        outcomes = self._outcomes(outcome)
        curves = find_curves(self._fit, outcomes) if ax is None else []
        n = len(outcomes) + len(curves)
        figure, axes = panels(n, ax, figsize, (6.4 if n == 1 else 4.8, 3.6), 2 if n == 4 else 3)
        every, emissions = places(self._fit.model), Emissions(self._fit)
        for panel, curve in zip(axes[len(outcomes) :], curves, strict=True):
            draw_curve(panel, curve, self._fit)
        found: dict[str, Any] = {}
        for panel, j in zip(axes, outcomes, strict=False):
            emissions.draw(panel, every[j])
            handles, labels = panel.get_legend_handles_labels()
            found |= dict(zip(labels, handles, strict=True))
        order = {"data": 0, "state": 1, "all": 2}
        handles = [found[name] for name in sorted(found, key=lambda name: order[name.split()[0]])]
        if handles and ax is not None:
            ax.legend(handles=handles, fontsize="small")
        elif handles:
            columns = min(len(handles), 3 * min(len(axes), 2))
            figure.legend(handles=handles, loc="outside lower center", ncols=columns)
        return figure

    def transitions(self, *, ax: Axes | None = None, figsize: Size | None = None) -> Figure:
        """The transition matrix, from row to column; at effect 0 and average covariates.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.transitions().axes)
        1
        """
        matrix = average_moves(self._fit)
        n = len(matrix)
        figure, (panel,) = panels(1, ax, figsize, (2.2 + 0.7 * n, 1.6 + 0.6 * n), 1)
        panel.imshow(matrix, cmap="Blues", vmin=0, vmax=1.15)
        for k, m in np.ndindex(matrix.shape):
            ink = "white" if matrix[k, m] > 0.6 else DARK
            panel.text(m, k, _probability(float(matrix[k, m])), ha="center", va="center", color=ink)
        panel.set_xticks(range(n), [str(k) for k in range(n)])
        panel.set_yticks(range(n), [f"state {k}" for k in range(n)])
        where = at_words(self._fit.model.transition.lines)
        title = "Transition probabilities" + (f"\n{where.strip()}" if where else "")
        panel.set(xlabel="to state", ylabel="from")
        panel.set_title(title, fontsize="medium" if where else None)
        for ticks in (panel.get_xticklabels(), panel.get_yticklabels()):
            for tick, color in zip(ticks, state_colors(n), strict=True):
                tick.set(color=color, fontweight="bold")
        return figure

    # --- questions: each is the picture of the method of the fit with its name ------------------

    def occupancy(
        self,
        by: Any = None,
        level: float = 0.95,
        *,
        ax: Axes | None = None,
        figsize: Size | None = None,
    ) -> Figure:
        """Every subject's share of time in each state; or, `by` a column, the shares along it.

        Parameters
        ----------
        by : str or array, optional
            As for `fit.occupancy`.
        level : float
            As for `fit.occupancy`.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.occupancy(by="day").axes)
        1
        """
        return occupancy_figure(self._fit, by, level, ax, figsize)

    def stationary(
        self, level: float | None = 0.95, *, ax: Axes | None = None, figsize: Size | None = None
    ) -> Figure:
        """Shares of time in the long run: the group's with intervals, and the subjects' as dots.

        Parameters
        ----------
        level : float, optional
            Of the intervals; None leaves them out.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.stationary(level=None).axes)
        1
        """
        return stationary_figure(self._fit, level, ax, figsize)

    def dwell(self, level: float | None = 0.95, *, figsize: Size | None = None) -> Figure:
        """How many stays in each state last longer than so long: decoded, and implied.

        Parameters
        ----------
        level : float, optional
            Of the intervals of expected stays; None leaves them out.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.dwell(level=None).axes)
        2
        """
        return dwell_figure(self._fit, level, figsize)

    def covariate(
        self, name: str, on: str | None = None, *, figsize: Size | None = None, **options: Any
    ) -> Figure:
        """What a covariate does, with bands.

        Parameters
        ----------
        name : str
            As for `fit.covariate`.
        on : str, optional
            As for `fit.covariate`.
        figsize : (float, float), optional
            Inches.
        **options
            Further options of `fit.covariate`.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(stressed.plot.covariate("stress", level=None).axes)
        1
        """
        return covariate_figure(self._fit, name, on, figsize, options)


def _probability(p: float) -> str:
    if 0 < p < 0.0005:
        return "<0.001"
    return ">0.999" if 0.9995 <= p < 1 else f"{p:.3f}"
