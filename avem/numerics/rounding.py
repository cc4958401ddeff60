"""Sums over rows that are the same in whatever order the rows were added up."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import fsum
from typing import Any

import numpy as np

_BITS = 30
"""Kept: more than a unit or a centre is good for, far fewer than rounding touches."""


def on_grid(values: Any, size: Any) -> np.ndarray:
    """Values rounded to multiples of about a thousand millionth of their `size`.

    The distance is a power of 2, so that whole numbers stay whole. What is 0 has no grid.
    """
    size = np.asarray(size, float)
    step = np.ldexp(1.0, np.maximum(np.frexp(size)[1], -900) - _BITS)
    return np.where(size > 0, np.rint(values / step) * step, values)


def exact_sum(parts: Iterable[np.ndarray]) -> float:
    """The sum of all values of arrays, rounded once: the same in whatever order they come."""
    return fsum(chain.from_iterable(part.tolist() for part in parts))
