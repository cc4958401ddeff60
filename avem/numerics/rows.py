"""Passes over very many rows, a stretch at a time: what is made on the way stays in a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

_STRETCH = 1 << 15
"""Rows; a column of so many numbers fits into a core's cache several times."""


def stretches(n_rows: int) -> Iterator[slice]:
    """All rows in order, so many at a time."""
    for start in range(0, n_rows, _STRETCH):
        yield slice(start, min(start + _STRETCH, n_rows))


def largest(values: np.ndarray) -> float:
    """The largest absolute value of (rows,), missing ones not counted; 0 without any."""
    parts = (np.fmax.reduce(np.abs(values[at]), initial=0.0) for at in stretches(len(values)))
    return float(max(parts, default=0.0))


def no_nan(values: np.ndarray) -> bool:
    """Whether nothing in (rows,) or (rows, columns) is NaN."""
    return not any(np.isnan(values[at]).any() for at in stretches(len(values)))


def take_columns(values: np.ndarray, at: Sequence[int]) -> np.ndarray:
    """Some columns of (rows, columns), without a copy where they are neighbours."""
    at = list(at)
    if at and at == list(range(at[0], at[0] + len(at))):
        return values[:, at[0] : at[0] + len(at)]
    return values[:, at]


def any_seen(values: np.ndarray, at: Sequence[int]) -> np.ndarray:
    """(rows,) bool: some of these columns of (rows, columns) is not missing there."""
    found = np.zeros(len(values), bool)
    for column in at:
        found |= ~np.isnan(values[:, column])
    return found


def selection(rows: np.ndarray) -> np.ndarray | slice:
    """What takes the rows (bool) from an array: nothing to copy where it is all of them."""
    return slice(None) if rows.all() else rows


def count_by(owner: np.ndarray, mask: np.ndarray, n: int) -> np.ndarray:
    """(n,) how many rows of a mask each of `n` owners has; ``owner`` (rows,) are their numbers."""
    return np.bincount(owner[selection(mask)], minlength=n)


def triangle(x: np.ndarray, size: np.ndarray) -> np.ndarray:
    """R of the QR decomposition of (rows, columns) in units of their `size`, up to signs."""
    found = np.zeros((0, x.shape[1]))
    for at in stretches(len(x)):
        found = np.asarray(np.linalg.qr(np.concatenate([found, x[at] / size]), mode="r"))
    return found
