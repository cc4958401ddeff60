"""A scan as a model reads it, laid out in files to compute on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from avem.data.layout import Layout
from avem.data.scanning.memory import need_rows
from avem.data.scanning.scan import Scan
from avem.execution.chunk_files import ChunkFile
from avem.models.encoded import Encoded


@dataclass(frozen=True, eq=False)
class EncodedScan:
    """A scan ready to compute on: what an `Encoded` is for a panel in memory."""

    panel: Scan
    layout: Layout
    chunks: tuple[ChunkFile, ...]
    executor: Any
    platform: str
    kernel: Any
    spread: np.ndarray
    n_without_past: int
    n_runaway: int
    n_seen: np.ndarray
    n_in_units: np.ndarray
    """(subjects, outcome columns) values whose density is one in their column's unit."""
    rows_seen: np.ndarray
    """(subjects,) rows with an outcome that was observed."""
    seen_means: np.ndarray
    """(outcome columns, design columns) means where an outcome column is observed."""
    sample: Encoded
    """The rows of some subjects, which starts are made from."""
    sampled: np.ndarray
    """Their numbers."""
    start_means: np.ndarray | None
    largest: np.ndarray

    def log_jacobian(self, model: Any) -> np.ndarray:
        """(subjects,) what to add to log densities to have them in the user's units."""
        return model.scaling.log_jacobian(self.n_in_units)

    def seen_design(self, column: int) -> np.ndarray:
        """(design columns,) means over the rows where an outcome column is observed."""
        return self.seen_means[column]

    @property
    def y(self) -> np.ndarray:
        """Not in memory: an error that says what to do."""
        raise need_rows()

    @property
    def a(self) -> np.ndarray:
        """Not in memory: an error that says what to do."""
        raise need_rows()

    def without(self, subjects: np.ndarray) -> EncodedScan:
        """The data without the rows of some subjects (bool)."""
        chunks = []
        for slots, chunk in zip(self.layout.slots, self.chunks, strict=True):
            gone = np.zeros(slots.shape[2], bool)
            gone[: len(slots.subjects)] = subjects[slots.subjects]
            chunks.append(chunk.without(gone[slots.owner]))
        rows = subjects[self.sampled][self.sample.panel.row_subject]
        sample = replace(self.sample, y=np.where(rows[:, None], np.nan, self.sample.y))
        return replace(self, chunks=tuple(chunks), sample=sample)
