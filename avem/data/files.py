"""Tables in files: CSV, TSV and Parquet, read as a person who opens them would."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from avem.errors import FileError

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
    kind = next((s for s in reversed(suffixes) if s not in (".gz", ".zip", ".bz2", ".xz")), "")
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


def need_folder(path: Path, purpose: str = "") -> None:
    """Raise unless there is a folder to write a file into; `purpose` is " to save the fit in"."""
    if not path.parent.is_dir():
        raise FileError(f"There is no folder {str(path.parent)!r}{purpose}. Make it first.")


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as the file's suffix says."""
    kind = table_kind(path)
    need_folder(path)
    if kind == ".parquet":
        try:
            frame.to_parquet(path, index=False)
        except ImportError:
            raise FileError(_NO_PARQUET) from None
    else:
        frame.to_csv(path, index=False, sep="\t" if kind == ".tsv" else ",")
