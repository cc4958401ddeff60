"""A data set as a model reads it, and as it is laid out to compute on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import cpu_count
from typing import Any, NamedTuple

import jax
import numpy as np

from avem.components.scaling import ColumnSummary, Scaling, size, summary
from avem.data import Panel
from avem.data.layout import Chunk, Layout
from avem.execution.threads import Threads
from avem.numerics import devices, rows
from avem.numerics.rounding import on_grid

_LANES = (128, 1024)
"""Few enough to stay in a core's cache, enough to be worth a call."""
_LANES_ELSEWHERE = 1 << 20
"""A GPU wants all lanes at once, as far as they fit into its memory."""
_LANES_OF_STARTS, _CHUNKS = 1 << 17, 4
"""With more there are several chunks, so that starts can be tried on one of them; fewer lanes, or
more chunks, do not keep a GPU busy while it is told what is next."""
_LEAST_LANES = 1 << 14
"""Of a chunk, where there are several GPUs to share the work."""
_GPU_SPEED = 1000.0
"""Of a pass at many nodes, in compilations of the code for it, beside a processor's."""
_UNKNOWN_ROOM = 4 << 30
_NODES_AT_ONCE = 20
"""Of a subject, whose results must fit as well."""


@dataclass(frozen=True, eq=False)
class PanelData:
    """A panel's numbers in the user's units, in row order."""

    Y: np.ndarray
    """(rows, outcome columns), NaN where missing."""
    A: np.ndarray
    """(rows, design columns)."""
    n_without_past: int
    """Observed outcomes that are not modelled because a lag looks back to nothing."""
    possible: np.ndarray | None = None
    """(rows, states) bool: where a row may be, if something of that is known."""

    def spreads(self, columns: Sequence[int]) -> np.ndarray:
        """Of outcome columns: see `scaling.ColumnSummary`."""
        return np.array([self._summaries[column].spread for column in columns])

    def medians(self, columns: Sequence[int]) -> np.ndarray:
        """Of outcome columns."""
        found = [self._summaries[column] for column in columns]
        return on_grid([own.median for own in found], [own.largest for own in found])

    @cached_property
    def _summaries(self) -> tuple[ColumnSummary, ...]:
        return tuple(summary(column) for column in self.Y.T)

    def usual(self, column: int) -> float:
        """The median of what is positive in a design column; 1 where nothing is."""
        values = self.A[:, column]
        return float(np.median(values[values > 0])) if (values > 0).any() else 1.0

    def could_be(self, outcomes: Sequence[int]) -> np.ndarray | None:
        """(states,) bool: those that some row with an outcome may be in; None: nothing is known."""
        if self.possible is None:
            return None
        return np.asarray(self.possible[rows.any_seen(self.Y, outcomes)].any(axis=0))

    def _used(self, outcomes: Sequence[int]) -> np.ndarray:
        return self.A[rows.selection(rows.any_seen(self.Y, outcomes))]

    def design_means(self, outcomes: Sequence[int]) -> np.ndarray:
        """(design columns,) over the rows where some of these outcome columns are observed."""
        used = self._used(outcomes)
        return on_grid(rows.means(used), [rows.largest(column) for column in used.T])

    def design_sizes(self, centre: np.ndarray, outcomes: Sequence[int]) -> np.ndarray:
        """(design columns,) root mean squares of the distances from `centre` in these rows."""
        away = self._used(outcomes) - centre
        return np.array([size(column) for column in away.T])


class LaidOut(NamedTuple):
    """What compiled code reads of rows beside their numbers."""

    kernel: Any
    masks: np.ndarray
    """(rows, groups) bool: which groups of outcomes were observed."""
    patterns: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]] = ()
    """(cell of each row, y and a of the cells)."""
    lists: Sequence[np.ndarray] = ()
    """(rows,) bool."""
    telling: Sequence[np.ndarray] = ()
    """Rows by which the kernel and the patterns are what they are."""

    def after(self, first: int) -> LaidOut:
        """Without the first rows."""
        patterns = [(index[first:], y, a) for index, y, a in self.patterns]
        lists = [chosen[first:] for chosen in self.lists]
        return LaidOut(self.kernel, self.masks[first:], patterns, lists)


@dataclass(frozen=True, eq=False)
class Encoded:
    """One data set, ready to compute on."""

    panel: Panel
    y: np.ndarray
    """(rows, outcome columns) on the scale of the fit, NaN where missing."""
    a: np.ndarray
    """(rows, design columns) on the scale of the fit."""
    layout: Layout
    chunks: tuple[Chunk, ...]
    executor: Threads
    """What runs functions on them."""
    platform: str
    """Where that is: "cpu", or "gpu"."""
    kernel: Any
    spread: np.ndarray
    """(outcome columns,) variance of each, not counting a few wild values."""
    n_without_past: int
    possible: np.ndarray | None = None
    """(rows, states) bool: where a row may be, if something of that is known."""
    n_runaway: int = 0
    """Rows that are left out because the states have grown out of all bounds."""

    @cached_property
    def n_seen(self) -> np.ndarray:
        """(subjects, outcome columns) how many values of each were observed."""
        subject, n = self.panel.row_subject, self.panel.n_subjects
        counts = [rows.count_by(subject, rows.seen(column), n) for column in self.y.T]
        return np.stack(counts, axis=1)

    def log_jacobian(self, model: Any) -> np.ndarray:
        """(subjects,) what to add to log densities to have them in the user's units."""
        subject, n = self.panel.row_subject, self.panel.n_subjects
        counts = [rows.count_by(subject, column, n) for column in model.in_units(self.y).T]
        return model.scaling.log_jacobian(np.stack(counts, axis=1))

    def seen_design(self, column: int) -> np.ndarray:
        """(design columns,) means over the rows where an outcome column is observed."""
        return rows.means(self.a, rows.selection(rows.seen(self.y[:, column])))

    @property
    def sample(self) -> Encoded:
        """The rows that starts are made from: all of them."""
        return self

    @property
    def start_means(self) -> np.ndarray | None:
        """(subjects, features) of all subjects, where the sample is not all there is."""
        return None

    @cached_property
    def largest(self) -> np.ndarray:
        """(subjects,) each one's largest outcome, in units of its spread."""
        size = np.nanmax(np.abs(self.y) / np.sqrt(self.spread), axis=1, initial=0.0)
        found = np.zeros(self.panel.n_subjects)
        np.maximum.at(found, self.panel.row_subject, np.nan_to_num(size))
        return found

    def without(self, subjects: np.ndarray) -> Encoded:
        """The data without the rows of some subjects (bool)."""
        left_out = subjects[self.panel.row_subject][:, None]
        parts = zip(self.chunks, self.layout.scatter(left_out), strict=True)
        chunks = tuple(c._replace(valid=c.valid & ~part[:, 0]) for c, part in parts)
        return replace(self, chunks=chunks, y=np.where(left_out, np.nan, self.y))

    def in_user_units(self, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes and design columns, (rows, columns) each, as the user has them."""
        return scaling.data_out(self.y, self.a)


@dataclass(frozen=True)
class Placement:
    """Where a panel is computed, how many sequences at a time, and if all of it stays there."""

    device: Any
    n_lanes: int
    stays: bool
    devices: tuple[Any, ...] = ()
    """Chunks that stay are on these in turn; others are sent to the first."""

    @classmethod
    def of(cls, panel: Any, n_states: int, n_columns: int, one_per_core: bool) -> Placement:
        """For a panel whose rows have so many numbers."""
        several = devices.devices_for(panel.n_rows)
        device, n_lanes = several[0], panel.n_lanes
        if device.platform == "cpu":
            per_core = -(-n_lanes // (cpu_count() or 1)) if one_per_core else _LANES[1]
            return cls(device, int(np.clip(per_core, *_LANES)), stays=True, devices=several)
        room, longest = devices.room(device), int(panel.lane_length.max(initial=1))
        if room is None:
            room = _UNKNOWN_ROOM
        data = 8 * n_columns * longest
        # At every node a subject leaves state probabilities, or sums of products, thrice.
        work = 3 * 8 * n_states * max(longest, n_columns**2) * _NODES_AT_ONCE
        most = int(np.clip(room // (2 * (data + work)), _LANES[1], _LANES_ELSEWHERE))
        each = -(-n_lanes // len(several))
        few = max(_LANES_OF_STARTS, -(-each // _CHUNKS))
        few = min(few, max(each, _LEAST_LANES))
        return cls(device, min(most, few), data * each < room // 2, several)

    def chunks(self, made: Iterable[Chunk]) -> tuple[Chunk, ...]:
        """On the device, where there is room for all of them."""
        if not self.stays:
            return tuple(made)
        several = self.devices or (self.device,)
        if self.device.platform != "cpu" and len(several) == 1:
            # Not bound to it, as what comes from the driver is not: code is compiled for either.
            with jax.default_device(self.device):
                return tuple(jax.device_put(chunk) for chunk in made)
        return tuple(
            jax.device_put(chunk, several[i % len(several)]) for i, chunk in enumerate(made)
        )

    @property
    def executor(self) -> Threads:
        """What runs functions on the chunks."""
        speed = 1.0 if self.device.platform == "cpu" else _GPU_SPEED
        return Threads(None if self.stays else self.device, speed)
