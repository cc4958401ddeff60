"""What comparing fits of different models gives: tables, words, a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.errors import ModelError
from avem.fits.plots.figures import Size
from avem.fits.words import count
from avem.inference.stop import Stop
from avem.workflows.cross_validation import CrossValidation
from avem.workflows.selection import CRITERIA, FEW, NAMES, Criterion, short_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from avem.fits.fit import Fit

_HELD = {"subjects": "held-out subjects", "time": "held-out stretches of time"}


class Frames(NamedTuple):
    """The tables as pandas has them."""

    table: pd.DataFrame
    differences: pd.DataFrame
    by_subject: pd.DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Fits of different models to the same data, and what speaks for each.

    Attributes
    ----------
    fits : dict of str to HMMFit or SSMFit
        The fits by name.
    criterion : {"aic", "bic", "icl", "held_out"}
        What `best` goes by.
    scores : dict of str to CrossValidation
        The cross-validations by name; none without folds.
    folds : int or None
        How many folds there were to be.
    by : {"subjects", "time"}
        What was held out.
    frames : tuple of pandas.DataFrame
        `table`, `differences` and `by_subject` as pandas has them, whatever kind the data are.

    Examples
    --------
    >>> found = avem.compare({"one": selection.fits[1], "two": selection.fits[2]})
    >>> found.table["model"].tolist()
    ['one', 'two']
    >>> found.best.model.n_states
    2
    """

    fits: Mapping[str, Fit]
    criterion: str
    scores: Mapping[str, CrossValidation]
    folds: int | None
    by: str
    frames: Frames

    @property
    def table(self) -> Any:
        """A row per model: parameters, log likelihood and its error, criteria, held-out score.

        AIC, BIC and ICL: lower is better; held_out, the mean log score of a held-out value with
        its standard error: higher is better. ``degenerate`` says why a likelihood is worth little.
        A frame of the data's own kind.
        """
        return self._own_kind(self.frames.table)

    @property
    def differences(self) -> Any:
        """A row per pair of models: how much higher the log score of the first is, over all.

        ``se`` and the interval come from the spread of the subjects' differences; ``better`` and
        ``worse`` count the subjects for whom the first model is better and worse. Scores are
        held-out ones with folds, and otherwise log likelihoods of the data that were fitted (as in
        Vuong's test).
        """
        return self._own_kind(self.frames.differences)

    @property
    def by_subject(self) -> Any:
        """A row per subject: the log score that each model gives its values."""
        return self._own_kind(self.frames.by_subject)

    @property
    def best(self) -> Fit | None:
        """The fit with the best criterion; None where there is none to recommend."""
        name = self.preferred(self.criterion) if self.criterion in self.criteria else None
        return None if name is None else self.fits[name]

    @property
    def criteria(self) -> list[str]:
        """The criteria that all models have a value of."""
        table = self.frames.table
        return [c for c in CRITERIA if c in table and not np.isnan(table[c].to_numpy(float)).any()]

    def preferred(self, criterion: Criterion | str) -> str | None:
        """The name of the fit that is best by a criterion, degenerate ones left out.

        Parameters
        ----------
        criterion : {"aic", "bic", "icl", "held_out"}
            One of `criteria`.

        Returns
        -------
        str or None
            None where all fits are degenerate.

        Examples
        --------
        >>> avem.compare(list(selection.fits.values())).preferred("aic")
        '2 states'
        """
        if criterion not in self.criteria:
            raise ModelError(
                f"Not all models have a value of {criterion!r}; choose one of "
                f"{', '.join(self.criteria)}."
            )
        values = self._eligible(criterion)
        return next(iter(values), None)

    def plot(self, *, figsize: Size | None = None) -> Figure:
        """Criteria above the best one's, log scores against the best model's, and by subject.

        Parameters
        ----------
        figsize : tuple of float, optional
            Width and height in inches.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> len(avem.compare(list(selection.fits.values())).plot().axes)
        3
        """
        from avem.fits.plots.comparison import comparison_figure

        bad = {name for name, fit in self.fits.items() if fit.degenerate}
        ranked = self.criterion if self.criterion in self.criteria else "bic"
        order = [*self._eligible(ranked), *(name for name in self.fits if name in bad)]
        return comparison_figure(self.frames, order, bad, self._what(), figsize)

    # --- inside ----------------------------------------------------------------------------------

    def _own_kind(self, frame: pd.DataFrame) -> Any:
        return next(iter(self.fits.values()))._own_kind(frame)

    def _eligible(self, criterion: str) -> dict[str, float]:
        """The criterion of the fits that may be recommended, the best one first."""
        table = self.frames.table
        pairs = zip(table["model"], table[criterion].to_numpy(float), strict=True)
        sign = -1.0 if criterion == "held_out" else 1.0
        sound = [(name, value) for name, value in pairs if not self.fits[name].degenerate]
        return dict(sorted(sound, key=lambda pair: sign * pair[1]))

    # --- words -----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        (first, one), (second, two) = self._shown()
        tables = [
            f"{first}\n{one.to_string(index=False)}",
            f"{second}\n{two.to_string(index=False)}",
        ]
        return "\n\n".join([*tables, "\n".join(self._words())])

    def _repr_html_(self) -> str:
        tables = [
            f"<p><b>{escape(title)}</b></p>{frame.to_html(index=False, border=0)}"
            for title, frame in self._shown()
        ]
        return "\n".join([*tables, *(f"<p>{escape(line)}</p>" for line in self._words())])

    def _shown(self) -> list[tuple[str, pd.DataFrame]]:
        """Both tables with their titles, as people read them."""
        fits, n = count(len(self.fits), "model"), len(next(iter(self.fits.values())).subjects)
        titles = (f"{fits} of {count(n, 'subject')}", f"Differences of the {self._what()}")
        frames = (self.frames.table, self.frames.differences)
        return [(title, _as_text(frame)) for title, frame in zip(titles, frames, strict=True)]

    def _what(self) -> str:
        """What differences are of."""
        if self.folds is None:
            return "log likelihood, in-sample"
        return f"log score of {_HELD[self.by]}, {self.folds} folds"

    def _words(self) -> Iterator[str]:
        yield from self._choice()
        for name, fit in self.fits.items():
            if fit.degenerate:
                yield f"{name}: degenerate, never recommended. {'; '.join(fit.degenerate)}."
            if fit.stop is not Stop.CONVERGED:
                yield f"{name}: not converged. {fit.stop.value}"
        yield from self._below_maximum()
        if self.folds is None:
            yield (
                "In-sample: a parameter that explains nothing still adds about half a unit to the "
                "log likelihood of the data it was fitted to, and costs as much on others. "
                "folds=5 scores subjects that were not fitted."
            )
        lacking = [name for name in self.fits if name not in self.scores]
        if self.folds is not None and lacking:
            yield f"Interrupted: no held-out score of {', '.join(lacking)}."
        n = len(next(iter(self.fits.values())).subjects)
        if n < FEW:
            yield f"BIC counts {count(n, 'subject')} and so penalises less than AIC: look at AIC."

    def _below_maximum(self) -> Iterator[str]:
        """Which log likelihoods may be higher, one sentence for all fits of a method."""
        methods: dict[str, list[str]] = {}
        for name, fit in self.fits.items():
            if fit.model.n_effects and not fit.info.at_maximum_likelihood:
                methods.setdefault(fit.info.method, []).append(name)
        for method, names in methods.items():
            yield (
                f"{', '.join(names)}: fitted by method={method!r} and not refined, so that the log "
                "likelihood may be below its maximum: fit(..., refine='adaptive')."
            )

    def _choice(self) -> Iterator[str]:
        if self.criterion not in self.criteria:
            yield f"No best fit: not all models have a {NAMES[self.criterion]}."
            return
        values = self._eligible(self.criterion)
        if not values:
            yield "No fit is recommended: all of them are degenerate."
            return
        (best, *others), name = list(values), NAMES[self.criterion]
        words = f"Best by {name}: {best}"
        if others:
            way = "lower" if self.criterion == "held_out" else "higher"
            apart = abs(values[others[0]] - values[best])
            words += f"; next is {others[0]}, {apart:.4g} {way}"
        yield f"{words}."
        if others:
            yield from self._paired(best, others[0])
        against = {other: self.preferred(other) for other in self.criteria}
        others = [f"{NAMES[other]} prefers {k}" for other, k in against.items() if k != best]
        if others:
            yield f"The criteria disagree: {', '.join(others)}."

    def _paired(self, best: str, other: str) -> Iterator[str]:
        """One pair in a sentence: how sure the difference is, by the spread between subjects."""
        for row in self.frames.differences.to_dict("records"):
            if {row["model"], row["other"]} != {best, other}:
                continue
            turned = row["model"] == other
            difference = -row["difference"] if turned else row["difference"]
            better = row["worse" if turned else "better"]
            words = f"{best} less {other}: {difference:.4g}"
            if np.isnan(row["se"]):
                yield f"{words}; {row['note']}."
                continue
            words += f" (standard error {row['se']:.3g}), higher for {better} of "
            words += count(row["subjects"], "subject")
            close = abs(difference) < 2 * row["se"]
            yield f"{words}{': too close to tell apart' if close else ''}."


def _as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers rounded for people; columns that say nothing left out."""
    empty = [c for c in ("degenerate", "note") if c in frame and not any(frame[c])]
    shown = frame.drop(columns=empty)
    numbers = shown.select_dtypes("float")
    return shown.assign(
        **{c: ["" if np.isnan(x) else short_number(x) for x in numbers[c]] for c in numbers}
    )
