"""Replicates one after the other, or several at a time in processes of their own."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from types import FrameType

from avem.errors import AvemError, ModelError
from avem.numerics.forks import refuse_forked
from avem.workflows.bootstrap_table import Replicate
from avem.workflows.processes import Processes
from avem.workflows.recipe import Recipe

_recipe: Recipe | None = None
"""In a worker process, what it makes replicates from."""


def run(recipe: Recipe, numbers: Sequence[int], jobs: int) -> Generator[Replicate, None, None]:
    """The replicates of these numbers, each as soon as it is finished, in any order."""
    jobs = min(jobs, len(numbers))
    if jobs > 1:
        yield from _in_processes(recipe, numbers, jobs)
    else:
        refuse_forked()  # otherwise every replicate would fail, and be written down so
        yield from map(recipe.replicate, numbers)


def _in_processes(recipe: Recipe, numbers: Sequence[int], jobs: int) -> Iterator[Replicate]:
    packed = _packed(recipe, jobs)
    waiting = iter(numbers)
    with Processes(jobs, _begin, (packed,)) as pool:
        try:
            # No more are handed out than are being worked on: Ctrl-C waits for nothing else.
            running = {pool.submit(_work, number) for number in islice(waiting, jobs)}
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {pool.submit(_work, number) for number in islice(waiting, len(done))}
                for future in done:
                    yield future.result()
        except BrokenProcessPool as error:
            raise AvemError(
                "A worker process ended before its replicate was finished. In a script, jobs > 1 "
                "needs the call to stand under `if __name__ == '__main__':`, and functions of a "
                "Custom family in a file that can be imported. If that is so, memory may have run "
                "out: use fewer jobs. What was finished is in the file, if path= was given."
            ) from error


def _packed(recipe: Recipe, jobs: int) -> bytes:
    try:
        return pickle.dumps(recipe)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ModelError(
            f"jobs={jobs} sends the model to other processes, and this one cannot be sent "
            f"({error}). Define the functions of a Custom family at the top level of a file, or "
            "use jobs=1."
        ) from error


def _begin(packed: bytes) -> None:
    global _recipe
    # Ctrl-C reaches all processes of a terminal. A fit ends early by itself; between fits a worker
    # does nothing about it, and the process that started it decides.
    signal.signal(signal.SIGINT, _go_on)
    _recipe = pickle.loads(packed)


def _go_on(number: int, frame: FrameType | None) -> None:
    """Do nothing: unlike with SIG_IGN, a fit may still put its own handler in place."""


def _work(number: int) -> Replicate:
    assert _recipe is not None
    return _recipe.replicate(number)
