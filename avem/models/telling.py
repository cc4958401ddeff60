"""A few rows and subjects of a panel beyond memory that tell what the others would, too."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from avem.data import Panel
from avem.models.encoded import LaidOut, PanelData

_WITNESS_ROWS = 200_000
_MOST_KINDS = 1024
"""Kinds of rows, by what is missing, of which each is kept."""
_WITNESSES = 3
"""Subjects in whom a design column is not 0, and of each kind of outlier."""


class Telling:
    """A few rows by which a model is laid out as it would be by all of them."""

    def __init__(self, n_outcomes: int, n_columns: int) -> None:
        self.data = PanelData(np.zeros((0, n_outcomes)), np.zeros((0, n_columns)), 0)
        """Of these rows; nothing is ruled out, where something is known of states."""
        self.later = np.zeros(0, bool)

    def add(self, model: Any, data: PanelData, later: np.ndarray) -> None:
        """Those of further rows that tell something new."""
        Y = np.concatenate([self.data.Y, data.Y])
        A = np.concatenate([self.data.A, data.A])
        later = np.concatenate([self.later, later])
        seen = np.column_stack([~np.isnan(Y), later])
        kinds = np.unique(np.packbits(seen, axis=1), axis=0, return_index=True)[1]
        if len(kinds) > _MOST_KINDS:
            kinds = kinds[_telling_apart(seen[kinds])]
        told = model.laid_out(Y, A, later, by_lane=False).telling
        rows = np.unique(np.concatenate([kinds, *told]))
        self.data, self.later = PanelData(Y[rows], A[rows], 0), later[rows]

    def laid_out(self, model: Any, data: PanelData, later: np.ndarray, by_lane: bool) -> LaidOut:
        """Further rows on the scale of the fit, laid out as all data together are."""
        y, a = model.scaling.data_in(self.data.Y, self.data.A)
        possible = data.possible
        if possible is not None:
            possible = np.concatenate(
                [np.ones((len(self.later), possible.shape[1]), bool), possible]
            )
        made = model.laid_out(
            np.concatenate([y, data.Y]),
            np.concatenate([a, data.A]),
            np.concatenate([self.later, later]),
            possible,
            by_lane,
        )
        return made.after(len(self.later))


def _telling_apart(seen: np.ndarray) -> np.ndarray:
    """Rows that show of any two columns (rows, columns) whether they are the same."""
    found = [column.argmax() for column in (*seen.T, *~seen.T)]
    for j, column in enumerate(seen.T):
        found += (seen[:, :j] != column[:, None]).argmax(axis=0).tolist()
    return np.unique(found)


class Striking(NamedTuple):
    """The subjects of a block in whom columns (outcomes, then design) are what they seldom are."""

    low: np.ndarray
    high: np.ndarray
    """(columns,) smallest and largest values."""
    lowest: list[np.ndarray]
    highest: list[np.ndarray]
    """The first rows with these values, of each column."""
    moving: list[np.ndarray]
    """The first subjects in whom each column is not 0."""
    row_subject: dict[int, int]
    """Of these rows."""

    @classmethod
    def of(cls, panel: Panel, data: PanelData) -> Striking:
        """In the block's own numbers."""
        values = np.concatenate([data.Y, data.A], axis=1)
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
        lowest, highest = (
            [np.flatnonzero(column == end)[:_WITNESSES] for column, end in pairs]
            for pairs in (zip(values.T, low, strict=True), zip(values.T, high, strict=True))
        )
        some = (np.flatnonzero(np.nan_to_num(column) != 0) for column in values.T)
        moving = [np.unique(panel.row_subject[rows])[:_WITNESSES] for rows in some]
        rows = np.concatenate([*lowest, *highest]).tolist()
        whose = {row: int(panel.row_subject[row]) for row in rows}
        return cls(low, high, lowest, highest, moving, whose)


class Witnesses:
    """Subjects who show whether data can carry a model: what they can, all data can."""

    def __init__(self, n_columns: int) -> None:
        self._n_rows, self._known = 0, np.zeros(n_columns, int)
        self._lowest, self._highest = np.inf, -np.inf
        self._chosen: list[np.ndarray] = []

    def add(self, group: np.ndarray, n_rows: int, found: Striking, last: bool) -> None:
        """From further subjects, whose numbers are `group`."""
        if self._n_rows < _WITNESS_ROWS:
            self._n_rows += n_rows
            chosen = np.ones(len(group), bool)
        else:
            chosen = np.zeros(len(group), bool)
        for rows, beyond in (
            (found.lowest, found.low < self._lowest),
            (found.highest, found.high > self._highest),
        ):
            first = np.unique(
                np.concatenate([np.zeros(0, int), *(rows[j] for j in np.flatnonzero(beyond))])
            )
            chosen[[found.row_subject[row] for row in first[:_WITNESSES].tolist()]] = True
        self._lowest = np.fmin(self._lowest, found.low)
        self._highest = np.fmax(self._highest, found.high)
        for j in np.flatnonzero(self._known < _WITNESSES):
            self._known[j] += len(found.moving[j])
            chosen[found.moving[j]] = True
        chosen[-1] |= last
        self._chosen.append(group[chosen])

    @property
    def subjects(self) -> np.ndarray:
        """Their numbers, lowest first."""
        return np.sort(np.concatenate(self._chosen))
