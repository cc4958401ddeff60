"""What is learned of the sorted rows: each column's range and gaps, and steps of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from avem.data.scanning.packages import need
from avem.data.scanning.sources import name_sql
from avem.data.scanning.text import kinds_of_text

FEW = 100_000
"""Different values that are looked at one by one."""
REAL = ("DOUBLE", "FLOAT")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_NUMBERS = (*_WHOLE, "UBIGINT", "HUGEINT", "UHUGEINT", *REAL, "BOOLEAN")
_DATES = ("DATE", "TIMESTAMP")


def columns_of(ask: Callable[[str], Sequence[Any]], types: dict[str, str]) -> dict[str, Any]:
    """Of every column, how much is missing, and of numbers their range, mean and spread."""
    return {name: _column(ask, name, kind) for name, kind in types.items()}


def _column(ask: Callable[[str], Sequence[Any]], name: str, kind: str) -> dict[str, Any]:
    column, n = name_sql(name), "count(*)"
    known = f"{column} IS NOT NULL"
    if kind in REAL:
        known += f" AND NOT isnan({column})"
    measures: Sequence[str] = [f"{n} FILTER ({known})"]
    if kind in _NUMBERS:
        value = f"CAST({column} AS DOUBLE)"
        finite = f"FILTER ({known} AND isfinite({value}))"
        measures = [*measures, *(f"{what}({value}) {finite}" for what in ("min", "max"))]
        measures = [*measures, f"favg({value}) {finite}", f"stddev_pop({value}) {finite}"]
    found = ask(f"SELECT {n}, {', '.join(measures)} FROM sorted")
    facts = {"type": kind, "missing": found[0] - found[1]}
    if kind in _NUMBERS:
        facts |= dict(zip(("min", "max", "mean", "sd"), found[2:], strict=True))
    return facts


def gaps_of(rows: Callable[[str], list[Any]], kind: str, steps: str) -> list[int] | None:
    """How many steps skip some, the usual step, and whether it is one of dates: `Panel.gaps`.

    `steps` selects each time, `now`, and the one `before` in its sequence.
    """
    if kind == "VARCHAR":
        as_dates = kinds_of_text(lambda text: rows(text)[0], f"({steps})", {"now": "now"}, ())[
            "now"
        ]
        kind = as_dates if as_dates.startswith(_DATES) else kind
    elif kind in REAL:
        whole = rows(f"SELECT bool_and(now = trunc(now) AND before = trunc(before)) FROM ({steps})")
        kind = "BIGINT" if whole[0][0] else kind
    if kind in _WHOLE:
        step = "CAST(now AS BIGINT) - CAST(before AS BIGINT)"
    elif kind.startswith(_DATES):
        step = f"epoch_ns(CAST(now AS {kind})) - epoch_ns(CAST(before AS {kind}))"
    else:
        return None
    sizes = rows(
        f"SELECT {step} AS step, count(*) FROM ({steps}) GROUP BY 1 ORDER BY 1 LIMIT {FEW}"
    )
    if not sizes or len(sizes) == FEW or sizes[0][0] <= 0:
        return None
    usual = max(sizes, key=lambda one: one[1])[0]
    if any(step % usual for step, _ in sizes):
        return None
    n_gaps = sum(count for step, count in sizes if step > usual)
    return [n_gaps, usual, int(kind.startswith(_DATES))]


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
