"""Fits with different numbers of states, or of clusters, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
import pandas as pd

from avem.errors import ModelError
from avem.fits.notebook import frame_html, paragraphs
from avem.fits.plots.figures import Size, panels
from avem.fits.plots.selection import draw_criterion
from avem.fits.words import count
from avem.inference.stop import Stop
from avem.workflows.cross_validation import CrossValidation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit
    from avem.fits.ssm_fit import SSMFit

Criterion = Literal["aic", "bic", "icl", "held_out"]
CRITERIA = ("aic", "bic", "icl", "held_out")
NAMES = {"aic": "AIC", "bic": "BIC", "icl": "ICL", "held_out": "held-out score"}
SIZES = {"n_states": "state", "n_latent": "latent state", "n_clusters": "cluster"}
"""What one of them is called."""
_ROUNDING = 0.05
"""Log likelihoods closer than this are the same solution."""
FEW = 8
"""With fewer subjects, log(n) is below 2, the penalty of AIC."""


Fit = TypeVar("Fit", bound="HMMFit | SSMFit")


@dataclass(frozen=True, eq=False, repr=False)
class Selection(Generic[Fit]):
    """Fits with different numbers of states or clusters, and what speaks for each.

    Attributes
    ----------
    table : pandas.DataFrame
        A row for each number: n_states (of a state-space model n_latent; or n_clusters), n_params,
        loglik, error (of the log likelihood), aic, bic, icl of an HMM (lower is better),
        starts_agreeing, stop, degenerate (why its likelihood is worth little; such a fit is not
        recommended), seconds; with cross-validation held_out (mean log score of a held-out
        value; higher is better) and held_out_se; and problem: why there is no fit or no score,
        empty where all went well.
    fits : dict of int to HMMFit or SSMFit
        The fits by that number.
    criterion : {"aic", "bic", "icl", "held_out"}
        What `best` goes by.
    scores : dict of int to CrossValidation
        The cross-validations by that number.
    not_fitted : tuple of int
        Numbers that were not reached before an interruption.
    size : {"n_states", "n_latent", "n_clusters"}
        What the number is called that differs.

    Examples
    --------
    >>> selection.table["n_states"].tolist()
    [1, 2]
    >>> selection.best.model.n_states
    2
    """

    table: pd.DataFrame
    fits: Mapping[int, Fit]
    criterion: str
    scores: Mapping[int, CrossValidation] = field(default_factory=dict)
    not_fitted: tuple[int, ...] = ()
    size: str = "n_states"

    @property
    def n_states(self) -> int:
        """The best number of states."""
        return self.preferred(self.criterion)

    n_latent = n_clusters = n_states

    @property
    def best(self) -> Fit:
        """The fit with the best criterion."""
        return self.fits[self.n_states]

    @property
    def criteria(self) -> list[str]:
        """The criteria that have a value for some number of states."""
        return [name for name in CRITERIA if name in self.table and len(self._values(name))]

    def preferred(self, criterion: Criterion | str) -> int:
        """The number of states that is best by a criterion.

        Parameters
        ----------
        criterion : {"aic", "bic", "icl", "held_out"}
            One of `criteria`.

        Returns
        -------
        int

        Examples
        --------
        >>> selection.preferred("aic")
        2
        """
        if criterion not in self.criteria:
            raise ModelError(
                f"There is no {criterion!r} in the table; choose one of "
                f"{', '.join(self.criteria) or 'none: no fit has one'}."
            )
        values = self._eligible(criterion)
        return (max if criterion == "held_out" else min)(values, key=lambda k: values[k])

    def _eligible(self, criterion: str) -> dict[int, float]:
        """The criterion where it may recommend something: not of degenerate fits, if others are."""
        values = self._values(criterion)
        return {k: v for k, v in values.items() if not self.fits[k].degenerate} or values

    def _values(self, criterion: str) -> dict[int, float]:
        """The criterion by number of states, where there is one."""
        pairs = zip(self.table[self.size].tolist(), self.table[criterion].tolist(), strict=True)
        return {k: value for k, value in pairs if not np.isnan(value)}

    def __repr__(self) -> str:
        text = self._shown().to_string(index=False, na_rep="", float_format=short_number)
        return "\n".join([text, "", *self._words()])

    def _repr_html_(self) -> str:
        shown = frame_html(self._shown(), index=False, float_format=short_number)
        return f"{shown}\n{paragraphs(self._words())}"

    def _shown(self) -> pd.DataFrame:
        return self.table.drop(columns=["problem", "seconds"])

    def plot(
        self,
        criterion: Criterion | None = None,
        *,
        ax: Axes | None = None,
        figsize: Size | None = None,
    ) -> Figure:
        """Every criterion against the number of states, the best one marked.

        Held-out scores have bars of one standard error.

        Parameters
        ----------
        criterion : {"aic", "bic", "icl", "held_out"}, optional
            Only this one.
        ax : matplotlib.axes.Axes, optional
            Where to draw, of one criterion; by default in a new figure.
        figsize : tuple of float, optional
            Width and height in inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(selection.plot().axes) == len(selection.criteria)
        True
        """
        chosen = self.criteria
        if criterion is not None:
            self.preferred(criterion)
            chosen = [criterion]
        figure, axes = panels(len(chosen), ax, figsize, (3.2, 3.2), 4)
        for panel, name in zip(axes, chosen, strict=True):
            best = self.preferred(name)
            draw_criterion(panel, self.table, self.size, name, NAMES[name], best)
        if ax is None and len(chosen) > 1 and self.criterion in chosen:
            figure.suptitle(f"{self._count(self.n_states)} by {NAMES[self.criterion]}")
        return figure

    def _count(self, k: int) -> str:
        return count(k, SIZES[self.size])

    # --- words ----------------------------------------------------------------------------------

    def _words(self) -> Iterator[str]:
        if self.criterion in self.criteria:
            yield from self._choice()
        else:
            yield f"No number of {SIZES[self.size]}s has a {NAMES[self.criterion]}."
        for k, fit in self.fits.items():
            if fit.stop is not Stop.CONVERGED:
                yield f"{self._count(k)}: not converged. {fit.stop.value}"
            if fit.degenerate:
                yield f"{self._count(k)}: degenerate, not recommended. {'; '.join(fit.degenerate)}."
        yield from self._falls()
        n = min((len(fit.subjects) for fit in self.fits.values()), default=FEW)
        if n < FEW:
            words = f"count {count(n, 'subject')} and so penalise"
            they = f"BIC and ICL {words}"
            if "icl" not in self.table:
                they = f"BIC {words.replace('count', 'counts', 1)}s"
            yield (
                f"{they} parameters {'not at all' if n == 1 else 'less than AIC'}: look at AIC, or "
                "at cv='time'."
            )
        yield from self.table.loc[self.table["problem"] != "", "problem"]
        if self.not_fitted:
            left = ", ".join(map(str, self.not_fitted))
            yield f"Interrupted: {left} {SIZES[self.size]}s were not fitted."

    def _choice(self) -> Iterator[str]:
        best, name = self.n_states, NAMES[self.criterion]
        values = self._eligible(self.criterion)
        behind = {k: abs(value - values[best]) for k, value in values.items() if k != best}
        words = f"Best by {name}: {self._count(best)}"
        if behind:
            way = "lower" if self.criterion == "held_out" else "higher"
            words += f"; next is {min(behind, key=lambda k: behind[k])}, "
            words += f"{min(behind.values()):.4g} {way}"
        yield words + "."
        others = {other: self.preferred(other) for other in self.criteria}
        against = [f"{NAMES[other]} is best with {k}" for other, k in others.items() if k != best]
        if against:
            yield f"The criteria disagree: {', '.join(against)}."
        if best == max(self.table[self.size].tolist()) and behind and not self.not_fitted:
            yield f"{best} is the largest number tried: try more."

    def _falls(self) -> Iterator[str]:
        """More of them can only fit better: where they do not, a better solution was missed."""
        logliks, errors, highest = self._values("loglik"), self._values("error"), -np.inf
        for k in sorted(logliks):
            if logliks[k] < highest - _ROUNDING - errors[k]:
                yield (
                    f"{self._count(k)}: a log likelihood below that with fewer "
                    f"{SIZES[self.size].split()[-1]}s, so a better solution exists. Use more "
                    "starts (n_starts=), and refine='adaptive'."
                )
            highest = max(highest, logliks[k])


def criteria_of(fit: Any, own: Sequence[str]) -> dict[str, Any]:
    """A row of the table of a fit; `own` are criteria that not every kind of fit has."""
    loglik = fit.loglik()
    return {
        "n_params": fit.n_params,
        "loglik": float(loglik),
        "error": loglik.error,
        "aic": fit.aic(),
        "bic": fit.bic(),
        **{name: getattr(fit, name)() for name in own},
        "stop": fit.stop.name,
        "degenerate": "; ".join(fit.degenerate),
    }


def short_number(x: float) -> str:
    """A number of a table for people; one that is nothing but rounding is 0."""
    return f"{x:.2f}" if abs(x) >= 10 else f"{x:.4g}" if abs(x) > 1e-6 else "0"
