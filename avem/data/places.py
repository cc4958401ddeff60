"""Where the rows of one chunk are in its padded arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from avem.data.panel import Panel
from avem.numerics.rows import each


class Places(ABC):
    """Of every row: its time position and its lane."""

    @abstractmethod
    def put(self, values: np.ndarray, out: np.ndarray) -> None:
        """Values of all rows (rows, columns) into (times, columns, lanes)."""

    @abstractmethod
    def mark(self, out: np.ndarray) -> None:
        """True into (times, lanes) where there is a row."""

    @abstractmethod
    def take(self, chunk: np.ndarray, out: np.ndarray) -> None:
        """What a chunk (times, ..., lanes) has for its rows into (rows, ...) of all rows."""

    @abstractmethod
    def count(self, mask: np.ndarray) -> int:
        """How many of its rows are among those of a mask (rows,)."""

    @abstractmethod
    def chosen(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row numbers, time positions and lanes of the rows of a mask (rows,)."""


@dataclass(frozen=True, eq=False)
class Listed(Places):
    """Rows in any order."""

    rows: np.ndarray
    step: np.ndarray
    lane: np.ndarray

    def put(self, values: np.ndarray, out: np.ndarray) -> None:
        """Values of all rows into (times, columns, lanes)."""
        out[self.step, :, self.lane] = values[self.rows]

    def mark(self, out: np.ndarray) -> None:
        """True where there is a row."""
        out[self.step, self.lane] = True

    def take(self, chunk: np.ndarray, out: np.ndarray) -> None:
        """What a chunk has for its rows."""
        out[self.rows] = chunk[self.step, ..., self.lane]

    def count(self, mask: np.ndarray) -> int:
        """How many of its rows are among those of a mask."""
        return int(np.count_nonzero(mask[self.rows]))

    def chosen(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row numbers, time positions and lanes of the rows of a mask."""
        some = np.flatnonzero(mask[self.rows])
        return self.rows[some], self.step[some], self.lane[some]


@dataclass(frozen=True)
class Stacked(Places):
    """Sequences of equal length, one below the other in the order of the lanes."""

    first: int
    """The first row."""
    n_lanes: int
    n_times: int

    @property
    def _rows(self) -> slice:
        return slice(self.first, self.first + self.n_lanes * self.n_times)

    def put(self, values: np.ndarray, out: np.ndarray) -> None:
        """Values of all rows into (times, columns, lanes)."""
        shape = self.n_lanes, self.n_times, values.shape[1]
        own = np.moveaxis(values[self._rows].reshape(shape), 0, -1)

        def turn(lanes: slice) -> None:
            out[: self.n_times, :, lanes] = own[..., lanes]

        each(turn, self.n_lanes, self.n_times * values.shape[1])

    def mark(self, out: np.ndarray) -> None:
        """True where there is a row."""
        out[: self.n_times, : self.n_lanes] = True

    def take(self, chunk: np.ndarray, out: np.ndarray) -> None:
        """What a chunk has for its rows."""
        own = np.moveaxis(chunk[: self.n_times, ..., : self.n_lanes], -1, 0)
        out[self._rows].reshape(own.shape)[:] = own

    def count(self, mask: np.ndarray) -> int:
        """How many of its rows are among those of a mask."""
        return int(np.count_nonzero(mask[self._rows]))

    def chosen(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row numbers, time positions and lanes of the rows of a mask."""
        some = np.flatnonzero(mask[self._rows])
        lane, step = np.divmod(some, self.n_times)
        return self.first + some, step, lane


def stacked(panel: Panel, lanes: np.ndarray, first: np.ndarray) -> Stacked | None:
    """The places of some lanes in their order, where they are that simple; else None.

    ``first`` (lanes,) is how many rows the lanes before each have.
    """
    lengths = panel.lane_length[lanes]
    if not (panel.in_order and (lengths == lengths[0]).all() and (np.diff(lanes) == 1).all()):
        return None
    return Stacked(int(first[lanes[0]]), len(lanes), int(lengths[0]))
