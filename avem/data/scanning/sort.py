"""Rows beyond memory, sorted once by DuckDB into a file of whole subjects, and looked through.

Subjects keep the numbers that a frame in memory gives them, by first appearance; in the file they
are ordered by their longest sequence, so that subjects of similar length lie together. Within a
subject come its sequences by first appearance, and within a sequence the rows by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from avem.data.frames import Source, examples, shown
from avem.data.scanning.packages import need
from avem.data.scanning.room import full_disk, no_room
from avem.data.scanning.sources import Files, name_sql
from avem.data.sorting import refuse_unsortable
from avem.errors import DataError, FileError

ROW, LANE = "avem row", "avem lane"
"""Columns of the sorted file: the place in the source from 0, and the number of the sequence."""
_ROW_GROUP = 122_880
_FEW = 100_000
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "REAL", "DECIMAL", "BOOLEAN")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_DATES = ("DATE", "TIMESTAMP")


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
            return self._facts()
        except self._error as error:
            if why := full_disk(str(error)):
                raise no_room(self._folder, why) from error
            raise FileError(
                f"Cannot read or sort {examples(str(path) for path in self._files.paths)}: {error}"
            ) from error
        finally:
            self._connection.close()

    def _sql(self, text: str) -> Any:
        return self._connection.sql(text)

    def _do(self, text: str) -> list[Any]:
        """All rows of the result: DuckDB does nothing else before these were fetched."""
        return self._connection.execute(text).fetchall()

    def _one(self, text: str) -> Any:
        return next(iter(self._do(text)), None)

    # --- the source -----------------------------------------------------------------------------

    def _open(self) -> None:
        keys = self._keys
        labels = [name for name in (keys.subject, keys.sequence) if name is not None]
        text = self._files.kind != ".parquet"
        found = self._sql(f"FROM {self._files.sql(labels if text else ())} LIMIT 0")
        self._types = dict(zip(found.columns, map(str, found.types), strict=True))
        columns = ", ".join(self._as_read(name, text and name in labels) for name in found.columns)
        source = self._files.sql(labels if text else ())
        self._do(
            f"CREATE VIEW source AS SELECT {columns}, row_number() OVER () - 1 AS {name_sql(ROW)} "
            f"FROM {source}"
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

    def _as_read(self, name: str, label: bool) -> str:
        """A column; labels of text files are numbers where no zeros or signs would be lost."""
        column = name_sql(name)
        if not label:
            return column
        all_numbers = self._one(
            f"SELECT bool_and(regexp_full_match({column}, '0|-?[1-9][0-9]{{0,17}}')) FROM "
            f"{self._files.sql([name])}"
        )[0]
        if all_numbers:
            self._types[name] = "BIGINT"
        return f"CAST({column} AS BIGINT) AS {column}" if all_numbers else column

    def _refuse_missing(self, name: str, use: str) -> None:
        column = name_sql(name)
        nan = f" OR isnan({column})" if self._types[name] in ("DOUBLE", "FLOAT") else ""
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
            some = self._sql(f"SELECT DISTINCT {column} FROM source LIMIT {_FEW}").df()[name]
            refuse_unsortable(some, name, Source())
        elif kind in ("DOUBLE", "FLOAT"):
            row = self._one(f"SELECT {name_sql(ROW)} FROM source WHERE isinf({column}) LIMIT 1")
            if row is not None:
                raise DataError(f"Column {name!r}, the time, is infinite at row {row[0]}.")

    # --- numbers for subjects and sequences -----------------------------------------------------

    def _number(self) -> None:
        subject, row = name_sql(self._keys.subject), name_sql(ROW)
        sequence = "" if self._keys.sequence is None else f", {name_sql(self._keys.sequence)}"
        self._do(
            f"CREATE TEMP TABLE found AS SELECT {subject}{sequence}, min({row}) AS first, "
            f"count(*) AS length FROM source GROUP BY ALL"
        )
        self._do(
            f"CREATE TEMP TABLE subjects AS SELECT {subject}, max(length) AS longest, "
            f"row_number() OVER (ORDER BY min(first)) - 1 AS number FROM found GROUP BY {subject}"
        )
        self._do(
            "CREATE TEMP TABLE lanes AS SELECT found.*, subjects.number, subjects.longest, "
            "row_number() OVER (ORDER BY subjects.number, found.first) - 1 AS lane "
            f"FROM found JOIN subjects USING ({subject})"
        )
        self._connection.sql(f"SELECT {subject} FROM subjects ORDER BY number").write_parquet(
            str(self._folder / "subjects.parquet")
        )
        lanes = self._connection.execute(
            "SELECT number, length FROM lanes ORDER BY lane"
        ).fetchnumpy()
        np.save(self._folder / "lane_subject.npy", np.asarray(lanes["number"], np.int64))
        np.save(self._folder / "lane_length.npy", np.asarray(lanes["length"], np.int64))

    # --- sorted rows ----------------------------------------------------------------------------

    def _write(self) -> None:
        keys = self._keys
        labels = [name_sql(name) for name in (keys.subject, keys.sequence) if name is not None]
        columns = ", ".join(f"source.{name_sql(name)}" for name in (*self._types, ROW))
        when = "" if keys.time is None else f"source.{name_sql(keys.time)}, "
        target = str(self._folder / "rows.parquet").replace("'", "''")
        self._do(
            f"COPY (SELECT {columns}, lanes.lane AS {name_sql(LANE)} FROM source JOIN lanes "
            f"USING ({', '.join(labels)}) ORDER BY lanes.longest, lanes.number, lanes.lane, "
            f"{when}source.{name_sql(ROW)}) TO '{target}' "
            f"(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE {_ROW_GROUP})"
        )
        self._do(f"CREATE VIEW sorted AS FROM read_parquet('{target}')")
        if keys.time is not None:
            lane, time = name_sql(LANE), name_sql(keys.time)
            self._do(
                f"CREATE VIEW steps AS SELECT *, {lane} = lag({lane}) OVER () AS same, "
                f"lag({time}) OVER () AS before FROM sorted"
            )
            self._refuse_repeated(keys.time)

    def _refuse_repeated(self, time: str) -> None:
        repeated = f"FROM steps WHERE same AND before = {name_sql(time)}"
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

    # --- what was found -------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        columns = {name: self._column(name, kind) for name, kind in self._types.items()}
        return {"columns": columns, "gaps": self._gaps(), "n_bytes": self._files.n_bytes}

    def _column(self, name: str, kind: str) -> dict[str, Any]:
        column, n = name_sql(name), "count(*)"
        numeric = any(kind.startswith(own) or own in kind for own in _NUMBERS)
        known = f"{column} IS NOT NULL"
        if kind in ("DOUBLE", "FLOAT"):
            known += f" AND NOT isnan({column})"
        measures: Sequence[str] = [f"{n} FILTER ({known})"]
        if numeric:
            value = f"CAST({column} AS DOUBLE)"
            finite = f"FILTER ({known} AND isfinite({value}))"
            measures = [*measures, *(f"{what}({value}) {finite}" for what in ("min", "max"))]
            measures = [*measures, f"favg({value}) {finite}", f"stddev_pop({value}) {finite}"]
        found = self._one(f"SELECT {n}, {', '.join(measures)} FROM sorted")
        facts = {"type": kind, "missing": found[0] - found[1]}
        if numeric:
            facts |= dict(zip(("min", "max", "mean", "sd"), found[2:], strict=True))
        return facts

    def _gaps(self) -> list[int] | None:
        """How many steps skip some, and the usual step, as `Panel.gaps` counts them."""
        time = self._keys.time
        if time is None:
            return None
        kind, column = self._types[time], name_sql(time)
        if kind in _WHOLE:
            step = f"{column} - before"
        elif kind.startswith(_DATES):
            step = f"epoch_ns({column}) - epoch_ns(before)"
        else:
            return None
        sizes = self._sql(
            f"SELECT {step} AS step, count(*) AS n FROM steps WHERE same GROUP BY 1 LIMIT {_FEW}"
        ).df()
        if not len(sizes) or len(sizes) == _FEW:
            return None
        sizes = sizes.sort_values("step")
        steps, counts = sizes["step"].to_numpy(np.int64), sizes["n"].to_numpy()
        usual = int(steps[counts.argmax()])
        if (steps % usual).any():
            return None
        return [int(counts[steps > usual].sum()), usual, int(kind.startswith(_DATES))]


def distinct(folder: Path, name: str, most: int) -> pd.Series:
    """The different values of a column of a sorted folder, so many of them at most."""
    duckdb = need("duckdb", "A scan")
    target = str(folder / "rows.parquet").replace("'", "''")
    column = name_sql(name)
    with duckdb.connect(config={"memory_limit": "500MB"}) as connection:
        found = connection.sql(
            f"SELECT DISTINCT {column} FROM read_parquet('{target}') WHERE {column} IS NOT NULL "
            f"LIMIT {most}"
        )
        return found.df()[name]
