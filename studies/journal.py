"""The file of a study's replicates: a line each, written when it is finished and never changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Self

from avem.data.line_file import LineFile, parsed
from studies.study import Row, Study

_KEYS = {"protocol", "cell", "replicate", "rows"}
_ADVICE = "Delete the line, and its replicate is made again; or choose another folder."


class Task(NamedTuple):
    """One replicate: of which protocol, which cell (by number), and which one of it."""

    protocol: str
    cell: int
    replicate: int


class Journal:
    """The replicates of one study in one folder, for one process at a time."""

    def __init__(self, path: Path, study: Study) -> None:
        self.found: dict[Task, list[Row]] = {}
        self._file = LineFile(path)
        try:
            for place, line in enumerate(self._file.lines, 1):
                record = parsed(line)
                why = _problem(record, study)
                if why:
                    words = f"is not what {study.name} writes: {why}"
                    raise self._file.refuse(place, words, _ADVICE)
                task = Task(record["protocol"], record["cell"], record["replicate"])
                self.found[task] = record["rows"]
            self._file.drop_torn()
        except BaseException:
            self._file.close()
            raise

    def append(self, task: Task, rows: list[Row]) -> None:
        """Write one more replicate."""
        self.found[task] = rows
        self._file.append({**task._asdict(), "rows": rows})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _problem(record: Any, study: Study) -> str:
    """What is wrong with the record of a replicate; empty where nothing is."""
    if not isinstance(record, dict) or set(record) != _KEYS:
        return f"a JSON object with {', '.join(sorted(_KEYS))} is wanted"
    protocol, cell, replicate = record["protocol"], record["cell"], record["replicate"]
    if protocol not in list(study.replicate):
        return f"its protocol is {protocol!r}; {' or '.join(study.replicate)} is wanted"
    if type(cell) is not int or not 0 <= cell < len(study.cells):
        return f"its cell is {cell!r}; 0 to {len(study.cells) - 1} is wanted"
    if type(replicate) is not int or replicate < 0:
        return f"its replicate is {replicate!r}; 0, 1, ... is wanted"
    rows = record["rows"]
    if not isinstance(rows, list) or not rows or not all(map(_is_row, rows)):
        return "its rows are no list of objects of numbers and texts"
    return ""


def _is_row(row: Any) -> bool:
    plain = str | int | float | None
    return isinstance(row, dict) and all(isinstance(value, plain) for value in row.values())
