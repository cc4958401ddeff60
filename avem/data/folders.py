"""Tables that lie in several files: a folder of them, or a pattern such as ``'days/*.csv'``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from glob import glob, has_magic
from pathlib import Path

import pandas as pd
from pandas.api.types import is_numeric_dtype

from avem.data.frames import examples
from avem.errors import FileError

PACKINGS = {".gz": "gzip", ".zip": "zip", ".bz2": "bz2", ".xz": "xz"}
KINDS = (".csv", ".tsv", ".parquet")


def kind_of(path: Path) -> str:
    """The suffix that says what a file holds, whatever it is compressed with; "" for none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in PACKINGS), "")


def table_files(path: Path) -> list[Path]:
    """The files that are one table: the path itself, or by name those that it stands for."""
    if path.is_dir():
        found = [
            one for one in path.iterdir() if one.is_file() and not one.name.startswith((".", "_"))
        ]
        found = [one for one in found if kind_of(one) in KINDS]
        if not found:
            raise FileError(
                f"{str(path)!r} is a folder without {', '.join(KINDS[:-1])} or {KINDS[-1]} files. "
                f"Files in folders within it are named by a pattern: '{path}/*/*.csv'."
            )
    elif has_magic(str(path)) and not path.exists():
        found = [Path(one) for one in glob(str(path), recursive=True) if Path(one).is_file()]
        if not found:
            raise FileError(f"There is no file that matches {str(path)!r}.")
    else:
        return [path]
    kinds = {kind_of(one): one for one in sorted(found)}
    if len(kinds) > 1:
        names = examples([str(one) for one in kinds.values()])
        raise FileError(
            f"{str(path)!r} has files of several kinds, such as {names}. Name those of one kind by "
            f"a pattern: '{path if path.is_dir() else path.parent}/*{next(iter(kinds))}'."
        )
    return sorted(found)


def check_same_columns(paths: Sequence[Path], frames: Iterable[pd.DataFrame]) -> None:
    """Raise, with its name, where a file has other columns than the first; in any order."""
    first: list[str] = []
    for path, frame in zip(paths, frames, strict=True):
        own = [str(name) for name in frame.columns]
        first = first or own
        lacking = [name for name in first if name not in own]
        more = [name for name in own if name not in first]
        if lacking or more:
            words = [f"lacks {examples(lacking)}"] if lacking else []
            words += [f"has {examples(more)} beside them"] if more else []
            raise FileError(
                f"{str(path)!r} has other columns than {str(paths[0])!r}: it "
                f"{' and '.join(words)}. Files that are one table need the same columns."
            )


def mixed_columns(frames: Sequence[pd.DataFrame]) -> dict[str, tuple[int, int]]:
    """Columns with numbers in one file and something else in another, and which two these are."""
    found = {}
    for name in frames[0].columns:
        numeric = {
            bool(is_numeric_dtype(frame[name])): number
            for number, frame in reversed(list(enumerate(frames)))
            if not pd.Series(frame[name]).isna().all()
        }
        if len(numeric) > 1:
            found[str(name)] = numeric[True], numeric[False]
    return found


def check_same_kinds(paths: Sequence[Path], frames: Sequence[pd.DataFrame]) -> None:
    """Raise, with both names, where a column has numbers in one file and none in another."""
    for name, (numbers, other) in mixed_columns(frames).items():
        raise FileError(
            f"The column {name!r} has numbers in {str(paths[numbers])!r} and text in "
            f"{str(paths[other])!r}. Is a missing value written as a word? --missing-code names it."
        )
