"""Exact order statistics of columns that are read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from avem.numerics.rows import each

_DIGIT = 16
"""Bits of a number that one pass through the blocks decides."""
_SAMPLE = 1 << 16
"""Values that say where to look for a rank among many more."""

Counts = list[dict[int, np.ndarray]]
"""For each column and each beginning of a number, how often each next digit occurs."""
Counter = Callable[[np.ndarray, int], Counts]
"""Goes through all rows: the counts after these beginnings (wanted, columns), of so many bits."""


def quantiles(counter: Counter, counts: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """(shares, columns), interpolated as NumPy does; NaN where a column has no values.

    ``counts`` (columns,) says how many values there are.
    """
    last = np.maximum(counts - 1, 0)
    places = np.asarray(shares)[:, None] * last
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, last)
    found = order_statistics(counter, np.concatenate([low, high]))
    below, above = np.split(found, 2)
    return np.where(counts > 0, _between(below, above, places - low), np.nan)


def quantiles_of(values: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """(shares,) quantiles of (rows,) numbers in memory, none of them missing."""
    places = np.asarray(shares) * (len(values) - 1)
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, len(values) - 1)
    ranks = np.unique(np.concatenate([low, high]))
    found = _of_ranks(values, ranks)
    below, above = (found[np.searchsorted(ranks, rank)] for rank in (low, high))
    return _between(below, above, places - low)


def _between(below: np.ndarray, above: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Interpolated as NumPy does."""
    step = above - below
    return np.where(share < 0.5, below + share * step, above - (1 - share) * step)


def _of_ranks(values: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """The values of these ranks, ascending, from 0 for the lowest.

    Of many numbers a sample says between which bounds those of a rank lie; only what is there is
    sorted, and how much is below is counted.
    """
    n, found = len(values), np.full(len(ranks), np.nan)
    sample = np.sort(values[:: n // _SAMPLE]) if n >= 8 * _SAMPLE else values[:0]
    last = len(sample) - 1
    place = ranks / max(n - 1, 1) * last
    slack = 1 + 5 * np.sqrt(len(sample)) / 2  # five standard deviations
    low = np.maximum(np.floor(place - slack), 0).astype(int)
    high = np.minimum(np.ceil(place + slack), last).astype(int)
    for bounds in sorted(set(zip(low.tolist(), high.tolist(), strict=True))) if last >= 0 else ():
        own = np.flatnonzero((low == bounds[0]) & (high == bounds[1]))
        floor = sample[bounds[0]] if bounds[0] else -np.inf
        ceiling = sample[bounds[1]] if bounds[1] < last else np.inf

        def split(at: slice, floor: Any = floor, ceiling: Any = ceiling) -> tuple[int, np.ndarray]:
            """How many are below, and what is inside."""
            below = values[at] < floor
            return int(np.count_nonzero(below)), values[at][~below & (values[at] <= ceiling)]

        n_below, inside = zip(*each(split, n), strict=True)
        between, rank = np.concatenate(inside), ranks[own] - sum(n_below)
        if rank.min() >= 0 and rank.max() < len(between):
            found[own] = np.partition(between, rank)[rank]
    missed = np.isnan(found)
    if missed.any():
        found[missed] = np.partition(values, ranks[missed])[ranks[missed]]
    return found


def order_statistics(counter: Counter, ranks: np.ndarray) -> np.ndarray:
    """(wanted, columns) the values of these ranks (wanted, columns), from 0 for the lowest.

    Numbers are told apart by their first bits, then by the next ones: as many passes as there are
    such digits, and no more memory than the counts of one digit.
    """
    prefix, left = np.zeros(ranks.shape, np.uint64), ranks.astype(np.int64)
    for done in range(0, 64, _DIGIT):
        counts = counter(prefix, done)
        for j in range(ranks.shape[1]):
            for i in range(len(ranks)):
                below = np.cumsum(counts[j][int(prefix[i, j])])
                digit = min(int(np.searchsorted(below, left[i, j], side="right")), len(below) - 1)
                left[i, j] -= below[digit - 1] if digit else 0
                prefix[i, j] = (int(prefix[i, j]) << _DIGIT) | digit
    return _numbers(prefix)


def counter_of(blocks: Callable[[], Iterable[np.ndarray]]) -> Counter:
    """That of blocks (rows, columns), NaN where missing; every call goes through all of them."""

    def counter(prefix: np.ndarray, done: int) -> Counts:
        return added(prefix, (counts_in(block, prefix, done) for block in blocks()))

    return counter


Few = list[dict[int, tuple[np.ndarray, np.ndarray]]]
"""`Counts` as the digits that occur, and how often."""


def counts_in(block: np.ndarray, prefix: np.ndarray, done: int) -> Few:
    """Of one block."""
    found: Few = []
    for values, starts in zip(block.T, prefix.T, strict=True):
        keys, own = _keys(values[~np.isnan(values)]), {}
        for start in set(starts.tolist()):
            same = keys if not done else keys[keys >> np.uint64(64 - done) == np.uint64(start)]
            digits = (same >> np.uint64(64 - done - _DIGIT)) & np.uint64((1 << _DIGIT) - 1)
            n_times = np.bincount(digits.astype(np.int64))
            own[int(start)] = (np.flatnonzero(n_times), n_times[n_times > 0])
        found.append(own)
    return found


def added(prefix: np.ndarray, some: Iterable[Few]) -> Counts:
    """Of several blocks together."""
    counts = [
        {int(start): np.zeros(1 << _DIGIT, np.int64) for start in set(column.tolist())}
        for column in prefix.T
    ]
    for few in some:
        for own, more in zip(counts, few, strict=True):
            for start, (digits, n_times) in more.items():
                own[start][digits] += n_times
    return counts


_SIGN = np.uint64(1 << 63)


def _keys(values: np.ndarray) -> np.ndarray:
    """Whole numbers in the order of the values."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # + 0.0: there is one zero
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _numbers(keys: np.ndarray) -> np.ndarray:
    """The inverse of `_keys`."""
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)
