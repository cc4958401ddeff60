"""Runs the replicates of a study, remembers each as it finishes, and writes what comes of them.

Every replicate has a seed of its own, which depends on its cell and number alone, and a line of its
own in ``replicates.jsonl``. So a run that was stopped goes on where it was, more replicates can be
asked for later, and the tables depend on neither that nor the number of jobs. Times, which do, have
a table of their own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from avem.data.files import write_table
from studies.journal import Journal, Task
from studies.pages import Record, write_figures, write_page, write_record
from studies.progress import Progress
from studies.study import Study, Tables, time_columns
from studies.workers import ctrl_c_at_once, work


def run(study: Study, reps: Mapping[str, int], jobs: int, out: Path, quick: bool = False) -> Tables:
    """The replicates of the protocols in `reps`, those of earlier runs included, and the tables."""
    out.mkdir(parents=True, exist_ok=True)
    with Journal(out / "replicates.jsonl", study) as journal:
        return _run(study, journal, reps, jobs, out, quick)


def _run(
    study: Study, journal: Journal, reps: Mapping[str, int], jobs: int, out: Path, quick: bool
) -> Tables:
    cells = study.quick_cells if quick else range(len(study.cells))
    wanted = [Task(p, c, r) for p, n in reps.items() for c in cells for r in range(n)]
    tasks = [task for task in wanted if task not in journal.found]
    began, progress = time.monotonic(), Progress(study.name, len(tasks))
    with ctrl_c_at_once():
        for task, rows in work(study.name, tasks, jobs):
            journal.append(task, rows)
            progress()
    shown = _shown(study, journal, wanted, reps)
    frame = _frame(study, journal, shown)
    tables = study.tables(frame.drop(columns=time_columns(frame)))
    for name, table in tables.items():
        write_table(table, out / f"{name}.csv", float_format="%.6g")
    times = study.median_times(frame)
    write_table(times, out / "times.csv", float_format="%.4g")
    failed = [row["error"] for task in shown for row in journal.found[task] if "error" in row]
    seconds = time.monotonic() - began
    record = Record(study, shown, failed, jobs, len(tasks), seconds, frame, quick)
    write_record(record, out)
    pictures = write_figures(study, frame, out)
    write_page(record, tables | {"times": times}, pictures, out)
    return tables


def _shown(
    study: Study, journal: Journal, wanted: Sequence[Task], reps: Mapping[str, int]
) -> list[Task]:
    """What was asked for, and what is there of other protocols, in fixed order."""
    others = [task for task in journal.found if task.protocol not in reps]
    order = {protocol: place for place, protocol in enumerate(study.replicate)}
    return sorted({*wanted, *others}, key=lambda task: (order[task.protocol], *task[1:]))


def _frame(study: Study, journal: Journal, tasks: Sequence[Task]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "protocol": task.protocol,
                **study.cells[task.cell],
                "replicate": task.replicate,
                **row,
            }
            for task in tasks
            for row in journal.found[task]
            if "error" not in row
        ]
    )
