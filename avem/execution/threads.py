"""Shards in the memory of this process, on one thread per core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np

from avem.numerics import devices
from avem.numerics.precision import in_float64

_ON_DEVICE = 2
"""Shards at a time on a GPU: one computes while another one is sent or read."""


@cache
def _pool(platform: str) -> ThreadPoolExecutor:
    """One thread per core, kept: to start them takes longer than a small chunk."""
    n_threads = (os.cpu_count() or 1) if platform == "cpu" else _ON_DEVICE
    return ThreadPoolExecutor(n_threads, thread_name_prefix="avem")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # the child has none of them


@dataclass(frozen=True)
class Threads:
    """A shard's source is its chunk, and a handle is the value itself."""

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
    ) -> list[tuple[Any, Any]]:
        """On several threads where there are several shards."""

        @in_float64
        def work(shard: Any, *values: Any) -> tuple[Any, Any]:
            chunk = shard.source
            if self.device is not None:
                chunk = jax.device_put(chunk, self.device)
            with devices.on(devices.of(chunk.valid)):
                stays, travels = function(chunk, *values, *shared)
                return stays, jax.tree.map(np.asarray, travels)

        if len(shards) == 1:
            return [work(shards[0], *(values[0] for values in own))]
        pool = _pool((self.device or devices.of(shards[0].source.valid)).platform)
        return list(pool.map(lambda *a: jax.block_until_ready(work(*a)), shards, *own))

    def place(self, shards: Sequence[Any], values: Sequence[Any]) -> Sequence[Any]:
        """The values themselves."""
        return values
