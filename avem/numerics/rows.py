"""Passes over very many rows, a stretch at a time: what is made on the way stays in a cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

import numpy as np

_STRETCH = 1 << 15
"""Rows; a column of so many numbers fits into a core's cache several times."""
_MANY, _WIDE = 1 << 20, 1 << 17
"""Rows that are worth several threads, and how many of them a thread takes at a time."""

Found = TypeVar("Found")


def stretches(n_rows: int) -> Iterator[slice]:
    """All rows in order, so many at a time."""
    return _cut(n_rows, _STRETCH)


def _cut(n_rows: int, size: int) -> Iterator[slice]:
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def each(function: Callable[[slice], Found], n_rows: int, width: int = 1) -> list[Found]:
    """What a function gives for every stretch, in order; very many rows go to several threads.

    ``width`` is how many numbers a row has.
    """
    width = max(width, 1)
    if n_rows * width < _MANY:
        return [function(at) for at in _cut(n_rows, max(1, _STRETCH // width))]
    return _on_threads(function, list(_cut(n_rows, max(1, _WIDE // width))))


def _on_threads(function: Callable[[slice], Found], parts: Sequence[slice]) -> list[Found]:
    """What a function gives for every part, in order; each thread has a share of them."""
    found: list[Any] = [None] * len(parts)
    n_threads = min(len(parts), os.cpu_count() or 1)

    def work(first: int) -> None:
        for number in range(first, len(parts), n_threads):
            found[number] = function(parts[number])

    contexts = [copy_context() for _ in range(n_threads)]  # with NumPy's errstate
    list(_pool().map(lambda own, first: own.run(work, first), contexts, range(n_threads)))
    return found


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="avem-rows")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # the child has none of them


def largest(values: np.ndarray) -> float:
    """The largest absolute value of (rows,), missing ones not counted; 0 without any."""
    parts = each(lambda at: np.fmax.reduce(np.abs(values[at]), initial=0.0), len(values))
    return float(max(parts, default=0.0))


def bounds(values: np.ndarray) -> tuple[float, float]:
    """The lowest and the highest of (rows,), missing ones not counted; there must be some."""
    parts = each(lambda at: (np.fmin.reduce(values[at]), np.fmax.reduce(values[at])), len(values))
    low, high = zip(*parts, strict=True)
    return float(np.fmin.reduce(low)), float(np.fmax.reduce(high))


def no_nan(values: np.ndarray) -> bool:
    """Whether nothing in (rows,) or (rows, columns) is NaN."""
    return not any(each(lambda at: np.isnan(values[at]).any(), len(values)))


def seen(values: np.ndarray) -> np.ndarray:
    """(rows, ...) bool: what is not NaN."""
    return filled(np.empty(values.shape, bool), lambda at: ~np.isnan(values[at]))


def filled(out: np.ndarray, values: Callable[[slice], Any]) -> np.ndarray:
    """The array, with the values of every stretch of rows."""

    def put(at: slice) -> None:
        out[at] = values(at)

    each(put, len(out))
    return out


def repeated(values: np.ndarray, first: np.ndarray, n_rows: int) -> np.ndarray:
    """(rows,) each of `values` from its first row on, up to the next one's."""

    def part(at: slice) -> np.ndarray:
        low, high = np.searchsorted(first, (at.start, at.stop - 1), side="right")
        ends = np.append(first[low:high], at.stop)
        return np.repeat(values[low - 1 : high], np.diff(ends, prepend=at.start))

    return filled(np.empty(n_rows, values.dtype), part)


def side_by_side(columns: Sequence[np.ndarray]) -> np.ndarray:
    """(rows, columns) of parts (rows, own columns)."""
    out = np.empty((len(columns[0]), sum(part.shape[1] for part in columns)))
    return filled(out, lambda at: np.concatenate([part[at] for part in columns], axis=1))


def means(values: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
    """(columns,) of (rows, columns), over all rows or those of a mask."""
    if isinstance(rows, slice):
        total, n = each(lambda at: values[at].sum(0), len(values)), len(values)
    else:
        total, n = each(lambda at: values[at][rows[at]].sum(0), len(values)), rows.sum()
    return np.sum(total, axis=0) / n


def take_columns(values: np.ndarray, at: Sequence[int]) -> np.ndarray:
    """Some columns of (rows, columns), without a copy where they are neighbours."""
    at = list(at)
    if at and at == list(range(at[0], at[0] + len(at))):
        return values[:, at[0] : at[0] + len(at)]
    return values[:, at]


def any_seen(values: np.ndarray, at: Sequence[int]) -> np.ndarray:
    """(rows,) bool: some of these columns of (rows, columns) is not missing there."""

    def some(rows: slice) -> np.ndarray:
        found = np.zeros(len(values[rows]), bool)
        for column in at:
            found |= ~np.isnan(values[rows, column])
        return found

    return filled(np.empty(len(values), bool), some)


def where(rows: np.ndarray) -> np.ndarray:
    """The numbers of the rows of a mask."""
    counts = each(lambda at: (at.start, int(np.count_nonzero(rows[at]))), len(rows))
    ends = np.cumsum([count for _, count in counts], dtype=np.intp)
    place = {start: end - count for (start, count), end in zip(counts, ends, strict=True)}
    out = np.empty(ends[-1] if len(ends) else 0, np.intp)

    def put(at: slice) -> None:
        own = np.flatnonzero(rows[at])
        np.add(own, at.start, out=out[place[at.start] : place[at.start] + len(own)])

    each(put, len(rows))
    return out


def selection(rows: np.ndarray) -> np.ndarray | slice:
    """What takes the rows (bool) from an array: nothing to copy where it is all of them."""
    return slice(None) if rows.all() else rows


def count_by(owner: np.ndarray, mask: np.ndarray, n: int) -> np.ndarray:
    """(n,) how many rows of a mask each of `n` owners has; ``owner`` (rows,) are their numbers."""
    return sum_by(owner, lambda at: mask[at].astype(np.int64), n, np.int64)


def count_rows(owner: np.ndarray, n: int) -> np.ndarray:
    """(n,) how many rows each owner has."""
    return sum_by(owner, lambda at: np.ones(at.stop - at.start, np.int64), n, np.int64)


def sum_by(
    owner: np.ndarray, values: Callable[[slice], np.ndarray], n: int, dtype: type = np.float64
) -> np.ndarray:
    """(n,) sums of values (rows,), which are made stretch by stretch, over each owner's rows.

    A sum is the same to the last bit whatever rows there are beside.
    """
    if not rising(owner):
        return np.bincount(owner, values(slice(0, len(owner))), n).astype(dtype)

    def of(at: slice) -> tuple[np.ndarray, np.ndarray]:
        own = owner[at]
        first = np.concatenate([[0], np.flatnonzero(own[1:] != own[:-1]) + 1])
        return own[first], np.add.reduceat(values(at), first)

    out = np.zeros(n, dtype)
    many = len(owner) >= _MANY
    wide = _WIDE if many else _STRETCH
    cuts = np.searchsorted(owner, owner[wide - 1 : -1 : wide], side="right")  # between owners
    cuts = np.unique(np.concatenate([[0], cuts, [len(owner)]]))
    parts = [slice(*ends) for ends in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)]
    for whose, sums in _on_threads(of, parts) if many else map(of, parts):
        out[whose] = sums
    return out


def rising(values: np.ndarray) -> bool:
    """Whether no row has less than the row before it."""
    return in_every_pair(lambda at, after: values[after] >= values[at], len(values))


def in_every_pair(fine: Callable[[slice, slice], np.ndarray], n_rows: int) -> bool:
    """Whether something holds of all rows and the rows after them, given as two slices."""

    def all_fine(at: slice) -> bool:
        return bool(fine(at, slice(at.start + 1, at.stop + 1)).all())

    n = max(n_rows - 1, 0)
    # Where it does not hold, the first rows nearly always show it.
    return all_fine(slice(0, min(n, _STRETCH))) and all(each(all_fine, n))


def triangle(x: np.ndarray, size: np.ndarray) -> np.ndarray:
    """R of the QR decomposition of (rows, columns) in units of their `size`, up to signs."""
    found = np.zeros((0, x.shape[1]))
    for at in stretches(len(x)):
        found = np.asarray(np.linalg.qr(np.concatenate([found, x[at] / size]), mode="r"))
    return found
