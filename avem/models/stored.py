"""The numbers of a panel that is not in memory: read once, kept on disk, and summed up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from avem.components.scaling import spread_of
from avem.data import Panel
from avem.data.scanning.scan import Scan
from avem.errors import AvemError
from avem.models.encoded import LaidOut, PanelData
from avem.numerics.order_statistics import quantiles
from avem.numerics.rounding import on_grid

BLOCK_ROWS = 100_000
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


class Witnesses:
    """Subjects who show whether data can carry a model: what they can, all data can."""

    def __init__(self, n_columns: int) -> None:
        self._n_rows, self._known = 0, np.zeros(n_columns, int)
        self._lowest, self._highest = np.inf, -np.inf
        self._chosen: list[np.ndarray] = []

    def add(self, group: np.ndarray, panel: Panel, data: PanelData, last: bool) -> None:
        """From further subjects, whose numbers are `group`."""
        values = np.concatenate([data.Y, data.A], axis=1)
        if self._n_rows < _WITNESS_ROWS:
            self._n_rows += panel.n_rows
            chosen = np.ones(len(group), bool)
        else:
            chosen = np.zeros(len(group), bool)
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
        for extreme in (
            (values == low) & (low < self._lowest),
            (values == high) & (high > self._highest),
        ):
            rows = np.flatnonzero(extreme.any(axis=1))
            chosen[panel.row_subject[rows[:_WITNESSES]]] = True
        self._lowest = np.fmin(self._lowest, low)
        self._highest = np.fmax(self._highest, high)
        for j in np.flatnonzero(self._known < _WITNESSES):
            moves = np.nan_to_num(values[:, j]) != 0
            some = np.unique(panel.row_subject[moves])[:_WITNESSES]
            self._known[j] += len(some)
            chosen[some] = True
        chosen[-1] |= last
        self._chosen.append(group[chosen])

    @property
    def subjects(self) -> np.ndarray:
        """Their numbers, lowest first."""
        return np.sort(np.concatenate(self._chosen))


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """Of columns, over rows."""

    count: np.ndarray
    total: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> ColumnSums:
        """Over the rows of (rows, columns) that are not missing."""
        return cls(
            (~np.isnan(values)).sum(0),
            np.nansum(values, axis=0),
            np.fmin.reduce(values, axis=0, initial=np.inf),
            np.fmax.reduce(values, axis=0, initial=-np.inf),
        )

    def plus(self, other: ColumnSums) -> ColumnSums:
        """Both together."""
        return ColumnSums(
            self.count + other.count,
            self.total + other.total,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    def reach(self, centre: np.ndarray) -> np.ndarray:
        """The largest distance from `centre`."""
        away = np.maximum(self.high - centre, centre - self.low)
        return np.where(self.count > 0, away, 0.0)


@dataclass(frozen=True, eq=False)
class StoredData:
    """A scan's numbers in the user's units, in the order of its rows on disk.

    What models learn from data is the same as of a `PanelData`.
    """

    scan: Scan
    path: Path
    n_outcomes: int
    n_columns: int
    n_known: int
    """States, where something is known of where rows may be; 0 where nothing is."""
    n_seen: np.ndarray
    """(subjects, outcome columns) how many values of each were observed."""
    rows_seen: np.ndarray
    """(subjects,) rows with an outcome that was observed."""
    seen_totals: np.ndarray
    """(outcome columns, design columns) sums where an outcome column is observed."""
    outcome_sums: ColumnSums
    design_sums: ColumnSums
    """Over the rows with something observed."""
    seen_in: np.ndarray
    """(n_known,) bool: the states that some row with an outcome may be in."""
    by_lane: bool
    """What durations read does not change within sequences."""
    telling: Telling
    witnesses: np.ndarray
    n_without_past: int
    owner: Any
    """What the file is removed with."""

    def rows(self, start: int, stop: int) -> PanelData:
        """A stretch of rows."""
        width = self.n_outcomes + self.n_columns + self.n_known
        found = np.fromfile(self.path, float, (stop - start) * width, offset=8 * start * width)
        if len(found) < (stop - start) * width:
            raise AvemError(f"{str(self.path)!r} was changed while it was in use.")
        ends = [self.n_outcomes, self.n_outcomes + self.n_columns]
        Y, A, possible = np.split(found.reshape(-1, width), ends, axis=1)
        return PanelData(Y, A, 0, possible > 0 if self.n_known else None)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Outcomes and design columns of all rows, a stretch at a time."""
        n_rows = self.scan.n_rows
        for start in range(0, n_rows, BLOCK_ROWS):
            found = self.rows(start, min(start + BLOCK_ROWS, n_rows))
            yield found.Y, found.A

    # --- what models learn ----------------------------------------------------------------------

    def spreads(self, columns: Sequence[int]) -> np.ndarray:
        """Of outcome columns: see `scaling.spread`."""
        return self._spreads[list(columns)]

    def medians(self, columns: Sequence[int]) -> np.ndarray:
        """Of outcome columns."""
        at, sums = list(columns), self.outcome_sums
        return on_grid(self._quantiles[1, at], sums.reach(np.zeros_like(sums.total))[at])

    def design_means(self, outcomes: Sequence[int]) -> np.ndarray:
        """(design columns,) over the rows where some of these outcome columns are observed."""
        sums = self.design_sums
        return on_grid(sums.total / sums.count, sums.reach(np.zeros_like(sums.total)))

    def design_sizes(self, centre: np.ndarray, outcomes: Sequence[int]) -> np.ndarray:
        """(design columns,) root mean squares of the distances from `centre` in these rows."""
        largest = self.design_sums.reach(centre)
        unit = np.where(largest > 0, largest, 1.0)
        total = sum(
            (((A[~np.isnan(Y[:, list(outcomes)]).all(axis=1)] - centre) / unit) ** 2).sum(0)
            for Y, A in self.blocks()
        )
        found = largest * np.sqrt(total / self.design_sums.count)
        return np.where(largest > 0, on_grid(found, found), 1.0)

    def usual(self, column: int) -> float:
        """The median of what is positive in a design column; 1 where nothing is."""

        def positive() -> Iterator[np.ndarray]:
            return (np.where(A > 0, A, np.nan)[:, [column]] for _, A in self.blocks())

        counts = sum((~np.isnan(block)).sum(0) for block in positive())
        found = float(quantiles(positive, np.asarray(counts), (0.5,))[0, 0])
        return 1.0 if np.isnan(found) else found

    def could_be(self, outcomes: Sequence[int]) -> np.ndarray | None:
        """(states,) bool: those that some row with an outcome may be in; None: nothing is known."""
        return self.seen_in if self.n_known else None

    @cached_property
    def _quantiles(self) -> np.ndarray:
        counts = self.outcome_sums.count
        return quantiles(lambda: (Y for Y, _ in self.blocks()), counts, (0.25, 0.5, 0.75))

    @cached_property
    def _spreads(self) -> np.ndarray:
        sums = self.outcome_sums
        mean = sums.total / np.maximum(sums.count, 1)
        largest = sums.reach(mean)
        unit = np.where(largest > 0, largest, 1.0)
        total = sum(np.nansum(((Y - mean) / unit) ** 2, axis=0) for Y, _ in self.blocks())
        sd = largest * np.sqrt(total / np.maximum(sums.count, 1))
        low, _, high = self._quantiles
        return np.array(
            [
                spread_of(*column) if varies else 1.0
                for *column, varies in zip(sd, high, low, largest > 0, strict=True)
            ]
        )
