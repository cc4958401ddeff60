"""Frames in and out: any eager frame becomes pandas, and results go back as the caller's kind."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from avem.errors import DataError, did_you_mean

N_EXAMPLES = 5
_WIDEST = 200  # characters of a label in a message
MAX_WHOLE = 2**62  # so that differences are still int64


@dataclass(frozen=True, eq=False)
class Source:
    """Where a table came from, so that results can go back in the same kind.

    Attributes
    ----------
    backend : narwhals.Implementation
        pandas, polars, pyarrow, ...
    index : pandas.Index or None
        The caller's row labels; None when the frame has none.
    wrapped : bool
        Whether the caller passed a narwhals frame, and so gets narwhals back.
    """

    backend: Any = nw.Implementation.PANDAS
    index: pd.Index | None = None
    wrapped: bool = False

    def series(self, values: np.ndarray, name: str) -> Any:
        """Return `values` as the caller's kind of series."""
        if self.index is not None:
            made: Any = pd.Series(values, index=self.index, name=name)
        else:
            made = nw.new_series(name, np.asarray(values), backend=self.backend).to_native()
        return nw.from_native(made, series_only=True) if self.wrapped else made

    def frame(self, columns: Mapping[str, np.ndarray]) -> Any:
        """Return `columns` as the caller's kind of frame."""
        if self.index is not None:
            made: Any = pd.DataFrame(dict(columns), index=self.index)
        else:
            arrays = {name: np.asarray(values) for name, values in columns.items()}
            made = nw.from_dict(arrays, backend=self.backend).to_native()
        return nw.from_native(made, eager_only=True) if self.wrapped else made

    def table(self, table: pd.DataFrame) -> Any:
        """Return a whole table, whose columns may hold anything, as the caller's kind of frame."""
        made: Any = table
        if self.index is None and self.backend is not nw.Implementation.PANDAS:
            columns = {str(name): _plain(pd.Series(table[name])) for name in table}
            made = nw.from_dict(columns, backend=self.backend).to_native()
        return nw.from_native(made, eager_only=True) if self.wrapped else made

    def rows(self, keep: np.ndarray) -> "Source":
        """Return the source of the rows where `keep` is true."""
        index = None if self.index is None else self.index[keep]
        return Source(self.backend, index, self.wrapped)

    def name_rows(self, mask: np.ndarray) -> str:
        """Return words naming the rows in `mask`: the caller's labels, or positions from 0."""
        positions = np.flatnonzero(mask)
        first = positions[:N_EXAMPLES]
        labels = first.tolist() if self.index is None else self.index[first].tolist()
        return f"{'row' if len(positions) == 1 else 'rows'} {examples(labels, len(positions))}"


def to_pandas(frame: Any) -> tuple[pd.DataFrame, Source]:
    """Return the frame as pandas with rows numbered 0, 1, ..., and where it came from."""
    wrapped = isinstance(frame, nw.DataFrame)
    try:
        narwhal = frame if wrapped else nw.from_native(frame, eager_only=True)
    except nw.exceptions.DuplicateError:
        names = getattr(frame, "column_names", None) or frame.columns
        twice = [str(name) for name, n in Counter(names).items() if n > 1]
        raise DataError(
            f"The frame has more than one column named {examples(twice)}. Column names must be "
            "unique: rename or drop the extra ones."
        ) from None
    except TypeError:
        if isinstance(frame, str | PathLike):
            hint = f"Read the file first: pandas.read_csv({str(frame)!r})."
        else:
            hint = "For arrays use Panel.from_arrays or Panel.from_lengths."
        raise DataError(
            f"The data are {_kind(frame)}; a pandas, polars or pyarrow frame is wanted "
            f"(collect a lazy frame first). {hint}"
        ) from None
    native = narwhal.to_native()
    if narwhal.implementation.is_pyarrow():  # what it shows, not what pandas would make of it
        narwhal = nw.from_native(native.replace_schema_metadata(None), eager_only=True)
    if not isinstance(native, pd.DataFrame) and any("\0" in name for name in narwhal.columns):
        raise DataError("The name of a column has a null character in it. Rename it.")
    index = native.index if isinstance(native, pd.DataFrame) else None
    try:
        table = narwhal.to_pandas().reset_index(drop=True)
    except ModuleNotFoundError as error:
        raise DataError(
            f"Reading {_kind(frame)} needs the package {error.name}. Install it, or pass a "
            "pandas frame."
        ) from error
    except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
        raise DataError(
            f"A{_kind(frame)[1:]} has a column that pandas cannot hold ({error}). Drop or "
            "convert it."
        ) from error
    if table.columns.nlevels > 1:
        raise DataError(
            f"The frame's columns have {table.columns.nlevels} levels of names; plain names are "
            "wanted. Join them first: frame.columns = ['_'.join(name) for name in frame.columns]."
        )
    return table, Source(narwhal.implementation, index, wrapped)


def _plain(values: pd.Series) -> Any:
    """Return a column as every kind of frame takes it: numbers as an array, the rest as a list.

    With gaps, numbers are a list, too: frames that know missing values do not count NaN as one.
    """
    missing = values.isna()
    some = missing.any() and not missing.all()
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf" and not some:
        return values.to_numpy()
    return [None if gone else x for x, gone in zip(values.tolist(), missing.tolist(), strict=True)]


def _kind(thing: object) -> str:
    package = type(thing).__module__.split(".")[0]
    return f"a {'' if package == 'builtins' else f'{package} '}{type(thing).__name__}"


def examples(labels: Iterable[object], total: int | None = None) -> str:
    """Return a few labels in words, with the count when there are more."""
    labels = list(labels)
    total = len(labels) if total is None else total
    text = ", ".join(shown(label) for label in labels[:N_EXAMPLES])
    return text if total <= N_EXAMPLES else f"{text}, ... ({total} in all)"


def shown(label: object) -> str:
    """Return a label as Python writes it, or its beginning."""
    text = repr(label)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def as_python(label: object) -> str:
    """Return a label as Python writes it, without NumPy's name of its kind."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def column(table: pd.DataFrame, name: str, use: str) -> pd.Series:
    """Return one column, or say which columns there are. `use` says what it was wanted for."""
    if isinstance(name, Hashable) and name in table.columns:
        return pd.Series(table[name])
    available = [str(label) for label in table.columns]
    hint = did_you_mean(name, available)
    names = ", ".join(shown(label) for label in available[:30])
    more = ", ..." if len(available) > 30 else ""
    raise DataError(
        f"There is no column {shown(name)}, wanted as {use}.{hint} The columns are {names}{more}."
    )


def as_dates(values: pd.Series) -> np.ndarray | None:
    """(rows,) nanoseconds of dates, or of text that is all year-month-day, perhaps with a time."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        found = pd.to_datetime(values, utc=True)
    elif pd.api.types.infer_dtype(values, skipna=True) == "string":
        if not re.match(r"\d{4}-\d\d", str(values.iloc[0])):
            return None
        found = pd.to_datetime(values, format="ISO8601", errors="coerce", utc=True)
    else:
        return None
    if found.isna().any():
        return None
    return found.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]").astype(np.int64)


def whole_numbers(values: pd.Series, of_floats: bool = False) -> np.ndarray | None:
    """Return (rows,) int64 of a column of whole numbers that can be subtracted; else None.

    ``of_floats``: also of floating point numbers that are whole.
    """
    if of_floats and pd.api.types.is_float_dtype(values.dtype):
        found = values.to_numpy(dtype=np.float64)
        whole = len(found) and np.abs(found).max() < 2.0**53 and (found % 1 == 0).all()
        return found.astype(np.int64) if whole else None
    if not pd.api.types.is_integer_dtype(values.dtype):
        return None
    far = max(abs(int(values.min())), abs(int(values.max()))) > MAX_WHOLE
    return None if far else values.to_numpy(dtype=np.int64)


def numbers(values: pd.Series) -> np.ndarray | None:
    """Return (rows,) float64 with NaN where missing, or None when the column is not numeric.

    Booleans count as numbers (0 and 1). Columns of Python objects are looked into, since a
    boolean or integer column with gaps often arrives as one.
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        return None
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iufb":
        return values.to_numpy().astype(np.float64, copy=False)
    kind = pd.api.types.infer_dtype(values, skipna=True)
    wanted = ("integer", "floating", "boolean", "mixed-integer-float", "decimal", "empty")
    if kind not in wanted:
        return None
    try:
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    except OverflowError:
        raise DataError(
            f"Column {values.name!r} holds whole numbers beyond double precision. Change its unit."
        ) from None
