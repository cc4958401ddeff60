"""Exact order statistics of columns that are read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

_DIGIT = 16
"""Bits of a number that one pass through the blocks decides."""

Blocks = Callable[[], Iterator[np.ndarray]]
"""Every call goes through all blocks (rows, columns), NaN where missing."""


def quantiles(blocks: Blocks, counts: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """(shares, columns), interpolated as NumPy does; NaN where a column has no values.

    ``counts`` (columns,) says how many values there are.
    """
    last = np.maximum(counts - 1, 0)
    places = np.asarray(shares)[:, None] * last
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, last)
    found = order_statistics(blocks, np.concatenate([low, high]))
    below, above = np.split(found, 2)
    share, step = places - low, above - below
    out = np.where(share < 0.5, below + share * step, above - (1 - share) * step)
    return np.where(counts > 0, out, np.nan)


def order_statistics(blocks: Blocks, ranks: np.ndarray) -> np.ndarray:
    """(wanted, columns) the values of these ranks (wanted, columns), from 0 for the lowest.

    Numbers are told apart by their first bits, then by the next ones: as many passes as there are
    such digits, and no more memory than the counts of one digit.
    """
    prefix, left = np.zeros(ranks.shape, np.uint64), ranks.astype(np.int64)
    for done in range(0, 64, _DIGIT):
        counts = _counts(blocks, prefix, done)
        for j in range(ranks.shape[1]):
            for i in range(len(ranks)):
                below = np.cumsum(counts[j][int(prefix[i, j])])
                digit = min(int(np.searchsorted(below, left[i, j], side="right")), len(below) - 1)
                left[i, j] -= below[digit - 1] if digit else 0
                prefix[i, j] = (int(prefix[i, j]) << _DIGIT) | digit
    return _numbers(prefix)


def _counts(blocks: Blocks, prefix: np.ndarray, done: int) -> list[dict[int, np.ndarray]]:
    """For each column and each beginning of a number, how often each next digit occurs."""
    counts = [
        {int(start): np.zeros(1 << _DIGIT, np.int64) for start in set(column.tolist())}
        for column in prefix.T
    ]
    for block in blocks():
        for own, column in zip(counts, block.T, strict=True):
            keys = _keys(column[~np.isnan(column)])
            for start, total in own.items():
                same = keys if not done else keys[keys >> np.uint64(64 - done) == np.uint64(start)]
                digits = (same >> np.uint64(64 - done - _DIGIT)) & np.uint64((1 << _DIGIT) - 1)
                total += np.bincount(digits.astype(np.int64), minlength=1 << _DIGIT)
    return counts


_SIGN = np.uint64(1 << 63)


def _keys(values: np.ndarray) -> np.ndarray:
    """Whole numbers in the order of the values."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # + 0.0: there is one zero
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _numbers(keys: np.ndarray) -> np.ndarray:
    """The inverse of `_keys`."""
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)
