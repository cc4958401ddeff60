"""Where every row of a panel sits in the padded arrays that the compiled code reads.

Whole subjects are packed into chunks: a chunk holds arrays whose last axis runs over its lanes (one
lane is one sequence), small enough to stay in a CPU's cache through all passes. So the work on a
chunk needs nothing from the others, and everything that leaves it is a small sum over subjects.
Shapes are rounded up here and nowhere else, so that data sets of similar size share compiled code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from avem.data.panel import Panel
from avem.data.places import Listed, Places, stacked
from avem.data.scanning.memory import need_rows
from avem.numerics.rows import each

_MAX_BUCKETS = 4
_LARGE = 1 << 16
_BUCKET_PRICE = 200_000
"""Padded cells that one more compiled shape must save to be worth its compile time."""


Array = Any
"""NumPy's here; JAX's once the chunk is on a device."""


class Pattern(NamedTuple):
    """Rows that look alike to one part of the model, gathered into a few cells."""

    index: Array
    """(times, lanes) the cell of each row; the number of cells where there is nothing."""
    y: Array
    """(cells, columns) the outcome columns of each cell."""
    a: Array
    """(cells, design columns)."""


class RowList(NamedTuple):
    """The observed rows of one part of the model, one after the other, without padding between."""

    step: Array
    lane: Array
    owner: Array
    """(rows,) the chunk subject of each row."""
    real: Array
    """(rows,) bool: not padding at the end."""
    y: Array
    """(outcome columns, rows)."""
    a: Array
    """(design columns, rows)."""


class Chunk(NamedTuple):
    """The numbers of one chunk, as the compiled code reads them; 0 wherever nothing was seen.

    It has as many lanes as subjects only where lane i is the one sequence of subject i.
    """

    y: Array
    """(times, outcomes, lanes)."""
    a: Array
    """(times, design columns, lanes)."""
    seen: Array
    """(times, groups, lanes) bool: which groups of outcomes were observed."""
    valid: Array
    """(times, lanes) bool: the step exists; a missing observation is a valid step."""
    owner: Array
    """(lanes,) the chunk subject of each lane."""
    real: Array
    """(subjects,) bool: not padding."""
    patterns: tuple[Pattern, ...] = ()
    lists: tuple[RowList, ...] = ()
    weight: Array | None = None
    """(subjects,) how much each counts in sums over subjects; None: all alike."""


@dataclass(frozen=True)
class Slots:
    """The subjects and rows of one chunk."""

    shape: tuple[int, int, int]
    """Padded (times, lanes, subjects)."""
    subjects: np.ndarray
    """Global index of each real subject, in chunk order."""
    owner: np.ndarray
    """(lanes,) chunk subject that each lane belongs to; padded lanes belong to subject 0."""
    places: Places
    """Of its rows, by their numbers in the whole panel."""


@dataclass(frozen=True)
class Layout:
    """All chunks of a panel, with the way in (`scatter`, `split`) and out (`gather`, `join`)."""

    slots: tuple[Slots, ...]
    n_rows: int
    n_subjects: int
    weight: np.ndarray | None = None
    """(subjects,) how much each counts; None: all alike."""
    has_rows: bool = True
    """Not those of a scan, which are on disk."""

    def scatter(self, values: np.ndarray) -> Iterator[np.ndarray]:
        """Row values (rows, columns) as a (times, columns, lanes) array per chunk, 0 elsewhere."""
        if not self.has_rows:
            raise need_rows()
        for slot in self.slots:
            times, lanes, _ = slot.shape
            out = np.zeros((times, values.shape[1], lanes), values.dtype)
            slot.places.put(values, out)
            yield out

    def chunks(
        self,
        y: np.ndarray,
        a: np.ndarray,
        seen: np.ndarray,
        patterns: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]] = (),
        lists: Sequence[np.ndarray] = (),
        list_sizes: Sequence[int] = (),
    ) -> Iterator[Chunk]:
        """Row values as chunks, one at a time; y is NaN where it is missing.

        ``patterns`` are (cell of each row, y and a of the cells); ``lists`` are (rows,) masks, and
        ``list_sizes`` how long they are padded to be, where chunks that are not here decide that.
        """
        parts = [self.scatter(values) for values in (y, a, seen)]
        # One more than the cell, so that 0 can mean nothing here.
        cells = [self.scatter(index[:, None].astype(np.int32) + 1) for index, _, _ in patterns]
        for slot in self.slots:
            y_part, a_part, seen_part = (next(part) for part in parts)
            valid = np.zeros((slot.shape[0], slot.shape[1]), bool)
            slot.places.mark(valid)
            made = tuple(
                Pattern(_shift_back(next(cell)[:, 0], len(of_y)), of_y, of_a)
                for cell, (_, of_y, of_a) in zip(cells, patterns, strict=True)
            )
            sizes = list_sizes or [self._list_size(slot, mask) for mask in lists]
            pairs = zip(lists, sizes, strict=True)
            listed = tuple(self._row_list(slot, mask, y, a, size) for mask, size in pairs)
            real = np.arange(slot.shape[2]) < len(slot.subjects)
            part = (_finite(y_part), a_part, seen_part, valid, slot.owner, real, made, listed)
            yield Chunk(*part, self._weight(slot))

    def _weight(self, slot: Slots) -> np.ndarray | None:
        if self.weight is None:
            return None
        out = np.zeros(slot.shape[2])
        out[: len(slot.subjects)] = self.weight[slot.subjects]
        return out

    def _list_size(self, slot: Slots, mask: np.ndarray) -> int:
        """The padded length that a list has in all chunks of one shape."""
        alike = [other for other in self.slots if other.shape == slot.shape]
        return list_size(max(other.places.count(mask) for other in alike))

    def _row_list(
        self, slot: Slots, mask: np.ndarray, y: np.ndarray, a: np.ndarray, size: int
    ) -> RowList:
        rows, step, lane = slot.places.chosen(mask)
        owner, n = slot.owner[lane], len(rows)
        order = np.lexsort((step, lane, owner))
        rows = rows[order]

        def padded(values: np.ndarray) -> np.ndarray:
            return np.concatenate([values, np.zeros((size - n, *values.shape[1:]), values.dtype)])

        return RowList(
            step=padded(step[order].astype(np.int32)),
            lane=padded(lane[order].astype(np.int32)),
            owner=padded(owner[order].astype(np.int32)),
            real=np.arange(size) < n,
            y=np.ascontiguousarray(_finite(padded(y[rows])).T),
            a=np.ascontiguousarray(padded(a[rows]).T),
        )

    def gather(self, chunks: Sequence[np.ndarray]) -> np.ndarray:
        """The inverse of `scatter`: (times, ..., lanes) arrays back to rows."""
        if not self.has_rows:
            raise need_rows()
        first = np.asarray(chunks[0])
        out = np.empty((self.n_rows, *first.shape[1:-1]), first.dtype)
        for slot, chunk in zip(self.slots, chunks, strict=True):
            slot.places.take(np.asarray(chunk), out)
        return out

    def split(self, values: np.ndarray) -> Iterator[np.ndarray]:
        """Subject values (..., subjects) cut into chunks, padded with 0."""
        for slot in self.slots:
            out = np.zeros((*values.shape[:-1], slot.shape[2]), values.dtype)
            out[..., : len(slot.subjects)] = values[..., slot.subjects]
            yield out

    def join(self, chunks: Sequence[np.ndarray]) -> np.ndarray:
        """The inverse of `split`."""
        first = np.asarray(chunks[0])
        out = np.empty((*first.shape[:-1], self.n_subjects), first.dtype)
        for slot, chunk in zip(self.slots, chunks, strict=True):
            out[..., slot.subjects] = np.asarray(chunk)[..., : len(slot.subjects)]
        return out


def _finite(y: np.ndarray) -> np.ndarray:
    """With 0 for what is missing, and what is infinite as large as can be, in place."""
    finite = all(each(lambda at: np.isfinite(y[at]).all(), len(y), y[:1].size))
    return y if finite else np.nan_to_num(y, copy=False)


def list_size(most: int) -> int:
    """The padded length of a list of at most so many rows."""
    return _round_up(most, 64)


def _shift_back(index: np.ndarray, n_cells: int) -> np.ndarray:
    return np.where(index == 0, n_cells, index - 1).astype(np.int32)


class _Packs(NamedTuple):
    """Which subjects and lanes are in which chunk."""

    packs: list[tuple[np.ndarray, tuple[int, int, int]]]
    """The subjects of each chunk, and its padded shape."""
    place: np.ndarray
    """(subjects,) in their chunk."""
    order: np.ndarray
    """(lanes,) by chunk, then by the subject's place in it."""
    lane_chunk: np.ndarray
    cuts: np.ndarray
    """Where each chunk begins in `order`."""


def _packed(lane_subject: np.ndarray, lane_length: np.ndarray, n: int, max_lanes: int) -> _Packs:
    """The subjects, `n` of them, in chunks of at most `max_lanes` lanes and similar length."""
    lanes_of = np.bincount(lane_subject, minlength=n)
    longest = np.zeros(n, int)
    np.maximum.at(longest, lane_subject, lane_length)
    max_lanes = max(max_lanes, int(lanes_of.max()))

    packs: list[tuple[np.ndarray, tuple[int, int, int]]] = []
    for bucket in _buckets(longest, lanes_of):
        members = _cut(bucket, lanes_of, max_lanes)
        n_lanes = _round_up(max(int(lanes_of[part].sum()) for part in members), 8)
        n_subjects = _round_up(max(len(part) for part in members), 8)
        if n_lanes == n_subjects and lanes_of[bucket].max() > 1:
            n_lanes += 8  # see `Chunk`
        shape = (_round_up_times(int(longest[bucket].max())), n_lanes, n_subjects)
        packs += [(part, shape) for part in members]

    chunk_of = np.empty(n, int)
    place = np.empty(n, int)
    for number, (part, _) in enumerate(packs):
        chunk_of[part] = number
        place[part] = np.arange(len(part))

    lane_chunk = chunk_of[lane_subject]
    order = np.lexsort((place[lane_subject], lane_chunk))
    cuts = np.searchsorted(lane_chunk[order], np.arange(len(packs) + 1))
    return _Packs(packs, place, order, lane_chunk, cuts)


def _owners(shape: tuple[int, int, int], places: np.ndarray) -> np.ndarray:
    """(lanes,) the chunk subject of each lane, from those of the lanes that there are."""
    # Lanes without a sequence belong to subjects that are not there either, if there are any.
    owner = np.minimum(np.arange(shape[1], dtype=np.int32), shape[2] - 1)
    owner[: len(places)] = places
    return owner


def build_layout(panel: Panel, max_lanes: int = 1024) -> Layout:
    """Pack the panel's subjects into chunks of at most `max_lanes` lanes and similar length."""
    packs, place, order, lane_chunk, cuts = _packed(
        panel.lane_subject, panel.lane_length, panel.n_subjects, max_lanes
    )
    first = np.cumsum(panel.lane_length) - panel.lane_length
    chunks = [order[start:end] for start, end in pairwise(cuts.tolist())]
    places: list[Places | None] = [stacked(panel, lanes, first) for lanes in chunks]
    if None in places:
        local_lane = np.empty(panel.n_lanes, int)
        local_lane[order] = np.arange(panel.n_lanes) - cuts[lane_chunk[order]]
        row_chunk = lane_chunk[panel.row_lane]
        by_chunk = np.argsort(row_chunk, kind="stable")
        row_cuts = np.searchsorted(row_chunk[by_chunk], np.arange(len(packs) + 1))
        for number, known in enumerate(places):
            rows = by_chunk[row_cuts[number] : row_cuts[number + 1]]
            listed = Listed(rows, panel.row_step[rows], local_lane[panel.row_lane[rows]])
            places[number] = known or listed
    slots = []
    for (part, shape), lanes, own in zip(packs, chunks, places, strict=True):
        assert own is not None
        owner = _owners(shape, place[panel.lane_subject[lanes]])
        slots.append(Slots(shape, part, owner, own))
    return Layout(tuple(slots), panel.n_rows, panel.n_subjects, panel.subject_weights)


def build_outline(scan: Any, max_lanes: int = 1024) -> Layout:
    """The same chunks of a panel that is not in memory: which subjects, but not which rows."""
    packs, place, order, _, cuts = _packed(
        scan.lane_subject, scan.lane_length, scan.n_subjects, max_lanes
    )
    nothing = Listed(*np.zeros((3, 0), int))
    slots = []
    for number, (part, shape) in enumerate(packs):
        lanes = order[cuts[number] : cuts[number + 1]]
        owner = _owners(shape, place[scan.lane_subject[lanes]])
        slots.append(Slots(shape, part, owner, nothing))
    weight = scan.subject_weights
    return Layout(tuple(slots), scan.n_rows, scan.n_subjects, weight, has_rows=False)


def layout_of_chunk(slots: Slots, panel: Panel, weight: np.ndarray | None = None) -> Layout:
    """The layout of one chunk of an outline, whose subjects are a panel in the same order.

    ``weight`` (subjects,) is theirs.
    """
    first = np.cumsum(panel.lane_length) - panel.lane_length
    places = stacked(panel, np.arange(panel.n_lanes), first) or Listed(
        np.arange(panel.n_rows), panel.row_step, panel.row_lane
    )
    own = replace(slots, subjects=np.arange(panel.n_subjects), places=places)
    return Layout((own,), panel.n_rows, panel.n_subjects, weight)


def _round_up(size: int, smallest: int) -> int:
    """The next size on a grid whose spacing is at most an eighth of the size; less of a large one.

    What is padded costs as much as what is there, and compiling as much whatever the size.
    """
    finer = 6 if size > _LARGE else 4
    spacing = max(smallest, 2 ** (max(size, 1).bit_length() - finer))
    return -(-size // spacing) * spacing


def _round_up_times(n_times: int) -> int:
    return _round_up(n_times, 4 if n_times <= 16 else 8)


def _buckets(longest: np.ndarray, lanes_of: np.ndarray) -> list[np.ndarray]:
    """Subjects, shortest first, cut into the few length classes that waste least padding."""
    by_length = np.argsort(longest, kind="stable")
    lengths = longest[by_length]
    # Candidate cuts: even ones, and ever finer ones towards the few longest subjects.
    n = len(lengths)
    tail = n - 2 ** np.arange(n.bit_length())
    places = np.concatenate([np.linspace(0, n - 1, 33).astype(int), tail[tail > 0] - 1])
    ends = np.unique(np.searchsorted(lengths, lengths[places], side="right"))
    lanes = np.concatenate([[0], np.cumsum(lanes_of[by_length])])

    def cost(start: int, end: int) -> int:
        size = _round_up(int(lanes[end] - lanes[start]), 8)
        return _round_up_times(int(lengths[end - 1])) * size + _BUCKET_PRICE

    # cheapest[end] = (cost, cuts) of the best partition of the first `end` subjects so far.
    cheapest: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    best = (cost(0, n), (n,))
    for _ in range(_MAX_BUCKETS):
        cheapest = {
            end: min(
                (total + cost(start, end), (*cuts, end))
                for start, (total, cuts) in cheapest.items()
                if start < end
            )
            for end in ends.tolist()
            if end > min(cheapest, default=n)
        }
        if n in cheapest:
            best = min(best, cheapest[n])
    return np.split(by_length, best[1][:-1])


def _cut(bucket: np.ndarray, lanes_of: np.ndarray, max_lanes: int) -> list[np.ndarray]:
    """A bucket's subjects, in order, in parts of at most `max_lanes` lanes each."""
    # Even parts waste less padding than full ones and a remainder.
    n_parts = -(-int(lanes_of[bucket].sum()) // max_lanes)
    target = max(-(-int(lanes_of[bucket].sum()) // n_parts), int(lanes_of[bucket].max()))
    cuts, size = [], 0
    for place, lanes in enumerate(lanes_of[bucket].tolist()):
        if size + lanes > target:
            cuts.append(place)
            size = 0
        size += lanes
    return np.split(bucket, cuts)


def constant_in_lanes(panel: Panel, values: np.ndarray) -> bool:
    """Whether the columns of (rows, columns) do not change within any sequence."""
    first = panel.order[np.cumsum(panel.lane_length) - panel.lane_length]
    return bool((values == values[first[panel.row_lane]]).all())
