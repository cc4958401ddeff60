"""What a study is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

Row = dict[str, Any]
Tables = dict[str, pd.DataFrame]
Replicate = Callable[[Row, int], list[Row]]
"""The rows (one per method, say) of one replicate, from a cell and a seed. A name that ends in
``seconds`` is a time: it goes to the table of times, and to no other."""

PROTOCOLS = ("paper", "converged")


@dataclass(frozen=True)
class Study:
    """A simulation study: settings, what is done in each, and what is made of it."""

    name: str
    question: str
    """In a sentence or two, for the page."""
    cells: tuple[Row, ...]
    """The settings, one dict each. Seeds depend on their order: append, do not insert."""
    replicate: Mapping[str, Replicate]
    """By protocol: ``"paper"``, plain iterations from the authors' start to their rule; and
    ``"converged"``, what a user gets from the data alone."""
    tables: Callable[[pd.DataFrame], Tables]
    """Named summaries of all rows, in which columns say the protocol, the cell and the replicate.
    """
    reps: Mapping[str, int] = field(default_factory=dict)
    """Replicates per cell when nobody says how many; 100 where nothing is said here either."""
    quick_cells: tuple[int, ...] = (0,)
    """The settings of ``--quick``, and how many replicates of each."""
    quick_reps: int = 2
    times: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    """The table of times, from all rows; by default the medians of every cell and method."""
    figures: Mapping[str, Callable[[pd.DataFrame], Figure | None]] = field(default_factory=dict)
    """By name, from all rows, times included; None where there is nothing to draw."""
    reading: Callable[[Tables], str] | None = None
    """What the tables say, for the page: every number comes from them."""

    def default_reps(self, protocol: str, quick: bool) -> int:
        """How many replicates of each cell, when nobody says."""
        return self.quick_reps if quick else self.reps.get(protocol, 100)

    def median_times(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The median of every kind of seconds, per protocol, cell and method."""
        if self.times is not None:
            return self.times(frame)
        keys = ["protocol", *self.cells[0], *(["method"] if "method" in frame else [])]
        return frame.groupby(keys, sort=False, as_index=False)[time_columns(frame)].median()


def time_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that are times."""
    return [name for name in frame.columns if str(name).endswith("seconds")]
