"""Runs the replicates of a study, remembers each as it finishes, and writes the tables.

Every replicate has a seed of its own, which depends on its cell and number alone, and a line of its
own in ``replicates.jsonl``. So a run that was stopped goes on where it was, and the tables do not
depend on the number of jobs.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import avem

Row = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """What a study is made of."""

    name: str
    question: str
    """In a sentence, for the page."""
    cells: tuple[Row, ...]
    """The settings, one dict each."""
    replicate: Callable[[Row, int], list[Row]]
    """The rows (one per method, say) of one replicate, from a cell and a seed."""
    tables: Callable[[pd.DataFrame], dict[str, pd.DataFrame]]
    """Named summaries of all rows."""
    reading: str = ""
    """What the tables say, for the page; written after the run."""


def run(study: Study, reps: int, jobs: int, out: Path) -> dict[str, pd.DataFrame]:
    """All replicates, those of an earlier run included, and the tables in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "replicates.jsonl"
    done = _read(path)
    tasks = [(c, r) for c in range(len(study.cells)) for r in range(reps) if (c, r) not in done]
    began = time.time()
    with path.open("a") as file:
        for count, (task, rows, seconds) in enumerate(_work(study, tasks, jobs), 1):
            done[task] = rows
            line = {"cell": task[0], "replicate": task[1], "seconds": seconds, "rows": rows}
            file.write(json.dumps(line) + "\n")
            file.flush()
            left = (time.time() - began) / count * (len(tasks) - count)
            print(
                f"\r{study.name}: {count}/{len(tasks)}, {left / 60:.1f} min left ",
                end="",
                file=sys.stderr,
                flush=True,
            )
    frame = pd.DataFrame(
        [
            {**study.cells[c], "replicate": r, **row}
            for (c, r), rows in sorted(done.items())
            if r < reps
            for row in rows
        ]
    )
    tables = study.tables(frame)
    for name, table in tables.items():
        table.to_csv(out / f"{name}.csv", index=False, float_format="%.6g")
    _page(study, tables, reps, out)
    return tables


def _read(path: Path) -> dict[tuple[int, int], list[Row]]:
    """Finished replicates; a line torn by a kill is cut off and done again."""
    if not path.exists():
        return {}
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    lines = [json.loads(line) for line in whole.splitlines()]
    return {(line["cell"], line["replicate"]): line["rows"] for line in lines}


def _work(
    study: Study, tasks: Sequence[tuple[int, int]], jobs: int
) -> Iterator[tuple[tuple[int, int], list[Row], float]]:
    if jobs == 1:
        for task in tasks:
            yield _one(study.name, task)
        return
    # JAX does not survive a fork; a fresh process compiles once and keeps what it compiled.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_quietly) as pool:
        futures = [pool.submit(_one, study.name, task) for task in tasks]
        for future in as_completed(futures):
            yield future.result()


def _quietly() -> None:
    """One thread per worker: the workers share the cores already."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["OMP_NUM_THREADS"] = "1"


def _one(name: str, task: tuple[int, int]) -> tuple[tuple[int, int], list[Row], float]:
    from studies import catalogue

    study = catalogue.find(name)
    cell, replicate = task
    seed = int(np.random.SeedSequence([cell, replicate]).generate_state(1)[0])
    began = time.process_time()
    with warnings.catch_warnings():
        # What a fit warns of is in its `stop`, which the rows keep.
        warnings.simplefilter("ignore")
        rows = study.replicate(study.cells[cell], seed)
    return task, rows, time.process_time() - began


def _page(study: Study, tables: dict[str, pd.DataFrame], reps: int, out: Path) -> None:
    lines = [json.loads(line) for line in (out / "replicates.jsonl").read_text().splitlines()]
    seconds = sum(line["seconds"] for line in lines if line["replicate"] < reps)
    versions = f"avem {avem.__version__}, jax {version('jax')}, numpy {version('numpy')}"
    parts = [f"# {study.name}", "", study.question, ""]
    for name, table in tables.items():
        parts += [f"## {name.replace('_', ' ')}", "", markdown(table), ""]
    parts += [study.reading.strip(), ""] if study.reading else []
    parts += [
        f"Made by `python -m studies {study.name} --reps {reps}`: {reps} replicates per setting, "
        f"{seconds / 60:.0f} minutes of CPU time ({versions}, Python {platform.python_version()}, "
        f"{platform.machine()}).",
        "",
    ]
    (out / "README.md").write_text("\n".join(parts))


def markdown(table: pd.DataFrame) -> str:
    """A table as Markdown."""

    def cell(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    rows = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    rows += [[cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
