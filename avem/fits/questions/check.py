"""Does the model make data like these? Statistics of the data beside those of simulated ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.components.param_info import check_count, check_level, check_seed
from avem.effects.draws import draw_effects
from avem.errors import ModelError
from avem.fits.notebook import titled
from avem.fits.plots.figures import Size
from avem.fits.questions.statistics import Statistics
from avem.fits.words import effects_word
from avem.inference.progress_of_replicates import ReplicateProgress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from avem.fits.fit import Fit

EFFECTS = ("new", "fitted", "drawn")


@dataclass(frozen=True, eq=False, repr=False)
class Check:
    """Statistics of the data beside those of data sets drawn from the fit.

    Attributes
    ----------
    table : pandas.DataFrame
        A row per statistic: its observed value; mean, sd and interval of the simulated ones; and
        ``p``, two-sided: the share of simulations that are as far out, on the observed one's side,
        times two.
    simulated : numpy.ndarray
        (simulations, statistics) every value, columns in the order of the table's rows.
    n : int
        How many simulations were asked for; an interrupted check has fewer.
    effects : {"new", "drawn", "fitted"}
        How the subjects' effects were drawn.

    Examples
    --------
    >>> fit.check(["mean", "sd"], n=20).simulated.shape
    (20, 2)
    """

    table: pd.DataFrame
    simulated: np.ndarray
    n: int
    effects: str

    def __repr__(self) -> str:
        return f"{self._words()}\n{self.table.to_string(index=False, na_rep='')}"

    def _repr_html_(self) -> str:
        return titled(self._words(), self.table, index=False)

    def _words(self) -> str:
        done = len(self.simulated)
        words = f"{done} simulated data sets" + (f" of {self.n}: interrupted" * (done < self.n))
        return f"{words}, effects {self.effects}"

    def plot(self, *, ax: Any = None, figsize: Size | None = None) -> Figure:
        """A panel per statistic: the simulated values, and the observed one as a line.

        Parameters
        ----------
        ax : Axes, list of Axes, Figure or SubFigure, optional
            Where to draw: as many axes as there are panels, or a figure to fill; by default a
            figure of its own.
        figsize : tuple of float, optional
            Width and height in inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(fit.check(["mean", "sd"], n=20).plot().axes)
        2
        """
        from avem.fits.plots.check import check_figure

        return check_figure(self, ax, figsize)


def run_check(
    fit: Fit, statistic: Any, n: int, effects: str, level: float, seed: int, progress: bool | None
) -> Check:
    """The check of a fit against `n` data sets drawn from it; Ctrl-C ends it with what was done."""
    effects = effects_word(effects, EFFECTS)
    check_count("n", n)
    check_level(level)
    check_seed(seed)
    panel = fit._panel(None)
    statistics = Statistics(statistic, panel, fit._levels())
    observed = statistics.of(panel.table)
    if not observed:
        raise ModelError("None of these statistics applies to the outcomes of this model.")
    done: list[list[float]] = []
    streams = np.random.default_rng(seed).spawn(n)  # so that n=400 begins like n=200
    with ReplicateProgress(progress, n, "check") as tell:
        try:
            for rng in streams:
                chosen = _choose_effects(rng, effects, fit.effects_mean, fit.effects_cov)
                found = statistics.of(fit._draw(panel, rng, chosen).frame)
                done.append([found.get(key, np.nan) for key in observed])
                tell(len(done))
        except KeyboardInterrupt:
            if len(done) < 2:
                raise
    return Check(_table(observed, np.array(done), level), np.array(done), n, effects)


def _choose_effects(
    rng: np.random.Generator, effects: str, mean: np.ndarray, cov: np.ndarray
) -> np.ndarray | None:
    """(subjects, d) the effects of one simulation; None where subjects are to be new."""
    if effects == "new":
        return None
    if effects == "fitted" or not mean.size:
        return mean
    return draw_effects(mean.T, np.moveaxis(cov, 0, -1), rng).T


def _table(
    observed: dict[tuple[str, str | None], float], simulated: np.ndarray, level: float
) -> pd.DataFrame:
    rows = []
    for (name, outcome), value, column in zip(
        observed, observed.values(), simulated.T, strict=True
    ):
        known = column[~np.isnan(column)]
        row = {"statistic": name, "outcome": outcome, "observed": value}
        if len(known):
            low, high = np.quantile(known, [0.5 - level / 2, 0.5 + level / 2])
            row |= {"mean": known.mean(), "sd": known.std(), "lower": low, "upper": high}
            row["p"] = _two_sided(value, known)
        rows.append(row)
    columns = ["statistic", "outcome", "observed", "mean", "sd", "lower", "upper", "p"]
    return pd.DataFrame(rows, columns=columns)


def _two_sided(value: float, drawn: np.ndarray) -> float:
    """Twice the smaller tail; the data count as one of the draws, so it is never 0."""
    if np.isnan(value):
        return np.nan
    near = 1e-9 * (abs(value) + np.abs(drawn).max())  # equal but for rounding
    tail = min((drawn >= value - near).sum(), (drawn <= value + near).sum())
    return float(min(1.0, 2 * (tail + 1) / (len(drawn) + 1)))
