"""The columns of the files of a scan: looked at in every file before any is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from avem.data.frames import examples
from avem.data.scanning.packages import need
from avem.data.scanning.sources import Files
from avem.data.scanning.text import header_of
from avem.errors import DataError, FileError, did_you_mean

_INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls an index without a name in a Parquet file."""


def check_files(files: Files, wanted: Sequence[str]) -> Files:
    """The files with what their columns are, or an error that names the file that differs."""
    path, others = files.paths[0], files.paths[1:]
    first, separator = _columns(path, files.kind, wanted)
    names = list(first)
    for other in others:
        own, written = _columns(other, files.kind, wanted)
        _check_same(other, own, path, first)
        if written != separator:
            raise FileError(
                f"{str(other)!r} separates its columns by {written!r}, and {str(path)!r} by "
                f"{separator!r}. Write them alike."
            )
        first = {name: kind or own[name] for name, kind in first.items()}
    partitions = _partitions(files.paths, names)
    _check_own_names([*names, *partitions], path)
    for name in wanted:
        if name not in (*names, *partitions):
            hint = did_you_mean(name, [*names, *partitions])
            raise DataError(
                f"There is no column {name!r} in {files.called(path)}.{hint} The columns are "
                f"{examples([*names, *partitions])}."
            )
        if first.get(name, "").startswith("duration"):
            raise DataError(f"Column {name!r} holds durations; numbers or dates are wanted.")
    return replace(files, columns=tuple(names), separator=separator, partitions=partitions)


def _check_same(other: Path, own: Mapping[str, str], path: Path, first: Mapping[str, str]) -> None:
    """The same columns, with numbers or text in both; a column without values goes with all."""
    if lacking := [name for name in first if name not in own]:
        raise DataError(
            f"{str(other)!r} has no column {lacking[0]!r}, which {str(path)!r} has. "
            "All files need the same columns."
        )
    if list(own) != list(first):
        more = [name for name in own if name not in first]
        what = f"a column {more[0]!r} more" if more else "its columns in another order"
        raise DataError(
            f"{str(other)!r} has {what} than {str(path)!r}. All files need the same columns."
        )
    for name, kind in own.items():
        if kind and first[name] and kind != first[name]:
            raise FileError(
                f"The column {name!r} has {kind} in {str(other)!r} and {first[name]} in files "
                f"before it, such as {str(path)!r}. All files need the same columns."
            )


def _check_own_names(names: Sequence[str], path: Path) -> None:
    """Names that are told apart whatever their case, as DuckDB has it."""
    counts = Counter(name.casefold() for name in names)
    twice = [name for name in names if counts[name.casefold()] > 1]
    if twice:
        raise DataError(
            f"{str(path)!r} has columns {twice[0]!r} and {twice[1]!r}; a scan does not tell "
            "capital letters from small ones. Rename or remove one."
        )
    own = [name for name in names if name.casefold().startswith("avem ")]
    if own:
        raise DataError(f"{str(path)!r} has a column {own[0]!r}; 'avem ...' is taken. Rename it.")


def _partitions(paths: Sequence[Path], names: Sequence[str]) -> tuple[str, ...]:
    """Columns that are not in the files but in the names of their folders, as year=2024."""
    found = [
        tuple(key for key, sign, _ in (part.partition("=") for part in path.parent.parts) if sign)
        for path in paths
    ]
    folded = {name.casefold() for name in names}
    if len(set(found)) > 1 or any(key.casefold() in folded for key in found[0]):
        return ()
    return found[0]


def _columns(path: Path, kind: str, wanted: Sequence[str]) -> tuple[dict[str, str], str]:
    """Each column with the kind of its values, and what separates them in a text file.

    The numbers of rows that pandas writes beside a frame are none, unless they are wanted.
    """
    if kind != ".parquet":
        names, separator = header_of(path, "\t" if kind == ".tsv" else None)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise FileError(
                f"{str(path)!r} has {names.count(twice)} columns named {twice!r}; a column needs a "
                "name of its own. Rename or remove one."
            )
        return dict.fromkeys(names, ""), separator
    arrow = need("pyarrow", "Scanning a table")
    parquet = need("pyarrow.parquet", "Scanning a table")
    try:
        schema = parquet.read_schema(path)
    except (OSError, ValueError) as error:  # pyarrow's own errors are such
        raise FileError(
            f"{str(path)!r} is damaged, or no Parquet file: {str(error).rstrip('.')}. "
            "Copy or make it again."
        ) from error
    fields = [one for one in schema if one.name in wanted or not _INDEX.fullmatch(one.name)]
    return {field.name: _kind(arrow.types, field.type) for field in fields}, ""


def _kind(types: Any, kind: Any) -> str:
    """What columns of different files have in common: numbers of all sizes are of one kind."""
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind):
        return ""
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    if any(test(kind) for test in numeric):
        return "numbers"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_timestamp(kind):
        return "times" if kind.tz is None else "times with a zone"
    return str(kind)
