"""Rows of a sorted Parquet file, stretch by stretch, and where they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from avem.data.scanning.packages import need
from avem.errors import FileError


class Reader:
    """Stretches of the rows of a Parquet file, each after the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with sorted_rows(path):
            self._file = need("pyarrow.parquet", "A scan").ParquetFile(path)
        meta = self._file.metadata
        sizes = [meta.row_group(g).num_rows for g in range(meta.num_row_groups)]
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - np.array(sizes)
        self._known: dict[int, Any] = {}

    def rows(self, start: int, stop: int) -> pd.DataFrame:
        """Rows from `start` to before `stop`."""
        arrow = need("pyarrow", "A scan")
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        wanted = range(first, last + 1)
        with sorted_rows(self._path):
            self._known = {
                g: self._known.get(g) or self._file.read_row_group(g, use_threads=False)
                for g in wanted
            }
        whole = arrow.concat_tables([self._known[g] for g in wanted])
        offset = start - int(self._starts[first])
        return whole.slice(offset, stop - start).replace_schema_metadata(None).to_pandas()


def column_of(path: Path, name: str) -> Iterator[pd.Series]:
    """A column of a Parquet file, part by part."""
    with sorted_rows(path):
        file = need("pyarrow.parquet", "A scan").ParquetFile(path)
        for batch in file.iter_batches(columns=[name]):
            yield batch.column(0).to_pandas().rename(name)


@contextmanager
def sorted_rows(path: Path) -> Iterator[None]:
    """Say what to do where the sorted rows of a scan cannot be read any more."""
    try:
        yield
    except (OSError, ValueError) as error:  # pyarrow's own errors are such
        raise FileError(
            f"The sorted rows in {str(path)!r} are gone or damaged: {str(error).rstrip('.')}. "
            "Remove the folder they are in, and scan again."
        ) from error


def first_rows(lane_subject: np.ndarray, lane_length: np.ndarray) -> np.ndarray:
    """(lanes,) the first row on disk of each: subjects come by the length of their longest."""
    longest = np.zeros(lane_subject.max() + 1, np.int64)
    np.maximum.at(longest, lane_subject, lane_length)
    order = np.lexsort((lane_subject, longest[lane_subject]))  # stable: lanes keep their order
    first = np.empty(len(order), np.int64)
    first[order] = np.cumsum(lane_length[order]) - lane_length[order]
    return first


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Starts, starts + 1, ... of so many each, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
