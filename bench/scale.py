"""Tables beyond memory: peak memory and time per iteration of scans, of clusters, and of frames.

python bench/scale.py disk 1000000            # subjects of 50 rows and two outcomes, memory="2GB"
python bench/scale.py memory 100000           # the same rows as a frame
python bench/scale.py cluster 100000 2        # the same scan on so many workers, a thread each
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import avem

N_TIMES, FILE_SUBJECTS = 50, 20_000
INIT = {
    "coef": [[[-1.0], [-1.0]], [[1.0], [1.0]]],
    "variance": [[1.0, 1.0], [1.0, 1.0]],
    "transition": [[0.9, 0.1], [0.1, 0.9]],
    "initial": [0.5, 0.5],
    "effect_covariance": [[0.5, 0.0], [0.0, 0.5]],
}
MODEL = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", 2)


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


def write_panel(folder: Path, n: int) -> Path:
    """Parquet files of n subjects in all."""
    folder.mkdir()
    for first in range(0, n, FILE_SUBJECTS):
        part = some_subjects(first, min(FILE_SUBJECTS, n - first))
        part.to_parquet(folder / f"{first:09}.parquet", index=False)
    return folder


def peak() -> float:
    """Largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


class Clock:
    """Iterations and when they ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, iteration: avem.Iteration) -> None:
        self.times.append(time.perf_counter())

    @property
    def each(self) -> float:
        """Seconds per iteration, the median."""
        return float(np.median(np.diff(self.times)))


def timed_fit(data: Any, **options: Any) -> None:
    for name, more in (("anchored, from given parameters", {"init": INIT}), ("default", {})):
        clock, began = Clock(), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            refine = None if "init" in more else "auto"
            fit = MODEL.fit(data, refine=refine, callback=clock, **more, **options)
        seconds = time.perf_counter() - began
        print(
            f"{name}: {fit.stop.name} after {fit.n_iter} iterations, {clock.each:.3f} s each, "
            f"{seconds:.1f} s in all; peak {peak():.2f} GB",
            flush=True,
        )


@contextmanager
def workers(folder: Path, n: int) -> Iterator[Any]:
    """A client of so many worker processes, each with one thread."""
    from distributed import Client

    file = folder / "scheduler.json"
    words = ["--no-dashboard", "--scheduler-file", str(file)]
    module = [sys.executable, "-m"]
    started = [subprocess.Popen([*module, "distributed.cli.dask_scheduler", "--port", "0", *words])]
    try:
        while not file.exists():
            time.sleep(0.1)
        own = ["--nthreads", "1", "--no-nanny", *words]
        for _ in range(n):
            started.append(subprocess.Popen([*module, "distributed.cli.dask_worker", *own]))
        with Client(scheduler_file=str(file)) as client:
            client.wait_for_workers(n)
            yield client
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("where", choices=["disk", "memory", "cluster"])
    parser.add_argument("subjects", type=int, nargs="?", default=100_000)
    parser.add_argument("workers", type=int, nargs="?", default=2)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--folder", default=None, help="where the files and the cache go")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        n = chosen.subjects
        print(f"{n:,} subjects of {N_TIMES} rows, two outcomes: {n * N_TIMES:,} rows", flush=True)
        if chosen.where == "memory":
            timed_fit(some_subjects(0, n), time="time")
            return
        data = write_panel(folder / "data", n)
        began = time.perf_counter()
        scan = avem.Panel.scan(
            data, "subject", time="time", memory=chosen.memory, cache=folder / "cache"
        )
        print(f"{scan}\nscanned in {time.perf_counter() - began:.1f} s; peak {peak():.2f} GB")
        if chosen.where == "disk":
            timed_fit(scan)
            return
        with workers(folder, chosen.workers) as client:
            timed_fit(scan, client=client)


if __name__ == "__main__":
    main()
