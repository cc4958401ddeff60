"""Who reads the rows of a scan and lays them out, part by part: this process, or Dask workers."""

from __future__ import annotations

import pickle
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from avem.data.scanning.room import writing_into
from avem.execution.cluster import check_workers, gathered
from avem.numerics.precision import in_float64

_AHEAD = 3
"""Parts that are sent to the workers at a time, for each of their threads."""


class Crew(Protocol):
    """What does something for each of many parts."""

    def map(
        self, function: Callable[..., Any], parts: Iterable[Any], *shared: Any
    ) -> Iterator[Any]:
        """``function(part, *shared)`` for each part, in their order; a function of a module."""
        ...


class Here:
    """One part after the other, in this process."""

    def map(
        self, function: Callable[..., Any], parts: Iterable[Any], *shared: Any
    ) -> Iterator[Any]:
        """See `Crew`."""
        for part in parts:
            yield function(part, *shared)


class Workers:
    """The workers of a Dask cluster, who all see a folder."""

    def __init__(self, client: Any, folder: Path, *files: Path) -> None:
        self._client, self._folder = client, folder
        told = check_workers(client, [str(folder), *map(str, files)])
        self._n_at_once = _AHEAD * sum(told.values())

    def map(
        self, function: Callable[..., Any], parts: Iterable[Any], *shared: Any
    ) -> Iterator[Any]:
        """See `Crew`; what the parts share goes through a file, once."""
        path = self._folder / f"{uuid.uuid4().hex}.todo"
        with writing_into(self._folder), open(path, "wb") as file:
            pickle.dump((function, shared), file, pickle.HIGHEST_PROTOCOL)
        running: deque[Any] = deque()
        try:
            for part in parts:
                if len(running) >= self._n_at_once:
                    yield from gathered(self._client, [running.popleft()])
                running.append(self._client.submit(_done, str(path), part, pure=False))
            while running:
                yield from gathered(self._client, [running.popleft()])
        finally:
            if running:
                self._client.cancel(list(running))
            path.unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _what(path: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    with open(path, "rb") as file:
        return pickle.load(file)


@in_float64
def _done(path: str, part: Any) -> Any:
    """On a worker."""
    function, shared = _what(path)
    return function(part, *shared)
