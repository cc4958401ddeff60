"""A data set being laid out for a mixed HMM: what the components' blocks ask for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from avem.components.lines import Line

_MAX_CELLS = 64
"""Rows are gathered into cells when no more than this many different ones occur."""


class Blocks:
    """Masks, patterns and lists of rows."""

    def __init__(self, y: np.ndarray, a: np.ndarray, n_effects: int, constant: int) -> None:
        self.y, self.a, self.n_effects, self.constant = y, a, n_effects, constant
        self._seen: list[np.ndarray] = []
        self.patterns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.lists: list[np.ndarray] = []
        self.telling: list[np.ndarray] = []
        """Rows with every value that a pattern was made of, or with too many for one."""

    @property
    def masks(self) -> np.ndarray:
        """(rows, masks)."""
        return self._seen[0] if len(self._seen) == 1 else np.concatenate(self._seen, axis=1)

    def mask(self, seen: np.ndarray) -> tuple[int, ...]:
        first = sum(part.shape[1] for part in self._seen)
        self._seen.append(seen)
        return tuple(range(first, first + seen.shape[1]))

    def n_cells(self, pattern: int) -> int:
        return len(self.patterns[pattern][2])

    def row_list(self, rows: np.ndarray) -> int:
        """Outcomes seen together share a list."""
        for number, known in enumerate(self.lists):
            if (known == rows).all():
                return number
        self.lists.append(rows)
        return len(self.lists) - 1

    def pattern(
        self,
        lines: Sequence[Line],
        y_cols: tuple[int, ...],
        rows: np.ndarray,
        more: tuple[int, ...] = (),
        most: int | None = None,
    ) -> int:
        columns = sorted({*more, *(c for line in lines for c in line.columns)})
        values = np.concatenate([self.y[:, list(y_cols)], self.a[:, columns]], axis=1)[rows]
        most = _MAX_CELLS if most is None else most
        codes = _alike(values, most)
        if codes is None:
            self.telling.append(np.flatnonzero(rows)[_different(values, most)])
            return -1
        first = np.unique(codes, return_index=True)[1]
        if len(first) > 1:  # cells in the order of their values, in whatever order rows come
            order = np.lexsort(values[first].T)
            codes, first = np.argsort(order)[codes], first[order]
        self.telling.append(np.flatnonzero(rows)[first])
        index = np.full(len(rows), _rounded(len(first)))
        index[rows] = codes
        at = np.flatnonzero(rows)[first]
        # Similar data sets share compiled code: further cells, which no row belongs to.
        at = np.concatenate([at, np.repeat(at[:1], _rounded(len(at)) - len(at))])
        self.patterns.append((index, self.y[at], self.a[at]))
        return len(self.patterns) - 1


class OneRow(Blocks):
    """A single row, the same on all lanes: there is nothing to gather."""

    def pattern(self, lines, y_cols, rows, more=(), most=None) -> int:
        return -1


def _different(values: np.ndarray, most: int) -> np.ndarray:
    """The first rows that differ from each other, enough to see that they are more than `most`."""
    if not len(values):
        return np.zeros(0, int)
    for n in (4 * most, len(values)):
        codes = pd.DataFrame(values[:n]).groupby(list(range(values.shape[1])), dropna=False)
        first = np.unique(codes.ngroup().to_numpy(), return_index=True)[1]
        if len(first) > most:
            break
    return np.sort(first)[: most + 1]


def _rounded(n_cells: int) -> int:
    if n_cells <= _MAX_CELLS:
        return n_cells if n_cells <= 2 else 4 if n_cells <= 4 else -(-n_cells // 8) * 8
    return -(-n_cells // 256) * 256


def _alike(values: np.ndarray, most: int) -> np.ndarray | None:
    """Number of each row's kind, 0, 1, ...; None when more than a few kinds occur."""
    if not len(values):
        return None
    codes = np.zeros(len(values), int)
    for column in values.T:
        own = pd.factorize(column, use_na_sentinel=False)[0]
        if own.max() >= most:
            return None
        codes = pd.factorize(codes * most + own)[0]
        if codes.max() >= most:
            return None
    return codes
