"""A Dask cluster of real processes on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
_START = 90.0


class Processes:
    """A scheduler and its workers, started as people start them."""

    def __init__(self, folder):
        self.folder, self.workers = folder, []
        self._file = folder / "scheduler.json"
        words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self._scheduler = self._start(
            "distributed.cli.dask_scheduler", *words, "--scheduler-file", str(self._file)
        )
        deadline = time.monotonic() + _START
        while not self._file.exists():
            assert time.monotonic() < deadline, "the scheduler does not start"
            assert self._scheduler.poll() is None, "the scheduler has ended"
            time.sleep(0.05)

    def _start(self, module, *words):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        environment["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "20s"
        log = open(self.folder / f"{module}-{time.monotonic_ns()}.log", "wb")  # noqa: SIM115
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def add_worker(self):
        words = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
        self.workers.append(
            self._start(
                "distributed.cli.dask_worker",
                *words,
                "--scheduler-file",
                str(self._file),
                "--local-directory",
                str(self.folder),
            )
        )
        return self.workers[-1]

    def client(self):
        from distributed import Client

        client = Client(scheduler_file=str(self._file), timeout=_START)
        client.wait_for_workers(len(self.workers), timeout=_START)
        return client

    def stop(self):
        for process in (*self.workers, self._scheduler):
            process.kill()
        for process in (*self.workers, self._scheduler):
            process.wait(timeout=30)


@contextmanager
def cluster(folder, n_workers):
    """A client of so many workers; all processes end with the block."""
    processes = Processes(folder)
    try:
        for _ in range(n_workers):
            processes.add_worker()
        with processes.client() as client:
            yield client, processes
    finally:
        processes.stop()
