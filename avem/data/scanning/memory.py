"""Amounts of memory as people write them."""

from __future__ import annotations

import re

from avem.errors import ModelError

_UNITS = {
    **{"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40},
}
LEAST = 64 * 10**6
"""Less than a few chunks of subjects."""


def bytes_of(memory: object) -> int:
    """The number of bytes in "4GB", or in a number of them."""
    text = str(memory).strip() if isinstance(memory, str | int) else ""
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([A-Za-z]*)", text)
    unit = _UNITS.get(found[2].upper()) if found else None
    if isinstance(memory, bool) or found is None or unit is None:
        raise ModelError(
            f"memory is {memory!r}; an amount such as '4GB' or '500MB', or a number of bytes, is "
            "wanted."
        )
    size = int(float(found[1]) * unit)
    if size < LEAST:
        raise ModelError(f"memory is {memory!r}; at least '{LEAST // 10**6}MB' is wanted.")
    return size


def shown_bytes(size: float) -> str:
    """An amount in words: "1.2 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def need_rows() -> ModelError:
    """What to do where rows are wanted in memory."""
    return ModelError(
        "This needs the rows in memory, and those of a scan are on disk. fit.sample(1000) gives "
        "the same fit on some subjects, which answers everything; scan.sample(1000) gives them "
        "alone."
    )
