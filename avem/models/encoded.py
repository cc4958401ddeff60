"""A data set as a model reads it, and as it is laid out to compute on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import cpu_count
from typing import Any, NamedTuple

import jax
import numpy as np

from avem.components.scaling import Scaling
from avem.data import Panel
from avem.data.layout import Chunk, Layout
from avem.execution.threads import Threads
from avem.numerics import devices

_LANES = (128, 1024)
"""Few enough to stay in a core's cache, enough to be worth a call."""
_LANES_ELSEWHERE = 1 << 20
"""A GPU wants all lanes at once, as far as they fit into its memory."""
_LANES_OF_STARTS = 1 << 14
"""There are several chunks, so that starts can be tried on some of them."""
_GPU_SPEED = 100.0
"""Of a pass at many nodes, beside a processor's."""
_UNKNOWN_ROOM = 4 << 30
_NODES_AT_ONCE = 32
"""Of a subject, whose results must fit as well."""


class PanelData(NamedTuple):
    """A panel's numbers in the user's units, in row order."""

    Y: np.ndarray
    """(rows, outcome columns), NaN where missing."""
    A: np.ndarray
    """(rows, design columns)."""
    n_without_past: int
    """Observed outcomes that are not modelled because a lag looks back to nothing."""
    possible: np.ndarray | None = None
    """(rows, states) bool: where a row may be, if something of that is known."""


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

    def in_user_units(self, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes and design columns, (rows, columns) each, as the user has them."""
        return scaling.data_out(self.y, self.a)


@dataclass(frozen=True)
class Placement:
    """Where a panel is computed, how many sequences at a time, and if all of it stays there."""

    device: Any
    n_lanes: int
    stays: bool

    @classmethod
    def of(cls, panel: Panel, n_states: int, n_columns: int, one_per_core: bool) -> Placement:
        """For a panel whose rows have so many numbers."""
        device = devices.device_for(panel.n_rows)
        n_lanes = panel.n_lanes
        if device.platform == "cpu":
            per_core = -(-n_lanes // (cpu_count() or 1)) if one_per_core else _LANES[1]
            return cls(device, int(np.clip(per_core, *_LANES)), stays=True)
        room, longest = devices.room(device), int(panel.row_step.max(initial=0)) + 1
        if room is None:
            room = _UNKNOWN_ROOM
        data = 8 * n_columns * longest
        # At every node a subject leaves state probabilities, or sums of products, thrice.
        work = 3 * 8 * n_states * max(longest, n_columns**2) * _NODES_AT_ONCE
        most = int(np.clip(room // (2 * (data + work)), _LANES[1], _LANES_ELSEWHERE))
        few = max(_LANES_OF_STARTS, n_lanes // 8)
        return cls(device, min(most, few), stays=data * n_lanes < room // 2)

    def chunks(self, made: Iterable[Chunk]) -> tuple[Chunk, ...]:
        """On the device, where there is room for all of them."""
        if not self.stays:
            return tuple(made)
        return tuple(jax.device_put(chunk, self.device) for chunk in made)

    @property
    def executor(self) -> Threads:
        """What runs functions on the chunks."""
        speed = 1.0 if self.device.platform == "cpu" else _GPU_SPEED
        return Threads(None if self.stays else self.device, speed)
