"""Pictures of the fit of an HMM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from avem.fits.elsewhere import HMM_PLOTS
from avem.fits.plots.covariate import covariate_figure
from avem.fits.plots.dwell import dwell_figure, stationary_figure
from avem.fits.plots.emissions import emissions_figure
from avem.fits.plots.figures import Size, state_dots
from avem.fits.plots.fit_plots import MOST_OUTCOMES, FitPlots
from avem.fits.plots.forecast import ahead_figure
from avem.fits.plots.map import map_figure
from avem.fits.plots.occupancy import occupancy_figure
from avem.fits.plots.states import decoded, states_figure
from avem.fits.plots.transitions import KINDS, transitions_figure
from avem.fits.words import check_word

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
    _elsewhere = HMM_PLOTS

    def states(
        self,
        subjects: Any = None,
        outcome: str | None = None,
        max_subjects: int = 6,
        *,
        max_rows: int = 300,
        ax: Any = None,
        figsize: Size | None = None,
    ) -> Figure:
        """Outcomes over time, coloured by decoded state, with each state's mean for the subject.

        The strip above shows the probabilities of the states. Outcomes of two levels are ticks,
        positive ones that span very different sizes have a logarithmic axis.

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
        >>> len(fit.plot.states(["p01", "p02"]).axes)
        2
        """
        outcomes = self._outcomes(outcome, MOST_OUTCOMES)
        chosen = (subjects, outcomes, max_subjects, max_rows)
        return states_figure(self._fit, *chosen, ax, figsize)

    def map(
        self,
        subjects: Any = None,
        x: str = "x",
        y: str = "y",
        *,
        kind: Literal["projected", "lonlat"] = "projected",
        max_subjects: int = 4,
        ax: Any = None,
        figsize: Size | None = None,
    ) -> Figure:
        """Tracks on a map: the way from each position to the next in the colour of its state.

        The less certain the state of a row, the fainter its colour.

        Parameters
        ----------
        subjects : label or list of labels, optional
            As in `states`.
        x, y : str
            Columns of the fitted data with the positions, as for `avem.steps_and_turns`.
        kind : {"projected", "lonlat"}
            Positions on a plane, drawn to scale; or longitude and latitude in degrees, drawn so
            that a km is as long in both directions.
        max_subjects : int
            As in `states`.
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
        >>> len(fit.plot.map(["p01", "p02"], x="valence", y="arousal").axes)
        2
        """
        return map_figure(self._fit, subjects, (x, y), kind, max_subjects, ax, figsize)

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
        of : {"outcomes", "states"}, optional
            Draw one of them alone, as for `fit.predict`; by default both.
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
        >>> figure = fit.plot.forecast("p01", horizon=2, effects="fitted")
        """
        outcomes = self._outcomes_ahead(of, outcome)
        chosen = (subjects, horizon, outcomes, of != "outcomes", max_subjects)
        return ahead_figure(self._fit, *chosen, future, effects, max_rows, ax, figsize)

    def residuals(
        self,
        outcome: str | None = None,
        lags: int = 10,
        *,
        kind: Literal["forecast", "ordinary"] = "forecast",
        effects: Literal["drawn", "fitted"] = "drawn",
        seed: int = 0,
        ax: Any = None,
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
        >>> len(fit.plot.residuals(effects="fitted").axes)
        3
        """
        found = self._fit.residuals(kind=kind, effects=effects, seed=seed)
        words, dots = f"{kind.capitalize()} pseudo-residuals", state_dots(self._fit, "s")
        state = decoded(self._fit)
        return self._residuals(found, outcome, words, lags, ax, figsize, state, dots)

    def emissions(
        self,
        outcome: str | None = None,
        *,
        level: float | None = None,
        ax: Any = None,
        figsize: Size | None = None,
    ) -> Figure:
        """What each state emits: densities or probabilities weighted by the states' occupancy.

        The bars are the data. For Gaussian outcomes the spread is that of the noise plus that of
        the effects, and with covariates both are at average covariates: each value less what its
        own add to the mean. For other families the bars are the data as they are, and the states
        are drawn at effect 0 and average covariates, as the labels say. Angles are drawn round a
        circle, 0 at the top and positive ones to the left (in an `ax` of your own, only if it is
        polar). Axes end where few values lie beyond, which the label counts; positive outcomes that
        span very different sizes have a logarithmic axis.

        Where states respond differently to covariates, panels with these responses follow, at
        effect 0: up to six, and none in axes of your own.

        Parameters
        ----------
        outcome : str, optional
            By default all.
        level : float, optional
            Of bands around the responses, which need standard errors; by default none.
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
        >>> len(fit.plot.emissions().axes)
        1
        """
        return emissions_figure(self._fit, self._outcomes(outcome), level, ax, figsize)

    def transitions(
        self,
        kind: Literal["matrix", "graph"] = "matrix",
        *,
        ax: Axes | None = None,
        figsize: Size | None = None,
    ) -> Figure:
        """The transition probabilities, at effect 0 and average covariates.

        Parameters
        ----------
        kind : {"matrix", "graph"}
            ``"matrix"``: from row to column. ``"graph"``: the states as discs, as large as their
            share of the rows, with the probability to stay; moves as arrows in the colour of the
            state that is left, as thick as they are probable.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.transitions("graph").axes)
        1
        """
        check_word("kind", kind, KINDS)
        return transitions_figure(self._fit, kind, ax, figsize)

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

    def dwell(
        self, level: float | None = 0.95, *, ax: Any = None, figsize: Size | None = None
    ) -> Figure:
        """How many stays in each state last longer than so long: decoded, and implied.

        Parameters
        ----------
        level : float, optional
            Of the intervals of expected stays; None leaves them out.
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
        >>> len(fit.plot.dwell(level=None).axes)
        2
        """
        return dwell_figure(self._fit, level, ax, figsize)

    def covariate(
        self,
        name: str,
        on: str | None = None,
        *,
        ax: Any = None,
        figsize: Size | None = None,
        **options: Any,
    ) -> Figure:
        """What a covariate does, with bands.

        Parameters
        ----------
        name : str
            As for `fit.covariate`.
        on : str, optional
            As for `fit.covariate`.
        ax : Axes, list of Axes, Figure or SubFigure, optional
            Where to draw: as many axes as there are panels, or a figure to fill; by default a
            figure of its own.
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
        return covariate_figure(self._fit, name, on, ax, figsize, options)
