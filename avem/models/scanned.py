"""A scan as a model reads it, laid out in files: what `read` and `encode` are for a panel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from avem.components.scaling import Scaling
from avem.data import Panel
from avem.data.layout import Layout, Slots, build_outline, layout_of_chunk, list_size
from avem.data.scanning.cache import removed_with, temporary_folder
from avem.data.scanning.room import writing_into
from avem.data.scanning.scan import Scan
from avem.errors import AvemError, ModelError
from avem.execution.chunk_files import write_chunk
from avem.execution.cluster import Cluster
from avem.execution.disk import Disk
from avem.models.encoded import Encoded, LaidOut, PanelData, Placement
from avem.models.encoded_scan import EncodedScan
from avem.models.stored import BLOCK_ROWS, ColumnSums, StoredData, Telling, Witnesses
from avem.numerics.precision import in_float64

START_ROWS = 1_000_000
"""Starts are made from the rows of so many subjects as have about this many together."""
_SHARE_OF_CHUNK = 0.02
"""Of the memory, that a single chunk may take."""


class _Folder:
    """A temporary folder that is removed when nobody has this any more."""

    def __init__(self, scan: Scan) -> None:
        self.path = temporary_folder("fit", scan.folder.parent)
        removed_with(self, self.path)


def read_scan(model: Any, scan: Scan) -> StoredData:
    """The scan's outcomes and design columns, read once, block by block."""
    folder = _Folder(scan)
    path = folder.path / "values"
    groups = list(scan.blocks(BLOCK_ROWS))
    n_outcomes, n_columns = model.n_columns, len(model.designs.keys)
    telling, witnesses = Telling(n_outcomes, n_columns), Witnesses(n_outcomes + n_columns)
    n_seen = np.zeros((scan.n_subjects, n_outcomes), np.int32)
    rows_seen = np.zeros(scan.n_subjects, np.int32)
    totals, n_without_past = np.zeros((n_outcomes, n_columns)), 0
    seen_in, by_lane = np.zeros(0, bool), True
    outcomes = ColumnSums.of(np.full((1, n_outcomes), np.nan))
    design = ColumnSums.of(np.full((1, n_columns), np.nan))
    with writing_into(folder.path), open(path, "wb") as file:
        for group, panel in zip(groups, scan.panels(groups), strict=True):
            data = model.read(panel)
            possible = np.zeros((panel.n_rows, 0), bool) if data.possible is None else data.possible
            file.write(np.concatenate([data.Y, data.A, possible], axis=1).tobytes())
            seen = ~np.isnan(data.Y)
            for j in range(n_outcomes):
                n_seen[group, j] = np.bincount(panel.row_subject, seen[:, j], len(group))
            any_seen = seen[:, model.outcome_columns].any(axis=1)
            own = np.asarray(possible[any_seen].any(axis=0))
            seen_in = own | seen_in if len(seen_in) else own
            by_lane &= model.by_lane(panel, data.A)
            rows_seen[group] = np.bincount(panel.row_subject, any_seen, len(group))
            totals += seen.T.astype(float) @ data.A
            outcomes = outcomes.plus(ColumnSums.of(data.Y))
            design = design.plus(ColumnSums.of(data.A[any_seen]))
            n_without_past += data.n_without_past
            telling.add(model, data, panel.row_step > 0)
            witnesses.add(group, panel, data, last=group is groups[-1])
    return StoredData(
        scan,
        path,
        n_outcomes,
        n_columns,
        len(seen_in),
        n_seen,
        rows_seen,
        totals,
        outcomes,
        design,
        seen_in,
        by_lane,
        telling,
        witnesses.subjects,
        n_without_past,
        folder,
    )


def witnessed(model: Any, data: StoredData) -> tuple[Panel, PanelData]:
    """Subjects by whom the data can be judged, and their numbers."""
    panel = data.scan.panel_of(data.witnesses)
    return panel, replace(model.read(panel), n_without_past=data.n_without_past)


class _Part(NamedTuple):
    """One chunk's rows on the scale of the fit."""

    slots: Slots
    panel: Panel
    y: np.ndarray
    a: np.ndarray
    possible: np.ndarray | None
    beyond: np.ndarray
    """(rows,) the ends of sequences that are left out."""
    lost: np.ndarray
    """(rows, outcome columns) values that are left out with them."""
    made: LaidOut


class _Parts:
    """The chunks of a scan, as often as they are gone through."""

    def __init__(self, model: Any, data: StoredData, layout: Layout) -> None:
        self._model, self._data, self._layout = model, data, layout
        known = np.zeros((0, data.n_known), bool) if data.n_known else None
        none = PanelData(np.zeros((0, data.n_outcomes)), np.zeros((0, data.n_columns)), 0, known)
        self.kernel = self._laid_out(none, np.zeros(0, bool)).kernel
        self._unit = data.spreads(range(data.n_outcomes)) / model.scaling.scale

    def _laid_out(self, rows: PanelData, later: np.ndarray) -> LaidOut:
        return self._data.telling.laid_out(self._model, rows, later, self._data.by_lane)

    def __iter__(self) -> Iterator[_Part]:
        start = 0
        for slots in self._layout.slots:
            panel = self._data.scan.outline(slots.subjects)
            rows = self._data.rows(start, start + panel.n_rows)
            y, a = self._model.scaling.data_in(rows.Y, rows.A)
            start += panel.n_rows
            beyond = self._model.beyond(panel, y, self._unit)
            lost = beyond[:, None] & ~np.isnan(y)
            y = np.where(beyond[:, None], np.nan, y)
            made = self._laid_out(PanelData(y, a, 0, rows.possible), panel.row_step > 0)
            if made.kernel != self.kernel:
                raise AvemError("The parts of the scan are not laid out alike; please report this.")
            yield _Part(slots, panel, y, a, rows.possible, beyond, lost, made)

    def list_sizes(self) -> dict[tuple[int, ...], list[int]]:
        """How long the lists of rows are, by the shape of the chunk."""
        most: dict[tuple[int, ...], np.ndarray] = {}
        for part in self:
            if not part.made.lists:
                return {slots.shape: [] for slots in self._layout.slots}
            counts = np.array([int(rows.sum()) for rows in part.made.lists])
            most[part.slots.shape] = np.maximum(most.get(part.slots.shape, 0), counts)
        return {shape: [list_size(int(n)) for n in counts] for shape, counts in most.items()}


class _Collected:
    """What is kept of the rows while their chunks are written."""

    def __init__(self, model: Any, scan: Scan, spread: np.ndarray) -> None:
        every = -(-scan.n_rows // START_ROWS)
        self.sampled = np.arange(0, scan.n_subjects, every)
        self._model, self._scan, self._root = model, scan, np.sqrt(spread)
        self._wanted = np.zeros(scan.n_subjects, bool)
        self._wanted[self.sampled] = True
        self._rows: list[tuple[np.ndarray, ...]] = []
        self.means: np.ndarray | None = None
        self.n_in_units = np.zeros((scan.n_subjects, len(spread)), np.int32)
        self.largest = np.zeros(scan.n_subjects)
        self.n_lost = np.zeros((scan.n_subjects, len(spread)), np.int32)
        self.n_runaway = 0

    def add(self, part: _Part) -> None:
        group, subject = part.slots.subjects, part.panel.row_subject
        size = np.nan_to_num(np.fmax.reduce(np.abs(part.y) / self._root, axis=1, initial=0.0))
        largest = np.zeros(len(group))
        np.maximum.at(largest, subject, size)
        self.largest[group] = largest
        self.n_runaway += int(part.beyond.sum())
        for j, lost in enumerate(part.lost.T):
            self.n_lost[group, j] = np.bincount(subject, lost, len(group))
        chosen = self._wanted[group][subject]
        numbers = (part.y, part.a) if part.possible is None else (part.y, part.a, part.possible)
        self._rows.append((group[subject[chosen]], *(values[chosen] for values in numbers)))
        for j, counts in enumerate(self._model.in_units(part.y).T):
            self.n_in_units[group, j] = np.bincount(subject, counts, len(group))
        if len(self.sampled) < self._scan.n_subjects:
            means = self._model.start_means(part.y, subject, len(group))
            if self.means is None:
                self.means = np.zeros((self._scan.n_subjects, means.shape[1]))
            self.means[group] = means

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


@in_float64
def encode_scan(
    model: Any, scan: Scan, data: StoredData | None = None, max_lanes: int = 0
) -> EncodedScan:
    """The scan laid out for this model, in files."""
    data = read_scan(model, scan) if data is None else data
    place = Placement.of(scan, model.size, data.n_outcomes + data.n_columns, model.one_per_core)
    layout = build_outline(scan, max_lanes or min(place.n_lanes, _most_lanes(scan, data)))
    parts = _Parts(model, data, layout)
    sizes = parts.list_sizes()
    spread = (data.spreads(range(data.n_outcomes)) / model.scaling.scale) ** 2
    collected, chunks = _Collected(model, scan, spread), []
    folder: Path = data.owner.path
    with writing_into(folder), open(folder / f"chunks-{id(layout):x}", "wb") as file:
        for part in parts:
            made = part.made
            own = layout_of_chunk(part.slots, part.panel, layout.weight)
            (chunk,) = own.chunks(
                part.y,
                part.a,
                made.masks,
                made.patterns,
                made.lists,
                sizes[part.slots.shape],
            )
            if part.beyond.any():
                (end,) = own.scatter(part.beyond[:, None])
                chunk = chunk._replace(valid=chunk.valid & ~end[:, 0])
            chunks.append(write_chunk(file, chunk))
            collected.add(part)
    scaling: Scaling = model.scaling
    n_each = np.maximum(data.n_seen.sum(0), 1)[:, None]
    _, means = scaling.data_in(np.zeros(data.n_outcomes), data.seen_totals / n_each)
    speed = place.executor.speed
    return EncodedScan(
        panel=scan,
        layout=layout,
        chunks=tuple(chunks),
        executor=Disk(scan.memory, folder, place.device, speed, data.owner),
        platform=place.device.platform,
        kernel=parts.kernel,
        spread=spread,
        n_without_past=data.n_without_past,
        n_runaway=collected.n_runaway,
        n_seen=data.n_seen - collected.n_lost,
        n_in_units=collected.n_in_units,
        rows_seen=data.rows_seen,
        seen_means=means,
        sample=collected.sample(parts.kernel, spread),
        sampled=collected.sampled,
        start_means=collected.means,
        largest=collected.largest,
    )


def on_cluster(encoded: Any, client: Any) -> Any:
    """Encoded data whose shards are on the workers of a Dask cluster; None: they stay here."""
    if client is None:
        return encoded
    if encoded.panel.in_memory:
        raise ModelError(
            "client= is for data on disk: scan them first, Panel.scan('data/*.parquet', ...)."
        )
    executor = Cluster(client, encoded.chunks, encoded.panel.memory, encoded.executor)
    return replace(encoded, executor=executor)


def _most_lanes(scan: Scan, data: StoredData) -> int:
    """Sequences of a chunk that takes a small share of the memory."""
    longest = int(scan.lane_length.max())
    row = 8 * (data.n_outcomes + data.n_columns) + 8
    return max(128, int(_SHARE_OF_CHUNK * scan.memory) // (row * longest))
