"""Two panels of the same subjects as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from avem.data.panel import Panel
from avem.errors import DataError


def joined(old: Panel, new: Panel, outcomes: Sequence[str]) -> Panel:
    """The rows of both, by subject, sequence and time; subjects in the order of `old`.

    Without times, the new rows of a sequence follow the old ones. A new row at the time of an old
    one takes its place, if nothing was observed there.
    """
    first, second = old.table, new.table
    names = [name for name in (old.subject, old.sequence, old.time) if name is not None]
    if old.time is not None:
        again = _labels(first, names).isin(_labels(second, names))
        observed = [first[name].notna().to_numpy() for name in outcomes if name in first]
        seen = np.any(observed, axis=0)
        if (again & seen).any():
            row = int(np.flatnonzero(again & seen)[0])
            where = ", ".join(f"{name} {first[name].tolist()[row]!r}" for name in names)
            raise DataError(
                f"The fit has seen {int((again & seen).sum())} of these rows already, the first at "
                f"{where}. Leave them out: only rows that it has not seen are held out."
            )
        first = first.loc[~again]
    every: Any = pd.concat([first, second], ignore_index=True)
    # Subjects all of whose rows were replaced must not change places.
    place = pd.Index(old.subjects).get_indexer(pd.Index(every[old.subject]))
    every = every.iloc[np.argsort(place, kind="stable")]
    return Panel.from_frame(every, old.subject, old.time, old.sequence)


def _labels(table: pd.DataFrame, names: list[str]) -> pd.MultiIndex:
    chosen: Any = table[names]
    halves = {name: np.float64 for name in names if chosen[name].dtype == np.float16}
    return pd.MultiIndex.from_frame(chosen.astype(halves))  # pandas has no index of halves
