"""Replicates one after the other, or several at a time in processes of their own."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from itertools import islice

import numpy as np

from avem.errors import AvemError
from avem.workflows.processes import Processes
from studies import catalogue
from studies.journal import Task
from studies.study import Row

_AHEAD = 2
"""Tasks handed to each worker beyond the one it works on: it never waits for the next."""


def work(name: str, tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, list[Row]]]:
    """The rows of each replicate, as soon as it is finished, in any order."""
    jobs = min(jobs, len(tasks))
    if jobs <= 1:
        yield from ((task, one(name, task)) for task in tasks)
        return
    waiting = iter(tasks)
    with Processes(jobs, _begin) as pool:  # each compiles once and keeps what it compiled
        running: dict[Future[list[Row]], Task] = {}
        while True:
            for task in islice(waiting, (1 + _AHEAD) * jobs - len(running)):
                running[pool.submit(one, name, task)] = task
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    prepare_process()


@contextmanager
def ctrl_c_at_once() -> Iterator[None]:
    """Ctrl-C ends this process at once: a fit that ended early would be kept as if it were done."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def prepare_process() -> None:
    """One thread per process, since they share the cores, and compiled code kept on disk.

    With one job, too: sums in another order would be other numbers in the last place.
    """
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["OMP_NUM_THREADS"] = "1"
    from avem.cli._process import set_up_jax

    set_up_jax(no_cache="AVEM_NO_CACHE" in os.environ)


def seed_of(task: Task) -> int:
    """The seed of a replicate's data: the same for all protocols, whatever else is run."""
    return int(np.random.SeedSequence([task.cell, task.replicate]).generate_state(1)[0])


def one(name: str, task: Task) -> list[Row]:
    """The rows of one replicate; a row with the ``error`` alone where a fit refused."""
    study = catalogue.find(name)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            # What a fit warns of is in its `stop`, which the rows keep.
            warnings.simplefilter("ignore")
            rows = study.replicate[task.protocol](study.cells[task.cell], seed_of(task))
    except AvemError as error:
        # One panel that cannot be fitted does not end a study of thousands; the page says so.
        return [{"error": str(error)}]
    spent = time.process_time() - began
    return [row | {"replicate_seconds": spent / len(rows)} for row in rows]
