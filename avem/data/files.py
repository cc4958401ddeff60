"""Tables in files: CSV, TSV and Parquet, read as a person who opens them would."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from avem.data.writing import is_stream, replacing
from avem.errors import FileError

_PACKINGS = {".gz": "gzip", ".zip": "zip", ".bz2": "bz2", ".xz": "xz"}
_NO_PARQUET = "Files in .parquet need an extra: pip install 'avem[parquet]'."


def read_table(
    path: Path,
    columns: Mapping[str, str | None],
    missing: Collection[str],
    text: Collection[str] = (),
) -> pd.DataFrame:
    """The table in a file. The subject, sequence and time `columns` have no missing codes."""
    kind = table_kind(path)
    if not path.is_file():
        raise FileError(f"There is no file {str(path)!r}.")
    keys = [name for name in columns.values() if name is not None]
    try:
        if kind == ".parquet":
            return _read_parquet(path, keys, missing)
        options: dict[str, Any] = {"sep": "\t" if kind == ".tsv" else ","}
        if kind == ".csv" and _has_semicolons(path):
            options = {"sep": ";", "decimal": ","}
        names = pd.read_csv(path, nrows=0, **options).columns
        labels = [columns[key] for key in ("subject", "sequence") if columns[key] in names]
        as_text = [*text, *_zero_padded(path, labels, options)]
        options["dtype"] = dict.fromkeys(as_text, "str")
        options["na_values"] = {name: list(missing) for name in names if name not in keys}
        return pd.read_csv(path, **options)
    except (ValueError, OSError) as error:  # pandas' parser errors are ValueErrors
        raise FileError(f"Cannot read {str(path)!r} as a {kind} table: {error}") from error


def table_kind(path: Path) -> str:
    """The suffix that says what a file holds, whatever it is compressed with."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((s for s in reversed(suffixes) if s not in _PACKINGS), "")
    if kind not in (".csv", ".tsv", ".parquet"):
        raise FileError(f"{str(path)!r} ends in {kind!r}; .csv, .tsv or .parquet is wanted.")
    return kind


def _has_semicolons(path: Path) -> bool:
    """Whether a spreadsheet of a country with decimal commas wrote the file."""
    # Quotes are left as they are: many programs write each name in its own.
    options: dict[str, Any] = {"sep": "\0", "engine": "python", "quoting": csv.QUOTE_NONE}
    header = str(pd.read_csv(path, header=None, nrows=1, dtype="str", **options).iloc[0, 0])
    return ";" in header and "," not in header


def _zero_padded(path: Path, names: list[str | None], options: dict[str, Any]) -> list[str]:
    """Columns with labels such as 007, which as numbers would lose their zeros."""
    table = pd.read_csv(path, usecols=names, dtype="str", **options)
    return [name for name in table if table[name].str.match(r"0\d+$", na=False).any()]


def _read_parquet(path: Path, keys: Collection[str], missing: Collection[str]) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise FileError(_NO_PARQUET) from None
    for name in frame.columns.difference(list(keys)):
        values = frame[name]
        if pd.api.types.is_numeric_dtype(values):
            codes = [code for code in map(_number, missing) if code is not None]
        else:
            codes = list(missing)
        frame[name] = values.mask(values.isin(codes))
    return frame


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def write_table(frame: pd.DataFrame, path: Path, **options: Any) -> None:
    """Write a frame as the file's suffix says; `options` are those of pandas' `to_csv`."""
    kind = writable_kind(path)
    with replacing(path) as file:
        if kind == ".parquet":
            try:
                frame.to_parquet(file, index=False)
            except ImportError:
                raise FileError(_NO_PARQUET) from None
        else:
            separator = "\t" if kind == ".tsv" else ","
            packing = _packing(path)
            frame.to_csv(
                file, index=False, sep=separator, mode="wb", compression=packing, **options
            )


def writable_kind(path: Path) -> str:
    """The kind of table that a file of this name can be written as; a device takes CSV."""
    if is_stream(path) and not path.suffix:
        return ".csv"
    kind = table_kind(path)
    if kind == ".parquet" and _packing(path) is not None:
        raise FileError(
            f"{str(path)!r} asks for a packed Parquet file, but these are packed within. End its "
            "name in .parquet."
        )
    return kind


def _packing(path: Path) -> Any:
    """What pandas is told about compression, by the last suffix."""
    method = _PACKINGS.get(path.suffix.lower())
    # In a zip the table has a name of its own.
    return {"method": method, "archive_name": path.stem} if method == "zip" else method
