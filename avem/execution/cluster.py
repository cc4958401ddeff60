"""Shards on the workers of a Dask cluster: the driver's side.

The driver asks, and holds the names of what stays with the workers. Functions of which nothing
travels wait for the next question and go with it. Sums are added up on the workers, by the tree of
`sums`, so that they do not depend on how many workers there are. Where a worker is lost, another
one does its work.
"""

from __future__ import annotations

import itertools
import pickle
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from avem.data.scanning.room import writing_into
from avem.errors import AvemError, FileError, ModelError
from avem.execution.cluster_worker import (
    About,
    Answer,
    Dropped,
    Sent,
    Setup,
    Work,
    about,
    answer,
    together,
    version,
)
from avem.execution.dataset import Wanted
from avem.execution.sums import total

_PATIENCE = 60.0
"""Seconds without any worker after which a fit gives up."""
_LOOK = 1.0
_TRIES = 10
"""How often a shard's work may be lost with its worker."""
_AT_ONCE = 32
"""Workers whose sums are added up by one of them; with more, it is done in several rounds."""


class _Kept:
    """The name of what stays with shards; when nobody has it any more, it can be dropped."""

    __slots__ = ("__weakref__", "_dropped", "name")

    def __init__(self, name: int, dropped: list[int]) -> None:
        self.name, self._dropped = name, dropped

    def get(self) -> None:
        """Nothing: once the cluster is gone, what it kept is lost."""
        return

    def __del__(self) -> None:
        self._dropped.append(self.name)


class Cluster:
    """A shard's source is a `ChunkFile` that all machines see, and a handle is a name."""

    speed = 1.0

    def __init__(self, client: Any, sources: Sequence[Any], memory: int, local: Any) -> None:
        self._client = client
        self._local = local
        """What runs functions here, when the client has been closed."""
        self._names, self._dropped = itertools.count(), []
        key, folder = uuid.uuid4().hex, Path(sources[0].path).parent
        self._fit = Setup(key, str(folder / f"shards-{key}"), memory)
        with writing_into(folder), open(self._fit.table, "wb") as file:
            pickle.dump([source._replace(hidden=None) for source in sources], file)
        workers = check_workers(
            client, [self._fit.table, *sorted({source.path for source in sources})]
        )
        self._number = {(one.path, one.offset): i for i, one in enumerate(sources)}
        self._homes = _homes(workers, [source.n_bytes for source in sources])
        """The worker of each shard."""
        self._waiting: dict[str, list[Work | Dropped]] = {}
        """What each worker has still to do, before the next question."""
        self._last: tuple[Sequence[Any], np.ndarray] = ((), np.zeros(0, int))

    def run(
        self,
        function: Callable[..., tuple[Any, Any]],
        shards: Sequence[Any],
        own: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
        wanted: Wanted,
    ) -> tuple[Sequence[Any], Any]:
        """One task for each worker, of all its shards; here, when the client has been closed."""
        if self._client.status in ("closing", "closed"):
            return self._local.run(function, shards, own, shared, wanted)
        self._tell_dropped()
        numbers = self._numbers(shards)
        kept = _Kept(next(self._names), self._dropped)
        asked: dict[str, list[int]] = {}
        for place, number in enumerate(numbers):
            asked.setdefault(self._homes[number], []).append(place)
        for home, places in asked.items():
            gone = {int(numbers[place]): shards[place].source.hidden for place in places}
            work = Work(
                kept.name,
                function,
                [int(numbers[place]) for place in places],
                [[_named(handles[place]) for place in places] for handles in own],
                shared,
                {number: lanes for number, lanes in gone.items() if lanes is not None},
            )
            self._waiting.setdefault(home, []).append(work)
        found = None if wanted is Wanted.NOTHING else self._asked(asked, len(shards), wanted)
        return [kept] * len(shards), found

    def about(self) -> str:
        """How many shards there are, and where."""
        return f"{len(self._homes):,} shards on {len(set(self._homes)):,} workers"

    def place(self, shards: Sequence[Any], values: Sequence[Any]) -> list[Sent]:
        """The values go with every call, so that none of them can be lost."""
        return [Sent(value) for value in values]

    # --- inside ---------------------------------------------------------------------------------

    def _numbers(self, shards: Sequence[Any]) -> np.ndarray:
        """Which of all shards these are."""
        if shards is not self._last[0]:
            found = [self._number[one.source.path, one.source.offset] for one in shards]
            self._last = shards, np.array(found, int)
        return self._last[1]

    def _tell_dropped(self) -> None:
        names = self._dropped[:]
        del self._dropped[: len(names)]
        if names:
            for home in set(self._homes):
                self._waiting.setdefault(home, []).append(Dropped(names))

    def _asked(self, asked: dict[str, list[int]], n_shards: int, wanted: Wanted) -> Any:
        """The workers' answer to what was put last into their lists."""
        tasks = [
            self._submit(answer, home, self._fit, self._waiting.pop(home), wanted, places)
            for home, places in asked.items()
        ]
        adding = wanted is Wanted.SUM
        while adding and len(tasks) > _AT_ONCE:
            parts = [tasks[i : i + _AT_ONCE] for i in range(0, len(tasks), _AT_ONCE)]
            tasks = [self._submit(together, None, part) for part in parts]
        answers: list[Answer] = gathered(self._client, tasks)
        whole = together(answers) if adding else None
        workers = [where for one in answers for where in one.workers]
        for where, (home, places) in zip(workers, asked.items(), strict=True):
            if where != home:
                self._move(self._last[1][places], home, where)
        if whole is not None:
            return total(whole.found)
        results: list[Any] = [None] * n_shards
        for one, places in zip(answers, asked.values(), strict=True):
            for place, travels in zip(places, one.found, strict=True):
                results[place] = travels
        return results

    def _move(self, numbers: np.ndarray, home: str, where: str) -> None:
        """Another worker has these shards now."""
        for number in numbers.tolist():
            self._homes[number] = where
        if home not in self._homes:
            self._waiting.pop(home, None)

    def _submit(self, function: Callable[..., Any], home: str | None, *arguments: Any) -> Any:
        there = {} if home is None else {"workers": [home], "allow_other_workers": True}
        return self._client.submit(function, *arguments, pure=False, retries=_TRIES, **there)


def _homes(workers: dict[str, int], sizes: Sequence[int]) -> list[str]:
    """The worker of each shard: neighbours live together, and each thread has as much to do."""
    ends = np.cumsum(list(workers.values())) / sum(workers.values())
    middle = (np.cumsum(sizes) - np.array(sizes) / 2) / sum(sizes)
    places = np.minimum(np.searchsorted(ends, middle), len(workers) - 1)
    names = list(workers)
    return [names[place] for place in places]


def gathered(client: Any, tasks: Sequence[Any]) -> list[Any]:
    """The results of tasks, unless there is no worker left to compute them."""
    seen = time.monotonic()
    _wait(tasks)
    while not all(task.done() for task in tasks):
        if client.status not in ("running", "connecting"):
            raise AvemError("The Dask client was closed, or lost its scheduler.")
        if client.scheduler_info().get("workers"):
            seen = time.monotonic()
        elif time.monotonic() - seen > _PATIENCE:
            raise AvemError(
                f"The cluster has had no worker for {_PATIENCE:.0f} seconds. Start some, and "
                "fit again; with checkpoint= it goes on where it was."
            )
        _wait(tasks)
    return client.gather(list(tasks))


def _wait(tasks: Sequence[Any]) -> None:
    import distributed

    try:
        distributed.wait(list(tasks), timeout=_LOOK)
    except TimeoutError:
        return


def _named(handle: Any) -> Any:
    return handle if isinstance(handle, Sent) else handle.name


def check_workers(client: Any, paths: Sequence[str]) -> dict[str, int]:
    """The workers' addresses and threads, or an error that says what is wrong with them."""
    own = version()
    if not hasattr(client, "submit") or not hasattr(client, "scheduler_info"):
        raise ModelError(
            f"client is {client!r}; a dask.distributed.Client is wanted, such as "
            "Client('tcp://host:8786')."
        )
    if getattr(client, "status", "running") in ("closing", "closed"):
        raise ModelError("The Dask client is closed. Connect again: Client('tcp://host:8786').")
    if lost := [path for path in paths if not Path(path).exists()]:
        raise FileError(f"{lost[0]!r} is gone. Scan again.")
    try:
        told = client.run(about, list(paths), on_error="return")
    except OSError as error:
        raise ModelError(f"The cluster cannot be reached: {error}") from error
    found: dict[str, About] = {}
    for worker, one in told.items():
        if isinstance(one, ImportError | AttributeError):
            raise ModelError(
                f"The worker {worker} has no avem, or an old one ({one}). Install avem {own} with "
                "its extra scale where the workers run."
            )
        if isinstance(one, tuple):
            found[worker] = About(*one)
    if not found:
        raise ModelError("The cluster has no workers. Start some: dask worker tcp://...")
    for worker, one in found.items():
        if one.version != own:
            raise ModelError(
                f"The worker {worker} has avem {one.version}, and here it is {own}. Install "
                "the same version everywhere."
            )
        if one.hidden:
            raise ModelError(
                f"The worker {worker} does not see {one.hidden[0]!r}. Give Panel.scan a cache= on "
                "a disk that all machines of the cluster share."
            )
    return {worker: found[worker].n_threads for worker in sorted(found)}
