"""A scan's outcomes and design columns, read once, block by block: what `read` is for a panel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from avem.data import Panel
from avem.data.scanning.cache import removed_with, temporary_folder
from avem.data.scanning.room import writing_into
from avem.data.scanning.scan import Scan
from avem.errors import ModelError
from avem.execution.crew import Crew, Here, Workers
from avem.models.encoded import PanelData
from avem.models.stored import ColumnSums, StoredData, ValueFile
from avem.models.telling import Striking, Telling, Witnesses

BLOCK_ROWS = 100_000


def crew_for(panel: Any, client: Any) -> Crew:
    """Who reads a scan and lays it out: the workers of a client, if there is one."""
    if client is None:
        return Here()
    if panel.in_memory:
        raise ModelError(
            "client= is for data on disk: scan them first, Panel.scan('data/*.parquet', ...)."
        )
    return Workers(client, panel.folder.parent, panel.folder / "rows.parquet")


class _Folder:
    """A temporary folder that is removed when nobody has this any more."""

    def __init__(self, scan: Scan) -> None:
        self.path = temporary_folder("fit", scan.folder.parent)
        removed_with(self, self.path)


class _Block(NamedTuple):
    """Subjects whose rows are read together."""

    scan: Scan
    """Of these alone."""
    path: str
    """Where their numbers go."""


class _Read(NamedTuple):
    """What is learned of a block."""

    file: ValueFile
    n_seen: np.ndarray
    """(subjects, outcome columns)."""
    rows_seen: np.ndarray
    totals: np.ndarray
    outcomes: ColumnSums
    design: ColumnSums
    seen_in: np.ndarray
    by_lane: bool
    n_without_past: int
    telling: Telling
    striking: Striking


def read_scan(model: Any, scan: Scan, crew: Crew | None = None) -> StoredData:
    """The scan's outcomes and design columns, read by the crew."""
    crew, folder = crew or Here(), _Folder(scan)
    groups = list(scan.blocks(BLOCK_ROWS))
    n_outcomes, n_columns = model.n_columns, len(model.designs.keys)
    telling, witnesses = Telling(n_outcomes, n_columns), Witnesses(n_outcomes + n_columns)
    n_seen = np.zeros((scan.n_subjects, n_outcomes), np.int32)
    rows_seen = np.zeros(scan.n_subjects, np.int32)
    totals, n_without_past = np.zeros((n_outcomes, n_columns)), 0
    seen_in, by_lane, files = np.zeros(0, bool), True, []
    outcomes = ColumnSums.of(np.full((1, n_outcomes), np.nan))
    design = ColumnSums.of(np.full((1, n_columns), np.nan))
    blocks = (
        _Block(scan.stretch(group), str(folder.path / f"values-{number}"))
        for number, group in enumerate(groups)
    )
    for group, found in zip(groups, crew.map(_read, blocks, model), strict=True):
        files.append(found.file)
        n_seen[group], rows_seen[group] = found.n_seen, found.rows_seen
        seen_in = found.seen_in | seen_in if len(seen_in) else found.seen_in
        by_lane &= found.by_lane
        totals += found.totals
        outcomes, design = outcomes.plus(found.outcomes), design.plus(found.design)
        n_without_past += found.n_without_past
        telling.add(model, found.telling.data, found.telling.later)
        last = group is groups[-1]
        witnesses.add(group, found.file.n_rows, found.striking, last)
    return StoredData(
        scan,
        folder.path,
        tuple(files),
        crew,
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


def _read(block: _Block, model: Any) -> _Read:
    """A block's rows, put into a file."""
    panel = block.scan.panel()
    data: PanelData = model.read(panel)
    with writing_into(Path(block.path).parent):
        file = ValueFile.write(block.path, data)
    n_subjects, subject = panel.n_subjects, panel.row_subject
    seen = ~np.isnan(data.Y)
    any_seen = seen[:, model.outcome_columns].any(axis=1)
    counts = [np.bincount(subject, column, n_subjects) for column in seen.T]
    possible = np.zeros((panel.n_rows, 0), bool) if data.possible is None else data.possible
    telling = Telling(*(values.shape[1] for values in (data.Y, data.A)))
    telling.add(model, data, panel.row_step > 0)
    return _Read(
        file=file,
        n_seen=np.stack(counts, axis=1),
        rows_seen=np.bincount(subject, any_seen, n_subjects),
        totals=seen.T.astype(float) @ data.A,
        outcomes=ColumnSums.of(data.Y),
        design=ColumnSums.of(data.A[any_seen]),
        seen_in=np.asarray(possible[any_seen].any(axis=0)),
        by_lane=model.by_lane(panel, data.A),
        n_without_past=data.n_without_past,
        telling=telling,
        striking=Striking.of(panel, data),
    )


def witnessed(model: Any, data: StoredData) -> tuple[Panel, PanelData]:
    """Subjects by whom the data can be judged, and their numbers."""
    panel = data.scan.panel_of(data.witnesses)
    return panel, replace(model.read(panel), n_without_past=data.n_without_past)
