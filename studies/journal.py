"""The file of a study's replicates: a line each, written when it is finished and never changed.

A run that was killed loses what it was working on, and goes on from there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from studies.study import Row


class Task(NamedTuple):
    """One replicate: of which protocol, which cell (by number), and which one of it."""

    protocol: str
    cell: int
    replicate: int


class Journal:
    """The replicates of one study in one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[Task, list[Row]] = {}
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:  # a line torn by a kill: the next one starts there
            path.write_bytes(whole)
        for line in whole.splitlines():
            record = json.loads(line)
            task = Task(record["protocol"], record["cell"], record["replicate"])
            self.found[task] = record["rows"]

    def append(self, task: Task, rows: list[Row]) -> None:
        """Write one more replicate."""
        self.found[task] = rows
        line = json.dumps({**task._asdict(), "rows": rows}) + "\n"
        # Unbuffered, so that the line is one write: it is there, or it is not.
        with open(self.path, "ab", buffering=0) as file:
            file.write(line.encode())
