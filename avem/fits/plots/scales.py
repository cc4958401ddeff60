"""On which scale an outcome can be read."""

from __future__ import annotations

import numpy as np

from avem.families.base import Family

_HEAVY = 10.0
"""How many times the median the 99% quantile is where only a logarithmic axis shows both."""
_TAIL = 1.25
"""How far beyond the 99% quantile the 99.9% one may lie to be shown."""


def is_positive(family: Family) -> bool:
    """Whether the outcome is any positive number."""
    if family.levels is not None or family.discrete or family.angular or family.extras:
        return False
    below, above = family.valid((np.array([-1.0, 2.0]),))
    return bool(above and not below)


def is_heavy(family: Family, y: np.ndarray) -> bool:
    """Whether positive values span so much that a linear axis would show one corner of them."""
    y = y[~np.isnan(y)]
    if not len(y) or not is_positive(family) or y.min() <= 0:
        return False
    middle, far = np.quantile(y, [0.5, 0.99])
    return bool(far > _HEAVY * middle)


def upper_end(family: Family, y: np.ndarray) -> float:
    """Up to where an axis goes: a long tail of few values must not squeeze all others."""
    most, nearly_all = np.quantile(y, [0.99, 0.999])
    low = float(np.min(y))
    return float(
        most if is_positive(family) and nearly_all - low > _TAIL * (most - low) else nearly_all
    )
