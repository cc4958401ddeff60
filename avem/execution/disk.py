"""Shards on the disk of this machine: chunks are read while others are computed on."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import jax

from avem.data.layout import Chunk
from avem.data.scanning.memory import shown_bytes
from avem.execution.chunk_files import ChunkFile
from avem.execution.dataset import Wanted, answer
from avem.execution.shelf import Held, Shelf
from avem.numerics import devices
from avem.numerics.arrays import fetched
from avem.numerics.precision import in_float64

_FOR_CHUNKS, _FOR_SUBJECTS = 0.4, 0.4
"""Shares of the memory for chunks that stay there, and for what is known of subjects."""
_AHEAD = 2
"""Chunks that are read before they are needed."""


@cache
def _pools(n_threads: int) -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
    """What reads, and what computes."""
    return ThreadPoolExecutor(_AHEAD, "avem-read"), ThreadPoolExecutor(n_threads, "avem-disk")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.cache_clear)  # the child has none of them


class Disk:
    """A shard's source is a `ChunkFile`, and a handle is a `Held` on a shelf."""

    def __init__(
        self,
        memory: int,
        folder: Path,
        device: Any = None,
        speed: float = 1.0,
        owner: Any = None,
        n_threads: int | None = None,
    ) -> None:
        self._n_threads = n_threads or os.cpu_count() or 1
        self.speed, self._device, self._owner = speed, device, owner
        self._shelf = Shelf(int(_FOR_SUBJECTS * memory), folder)
        self._room, self._lock = int(_FOR_CHUNKS * memory), Lock()
        self._chunks: dict[tuple[str, int], Chunk] = {}
        self.bytes_read = self._n_shards = 0

    def run(
        self,
        function: Callable[..., tuple[Any, Any]],
        shards: Sequence[Any],
        own: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
        wanted: Wanted,
    ) -> tuple[Sequence[Any], Any]:
        """On several threads, each shard as soon as its chunk has been read."""

        @in_float64
        def work(source: ChunkFile, read: Future[Chunk], values: Sequence[Held]) -> Any:
            device = self._device or devices.device_for(0)
            chunk = jax.device_put(_shown(source, read.result()), device)
            with devices.on(device):
                known = [value.get() for value in values]
                stays, travels = function(chunk, *known, *shared)
                stays = jax.block_until_ready(stays)
                return self._shelf.put(stays), fetched(travels)

        readers, workers = _pools(self._n_threads)
        n, most = len(shards), self._n_threads + 1
        self._n_shards = n
        reads: deque[Future[Chunk]] = deque()
        running: deque[Future[Any]] = deque()
        results: list[tuple[Any, Any]] = []
        for number, shard in enumerate(shards):
            for ahead in shards[number + len(reads) : min(n, number + 1 + _AHEAD)]:
                reads.append(readers.submit(self._read, ahead.source))
            while len(running) >= most:  # so that few chunks wait in memory
                results.append(running.popleft().result())
            values = [handles[number] for handles in own]
            running.append(workers.submit(work, shard.source, reads.popleft(), values))
        results.extend(one.result() for one in running)
        stays, travels = zip(*results, strict=True)
        return stays, answer(travels, wanted)

    def about(self) -> str:
        """How much there was to do so far, in words."""
        return f"{self._n_shards:,} shards, {shown_bytes(self.bytes_read)} read"

    def place(self, shards: Sequence[Any], values: Sequence[Any]) -> list[Held]:
        """The values on the shelf."""
        return [self._shelf.put(value) for value in values]

    def _read(self, source: ChunkFile) -> Chunk:
        """A chunk with all its lanes, from memory if it has stayed there."""
        key = (source.path, source.offset)
        found = self._chunks.get(key)
        if found is not None:
            return found
        found = source._replace(hidden=None).load()
        with self._lock:
            self.bytes_read += source.n_bytes
            if self._room >= source.n_bytes and key not in self._chunks:
                self._room -= source.n_bytes
                self._chunks[key] = found
        return found


def _shown(source: ChunkFile, chunk: Chunk) -> Chunk:
    if source.hidden is None:
        return chunk
    return chunk._replace(valid=chunk.valid & ~source.hidden)
