"""Shards on the workers of a Dask cluster.

Every worker reads the chunks of its shards from files that all machines see, and keeps what it
knows of their subjects; the driver holds tickets. Where a worker is lost, another one reads its
chunks and finds its subjects again from the parameters. Results come back shard by shard and are
added up in the shards' order, so that they do not depend on how many workers there are.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from avem.data.scanning.cache import removed_with, temporary_folder
from avem.errors import AvemError, ModelError

_PATIENCE = 60.0
"""Seconds without any worker after which a fit gives up."""
_LOOK = 1.0
_TRIES = 10
"""How often a shard's work may be lost with its worker."""


# --- on a worker ----------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A value that comes with the call."""

    value: Any

    def get(self) -> Any:
        """The value."""
        return self.value


class _Source(NamedTuple):
    source: Any


@dataclass
class _Worker:
    """What a worker process has of one fit."""

    disk: Any
    held: dict[int, Any] = field(default_factory=dict)


_fits: dict[str, _Worker] = {}


def _worker(key: str, memory: int) -> _Worker:
    if key not in _fits:
        from distributed import get_worker

        from avem.execution.disk import Disk
        from avem.numerics import devices

        _fits.clear()  # a worker serves one fit at a time
        folder = temporary_folder("worker")
        n_threads = get_worker().state.nthreads
        disk = Disk(memory, folder, devices.best(), n_threads=n_threads)
        removed_with(disk, folder)
        _fits[key] = _Worker(disk)
    return _fits[key]


_LOST = Sent(None)


def work(
    key: str,
    memory: int,
    function: Callable[..., tuple[Any, Any]],
    sources: Sequence[Any],
    own: Sequence[Sequence[Any]],
    shared: tuple[Any, ...],
    names: Sequence[int],
    dropped: Sequence[int],
) -> list[Any]:
    """A function on some shards: what travels, of each; what stays is kept under the `names`.

    `own` are for each shard in turn the names of what it keeps, or values that are sent.
    """
    here = _worker(key, memory)
    for name in dropped:
        here.held.pop(name, None)
    handles = [
        tuple(part if isinstance(part, Sent) else here.held.get(part, _LOST) for part in parts)
        for parts in own
    ]
    shards = [_Source(source) for source in sources]
    found = here.disk.run(function, shards, handles, shared)
    here.held.update({name: stays for name, (stays, _) in zip(names, found, strict=True)})
    return [travels for _, travels in found]


def address() -> str:
    """Of the worker that runs this."""
    from distributed import get_worker

    return get_worker().address


def _work_and_where(*arguments: Any) -> tuple[str, list[Any]]:
    return address(), work(*arguments)


def _about(paths: Sequence[str]) -> tuple[str, list[str]]:
    """A worker's avem, and which files it does not see."""
    return _version(), [path for path in paths if not os.path.exists(path)]


def _version() -> str:
    return sys.modules["avem"].__version__


# --- the driver -----------------------------------------------------------------------------------


class _Ticket:
    """The name of what stays with a shard; when nobody has it any more, it can be dropped."""

    __slots__ = ("__weakref__", "_dropped", "name")

    def __init__(self, name: int, dropped: list[int]) -> None:
        self.name, self._dropped = name, dropped

    def get(self) -> None:
        """Nothing: once the cluster is gone, what it kept is lost."""
        return

    def __del__(self) -> None:
        self._dropped.append(self.name)


class Cluster:
    """A shard's source is a `ChunkFile` that all machines see, and a handle is a ticket."""

    speed = 1.0

    def __init__(self, client: Any, sources: Sequence[Any], memory: int, local: Any) -> None:
        self._client, self._memory = client, memory
        self._local = local
        """What runs functions here, when the client has been closed."""
        self._key, self._names = uuid.uuid4().hex, itertools.count()
        self._dropped: list[int] = []
        workers = _check(client, sorted({source.path for source in sources}))
        self._home = {
            (source.path, source.offset): workers[number * len(workers) // len(sources)]
            for number, source in enumerate(sources)
        }
        """The worker of each shard: neighbours live together."""

    def run(
        self,
        function: Callable[..., tuple[Any, Any]],
        shards: Sequence[Any],
        own: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
    ) -> list[tuple[Any, Any]]:
        """One task for each worker, of all its shards; here, when the client has been closed."""
        if self._client.status in ("closing", "closed"):
            return self._local.run(function, shards, own, shared)
        homes = [self._home[shard.source.path, shard.source.offset] for shard in shards]
        groups: dict[str, list[int]] = {}
        for number, home in enumerate(homes):
            groups.setdefault(home, []).append(number)
        dropped = list(self._dropped)
        del self._dropped[: len(dropped)]
        tickets = [_Ticket(next(self._names), self._dropped) for _ in shards]
        tasks = []
        for home, numbers in groups.items():
            parts = [[_name(handles[number]) for number in numbers] for handles in own]
            names = [tickets[number].name for number in numbers]
            sources = [shards[number].source for number in numbers]
            arguments = (self._key, self._memory, function, sources, parts, shared, names, dropped)
            tasks.append(
                self._client.submit(
                    _work_and_where,
                    *arguments,
                    workers=[home],
                    allow_other_workers=True,
                    pure=False,
                    retries=_TRIES,
                )
            )
        results: list[Any] = [None] * len(shards)
        for (where, found), numbers in zip(self._gathered(tasks), groups.values(), strict=True):
            for number, travels in zip(numbers, found, strict=True):
                results[number] = (tickets[number], travels)
                source = shards[number].source
                self._home[source.path, source.offset] = where
        return results

    def about(self) -> str:
        """How many shards there are, and where."""
        return f"{len(self._home):,} shards on {len(set(self._home.values())):,} workers"

    def place(self, shards: Sequence[Any], values: Sequence[Any]) -> list[Sent]:
        """The values go with every call, so that none of them can be lost."""
        return [Sent(value) for value in values]

    def _gathered(self, tasks: Sequence[Any]) -> list[Any]:
        """The results, unless there is no worker left to compute them."""
        seen = time.monotonic()
        _wait(tasks)
        while not all(task.done() for task in tasks):
            if self._client.status not in ("running", "connecting"):
                raise AvemError("The Dask client was closed, or lost its scheduler.")
            if self._client.scheduler_info().get("workers"):
                seen = time.monotonic()
            elif time.monotonic() - seen > _PATIENCE:
                raise AvemError(
                    f"The cluster has had no worker for {_PATIENCE:.0f} seconds. Start some, and "
                    "fit again; with checkpoint= it goes on where it was."
                )
            _wait(tasks)
        return self._client.gather(list(tasks))


def _wait(tasks: Sequence[Any]) -> None:
    import distributed

    try:
        distributed.wait(list(tasks), timeout=_LOOK)
    except TimeoutError:
        return


def _name(handle: Any) -> Any:
    return handle if isinstance(handle, Sent) else handle.name


def _check(client: Any, paths: Sequence[str]) -> list[str]:
    """The workers' addresses, or an error that says what is wrong with them."""
    own = _version()
    if not hasattr(client, "submit") or not hasattr(client, "scheduler_info"):
        raise ModelError(
            f"client is {client!r}; a dask.distributed.Client is wanted, such as "
            "Client('tcp://host:8786')."
        )
    try:
        found = client.run(_about, list(paths), on_error="return")
    except OSError as error:
        raise ModelError(f"The cluster cannot be reached: {error}") from error
    for worker, told in found.items():
        if isinstance(told, ImportError | AttributeError):
            raise ModelError(
                f"The worker {worker} has no avem, or an old one ({told}). Install avem {own} with "
                "its extra scale where the workers run."
            )
    found = {worker: told for worker, told in found.items() if isinstance(told, tuple)}
    if not found:
        raise ModelError("The cluster has no workers. Start some: dask worker tcp://...")
    for worker, (version, hidden) in found.items():
        if version != own:
            raise ModelError(
                f"The worker {worker} has avem {version}, and here it is {own}. Install "
                "the same version everywhere."
            )
        if hidden:
            raise ModelError(
                f"The worker {worker} does not see {hidden[0]!r}. Give Panel.scan a cache= on a "
                "disk that all machines of the cluster share."
            )
    return sorted(found)
