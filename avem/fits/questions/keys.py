"""Columns of the data that name the rows of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import pandas as pd

from avem.errors import DataError


def check_keys(names: Iterable[str], taken: Collection[str]) -> None:
    """Raise where a column of the data is called like a column that the table has anyway."""
    for name in names:
        if name in taken:
            raise DataError(
                f"The column {name!r} has the name of another column of this table "
                f"({', '.join(taken)}). Rename it in the data."
            )


def factorized(values: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Codes (rows,), -1 where missing, and what they stand for, in order if they have one."""
    try:
        codes, labels = pd.factorize(values, sort=True)
    except TypeError:  # a number and a pair together have no order
        codes, labels = pd.factorize(values)
    return np.asarray(codes), np.asarray(labels)
