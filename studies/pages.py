"""What a study leaves in its folder beside the tables: the page, the figures, the record."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from os import cpu_count
from pathlib import Path
from typing import Any

import pandas as pd

import avem
from avem.data.writing import replacing, write_text
from studies.journal import Task
from studies.study import Study

_LONGEST = 100
"""Rows of a table that a page shows; a longer one is in its file."""
_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "pandas")


@dataclass(frozen=True)
class Record:
    """How the results of a study came about."""

    study: Study
    tasks: Sequence[Task]
    """The replicates that the tables are made of."""
    failed: Sequence[str]
    """Why some of them could not be made; the tables do without these."""
    jobs: int
    new: int
    """How many of them the last run made, in so many seconds."""
    seconds: float
    frame: pd.DataFrame
    quick: bool

    @property
    def reps(self) -> dict[str, int]:
        """Replicates per cell, by protocol."""
        protocols = dict.fromkeys(task.protocol for task in self.tasks)
        return {
            name: 1 + max(task.replicate for task in self.tasks if task.protocol == name)
            for name in protocols
        }

    @property
    def commands(self) -> list[str]:
        """What to type for these results."""
        start = f"avem study {self.study.name}" + (" --quick" if self.quick else "")
        made = self.reps
        if len(set(made.values())) == 1 and set(made) == set(self.study.replicate):
            return [f"{start} --reps {next(iter(made.values()))}"]
        return [f"{start} --protocol {name} --reps {reps}" for name, reps in made.items()]


def write_record(record: Record, out: Path) -> None:
    """Configuration, versions and machine, in ``run.json``."""
    cells = sorted({task.cell for task in record.tasks})
    content = {
        "study": record.study.name,
        "commands": record.commands,
        "replicates": record.reps,
        "failed": list(record.failed),
        "seeds": "numpy.random.SeedSequence([number of the cell, number of the replicate])",
        "cells": [{"number": c, **record.study.cells[c]} for c in cells],
        "versions": {"avem": avem.__version__, "python": platform.python_version(), **_versions()},
        "machine": {
            "processor": _processor(),
            "cores": cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "last run": {
            "jobs": record.jobs,
            "replicates made": record.new,
            "seconds": round(record.seconds, 1),
        },
    }
    write_text(out / "run.json", json.dumps(content, indent=1) + "\n")


def write_figures(study: Study, frame: pd.DataFrame, out: Path) -> list[str]:
    """The study's figures as PNG and SVG; their names."""
    from matplotlib import rc_context

    drawn = []
    for name, draw in study.figures.items():
        # The same picture is the same file.
        with rc_context({"svg.hashsalt": study.name}):
            figure = draw(frame)
            if figure is None:
                continue
            with replacing(out / f"{name}.svg") as file:
                figure.savefig(file, format="svg", metadata={"Date": None})
        with replacing(out / f"{name}.png") as file:
            figure.savefig(file, format="png", dpi=110)
        drawn.append(name)
    return drawn


def write_page(
    record: Record, tables: Mapping[str, pd.DataFrame], pictures: Sequence[str], out: Path
) -> None:
    """``README.md``."""
    study = record.study
    parts = [f"# {study.name}", "", study.question, ""]
    for name in pictures:
        parts += [f"[![{name.replace('_', ' ')}]({name}.png)]({name}.svg)", ""]
    if study.reading is not None:
        parts += [study.reading(dict(tables)).strip(), ""]
    for name, table in tables.items():
        parts += [f"## {name.replace('_', ' ')}", ""]
        short = len(table) <= _LONGEST
        parts += [markdown(table) if short else f"{len(table)} rows: [{name}.csv]({name}.csv).", ""]
    minutes = record.frame["replicate_seconds"].sum() / 60
    reps = ", ".join(f"{n} ({name} protocol)" for name, n in record.reps.items())
    versions = ", ".join(f"{name} {number}" for name, number in _versions().items())
    parts += [
        "Made by " + " and ".join(f"`{command}`" for command in record.commands) + ": "
        f"replicates per setting {reps}; {minutes:.0f} minutes of CPU time on {_processor()}, "
        f"{cpu_count()} cores (avem {avem.__version__}, {versions}, Python "
        f"{platform.python_version()}). [run.json](run.json) has the settings; seconds are medians "
        "of CPU time per fit.",
        "",
    ]
    if record.failed:
        parts += [f"{len(record.failed)} replicates failed: {'; '.join(set(record.failed))}.", ""]
    write_text(out / "README.md", "\n".join(parts))


def markdown(table: pd.DataFrame) -> str:
    """A table as Markdown."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return "" if pd.isna(value) else f"{value:.4g}"
        return str(value)

    rows = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    rows += [[cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """The processor's name, where the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
