"""Columns of numbers as short text, for a page that reads them back into typed arrays."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np

Packed = dict[str, Any]

_INTEGERS = (("i1", np.int8), ("i2", np.int16), ("i4", np.int32))
"""The lowest number of each kind stands for what is missing."""
_DECIMALS = (1.0, 0.1, 0.01, 0.001)
_STEPS = 65534
"""Steps of a number that is stored in 16 bits; one more stands for what is missing."""


def pack(values: np.ndarray, units: Sequence[float] = _DECIMALS) -> Packed:
    """Numbers as they are: whole multiples of one of `units` if they can be, else 32-bit floats.

    What is not finite is missing. A value is ``number * unit``.
    """
    x = np.asarray(values, float)
    seen = np.isfinite(x)
    largest = float(np.abs(x[seen]).max(initial=0.0))
    for unit in units:
        whole = np.rint(x[seen] / unit)
        if np.allclose(whole * unit, x[seen], rtol=1e-12, atol=1e-12 * unit):
            for name, kind in _INTEGERS:
                if np.abs(whole).max(initial=0.0) < np.iinfo(kind).max:
                    out = np.full(x.shape, np.iinfo(kind).min, kind)
                    out[seen] = whole.astype(kind)
                    return _packed(name, out, unit)
            break
    if largest > float(np.finfo(np.float32).max):
        return _packed("f8", np.where(seen, x, np.nan))
    return _packed("f4", np.where(seen, x, np.nan).astype(np.float32))


def pack_times(values: np.ndarray) -> Packed:
    """Numbers of a time axis, which may be large and close together: no digit is lost."""
    found = pack(values, (864e5, 36e5, 6e4, 1e3, *_DECIMALS))
    exact = found["t"].startswith("i")
    return found if exact else _packed("f8", np.asarray(values, float))


def pack_roughly(values: np.ndarray, low: float | None = None, high: float | None = None) -> Packed:
    """Numbers for a drawing, to 1/65534 of their range; as they are where few dwarf the others."""
    x = np.asarray(values, float)
    seen = np.isfinite(x)
    if not seen.any():
        return pack(x)
    if low is None or high is None:
        low, high = float(x[seen].min()), float(x[seen].max())
        middle = float(np.subtract(*np.quantile(x[seen], [0.9, 0.1])))
        if high <= low or (high - low) > 200 * middle:
            return pack(x)
    step = (high - low) / _STEPS
    out = np.full(x.shape, _STEPS + 1, np.uint16)
    out[seen] = np.rint((x[seen] - low) / step).astype(np.uint16)
    return _packed("q2", out, step, low)


def _packed(kind: str, values: np.ndarray, unit: float = 1.0, offset: float = 0.0) -> Packed:
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    text = b64encode(np.ascontiguousarray(little).tobytes()).decode("ascii")
    return {"t": kind, "u": unit, "o": offset, "d": text}


def script_json(data: Any) -> str:
    """JSON that is safe inside a script element: no markup can begin or end in it."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
