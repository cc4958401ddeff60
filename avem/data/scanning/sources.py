"""What can be scanned: files of Parquet or CSV, and lazy tables, which are first put into files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw

from avem.data.files import table_kind
from avem.data.folders import KINDS, kind_of
from avem.data.scanning.packages import interruptible, need
from avem.data.scanning.room import full_disk, no_room
from avem.data.scanning.text import MISSING
from avem.errors import AvemError, DataError, FileError

PREFIX = "avem-scan-"
"""Of the folders with sorted rows."""


@dataclass(frozen=True, eq=False)
class Files:
    """The files of a source, all of one kind."""

    paths: tuple[Path, ...]
    kind: str
    """".parquet", ".csv" or ".tsv"."""
    columns: tuple[str, ...] = ()
    separator: str = ""
    """Of columns in text files."""
    partitions: tuple[str, ...] = ()
    """Columns that are in the names of folders."""
    name: str = ""
    """Of a lazy table that was written into them."""

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The columns inside the files, then those of the folders' names."""
        return (*self.columns, *self.partitions)

    def called(self, path: Path) -> str:
        """What an error calls one of the files."""
        return self.name or repr(str(path))

    def marks(self) -> list[list[Any]]:
        """Name, size and time of change of every file: what tells one source from another."""
        found = [(path, path.stat()) for path in self.paths]
        return [[str(path.resolve()), stat.st_size, stat.st_mtime_ns] for path, stat in found]

    @property
    def n_bytes(self) -> int:
        """The size of all files."""
        return sum(path.stat().st_size for path in self.paths)

    @property
    def sql(self) -> str:
        """What DuckDB reads them by; columns of text files and names of folders come as text."""
        names = ", ".join(_quoted(_as_it_is(str(path))) for path in self.paths)
        hive = "true, hive_types_autocast = false" if self.partitions else "false"
        if self.kind == ".parquet":
            return f"read_parquet([{names}], union_by_name = true, hive_partitioning = {hive})"
        columns = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in self.columns)
        gaps = ", ".join(_quoted(word) for word in MISSING)
        return (
            f"read_csv([{names}], auto_detect = false, header = true, columns = {{{columns}}}, "
            f"delim = {_quoted(self.separator)}, quote = '\"', escape = '\"', nullstr = [{gaps}], "
            f"hive_partitioning = {hive})"
        )


def _as_it_is(path: str) -> str:
    """A path in which DuckDB finds no pattern."""
    return re.sub(r"([*?[])", r"[\1]", path)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def name_sql(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def lazy_kind(data: Any) -> str | None:
    """ "polars", "pyarrow", "duckdb" or "dask", of a lazy table; None of anything else."""
    kind = type(data)
    package = kind.__module__.partition(".")[0].lstrip("_")
    if package == "polars" and kind.__name__ == "LazyFrame":
        return "polars"
    if package == "pyarrow" and hasattr(data, "scanner"):
        return "pyarrow"
    if package == "duckdb" and hasattr(data, "write_parquet"):
        return "duckdb"
    if package.startswith("dask") and hasattr(data, "to_delayed"):
        return "dask"
    return None


def backend_of(data: Any) -> Any:
    """The kind of frame in which results go back."""
    kinds = {"polars": nw.Implementation.POLARS, "pyarrow": nw.Implementation.PYARROW}
    return kinds.get(lazy_kind(data) or "", nw.Implementation.PANDAS)


def find_files(source: Any) -> Files:
    """The files that paths, globs and folders lead to, in the order of their names."""
    given = [source] if isinstance(source, str | os.PathLike) else _several(source)
    paths: list[Path] = []
    for one in given:
        if not isinstance(one, str | os.PathLike) or one == "":
            what = f"a {type(one).__name__}" if hasattr(one, "columns") else repr(one)
            raise DataError(
                f"The source is or has {what}; paths, a polars LazyFrame, a pyarrow Dataset, a "
                "DuckDB relation or a Dask DataFrame are wanted. A frame in memory is fitted as it "
                "is."
            )
        paths += _found(os.fspath(one))
    if not paths:
        raise FileError("The source is an empty list; paths of .parquet or .csv files are wanted.")
    kinds = {table_kind(path): path for path in paths}
    if len(kinds) > 1:
        some = " and ".join(repr(str(path)) for path in list(kinds.values())[:2])
        raise FileError(f"The files are of different kinds: {some}. Give those of one kind.")
    return Files(tuple(paths), next(iter(kinds)))


def _several(source: Any) -> list[Any]:
    plain = isinstance(source, Iterable) and not isinstance(source, bytes | dict)
    return list(source) if plain and not hasattr(source, "columns") else [source]


def _found(text: str) -> list[Path]:
    path = Path(text)
    if path.is_dir():
        inside = [own for own in sorted(path.rglob("*")) if _is_table(own, path)]
        if not inside:
            raise FileError(
                f"The folder {text!r} has no {', '.join(KINDS[:-1])} or {KINDS[-1]} files."
            )
        return inside
    if path.is_file():
        return [path]
    matches = sorted(Path(own) for own in glob.glob(text, recursive=True))
    matches = [own for own in matches if own.is_file()]
    if not matches:
        far = "://" in text
        more = " Files elsewhere come as a pyarrow Dataset or a polars LazyFrame." if far else ""
        raise FileError(f"There is no file {text!r}.{more}")
    return matches


def _is_table(path: Path, folder: Path) -> bool:
    """Not what programs leave beside their tables, as _temporary/, nor sorted rows of a scan."""
    hidden = (".", "_", PREFIX)
    own = path.relative_to(folder).parts
    return path.is_file() and kind_of(path) in KINDS and not any(x.startswith(hidden) for x in own)


def put_into_files(source: Any, folder: Path) -> Files:
    """A lazy table, written to Parquet files in a new folder, batch by batch."""
    folder.mkdir()
    kind, path = lazy_kind(source) or "", folder / "0.parquet"
    try:
        with interruptible():
            if kind == "polars":
                source.sink_parquet(path)
            elif kind == "duckdb":
                source.write_parquet(str(path))
            elif kind == "pyarrow":
                _write_batches(source.scanner().to_batches(), source.schema, path)
            else:
                _write_partitions(source, folder)
    except AvemError:
        raise
    except Exception as error:  # whatever their own steps raise
        if why := full_disk(str(error)):
            raise no_room(folder.parent, why) from error
        raise DataError(f"The {_NAMES[kind]} cannot be computed: {error}") from error
    return Files(tuple(sorted(folder.iterdir())), ".parquet", name=f"the {_NAMES[kind]}")


_NAMES = {
    "polars": "polars LazyFrame",
    "pyarrow": "pyarrow Dataset",
    "duckdb": "DuckDB relation",
    "dask": "Dask DataFrame",
}


def _write_batches(batches: Iterable[Any], schema: Any, path: Path) -> None:
    parquet = need("pyarrow.parquet", "Scanning a table")
    with parquet.ParquetWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_partitions(frame: Any, folder: Path) -> None:
    """Of a Dask DataFrame, a file each: one may have whole numbers where another has none."""
    arrow = need("pyarrow", "Scanning a table")
    parquet = need("pyarrow.parquet", "Scanning a table")
    for number, part in enumerate(frame.to_delayed()):
        table = arrow.Table.from_pandas(part.compute(), preserve_index=False)
        parquet.write_table(table, folder / f"{number:08}.parquet")
