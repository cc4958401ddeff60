"""How much each subject counts: a column with one number in all rows of a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from avem.data.frames import column, numbers, shown
from avem.errors import DataError, ModelError, did_you_mean

if TYPE_CHECKING:
    from avem.data.panel import Panel

WeightKind = Literal["survey", "frequency"]
_LEAST: dict[str, float] = {"survey": 1e-75, "frequency": 1e-3}
"""Of frequencies: a total that is next to nothing leaves variances at their floors."""
_MOST = 1e75
WEIGHT_KINDS: tuple[WeightKind, ...] = ("survey", "frequency")


class Weights(NamedTuple):
    """Which column, and what it means."""

    column: str
    kind: WeightKind

    def of(self, panel: Panel) -> np.ndarray:
        """(subjects,) survey weights with a mean of 1, frequencies as they are."""
        return self.counting(self.read(panel))

    def read(self, panel: Panel) -> np.ndarray:
        """(subjects,) each subject's number, as it is in the column."""
        return _read(panel, self.column, _LEAST[self.kind])

    def counting(self, found: np.ndarray) -> np.ndarray:
        """The numbers of all subjects as they count: see `of`."""
        return found / found.mean() if self.kind == "survey" else found

    @property
    def words(self) -> str:
        """What a reader of a fit should know of them."""
        if self.kind == "frequency":
            return f"Subjects count by {self.column!r}: so many alike (frequency weights)."
        return (
            f"Subjects count by {self.column!r} (survey weights, here with a mean of 1): standard "
            "errors are robust ones, by a sandwich, and the likelihood is a pseudo-likelihood, "
            "whose criteria and tests are only a guide."
        )


def check_weights(given: str, kind: str) -> Weights:
    """The weights that a user asks for, or an error that says what is wanted."""
    if not isinstance(given, str):
        raise ModelError(
            f"weights is a {type(given).__name__}; the name of a column is wanted, with one number "
            "for all rows of a subject."
        )
    if kind not in WEIGHT_KINDS:
        raise ModelError(
            f"weights_kind is {kind!r}; choose one of {', '.join(WEIGHT_KINDS)}."
            f"{did_you_mean(kind, WEIGHT_KINDS)}"
        )
    return Weights(given, kind)


def _read(panel: Panel, name: str, least: float) -> np.ndarray:
    """(subjects,) each subject's number."""
    values = numbers(column(panel.table, name, "weights="))
    if values is None:
        raise DataError(f"The weights {name!r} are {panel.table[name].dtype}; numbers are wanted.")
    known = np.flatnonzero(~np.isnan(values))
    found = np.full(panel.n_subjects, np.nan)
    found[panel.row_subject[known]] = values[known]
    other = np.zeros(panel.n_rows, bool)
    other[known] = values[known] != found[panel.row_subject[known]]
    if other.any():
        row = int(np.flatnonzero(other)[0])
        who = panel.row_subject[row]
        raise DataError(
            f"The weights {name!r} differ within subject {shown(panel.subjects.tolist()[who])}: "
            f"{values[row]:g} and {found[who]:g}. A subject counts as a whole; give it one number."
        )
    bad = ~((found > 0) & (found >= least) & (found <= _MOST))
    if bad.any():
        who = int(np.flatnonzero(bad)[0])
        what = "has none" if np.isnan(found[who]) else f"has {found[who]:g}"
        raise DataError(
            f"The weights {name!r} must be positive numbers; subject "
            f"{shown(panel.subjects.tolist()[who])} {what} (from {least:g} to {_MOST:g} are "
            "taken). Leave out subjects that do not count."
        )
    return found
