"""Rows beyond memory, sorted once by DuckDB into a file of whole subjects, and looked through.

Subjects keep the numbers that a frame in memory gives them, by first appearance; in the file they
are ordered by their longest sequence, so that subjects of similar length lie together. Within a
subject come its sequences by first appearance, and within a sequence the rows by time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from avem.data.frames import Source, examples, shown
from avem.data.scanning.facts import FEW, REAL, columns_of, gaps_of
from avem.data.scanning.packages import need
from avem.data.scanning.room import full_disk, no_room
from avem.data.scanning.sources import Files, name_sql
from avem.data.scanning.text import kinds_of_text, no_utf8, said
from avem.data.sorting import refuse_unsortable
from avem.errors import DataError, FileError

ROW, LANE = "avem row", "avem lane"
"""Columns of the sorted file: the place in the source from 0, and the number of the sequence."""
_FIRST, _LENGTH, _LONGEST, _NUMBER = (
    f'"avem {x}"' for x in ("first", "length", "longest", "number")
)
_SAME, _BEFORE = '"avem same"', '"avem before"'
_ROW_GROUP = 122_880


@dataclass(frozen=True)
class Keys:
    """The columns that say whose row it is, and when."""

    subject: str
    time: str | None
    sequence: str | None

    @property
    def names(self) -> list[str]:
        """Those that there are."""
        return [name for name in (self.subject, self.time, self.sequence) if name is not None]


class Sorter:
    """One pass of sorting: a connection, the source, and what is learned of it."""

    def __init__(self, files: Files, keys: Keys, folder: Path, memory: int) -> None:
        duckdb = need("duckdb", "Scanning a table")
        self._error, self._keys, self._folder, self._files = duckdb.Error, keys, folder, files
        spill = folder / "spill"
        spill.mkdir()
        limit = f"{max(memory // 2, 50_000_000) // 1_000_000}MB"
        config = {"memory_limit": limit, "temp_directory": str(spill), "threads": 2}
        self._connection = duckdb.connect(config=config)

    def run(self) -> dict[str, Any]:
        """Sort into the folder; the facts of the source, as JSON."""
        try:
            self._open()
            self._number()
            self._write()
            columns = columns_of(self._one, self._types)
            gaps = self._gaps()
            return {"columns": columns, "gaps": gaps, "n_bytes": self._files.n_bytes}
        except self._error as error:
            if why := full_disk(str(error)):
                raise no_room(self._folder, why) from error
            if "not utf-8" in str(error):
                raise no_utf8(_file_in(error) or self._files.paths[0]) from error
            raise FileError(
                f"Cannot read or sort {examples(str(path) for path in self._files.paths)}: "
                f"{said(error)}"
            ) from error
        finally:
            self._connection.close()

    def _gaps(self) -> list[int] | None:
        time = self._keys.time
        if time is None:
            return None
        steps = f"SELECT {name_sql(time)} AS now, {_BEFORE} AS before FROM steps WHERE {_SAME}"
        return gaps_of(self._do, self._types[time], steps)

    def _sql(self, text: str) -> Any:
        return self._connection.sql(text)

    def _do(self, text: str) -> list[Any]:
        """All rows of the result: DuckDB does nothing else before these were fetched."""
        return self._connection.execute(text).fetchall()

    def _one(self, text: str) -> Any:
        return next(iter(self._do(text)), None)

    # --- the source -----------------------------------------------------------------------------

    def _open(self) -> None:
        keys, files = self._keys, self._files
        found = self._sql(f"FROM {files.sql} LIMIT 0")
        types, names = dict(zip(found.columns, found.types, strict=True)), files.all_columns
        lost = [name for name in names if name not in types]
        if lost:
            raise DataError(
                f"The files have a column named {lost[0]!r}, which DuckDB calls otherwise. Write "
                "them with another name for it, or without it."
            )
        self._types = {name: str(types[name]) for name in names}
        text = files.partitions if files.kind == ".parquet" else names
        texts = {name: self._text(name) for name in text}
        labels = [name for name in (keys.subject, keys.sequence) if name is not None]
        if text:
            self._types |= kinds_of_text(self._one, files.sql, texts, labels)
        columns = ", ".join(self._as_read(name, texts.get(name)) for name in names)
        self._do(
            f"CREATE VIEW source AS SELECT {columns}, row_number() OVER () - 1 AS {name_sql(ROW)} "
            f"FROM {files.sql}"
        )
        if not self._one("SELECT count(*) FROM source")[0]:
            raise DataError("The source has no rows.")
        for name, use in ((keys.subject, "the subject"), (keys.time, "the time")):
            if name is not None:
                self._refuse_missing(name, use)
        if keys.sequence is not None:
            self._refuse_missing(keys.sequence, "the sequence")
        if keys.time is not None:
            self._refuse_bad_times(keys.time)

    def _text(self, name: str) -> str:
        """A column of text, in which numbers are written with points."""
        column = name_sql(name)
        commas = self._files.separator == ";" and name not in self._keys.names
        return f"replace({column}, ',', '.')" if commas else column

    def _as_read(self, name: str, text: str | None) -> str:
        """A column of the source: text as what it holds, and decimals as numbers."""
        column, kind = name_sql(name), self._types[name]
        if text is not None:
            return column if kind == "VARCHAR" else f"CAST({text} AS {kind}) AS {column}"
        if kind.startswith("DECIMAL"):
            self._types[name] = "DOUBLE"
            return f"CAST({column} AS DOUBLE) AS {column}"
        return column

    def _refuse_missing(self, name: str, use: str) -> None:
        column = name_sql(name)
        nan = f" OR isnan({column})" if self._types[name] in REAL else ""
        rows = self._do(
            f"SELECT {name_sql(ROW)} FROM source WHERE {column} IS NULL{nan} ORDER BY 1 LIMIT 5"
        )
        if rows:
            n = self._one(f"SELECT count(*) FROM source WHERE {column} IS NULL{nan}")[0]
            where = examples([row for (row,) in rows], n)
            raise DataError(
                f"Column {name!r}, {use}, is missing at row{'s' if n > 1 else ''} {where}. Fill it "
                "in or drop these rows."
            )

    def _refuse_bad_times(self, name: str) -> None:
        column, kind = name_sql(name), self._types[name]
        if kind == "VARCHAR":
            some = self._sql(f"SELECT DISTINCT {column} FROM source LIMIT {FEW}").df()[name]
            refuse_unsortable(some, name, Source())
        elif kind in REAL:
            row = self._one(f"SELECT {name_sql(ROW)} FROM source WHERE isinf({column}) LIMIT 1")
            if row is not None:
                raise DataError(f"Column {name!r}, the time, is infinite at row {row[0]}.")

    # --- numbers for subjects and sequences -----------------------------------------------------

    def _number(self) -> None:
        subject, row = name_sql(self._keys.subject), name_sql(ROW)
        sequence = "" if self._keys.sequence is None else f", {name_sql(self._keys.sequence)}"
        self._do(
            f"CREATE TEMP TABLE found AS SELECT {subject}{sequence}, min({row}) AS {_FIRST}, "
            f"count(*) AS {_LENGTH} FROM source GROUP BY ALL"
        )
        self._do(
            f"CREATE TEMP TABLE subjects AS SELECT {subject}, max({_LENGTH}) AS {_LONGEST}, "
            f"row_number() OVER (ORDER BY min({_FIRST})) - 1 AS {_NUMBER} FROM found "
            f"GROUP BY {subject}"
        )
        self._do(
            f"CREATE TEMP TABLE lanes AS SELECT found.*, subjects.{_NUMBER}, subjects.{_LONGEST}, "
            f"row_number() OVER (ORDER BY subjects.{_NUMBER}, found.{_FIRST}) - 1 AS "
            f"{name_sql(LANE)} FROM found JOIN subjects USING ({subject})"
        )
        self._connection.sql(f"SELECT {subject} FROM subjects ORDER BY {_NUMBER}").write_parquet(
            str(self._folder / "subjects.parquet")
        )
        lanes = self._connection.execute(
            f"SELECT {_NUMBER} AS number, {_LENGTH} AS length FROM lanes ORDER BY {name_sql(LANE)}"
        ).fetchnumpy()
        np.save(self._folder / "lane_subject.npy", np.asarray(lanes["number"], np.int64))
        np.save(self._folder / "lane_length.npy", np.asarray(lanes["length"], np.int64))

    # --- sorted rows ----------------------------------------------------------------------------

    def _write(self) -> None:
        keys = self._keys
        labels = [name_sql(name) for name in (keys.subject, keys.sequence) if name is not None]
        columns = ", ".join(f"source.{name_sql(name)}" for name in (*self._types, ROW))
        lane, row = name_sql(LANE), name_sql(ROW)
        when = "" if keys.time is None else f"source.{name_sql(keys.time)}, "
        target = str(self._folder / "rows.parquet").replace("'", "''")
        self._do(
            f"COPY (SELECT {columns}, lanes.{lane} FROM source JOIN lanes "
            f"USING ({', '.join(labels)}) "
            f"ORDER BY lanes.{_LONGEST}, lanes.{_NUMBER}, lanes.{lane}, {when}source.{row}) "
            f"TO '{target}' "
            f"(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE {_ROW_GROUP})"
        )
        self._do(f"CREATE VIEW sorted AS FROM read_parquet('{target}')")
        if keys.time is not None:
            time = name_sql(keys.time)
            self._do(
                f"CREATE VIEW steps AS SELECT *, {lane} = lag({lane}) OVER () AS {_SAME}, "
                f"lag({time}) OVER () AS {_BEFORE} FROM sorted"
            )
            self._refuse_repeated(keys.time)

    def _refuse_repeated(self, time: str) -> None:
        repeated = f"FROM steps WHERE {_SAME} AND {_BEFORE} = {name_sql(time)}"
        some = self._do(
            f"SELECT DISTINCT {name_sql(self._keys.subject)}, {name_sql(time)} {repeated} LIMIT 5"
        )
        if not some:
            return
        n = self._one(f"SELECT count(*) {repeated}")[0]
        found = "; ".join(
            f"subject {shown(who)} has two rows at time {shown(when)}" for who, when in some
        )
        more = f"; ... ({n} repeats in all)" if n > len(some) else ""
        raise DataError(
            f"{found}{more}: give sequence= if these are separate sessions, or drop the repeated "
            "rows."
        )


def _file_in(error: Exception) -> str | None:
    """The file that DuckDB's message names."""
    found = re.search(r"^\s*file = (.*)$", str(error), re.MULTILINE)
    return found and found[1]
