"""What can be scanned: files of Parquet or CSV, and lazy tables, which are first put into files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw

from avem.data.files import table_kind
from avem.data.frames import examples
from avem.data.scanning.packages import need
from avem.errors import DataError, FileError, did_you_mean

_MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>", "#N/A"]
"""What stands for a missing value in text files, as pandas reads them."""
_TABLES = (".parquet", ".csv", ".tsv")


@dataclass(frozen=True, eq=False)
class Files:
    """The files of a source, all of one kind."""

    paths: tuple[Path, ...]
    kind: str
    """".parquet", ".csv" or ".tsv"."""

    def marks(self) -> list[list[Any]]:
        """Name, size and time of change of every file: what tells one source from another."""
        found = [(path, path.stat()) for path in self.paths]
        return [[str(path.resolve()), stat.st_size, stat.st_mtime_ns] for path, stat in found]

    @property
    def n_bytes(self) -> int:
        """The size of all files."""
        return sum(path.stat().st_size for path in self.paths)

    def sql(self, as_text: Iterable[str] = ()) -> str:
        """What DuckDB reads them by; columns `as_text` of text files are not looked into."""
        names = ", ".join(_quoted(str(path)) for path in self.paths)
        if self.kind == ".parquet":
            return f"read_parquet([{names}])"
        types = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in as_text)
        typed = f", types = {{{types}}}" if types else ""
        gaps = ", ".join(_quoted(word) for word in _MISSING)
        separator = ", delim = '\t'" if self.kind == ".tsv" else ""
        return f"read_csv([{names}], header = true, nullstr = [{gaps}]{separator}{typed})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def name_sql(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def is_source(data: Any) -> bool:
    """Whether these data are scanned rather than read: paths, or a lazy table."""
    return isinstance(data, str | os.PathLike) or lazy_kind(data) is not None


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
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    paths: list[Path] = []
    for one in given:
        if not isinstance(one, str | os.PathLike):
            raise DataError(
                f"The source has {one!r}; paths, a polars LazyFrame, a pyarrow Dataset, a DuckDB "
                "relation or a Dask DataFrame are wanted. A frame in memory is fitted as it is."
            )
        paths += _found(os.fspath(one))
    if not paths:
        raise FileError("The source is an empty list; paths of .parquet or .csv files are wanted.")
    kinds = {table_kind(path): path for path in paths}
    if len(kinds) > 1:
        some = " and ".join(repr(str(path)) for path in list(kinds.values())[:2])
        raise FileError(f"The files are of different kinds: {some}. Give those of one kind.")
    return Files(tuple(paths), next(iter(kinds)))


def _found(text: str) -> list[Path]:
    path = Path(text)
    if path.is_dir():
        inside = [own for own in sorted(path.rglob("*")) if own.suffix.lower() in _TABLES]
        if not inside:
            raise FileError(f"The folder {text!r} has no .parquet, .csv or .tsv files.")
        return inside
    if path.is_file():
        return [path]
    matches = sorted(Path(own) for own in glob.glob(text, recursive=True))
    matches = [own for own in matches if own.is_file()]
    if not matches:
        raise FileError(f"There is no file {text!r}.")
    return matches


def put_into_file(source: Any, path: Path) -> Files:
    """A lazy table, written to a Parquet file batch by batch."""
    kind = lazy_kind(source)
    if kind == "polars":
        source.sink_parquet(path)
    elif kind == "duckdb":
        source.write_parquet(str(path))
    elif kind == "pyarrow":
        _write_batches(source.scanner().to_batches(), source.schema, path)
    else:
        _write_partitions(source, path)
    return Files((path,), ".parquet")


def _write_batches(batches: Iterable[Any], schema: Any, path: Path) -> None:
    parquet = need("pyarrow.parquet", "Scanning a table")
    with parquet.ParquetWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_partitions(frame: Any, path: Path) -> None:
    """Of a Dask DataFrame, one at a time."""
    arrow = need("pyarrow", "Scanning a table")
    parquet = need("pyarrow.parquet", "Scanning a table")
    writer, schema = None, None
    try:
        for part in frame.to_delayed():
            table = arrow.Table.from_pandas(part.compute(), preserve_index=False, schema=schema)
            if writer is None:
                schema = table.schema
                writer = parquet.ParquetWriter(path, schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def check_files(files: Files, wanted: Sequence[str]) -> list[str]:
    """The columns that all files have, or an error that names the file that differs."""
    first = _columns(files.paths[0], files.kind)
    for name in wanted:
        if name not in first:
            hint = did_you_mean(name, first)
            raise DataError(
                f"There is no column {name!r} in {str(files.paths[0])!r}.{hint} The columns are "
                f"{examples(first)}."
            )
    for path in files.paths[1:]:
        own = _columns(path, files.kind)
        if lacking := [name for name in first if name not in own]:
            raise DataError(
                f"{str(path)!r} has no column {lacking[0]!r}, which {str(files.paths[0])!r} has. "
                "All files need the same columns."
            )
        if own != first:
            more = [name for name in own if name not in first]
            what = f"a column {more[0]!r} more" if more else "its columns in another order"
            raise DataError(
                f"{str(path)!r} has {what} than {str(files.paths[0])!r}. All files need the same "
                "columns."
            )
    return first


def _columns(path: Path, kind: str) -> list[str]:
    if kind != ".parquet":
        duckdb = need("duckdb", "Scanning a table")
        try:
            with duckdb.connect() as connection:
                return connection.sql(f"FROM {Files((path,), kind).sql()} LIMIT 0").columns
        except duckdb.Error as error:
            raise FileError(f"Cannot read {str(path)!r} as a {kind} table: {error}") from error
    parquet = need("pyarrow.parquet", "Scanning a table")
    try:
        return list(parquet.read_schema(path).names)
    except (OSError, ValueError) as error:  # pyarrow's own errors are such
        raise FileError(
            f"{str(path)!r} is damaged, or no Parquet file: {str(error).rstrip('.')}. "
            "Copy or make it again."
        ) from error
