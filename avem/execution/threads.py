"""Shards in the memory of this process, on one thread per core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax

from avem.execution.dataset import Wanted, answer
from avem.execution.sums import added_there
from avem.numerics import devices
from avem.numerics.arrays import fetched
from avem.numerics.precision import in_float64

_ON_DEVICE = 2
"""Shards at a time on a GPU: one computes while another one is sent or read."""


@cache
def _pool(platform: str, n_devices: int) -> ThreadPoolExecutor:
    """One thread per core, kept: to start them takes longer than a small chunk."""
    n_threads = (os.cpu_count() or 1) if platform == "cpu" else _ON_DEVICE * n_devices
    return ThreadPoolExecutor(n_threads, thread_name_prefix="avem")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # the child has none of them


class Handle:
    """What stays with a shard; on a GPU it may be computed only when it is needed.

    So it is told the next pass of the first shard before the last one of this pass is thought of.
    """

    def __init__(self, value: Any = None, later: Callable[[], Any] | None = None) -> None:
        self._value, self._later = value, later

    def get(self) -> Any:
        """The value."""
        if self._later is not None:
            self._value, self._later = self._later(), None
        return self._value


@dataclass(frozen=True)
class Threads:
    """A shard's source is its chunk, and a handle is a `Handle`."""

    device: Any = None
    """Where chunks are sent for every run; None: they stay where they are."""
    speed: float = 1.0
    """Of the device, beside a processor's."""

    def run(
        self,
        function: Callable[..., tuple[Any, Any]],
        shards: Sequence[Any],
        own: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
        wanted: Wanted,
    ) -> tuple[Sequence[Any], Any]:
        """On several threads where there are several shards."""
        where = [self.device or devices.of(shard.source.valid) for shard in shards]
        # Nobody waits for what a GPU has been told to do, but where room is needed for the next.
        far = self.device is None and _is_far(where[0])

        @in_float64
        def work(device: Any, shard: Any, *handles: Handle) -> tuple[Any, Any]:
            with devices.on(device):  # sent there, but not bound to it, as what follows is not
                chunk = jax.device_put(shard.source) if self.device else shard.source
                values = [handle.get() for handle in handles]
                stays, travels = function(chunk, *values, *shared)
            pair = stays, travels if far else fetched(travels)
            return pair if far or len(shards) == 1 else jax.block_until_ready(pair)

        if far and wanted is Wanted.NOTHING:
            some = zip(where, shards, *own, strict=True)
            return [Handle(later=partial(_first, work, *one)) for one in some], None
        if len(shards) == 1 or (far and len(set(where)) == 1):
            pairs = [work(*one) for one in zip(where, shards, *own, strict=True)]
        else:
            pool = _pool(where[0].platform, len(set(where)))
            pairs = list(pool.map(work, where, shards, *own))
        stays, travels = zip(*pairs, strict=True)
        if far:
            if wanted is Wanted.SUM and len(set(where)) == 1 < len(shards):
                travels = [in_float64(added_there)(travels)]  # little comes back
            travels = in_float64(fetched)(list(travels))
        return [Handle(value) for value in stays], answer(travels, wanted)

    def place(self, shards: Sequence[Any], values: Sequence[Any]) -> Sequence[Handle]:
        """The values themselves."""
        return [Handle(value) for value in values]


def _is_far(device: Any) -> bool:
    """It works on its own."""
    return device.platform != "cpu"


def _first(work: Callable[..., tuple[Any, Any]], *told: Any) -> Any:
    return work(*told)[0]
