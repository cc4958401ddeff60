"""Text tables: how they are written, and what their columns hold, by all rows of all files."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from avem.data.folders import PACKINGS
from avem.errors import FileError

MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>", "#N/A"]
"""What stands for a missing value in text files, as pandas reads them."""
_BEGINNING = 1 << 20
"""Bytes in which the names of the columns must be."""
_SAMPLE = 1000
_DATE = r"\d{4}-\d\d-\d\d"
_CLOCK = r"[ T]\d\d:\d\d(:\d\d(\.\d+)?)?"
_NUMBER = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|[-+]?([iI]nf|INF)(inity)?"


def _matches(pattern: str, kind: str) -> str:
    return f"regexp_full_match(text, '{pattern}') AND TRY_CAST(text AS {kind}) IS NOT NULL"


_KINDS = (
    ("BIGINT", _matches(r"\s*[-+]?\d+\s*", "BIGINT")),
    ("DOUBLE", _matches(_NUMBER, "DOUBLE")),
    ("BOOLEAN", "text IN ('True', 'TRUE', 'true', 'False', 'FALSE', 'false')"),
    ("DATE", _matches(_DATE, "DATE")),
    ("TIMESTAMP", _matches(_DATE + _CLOCK, "TIMESTAMP")),
    ("TIMESTAMPTZ", _matches(_DATE + _CLOCK + r"(Z|[-+]\d\d(:?\d\d)?)", "TIMESTAMPTZ")),
    ("VARCHAR", "TRUE"),
)
_LABELS = (("BIGINT", _matches("0|-?[1-9]\\d*", "BIGINT")), ("VARCHAR", "TRUE"))
"""Labels are numbers where no zeros or signs would be lost."""


def _all(column: str, test: str) -> str:
    """Whether all values that are known pass a test."""
    passed = re.sub(r"\btext\b", lambda _: column, test)
    return f"bool_and({passed}) FILTER ({column} IS NOT NULL)"


def kinds_of_text(
    ask: Callable[[str], Sequence[Any]],
    table: str,
    texts: dict[str, str],
    labels: Iterable[str],
) -> dict[str, str]:
    """What each column holds: the first kind that all its values are of, whatever file they are in.

    `texts` has each column's text in SQL. A few rows say what most columns are, all rows the rest.
    """
    kinds = {name: _LABELS if name in labels else _KINDS for name in texts}
    rank = dict.fromkeys(texts, 0)
    found: dict[str, bool | None] = {}
    for rows in (f"(FROM {table} LIMIT {_SAMPLE})", table):
        doubtful = list(texts)
        while doubtful:
            tests = (_all(texts[name], kinds[name][rank[name]][1]) for name in doubtful)
            told = ask(f"SELECT {', '.join(tests)} FROM {rows}")
            found |= dict(zip(doubtful, told, strict=True))
            doubtful = [name for name in doubtful if found[name] is False]
            for name in doubtful:
                rank[name] += 1
    # Where nothing is known, there are numbers that are missing, as pandas has it.
    return {
        name: "DOUBLE" if fits is None else kinds[name][rank[name]][0]
        for name, fits in found.items()
    }


def header_of(path: Path, separator: str | None = None) -> tuple[list[str], str]:
    """The names of the columns as they are written, and what separates them."""
    try:
        with _opened(path) as file:
            begun = file.read(_BEGINNING)
    except (OSError, EOFError) as error:
        raise FileError(f"Cannot read {str(path)!r}: {error}. Copy or make it again.") from error
    if not begun.strip():
        raise FileError(f"{str(path)!r} is empty; names of columns and rows are wanted.")
    if begun[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in begun:
        raise FileError(f"{str(path)!r} is text in UTF-16, or no text. Save it as CSV in UTF-8.")
    first = begun.splitlines()[0]
    if separator is None:  # a spreadsheet of a country with decimal commas writes semicolons
        separator = ";" if b";" in first and b"," not in first else ","
    text = begun.decode("utf-8-sig", errors="replace")
    if "\ufffd" in text[: len(first)]:
        raise no_utf8(path)
    names = next(csv.reader(text.splitlines(keepends=True), delimiter=separator))
    if not names:
        raise FileError(f"{str(path)!r} begins with an empty line; names of columns are wanted.")
    return [name or f"column{number}" for number, name in enumerate(names)], separator


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    packing = PACKINGS.get(path.suffix.lower())
    if packing == "gzip":
        return gzip.open(path)
    if packing is not None:
        raise FileError(
            f"{str(path)!r} is packed; of packed tables, a scan reads .csv.gz. Unpack it first."
        )
    return path.open("rb")


def no_utf8(where: object) -> FileError:
    """The error of text in another encoding."""
    return FileError(
        f"{str(where)!r} is no UTF-8 text: it is in another encoding, such as that of an old "
        "spreadsheet, or holds no text. Save it as CSV in UTF-8."
    )


def said(error: Exception) -> str:
    """What DuckDB says is wrong, without its own settings."""
    lines = str(error).strip().splitlines()
    ends = [n for n, line in enumerate(lines) if line.startswith(("Possible", "  file =", "LINE"))]
    return " ".join(line.strip() for line in lines[: min(ends, default=len(lines))] if line.strip())
