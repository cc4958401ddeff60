"""The numbers of a panel that is not in memory: read once, kept on disk, and summed up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from avem.components.scaling import spread_of
from avem.data.scanning.scan import Scan
from avem.errors import AvemError
from avem.models.encoded import PanelData
from avem.models.telling import Telling
from avem.numerics.order_statistics import added, counts_in, quantiles
from avem.numerics.rounding import on_grid


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


class ValueFile(NamedTuple):
    """Where the numbers of a block's rows are."""

    path: str
    n_rows: int
    widths: tuple[int, int, int]
    """Outcome columns, design columns, and states of which something is known."""

    @classmethod
    def write(cls, path: str, data: PanelData) -> ValueFile:
        """Whole or not at all."""
        n_rows = len(data.Y)
        possible = np.zeros((n_rows, 0), bool) if data.possible is None else data.possible
        parts = (data.Y, data.A, possible)
        with open(f"{path}.part", "wb") as file:
            file.write(np.concatenate(parts, axis=1).tobytes())
        os.replace(f"{path}.part", path)
        widths = data.Y.shape[1], data.A.shape[1], possible.shape[1]
        return cls(path, n_rows, widths)

    def rows(self, start: int, stop: int) -> PanelData:
        """Some of its rows."""
        width = sum(self.widths)
        found = np.fromfile(self.path, float, (stop - start) * width, offset=8 * start * width)
        if len(found) < (stop - start) * width:
            raise AvemError(f"{self.path!r} was changed while it was in use.")
        ends = np.cumsum(self.widths)[:2]
        Y, A, possible = np.split(found.reshape(-1, width), ends, axis=1)
        return PanelData(Y, A, 0, possible > 0 if self.widths[2] else None)


class StoredRows(NamedTuple):
    """Rows that follow each other: parts of some files."""

    parts: tuple[tuple[ValueFile, int, int], ...]
    """Each with the first row and the one after the last."""

    def read(self) -> PanelData:
        """Their numbers."""
        first, *others = [file.rows(start, stop) for file, start, stop in self.parts]
        if not others:
            return first
        every = (first, *others)
        known = [one.possible for one in every if one.possible is not None]
        return PanelData(
            np.concatenate([one.Y for one in every]),
            np.concatenate([one.A for one in every]),
            0,
            np.concatenate(known) if known else None,
        )


@dataclass(frozen=True, eq=False)
class StoredData:
    """A scan's numbers in the user's units, in the order of its rows on disk.

    What models learn from data is the same as of a `PanelData`.
    """

    scan: Scan
    folder: Path
    files: tuple[ValueFile, ...]
    """Block by block, in the order of rows on disk."""
    crew: Any
    """Who reads them."""
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

    def stretch(self, start: int, stop: int) -> StoredRows:
        """Where these rows are."""
        ends = self._ends
        first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()
        parts = []
        for number in range(first, last + 1):
            file = self.files[number]
            begin = int(ends[number]) - file.n_rows
            parts.append((file, max(start - begin, 0), min(stop - begin, file.n_rows)))
        return StoredRows(tuple(parts))

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([file.n_rows for file in self.files])

    def _of_blocks(self, function: Callable[..., Any], *shared: Any) -> Iterator[Any]:
        """``function(Y, A, *shared)`` of each block, in order."""
        return self.crew.map(_of_block, self.files, function, *shared)

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
        total = sum(self._of_blocks(_design_squares, list(outcomes), centre, unit))
        found = largest * np.sqrt(total / self.design_sums.count)
        return np.where(largest > 0, on_grid(found, found), 1.0)

    def usual(self, column: int) -> float:
        """The median of what is positive in a design column; 1 where nothing is."""
        n_positive = sum(self._of_blocks(_n_positive, column))

        def counter(prefix: np.ndarray, done: int) -> Any:
            return added(prefix, self._of_blocks(_counts_of_positive, column, prefix, done))

        found = float(quantiles(counter, np.array([n_positive]), (0.5,))[0, 0])
        return 1.0 if np.isnan(found) else found

    def could_be(self, outcomes: Sequence[int]) -> np.ndarray | None:
        """(states,) bool: those that some row with an outcome may be in; None: nothing is known."""
        return self.seen_in if self.n_known else None

    @cached_property
    def _quantiles(self) -> np.ndarray:

        def counter(prefix: np.ndarray, done: int) -> Any:
            return added(prefix, self._of_blocks(_counts_of_outcomes, prefix, done))

        return quantiles(counter, self.outcome_sums.count, (0.25, 0.5, 0.75))

    @cached_property
    def _spreads(self) -> np.ndarray:
        sums = self.outcome_sums
        mean = sums.total / np.maximum(sums.count, 1)
        largest = sums.reach(mean)
        unit = np.where(largest > 0, largest, 1.0)
        total = sum(self._of_blocks(_outcome_squares, mean, unit))
        sd = largest * np.sqrt(total / np.maximum(sums.count, 1))
        low, _, high = self._quantiles
        return np.array(
            [
                spread_of(*column) if varies else 1.0
                for *column, varies in zip(sd, high, low, largest > 0, strict=True)
            ]
        )


# --- of a block -----------------------------------------------------------------------------------


def _of_block(file: ValueFile, function: Callable[..., Any], *shared: Any) -> Any:
    data = file.rows(0, file.n_rows)
    return function(data.Y, data.A, *shared)


def _design_squares(
    Y: np.ndarray, A: np.ndarray, outcomes: list[int], centre: np.ndarray, unit: np.ndarray
) -> np.ndarray:
    used = ~np.isnan(Y[:, outcomes]).all(axis=1)
    return (((A[used] - centre) / unit) ** 2).sum(0)


def _outcome_squares(
    Y: np.ndarray, A: np.ndarray, mean: np.ndarray, unit: np.ndarray
) -> np.ndarray:
    return np.nansum(((Y - mean) / unit) ** 2, axis=0)


def _n_positive(Y: np.ndarray, A: np.ndarray, column: int) -> int:
    return int((A[:, column] > 0).sum())


def _counts_of_positive(
    Y: np.ndarray, A: np.ndarray, column: int, prefix: np.ndarray, done: int
) -> Any:
    values = A[:, [column]]
    return counts_in(np.where(values > 0, values, np.nan), prefix, done)


def _counts_of_outcomes(Y: np.ndarray, A: np.ndarray, prefix: np.ndarray, done: int) -> Any:
    return counts_in(Y, prefix, done)
