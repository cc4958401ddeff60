"""Pictures of a fit of any kind.

Each is a matplotlib Figure: a notebook shows it, and `.savefig(path)` writes it. Nothing
here touches pyplot, so no window opens and no figure stays in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from avem.data.frames import to_pandas
from avem.errors import ModelError
from avem.fits.elsewhere import SaysWhere
from avem.fits.plots.bound import bound_figure
from avem.fits.plots.figures import Size, first_outcomes, one_of
from avem.fits.plots.residuals import residuals_figure
from avem.fits.plots.subjects import contrast_figure, effects_figure, gap_figure
from avem.fits.words import check_word

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_OUTCOMES = 4
"""Drawn beside their states when no outcome is chosen."""


class FitPlots(SaysWhere, ABC):
    """The pictures that every fit has."""

    _fit: Any

    def __init__(self, fit: Any) -> None:
        self._fit = fit

    @abstractmethod
    def residuals(
        self,
        outcome: str | None = None,
        lags: int = 10,
        *,
        effects: Literal["drawn", "fitted"] = "drawn",
        ax: Any = None,
        figsize: Size | None = None,
    ) -> Figure:
        """One-step residuals: quantiles against normal ones, and autocorrelations."""

    def effects(
        self, effect: str | None = None, *, ax: Any = None, figsize: Size | None = None
    ) -> Figure:
        """Every subject's effect with its 95% interval, sorted; one panel per effect.

        Parameters
        ----------
        effect : str, optional
            By default all.
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
        >>> len(fit.plot.effects().axes)
        1
        """
        return effects_figure(self._fit, effect, ax, figsize)

    def bound(self, *, ax: Any = None, figsize: Size | None = None) -> Figure:
        """The bound at each iteration; beside it, on a log scale, what was still to gain.

        Parameters
        ----------
        ax : Axes, list of Axes, Figure or SubFigure, optional
            Where to draw: two axes, or one for the first of the two alone, or a figure to fill; by
            default a figure of its own.
        figsize : (float, float), optional
            Inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.bound().axes)
        2
        """
        return bound_figure(self._fit, ax, figsize)

    def gap(self, *, ax: Any = None, figsize: Size | None = None) -> Figure:
        """Does anchoring hold? Every subject's gap, and the information lost on each effect.

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
        >>> len(fit.plot.gap().axes)
        2
        """
        if not self._fit.model.effect_names:
            raise ModelError("No gap to draw: without effects nothing is anchored.")
        return gap_figure(self._fit.diagnose(), ax, figsize)

    def contrast(
        self, groups: Any = None, *, ax: Any = None, figsize: Size | None = None, **options: Any
    ) -> Figure:
        """Differences with their intervals.

        Parameters
        ----------
        groups : str or dict, optional
            As for `fit.contrast`.
        ax : Axes, list of Axes, Figure or SubFigure, optional
            Where to draw: as many axes as there are panels, or a figure to fill; by default a
            figure of its own.
        figsize : (float, float), optional
            Inches.
        **options
            Further options of `fit.contrast`.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.contrast(subjects=["p01", "p02"]).axes)
        1
        """
        table, _ = to_pandas(self._fit.contrast(groups, **options))
        return contrast_figure(self._fit, table, options.get("level", 0.95), ax, figsize)

    def check(
        self,
        statistic: Any = None,
        n: int = 200,
        *,
        ax: Any = None,
        figsize: Size | None = None,
        **options: Any,
    ) -> Figure:
        """Statistics of the data among those of simulated data.

        Parameters
        ----------
        statistic : callable, dict, str or list of str, optional
            As for `fit.check`.
        n : int
            As for `fit.check`.
        ax : Axes, list of Axes, Figure or SubFigure, optional
            Where to draw: as many axes as there are panels, or a figure to fill; by default a
            figure of its own.
        figsize : (float, float), optional
            Inches.
        **options
            Further options of `fit.check`.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.plot.check("mean", n=20).axes)
        1
        """
        return self._fit.check(statistic, n, **options).plot(ax=ax, figsize=figsize)

    # --- inside -----------------------------------------------------------------------------------

    def _outcomes(self, outcome: str | None, most: int | None = None) -> list[int]:
        """Places of the outcomes to draw."""
        names = list(self._fit.model.outcomes)
        if outcome is None:
            return list(range(len(names)))[:most]
        return [names.index(one_of(outcome, names, "outcome"))]

    def _outcomes_ahead(self, of: Any, outcome: str | None) -> list[int]:
        """Places of the outcomes to draw of what is to come; none where states alone are asked."""
        if of is not None:
            check_word("of", of, ("outcomes", "states"))
        if of == "states" and outcome is not None:
            raise ModelError(
                f"outcome={outcome!r} chooses an outcome, and of='states' draws states alone: "
                "leave one of them out."
            )
        return [] if of == "states" else self._outcomes(outcome, MOST_OUTCOMES)

    def _residuals(
        self,
        found: Any,
        outcome: str | None,
        title: str,
        lags: int,
        ax: Any,
        figsize: Size | None,
        state: np.ndarray | None = None,
        dots: list[Any] | None = None,
    ) -> Figure:
        every = self._fit.model.outcomes
        names = [every[j] for j in self._outcomes(outcome, 2 * MOST_OUTCOMES)]
        values = {name: np.asarray(found[name], float) for name in names}
        title += first_outcomes(len(names), len(every))
        panel = self._fit._panel(None)
        return residuals_figure(panel, values, title, lags, ax, figsize, state, dots)
