"""Tables in files: CSV, TSV and Parquet, read as a person who opens them would."""

from __future__ import annotations

import codecs
import csv
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import infer_dtype

from avem.data.folders import (
    KINDS,
    PACKINGS,
    check_same_columns,
    check_same_kinds,
    kind_of,
    mixed_columns,
    table_files,
)
from avem.data.writing import is_stream, replacing
from avem.errors import FileError

_DAMAGE = (
    ValueError,  # pandas' parser errors are such
    OSError,
    EOFError,
    RuntimeError,  # an archive with a password, or packed in a way that is not known
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)
_NO_PARQUET = "Files in .parquet need an extra: pip install 'avem[parquet]'."


def read_table(
    path: Path,
    columns: Mapping[str, str | None],
    missing: Collection[str],
    text: Collection[str] = (),
) -> pd.DataFrame:
    """The table in a file, or in all files of a folder or of a pattern.

    The subject, sequence and time `columns` have no missing codes.
    """
    paths = table_files(path)
    frames = [_read_file(one, columns, missing, text) for one in paths]
    if len(paths) == 1:
        return frames[0]
    check_same_columns(paths, frames)
    labels = [columns[key] for key in ("subject", "sequence")]
    as_text = [name for name in mixed_columns(frames) if name in labels]
    if as_text and table_kind(paths[0]) != ".parquet":  # as they were in a single file
        frames = [_read_file(one, columns, missing, [*text, *as_text]) for one in paths]
    check_same_kinds(paths, frames)
    return pd.concat(frames, ignore_index=True)


def _read_file(
    path: Path,
    columns: Mapping[str, str | None],
    missing: Collection[str],
    text: Collection[str],
) -> pd.DataFrame:
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
        _check_names(_first_row(path, options).iloc[0].dropna().tolist(), path)
        labels = [columns[key] for key in ("subject", "sequence") if columns[key] in names]
        as_text = [*text, *_zero_padded(path, labels, options)]
        options["dtype"] = dict.fromkeys(as_text, "str")
        options["na_values"] = {name: list(missing) for name in names if name not in keys}
        return pd.read_csv(path, **options)
    except FileError:
        raise
    except _DAMAGE as error:
        raise FileError(f"Cannot read {str(path)!r} as a {kind} table: {_why(error)}") from error


def _why(error: Exception) -> str:
    """What is wrong with a file, in the words of a person who looks at it."""
    if isinstance(error, UnicodeDecodeError):
        # What pandas decodes at once begins with the file, or long after it.
        if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "it is text in UTF-16. Save it as UTF-8."
        byte = error.object[error.start]
        return (
            f"byte 0x{byte:02x} is no UTF-8 text: the file is in another encoding, such as that of "
            "an old spreadsheet, or holds no text. Save it as CSV in UTF-8."
        )
    if isinstance(error, pd.errors.EmptyDataError):
        return "it is empty; names of columns and rows are wanted."
    if isinstance(error, EOFError):
        return "it ends too early. Copy or make it again."
    return str(error)


def _check_names(names: list[str], path: Path) -> None:
    """Raise if two columns have one name: which of them is meant, nobody can tell."""
    if any("\0" in name for name in names):
        raise FileError(
            f"{str(path)!r} begins with zero bytes, as text in UTF-16 and files that are no tables "
            "do. Save it as CSV in UTF-8."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise FileError(
            f"{str(path)!r} has {names.count(twice[0])} columns named {twice[0]!r}; a column needs "
            "a name of its own. Rename or remove one."
        )


def table_kind(path: Path) -> str:
    """The suffix that says what a file holds, whatever it is compressed with."""
    kind = kind_of(path)
    if kind not in KINDS:
        raise FileError(f"{str(path)!r} ends in {kind!r}; .csv, .tsv or .parquet is wanted.")
    return kind


def _has_semicolons(path: Path) -> bool:
    """Whether a spreadsheet of a country with decimal commas wrote the file."""
    # Quotes are left as they are: many programs write each name in its own.
    options: dict[str, Any] = {"sep": "\0", "engine": "python", "quoting": csv.QUOTE_NONE}
    header = str(_first_row(path, options).iloc[0, 0])
    return ";" in header and "," not in header


def _first_row(path: Path, options: dict[str, Any]) -> pd.DataFrame:
    """The names of the columns as they are written, which as names pandas would make unique."""
    return pd.read_csv(path, header=None, nrows=1, dtype="str", **options)


def _zero_padded(path: Path, names: list[str | None], options: dict[str, Any]) -> list[str]:
    """Columns with labels such as 007, which as numbers would lose their zeros."""
    table = pd.read_csv(path, usecols=names, dtype="str", **options)
    return [name for name in table if table[name].str.match(r"0\d+$", na=False).any()]


def _read_parquet(path: Path, keys: Collection[str], missing: Collection[str]) -> pd.DataFrame:
    need_parquet()
    frame = pd.read_parquet(path)
    _check_names([str(name) for name in frame.columns], path)
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
            _of_one_kind(frame).to_parquet(file, index=False)
        else:
            separator = "\t" if kind == ".tsv" else ","
            packing = _packing(path)
            packed = BytesIO()  # a packer whose file is full would complain once more, later
            into = file if packing is None else packed
            frame.to_csv(
                into, index=False, sep=separator, mode="wb", compression=packing, **options
            )
            file.write(packed.getbuffer())


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
    if kind == ".parquet":
        need_parquet()
    return kind


def need_parquet() -> None:
    """Raise unless Parquet files can be read and written."""
    try:
        pd.DataFrame().to_parquet()
    except ImportError:
        raise FileError(_NO_PARQUET) from None


def _of_one_kind(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame as Parquet takes it: columns in which text meets numbers are text."""
    mixed = {
        str(name): values.map(str, na_action="ignore")
        for name, values in frame.items()
        if values.dtype == object and infer_dtype(values, skipna=True).startswith("mixed")
    }
    return frame.assign(**mixed) if mixed else frame


def _packing(path: Path) -> Any:
    """What pandas is told about compression, by the last suffix."""
    method = PACKINGS.get(path.suffix.lower())
    # In a zip the table has a name of its own.
    return {"method": method, "archive_name": path.stem} if method == "zip" else method
