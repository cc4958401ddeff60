"""Tables beyond memory: peak memory and time per iteration of scans, of clusters, and of frames.

python bench/scale.py                         # all of it, for 10,000 and 100,000 subjects
python bench/scale.py --subjects 10000 100000 1000000
python bench/scale.py --only disk --subjects 1000000

Every line is of a process of its own. Subjects have 50 rows and two outcomes; the anchored fit
begins at given parameters, the default one makes its starts and is refined. "clock" is time that
passed, "cpu" what processors have worked, which is what holds where others use the machine, too.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import avem
from avem.execution.cluster import Cluster
from avem.execution.dataset import Dataset, Wanted, answer
from avem.execution.disk import Disk

N_TIMES, FILE_SUBJECTS = 50, 20_000
INIT = {
    "coef": [[[-1.0], [-1.0]], [[1.0], [1.0]]],
    "variance": [[1.0, 1.0], [1.0, 1.0]],
    "transition": [[0.9, 0.1], [0.1, 0.9]],
    "initial": [0.5, 0.5],
    "effect_covariance": [[0.5, 0.0], [0.0, 0.5]],
}
MODEL = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", 2)
FITS: dict[str, dict[str, Any]] = {"anchored": {"init": INIT, "refine": None}, "default": {}}
MOST_IN_MEMORY = 100_000
COLUMNS = {
    "subjects": "{:,}",
    "where": "{}",
    "fit": "{}",
    "iterations": "{}",
    "clock each": "{:.3f}",
    "cpu each": "{:.3f}",
    "busiest worker": "{:.3f}",
    "clock": "{:.0f}",
    "cpu": "{:.0f}",
    "peak GB": "{:.2f}",
}
"""Of the table that is printed; all times in seconds."""


# --- data -----------------------------------------------------------------------------------------


def some_subjects(first: int, n: int) -> pd.DataFrame:
    """Rows of n subjects, whose numbers go on from `first`."""
    rng = np.random.default_rng(first)
    state = np.empty((N_TIMES, n), np.int8)
    state[0] = rng.integers(2, size=n)
    for t in range(1, N_TIMES):
        state[t] = state[t - 1] ^ (rng.random(n) < 0.08)
    mean = np.array([-1.5, 1.5])[state.T]
    frame = pd.DataFrame({"subject": np.repeat(np.arange(first, first + n), N_TIMES)})
    frame["time"] = np.tile(np.arange(N_TIMES, dtype=np.int32), n)
    for name in ("y1", "y2"):
        own = 0.7 * rng.standard_normal((n, 1))
        frame[name] = (mean + own + rng.standard_normal((n, N_TIMES))).ravel()
    return frame


def parts(n: int) -> Iterator[pd.DataFrame]:
    """Rows of n subjects in all, as they are in the files."""
    for first in range(0, n, FILE_SUBJECTS):
        yield some_subjects(first, min(FILE_SUBJECTS, n - first))


def write_panel(folder: Path, n: int) -> None:
    """Parquet files of n subjects in all."""
    folder.mkdir()
    for number, part in enumerate(parts(n)):
        part.to_parquet(folder / f"{number:04}.parquet", index=False)


# --- what is measured -----------------------------------------------------------------------------


def peak() -> float:
    """Largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


class Clock:
    """Seconds that passed, of this process's work, and of each worker's, at every iteration."""

    def __init__(self, workers: Callable[[], list[float]] = list) -> None:
        self._workers, self.times = workers, []
        self.tick()

    def tick(self, iteration: Any = None) -> None:
        """Note where time stands."""
        self.times.append([time.perf_counter(), time.process_time(), *self._workers()])

    def found(self) -> dict[str, float]:
        """Medians of iterations, the first one apart, in which code is compiled; and all of it."""
        times = np.array(self.times)
        passed, here, *workers = np.median(np.diff(times[1:], axis=0), axis=0).tolist()
        whole = times[-1] - times[0]
        each = {"clock each": passed, "cpu each": here + sum(workers)}
        if workers:
            each["busiest worker"] = max(workers)
        return each | {"clock": whole[0], "cpu": whole[1:].sum(), "peak GB": peak()}


def timed_fit(
    data: Any, where: str, name: str, workers: Callable[[], list[float]] = list, **more: Any
) -> Any:
    """One of `FITS`, and what it took."""
    clock = Clock(workers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = MODEL.fit(data, callback=clock.tick, **FITS[name], **more)
    clock.tick()
    found = clock.found()
    tell(subjects=data.n_subjects, where=where, fit=name, iterations=fit.n_iter, **found)
    return fit


def nothing(chunk: Any) -> float:
    """What a shard is asked to see what asking costs."""
    return 0.0


def tell_overhead(encoded: Any, where: str) -> None:
    """Milliseconds of a question to the shards, of one of them and of all."""
    data = Dataset.of(encoded)
    for chosen in (data.on([0]), data):
        chosen.map(nothing, ())
        began, times = time.process_time(), []
        for _ in range(20):
            start = time.perf_counter()
            chosen.map(nothing, ())
            times.append(time.perf_counter() - start)
        cpu = (time.process_time() - began) / 20
        median = 1e3 * float(np.median(times))
        tell(asked=where, shards=len(chosen.shards), clock_ms=median, driver_cpu_ms=1e3 * cpu)


@contextmanager
def watched_disk() -> Iterator[list[tuple[int, int, int]]]:
    """Of every question to shards: how many they are, and bytes of answers and of what stays."""
    asked, run = [], Disk.run

    def watched(
        self: Disk, function: Any, shards: Any, own: Any, shared: Any, wanted: Wanted
    ) -> Any:
        stays, each = run(self, function, shards, own, shared, Wanted.EACH)
        n_bytes = 0 if wanted is Wanted.NOTHING else sum(len(pickle.dumps(one)) for one in each)
        asked.append((len(each), n_bytes, self._shelf._used))
        return stays, answer(each, wanted)

    Disk.run = watched
    try:
        yield asked
    finally:
        Disk.run = run


def tell_sizes(scan: Any) -> None:
    """Bytes on disk, of subjects in memory, and of what an iteration sends."""
    iteration: list[tuple[int, int, int]] = []

    def between(one: avem.Iteration) -> None:
        if one.number == 4:
            iteration.extend(asked)
        asked.clear()

    with warnings.catch_warnings(), watched_disk() as asked:
        warnings.simplefilter("ignore")
        fit = MODEL.fit(scan, callback=between, **FITS["anchored"])
    chunks = fit._own_data.chunks
    tell(
        sizes=scan.n_subjects,
        bytes_of_a_sorted_row=(scan.folder / "rows.parquet").stat().st_size / scan.n_rows,
        chunks=len(chunks),
        bytes_of_a_row_in_chunks=sum(chunk.n_bytes for chunk in chunks) / scan.n_rows,
        bytes_kept_of_a_subject=max(kept for *_, kept in iteration) / scan.n_subjects,
        questions_of_an_iteration=len(iteration),
        bytes_sent_of_a_chunk=sum(sent for _, sent, _ in iteration) / len(chunks),
    )


@contextmanager
def workers(folder: Path, n: int) -> Iterator[tuple[Any, Callable[[], list[float]]]]:
    """A client of so many worker processes of one thread each, and how long these have worked."""
    import psutil
    from distributed import Client

    folder = Path(tempfile.mkdtemp(dir=folder))
    file = folder / "scheduler.json"
    words = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
    single = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}

    def start(what: str, *more: str) -> subprocess.Popen:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *words, *more]
        with open(folder / f"{what}.log", "ab") as log:
            return subprocess.Popen(command, env=os.environ | single, stdout=log, stderr=log)

    started = [start("scheduler", "--port", "0")]
    try:
        while not file.exists():
            time.sleep(0.1)
        own = ["--nthreads", "1", "--no-nanny", "--local-directory", str(folder)]
        started += [start("worker", *own) for _ in range(n)]
        watched = [psutil.Process(process.pid) for process in started[1:]]
        with Client(scheduler_file=str(file)) as client:
            client.wait_for_workers(n)
            yield client, lambda: [sum(one.cpu_times()[:2]) for one in watched]
    finally:
        for process in started:
            process.kill()
            process.wait()


# --- one line of it -------------------------------------------------------------------------------


def one(where: str, name: str, n: int, n_workers: int, memory: str, folder: Path) -> None:
    """A fit of n subjects, in this process."""
    if where == "memory":
        frame = pd.concat(parts(n), ignore_index=True)
        timed_fit(avem.Panel.from_frame(frame, "subject", time="time"), where, name)
        return
    clock = Clock()
    scan = avem.Panel.scan(folder / "data", "subject", time="time", memory=memory, cache=folder)
    clock.tick()
    passed, cpu = np.diff(np.array(clock.times), axis=0)[0].tolist()
    if passed > 1.0:  # it was not there already
        tell(subjects=n, where=where, fit="(scan)", clock=passed, cpu=cpu, **{"peak GB": peak()})
    if where == "disk":
        fit = timed_fit(scan, where, name)
        tell_overhead(fit._own_data, where)
        if name == "anchored":
            del fit
            tell_sizes(scan)
        return
    with workers(folder, n_workers) as (client, worked):
        where = f"{n_workers} workers" if n_workers > 1 else "1 worker"
        fit = timed_fit(scan, where, name, worked, client=client)
        encoded = fit._own_data
        there = Cluster(client, encoded.chunks, scan.memory, None)
        tell_overhead(replace(encoded, executor=there), where)


def run_one(where: str, n: int, folder: Path, *words: str) -> list[dict[str, Any]]:
    """The same in a process of its own, and what it told."""
    told = ["--only", where, "--subjects", str(n), "--folder", str(folder), *words]
    command = [sys.executable, __file__, *told]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in lines.splitlines() if line.startswith("{")]


def shown(found: dict[str, Any]) -> str:
    if "sizes" in found:
        return ", ".join(f"{name.replace('_', ' ')} {value:,.0f}" for name, value in found.items())
    if "asked" in found:
        return (
            f"{found['asked']}: a question to {found['shards']} shards takes "
            f"{found['clock_ms']:.2f} ms by the clock, {found['driver_cpu_ms']:.2f} ms of work here"
        )
    values = (form.format(found[name]) if name in found else "" for name, form in COLUMNS.items())
    return "| " + " | ".join(values) + " |"


def everything(sizes: list[int], memory: str, root: str | None) -> None:
    """All lines, as a table."""
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    asked = []
    for n in sizes:
        with tempfile.TemporaryDirectory(dir=root) as name:
            write_panel(Path(name) / "data", n)
            lines: list[tuple[str, ...]] = [("memory",)] if n <= MOST_IN_MEMORY else []
            lines.append(("disk",))
            if n <= MOST_IN_MEMORY:
                lines += [("cluster", "--workers", str(k)) for k in (1, 2)]
            for (where, *words), fit in product(lines, FITS):
                told = ("--fit", fit, "--memory", memory, *words)
                for found in run_one(where, n, Path(name), *told):
                    if "fit" in found:
                        print(shown(found), flush=True)
                    elif fit == "anchored":
                        asked.append(found)
    print("\n" + "\n".join(shown(found) for found in asked))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subjects", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--only", choices=["disk", "memory", "cluster"])
    parser.add_argument("--fit", choices=list(FITS), default="anchored")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--folder", help="where files and caches go; with --only, where data/ is")
    chosen = parser.parse_args()
    if chosen.only is None:
        everything(chosen.subjects, chosen.memory, chosen.folder)
        return
    (n,) = chosen.subjects
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(chosen.folder or name)
        if chosen.only != "memory" and not (folder / "data").exists():
            folder = Path(name)
            write_panel(folder / "data", n)
        one(chosen.only, chosen.fit, n, chosen.workers, chosen.memory, folder)


if __name__ == "__main__":
    main()
