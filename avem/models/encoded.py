"""A data set as a model reads it, and as it is laid out to compute on."""

from __future__ import annotations

from dataclasses import dataclass
from os import cpu_count
from typing import Any, NamedTuple

import jax
import numpy as np

from avem.components.scaling import Scaling
from avem.data import Panel
from avem.data.layout import Chunk, Layout

_LANES = (128, 1024)
"""Few enough to stay in a core's cache, enough to be worth a call."""
_LANES_ELSEWHERE = 1 << 20
"""An accelerator wants all lanes at once."""


class PanelData(NamedTuple):
    """A panel's numbers in the user's units, in row order."""

    Y: np.ndarray
    """(rows, outcome columns), NaN where missing."""
    A: np.ndarray
    """(rows, design columns)."""
    n_without_past: int
    """Observed outcomes that are not modelled because a lag looks back to nothing."""


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
    """On the device."""
    kernel: Any
    spread: np.ndarray
    """(outcome columns,) variance of each, not counting a few wild values."""
    n_without_past: int
    n_runaway: int = 0
    """Rows that are left out because the states have grown out of all bounds."""

    def in_user_units(self, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes and design columns, (rows, columns) each, as the user has them."""
        return scaling.data_out(self.y, self.a)


def lanes_at_once(n_lanes: int, one_per_core: bool) -> int:
    """Sequences that are computed together; `one_per_core`: chunks not larger than that takes."""
    if jax.default_backend() != "cpu":
        return _LANES_ELSEWHERE
    per_core = -(-n_lanes // (cpu_count() or 1)) if one_per_core else _LANES[1]
    return int(np.clip(per_core, *_LANES))
