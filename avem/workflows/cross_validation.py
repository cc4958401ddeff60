"""How well a model predicts what it was not fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from avem.fits.notebook import paragraphs, titled

_HOW = {
    "subjects": "whole subjects held out",
    "time": "a stretch of every sequence held out",
}


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation:
    """Held-out log scores of a model, each from a fit that has not seen the values.

    Attributes
    ----------
    table : pandas.DataFrame
        Per fold: fold, n_subjects, n_rows and n_values held out, loglik (their log predictive
        density), per_row, per_value, and stop (how the fit of the fold ended). A row with two
        observed outcomes has two values.
    by_subject : pandas.DataFrame
        Per subject, over all folds: n_rows and n_values held out and loglik. Two models
        cross-validated with the same folds and seed can be compared subject by subject.
    by : {"subjects", "time"}
        What was held out.
    folds : int
        How many there were to be; `table` has fewer after an interruption.

    Examples
    --------
    >>> model = avem.MixedHMM("valence ~ 1", n_states=1)
    >>> columns = {"subject": "person", "time": "beep", "sequence": "day"}
    >>> scores = avem.cross_validate(model, avem.load_affect(), folds=2, **columns)
    >>> bool(np.isclose(scores.loglik, scores.by_subject["loglik"].sum()))
    True
    """

    table: pd.DataFrame
    by_subject: pd.DataFrame
    by: str
    folds: int

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it before the last fold."""
        return len(self.table) < self.folds

    @property
    def loglik(self) -> float:
        """The log score of all values held out."""
        return float(self.table["loglik"].to_numpy().sum())

    @property
    def per_value(self) -> float:
        """The mean log score of one held-out value; higher is better."""
        return self._per("n_values")

    @property
    def per_row(self) -> float:
        """The mean log score of one held-out row, as `fit.score` gives it; higher is better."""
        return self._per("n_rows")

    def _per(self, what: str) -> float:
        n = int(self.table[what].to_numpy().sum())
        return self.loglik / n if n else float("nan")

    @property
    def se(self) -> float:
        """The standard error of `per_value`, from its spread between subjects.

        With one subject, from its spread between folds. What the fits of different folds have in
        common is not in it.
        """
        for units in (self.by_subject, self.table):
            loglik, values = (units[name].to_numpy(float) for name in ("loglik", "n_values"))
            n = int((values > 0).sum())
            if n > 1:
                # Of a ratio of two sums: what each unit adds beyond its share of values.
                beyond = loglik - self.per_value * values
                return float(np.sqrt(n / (n - 1) * np.sum(beyond**2)) / values.sum())
        return float("nan")

    def __repr__(self) -> str:
        shown = self.table.to_string(index=False, float_format=_number)
        return "\n".join([self._title(), shown, *self._words()])

    def _repr_html_(self) -> str:
        shown = titled(self._title(), self.table, index=False, float_format=_number)
        return f"{shown}\n{paragraphs(self._words())}"

    def _title(self) -> str:
        return f"Cross-validation, {len(self.table)} folds, {_HOW[self.by]}"

    def _words(self) -> list[str]:
        if not len(self.table):
            return [f"Interrupted: none of {self.folds} folds was done."]
        lines = [f"{self.per_value:.4f} (standard error {self.se:.4f}) per held-out value"]
        if self.per_row != self.per_value:
            lines.append(f"{self.per_row:.4f} per held-out row, which is what fit.score gives")
        if self.interrupted:
            lines.append(f"Interrupted: {len(self.table)} of {self.folds} folds were done.")
        unsettled = self.table.loc[self.table["stop"] != "CONVERGED", "fold"].tolist()
        if unsettled:
            lines.append(f"Not converged: fold {', '.join(map(str, unsettled))}.")
        return lines


def _number(x: float) -> str:
    return f"{x:.4f}"
