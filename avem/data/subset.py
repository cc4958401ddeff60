"""Some of a chunk's subjects as a chunk of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from avem.data.layout import Chunk, RowList
from avem.numerics.arrays import in_numpy, per_subject

_LEAST, _LEAST_ELSEWHERE = 8, 1024
"""On a GPU, a thousand take no longer than one."""


def some_of(chunk: Chunk, members: np.ndarray) -> Chunk:
    """The subjects `members` (indices), in this order; of few sizes, to share code."""
    n_subjects = len(np.asarray(chunk.real))
    place = np.full(n_subjects, -1)
    place[members] = np.arange(len(members))
    owner = place[np.asarray(chunk.owner)]
    # Lanes without a sequence belong to subjects that are not there, or to nobody's first steps.
    lanes = np.flatnonzero((owner >= 0) & np.asarray(_with_rows(chunk.valid)))
    new_lane = np.full(len(owner), -1)
    new_lane[lanes] = np.arange(len(lanes))
    size = min(_padded(len(lanes)), len(owner))
    n = min(_padded(len(members)), n_subjects)
    if size == n and not np.array_equal(owner[lanes], np.arange(len(members))):
        size *= 2  # see `Chunk`

    new_owner = np.minimum(np.arange(size, dtype=np.int32), n - 1)
    new_owner[: len(lanes)] = owner[lanes]
    arrays = (chunk.y, chunk.a, chunk.seen, chunk.valid, *(p.index for p in chunk.patterns))
    blanks = (0, 0, 0, 0, *(len(p.y) for p in chunk.patterns))
    y, a, seen, valid, *indices = _taken(arrays, lanes, size, blanks)
    patterns = zip(chunk.patterns, indices, strict=True)
    return Chunk(
        y,
        a,
        seen,
        valid,
        new_owner,
        np.arange(n) < len(members),
        tuple(p._replace(index=index) for p, index in patterns),
        tuple(_rows(rows, new_lane, place) for rows in chunk.lists),
        None if chunk.weight is None else _taken((chunk.weight,), members, n)[0],
    )


@per_subject
def _with_rows(xp: Any, valid: Any) -> Any:
    """(lanes,) bool: it has a step."""
    return valid.any(0)


def _rows(rows: RowList, new_lane: np.ndarray, place: np.ndarray) -> RowList:
    """The rows of the lanes that were chosen."""
    lane, owner = new_lane[np.asarray(rows.lane)], place[np.asarray(rows.owner)]
    chosen = np.flatnonzero((lane >= 0) & (owner >= 0) & np.asarray(rows.real))
    chosen = chosen[np.argsort(owner[chosen], kind="stable")]
    size = _padded(len(chosen), 64)

    places = (lane.astype(np.int32), owner.astype(np.int32))
    step, lane, owner, y, a = _taken((rows.step, *places, rows.y, rows.a), chosen, size)
    return RowList(step, lane, owner, np.arange(size) < len(chosen), y, a)


def _taken(
    values: tuple[Any, ...], which: np.ndarray, size: int, blanks: tuple[int, ...] | None = None
) -> tuple[Any, ...]:
    """Of each array the entries `which` of the last axis, then its blanks, 0 unless told."""
    padded = np.zeros(size, which.dtype)
    padded[: len(which)] = which
    pairs = zip(values, blanks or (0,) * len(values), strict=True)
    typed = tuple(value.dtype.type(blank) for value, blank in pairs)
    return _picked(values, padded, np.arange(size) < len(which), typed)


@per_subject
def _picked(
    xp: Any, values: tuple[Any, ...], which: Any, real: Any, blanks: tuple[Any, ...]
) -> tuple[Any, ...]:
    def picked(value: Any, blank: Any) -> Any:
        there = value[..., which]
        return xp.where(real, there, blank) if value.shape[-1] else there

    return tuple(picked(*pair) for pair in zip(values, blanks, strict=True))


def _padded(size: int, least: int = _LEAST) -> int:
    """The next power of 2, or the middle between two of them."""
    least = max(least, _LEAST if in_numpy() else _LEAST_ELSEWHERE)
    power = max(least, 1 << (size - 1).bit_length())
    middle = 3 * power // 4
    return middle if size <= middle and middle >= least else power
