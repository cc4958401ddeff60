"""What a worker of a Dask cluster has of a fit, and does for it.

It reads the chunks of its shards from files that all machines see, and keeps what it knows of their
subjects. What it has lost, or never had because another worker had it, is found again from the
parameters.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from avem.data.scanning.cache import removed_with, temporary_folder
from avem.execution.dataset import Wanted
from avem.execution.sums import Branches, branches, joined


class Sent(NamedTuple):
    """A value that comes with the call."""

    value: Any

    def get(self) -> Any:
        """The value."""
        return self.value


class Setup(NamedTuple):
    """What a worker must know of a fit to begin with."""

    key: str
    table: str
    """The file with the chunks of all shards."""
    memory: int


class Work(NamedTuple):
    """A function on some of a worker's shards."""

    name: int
    """Of what stays with them."""
    function: Callable[..., tuple[Any, Any]]
    shards: Sequence[int]
    own: Sequence[Sequence[Any]]
    """What each of them gives, in turn: the names of what stayed there, or values `Sent`."""
    shared: tuple[Any, ...]
    hidden: dict[int, Any]
    """The lanes that are left out of shards."""


class Dropped(NamedTuple):
    """Names of what nobody needs any more."""

    names: Sequence[int]


class Answer(NamedTuple):
    """Of some workers: who they are, and what travels."""

    workers: tuple[str, ...]
    found: Any
    """What each shard sent, or branches of the sum."""


class _Source(NamedTuple):
    source: Any


@dataclass
class _Held:
    """What a worker process has of one fit."""

    disk: Any
    table: Sequence[Any]
    held: dict[int, dict[int, Any]] = field(default_factory=dict)
    """By the name of what stays there, and the shard."""


_fits: dict[str, _Held] = {}


def _here(fit: Setup) -> _Held:
    if fit.key not in _fits:
        from distributed import get_worker

        from avem.execution.disk import Disk
        from avem.numerics import devices

        with open(fit.table, "rb") as file:
            table = pickle.load(file)
        _fits.clear()  # a worker serves one fit at a time
        folder = temporary_folder("worker")
        n_threads = get_worker().state.nthreads
        disk = Disk(fit.memory, folder, devices.best(), n_threads=n_threads)
        removed_with(disk, folder)
        _fits[fit.key] = _Held(disk, table)
    return _fits[fit.key]


_LOST = Sent(None)


def answer(
    fit: Setup, waiting: Sequence[Work | Dropped], wanted: Wanted, places: Sequence[int]
) -> Answer:
    """Do all that waits, in order; what is wanted of the last one, whose shards have `places`."""
    here, travels = _here(fit), []
    for one in waiting:
        if isinstance(one, Dropped):
            for name in one.names:
                here.held.pop(name, None)
        else:
            travels = _done(here, one)
    found = branches(places, travels) if wanted is Wanted.SUM else travels
    return Answer((address(),), found)


def _done(here: _Held, work: Work) -> list[Any]:
    """What travels from each shard; what stays is kept."""
    sources = [here.table[number] for number in work.shards]
    if work.hidden:
        gone = [work.hidden.get(number) for number in work.shards]
        sources = [
            source if lanes is None else source.without(lanes)
            for source, lanes in zip(sources, gone, strict=True)
        ]
    handles = [
        tuple(
            name if isinstance(name, Sent) else here.held.get(name, {}).get(number, _LOST)
            for number, name in zip(work.shards, names, strict=True)
        )
        for names in work.own
    ]
    shards = [_Source(source) for source in sources]
    stays, travels = here.disk.run(work.function, shards, handles, work.shared, Wanted.EACH)
    here.held[work.name] = dict(zip(work.shards, stays, strict=True))
    return travels


def together(answers: Sequence[Answer]) -> Answer:
    """The answers of several workers as one: branches of a sum, as far as they can be added up."""
    workers = tuple(worker for one in answers for worker in one.workers)
    some: list[Branches] = [one.found for one in answers]
    return Answer(workers, joined(some))


def address() -> str:
    """Of the worker that runs this."""
    from distributed import get_worker

    return get_worker().address


class About(NamedTuple):
    """A worker's avem, which files it does not see, and how many threads it has."""

    version: str
    hidden: list[str]
    n_threads: int


def about(paths: Sequence[str], dask_worker: Any = None) -> About:
    """Of the worker that runs this, which Dask fills in."""
    hidden = [path for path in paths if not os.path.exists(path)]
    return About(version(), hidden, dask_worker.state.nthreads)


def version() -> str:
    """Of avem, here."""
    return sys.modules["avem"].__version__
