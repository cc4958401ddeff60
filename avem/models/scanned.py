"""A scan laid out in files, chunk by chunk: what `encode` is for a panel."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from avem.components.scaling import Scaling
from avem.data.layout import Layout, Slots, build_outline, layout_of_chunk, list_size
from avem.data.scanning.room import writing_into
from avem.data.scanning.scan import Scan
from avem.errors import AvemError
from avem.execution.chunk_files import ChunkFile, write_chunk
from avem.execution.cluster import Cluster
from avem.execution.disk import Disk
from avem.models.encoded import Encoded, LaidOut, PanelData, Placement
from avem.models.encoded_scan import EncodedScan
from avem.models.scan_reading import read_scan
from avem.models.stored import StoredData, StoredRows
from avem.models.telling import Telling
from avem.numerics.precision import in_float64

START_ROWS = 1_000_000
"""Starts are made from the rows of so many subjects as have about this many together."""
_SHARE_OF_CHUNK = 0.02
"""Of the memory, that a single chunk may take."""
_BATCH_ROWS = 200_000
"""Of chunks that are laid out together, into one file."""


class _Rows(NamedTuple):
    """The rows of one chunk, and where they are."""

    slots: Slots
    scan: Scan
    """Of its subjects alone."""
    where: StoredRows
    weight: np.ndarray | None
    """(subjects,) how much each counts."""
    wanted: np.ndarray
    """(subjects,) bool: starts are made from their rows."""


class _Batch(NamedTuple):
    """Chunks that are laid out together."""

    chunks: tuple[_Rows, ...]
    path: str
    """Where they go."""


@dataclass(frozen=True, eq=False)
class _Rule:
    """How all chunks are laid out."""

    model: Any
    telling: Telling
    by_lane: bool
    unit: np.ndarray
    """(outcome columns,) root of the spread on the scale of the fit."""
    kernel: Any = None
    with_means: bool = False

    def laid_out(self, rows: PanelData, later: np.ndarray) -> LaidOut:
        """Rows on the scale of the fit, laid out as all of them are."""
        made = self.telling.laid_out(self.model, rows, later, self.by_lane)
        if self.kernel is not None and made.kernel != self.kernel:
            raise AvemError("The parts of the scan are not laid out alike; please report this.")
        return made

    def part(self, rows: _Rows) -> _Part:
        """The rows of a chunk."""
        panel, data = rows.scan.outline(np.arange(rows.scan.n_subjects)), rows.where.read()
        y, a = self.model.scaling.data_in(data.Y, data.A)
        beyond = self.model.beyond(panel, y, self.unit)
        lost = beyond[:, None] & ~np.isnan(y)
        y = np.where(beyond[:, None], np.nan, y)
        made = self.laid_out(PanelData(y, a, 0, data.possible), panel.row_step > 0)
        return _Part(panel, y, a, data.possible, beyond, lost, made)


class _Part(NamedTuple):
    """One chunk's rows on the scale of the fit."""

    panel: Any
    y: np.ndarray
    a: np.ndarray
    possible: np.ndarray | None
    beyond: np.ndarray
    """(rows,) the ends of sequences that are left out."""
    lost: np.ndarray
    """(rows, outcome columns) values that are left out with them."""
    made: LaidOut


class _Learned(NamedTuple):
    """What is kept of a chunk's rows, by subject."""

    largest: np.ndarray
    n_runaway: int
    n_lost: np.ndarray
    n_in_units: np.ndarray
    rows: tuple[np.ndarray, ...]
    """Of those that starts are made from: the subject, then outcomes, design, and where they may
    be."""
    means: np.ndarray | None

    @classmethod
    def of(cls, rule: _Rule, rows: _Rows, part: _Part) -> _Learned:
        subject, n = part.panel.row_subject, part.panel.n_subjects
        size = np.nan_to_num(
            np.fmax.reduce(np.abs(part.y) / np.sqrt(rule.unit**2), axis=1, initial=0.0)
        )
        largest = np.zeros(n)
        np.maximum.at(largest, subject, size)
        model, chosen = rule.model, rows.wanted[subject]
        numbers = (part.y, part.a) if part.possible is None else (part.y, part.a, part.possible)

        def counted(values: np.ndarray) -> np.ndarray:
            counts = [np.bincount(subject, column, n) for column in values.T]
            return np.stack(counts, axis=1).astype(np.int32)

        return cls(
            largest=largest,
            n_runaway=int(part.beyond.sum()),
            n_lost=counted(part.lost),
            n_in_units=counted(model.in_units(part.y)),
            rows=(rows.slots.subjects[subject[chosen]], *(own[chosen] for own in numbers)),
            means=model.start_means(part.y, subject, n) if rule.with_means else None,
        )


def _n_listed(batch: _Batch, rule: _Rule) -> list[tuple[tuple[int, ...], list[int]]]:
    """Of each chunk, its shape, and how long its lists of rows are."""
    made = ((rows.slots.shape, rule.part(rows).made) for rows in batch.chunks)
    return [(shape, [int(own.sum()) for own in one.lists]) for shape, one in made]


def _lay_out(
    batch: _Batch, rule: _Rule, sizes: dict[tuple[int, ...], list[int]]
) -> list[tuple[ChunkFile, _Learned]]:
    """The chunks of a batch, written into its file."""
    found, path = [], Path(batch.path)
    unfinished = path.with_suffix(".part")
    with writing_into(path.parent), open(unfinished, "wb") as file:
        for rows in batch.chunks:
            part = rule.part(rows)
            made = part.made
            own = layout_of_chunk(rows.slots, part.panel, rows.weight)
            (chunk,) = own.chunks(
                part.y,
                part.a,
                made.masks,
                made.patterns,
                made.lists,
                sizes[rows.slots.shape],
            )
            if part.beyond.any():
                (end,) = own.scatter(part.beyond[:, None])
                chunk = chunk._replace(valid=chunk.valid & ~end[:, 0])
            where = write_chunk(file, chunk)._replace(path=batch.path)
            found.append((where, _Learned.of(rule, rows, part)))
    unfinished.replace(path)
    return found


class _Collected:
    """What is learned of all rows while their chunks are written."""

    def __init__(self, scan: Scan, n_outcomes: int, wanted: np.ndarray) -> None:
        self.sampled, self._scan = np.flatnonzero(wanted), scan
        self._rows: list[tuple[np.ndarray, ...]] = []
        self.means: np.ndarray | None = None
        self.n_in_units = np.zeros((scan.n_subjects, n_outcomes), np.int32)
        self.largest = np.zeros(scan.n_subjects)
        self.n_lost = np.zeros((scan.n_subjects, n_outcomes), np.int32)
        self.n_runaway = 0

    def add(self, group: np.ndarray, found: _Learned) -> None:
        """Of further subjects."""
        self.largest[group], self.n_lost[group] = found.largest, found.n_lost
        self.n_in_units[group] = found.n_in_units
        self.n_runaway += found.n_runaway
        self._rows.append(found.rows)
        if found.means is not None:
            if self.means is None:
                self.means = np.zeros((self._scan.n_subjects, found.means.shape[1]))
            self.means[group] = found.means

    def sample(self, kernel: Any, spread: np.ndarray) -> Encoded:
        """The sampled rows, by subject, sequence and time."""
        subject, y, a, *possible = (np.concatenate(part) for part in zip(*self._rows, strict=True))
        order = np.argsort(subject, kind="stable")
        return Encoded(
            panel=self._scan.outline(self.sampled),
            y=y[order],
            a=a[order],
            layout=Layout((), len(y), len(self.sampled)),
            chunks=(),
            executor=None,  # pyright: ignore[reportArgumentType]
            platform="cpu",
            kernel=kernel,
            spread=spread,
            n_without_past=0,
            possible=possible[0][order] if possible else None,
        )


def _batches(data: StoredData, layout: Layout, wanted: np.ndarray) -> Iterator[_Batch]:
    """All chunks, in the order of their rows on disk."""
    start, first, name = 0, 0, f"chunks-{uuid.uuid4().hex}"
    waiting: list[_Rows] = []
    for slots in layout.slots:
        scan = data.scan.stretch(slots.subjects)
        where = data.stretch(start, start + scan.n_rows)
        start += scan.n_rows
        weight = None if layout.weight is None else layout.weight[slots.subjects]
        waiting.append(_Rows(slots, scan, where, weight, wanted[slots.subjects]))
        if start - first >= _BATCH_ROWS or slots is layout.slots[-1]:
            yield _Batch(tuple(waiting), str(data.folder / f"{name}-{first}"))
            waiting, first = [], start


@in_float64
def encode_scan(
    model: Any, scan: Scan, data: StoredData | None = None, max_lanes: int = 0
) -> EncodedScan:
    """The scan laid out for this model, in files."""
    data = read_scan(model, scan) if data is None else data
    place = Placement.of(scan, model.size, data.n_outcomes + data.n_columns, model.one_per_core)
    layout = build_outline(scan, max_lanes or min(place.n_lanes, _most_lanes(scan, data)))
    unit = data.spreads(range(data.n_outcomes)) / model.scaling.scale
    wanted = np.zeros(scan.n_subjects, bool)
    wanted[:: -(-scan.n_rows // START_ROWS)] = True
    rule = _Rule(model, data.telling, data.by_lane, unit, with_means=not wanted.all())
    known = np.zeros((0, data.n_known), bool) if data.n_known else None
    nothing = PanelData(np.zeros((0, data.n_outcomes)), np.zeros((0, data.n_columns)), 0, known)
    made = rule.laid_out(nothing, np.zeros(0, bool))
    rule = replace(rule, kernel=made.kernel)
    sizes = _list_sizes(data, layout, wanted, rule, lists=bool(made.lists))
    collected, chunks = _Collected(scan, len(unit), wanted), []
    slots = iter(layout.slots)
    for batch in data.crew.map(_lay_out, _batches(data, layout, wanted), rule, sizes):
        for chunk, learned in batch:
            chunks.append(chunk)
            collected.add(next(slots).subjects, learned)
    scaling: Scaling = model.scaling
    n_each = np.maximum(data.n_seen.sum(0), 1)[:, None]
    _, means = scaling.data_in(np.zeros(data.n_outcomes), data.seen_totals / n_each)
    speed = place.executor.speed
    return EncodedScan(
        panel=scan,
        layout=layout,
        chunks=tuple(chunks),
        executor=Disk(scan.memory, data.folder, place.device, speed, data.owner),
        platform=place.device.platform,
        kernel=made.kernel,
        spread=unit**2,
        n_without_past=data.n_without_past,
        n_runaway=collected.n_runaway,
        n_seen=data.n_seen - collected.n_lost,
        n_in_units=collected.n_in_units,
        rows_seen=data.rows_seen,
        seen_means=means,
        sample=collected.sample(made.kernel, unit**2),
        sampled=collected.sampled,
        start_means=collected.means,
        largest=collected.largest,
    )


def _list_sizes(
    data: StoredData, layout: Layout, wanted: np.ndarray, rule: _Rule, lists: bool
) -> dict[tuple[int, ...], list[int]]:
    """How long the lists of rows are, by the shape of the chunk."""
    if not lists:
        return {slots.shape: [] for slots in layout.slots}
    most: dict[tuple[int, ...], np.ndarray] = {}
    for batch in data.crew.map(_n_listed, _batches(data, layout, wanted), rule):
        for shape, counts in batch:
            most[shape] = np.maximum(most.get(shape, 0), np.array(counts))
    return {shape: [list_size(int(n)) for n in counts] for shape, counts in most.items()}


def on_cluster(encoded: Any, client: Any) -> Any:
    """Encoded data whose shards are on the workers of a Dask cluster; None: they stay here."""
    if client is None:
        return encoded
    executor = Cluster(client, encoded.chunks, encoded.panel.memory, encoded.executor)
    return replace(encoded, executor=executor)


def _most_lanes(scan: Scan, data: StoredData) -> int:
    """Sequences of a chunk that takes a small share of the memory."""
    longest = int(scan.lane_length.max())
    row = 8 * (data.n_outcomes + data.n_columns) + 8
    return max(128, int(_SHARE_OF_CHUNK * scan.memory) // (row * longest))
