"""Shards in the memory of this process, on one thread per core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import jax
import numpy as np

from avem.numerics.precision import in_float64


@cache
def _pool() -> ThreadPoolExecutor:
    """One thread per core, kept: to start them takes longer than a small chunk."""
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="avem")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # the child has none of them


class Threads:
    """A shard's source is its chunk, and a handle is the value itself."""

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
            stays, travels = function(shard.source, *values, *shared)
            return stays, jax.tree.map(np.asarray, travels)

        if len(shards) == 1:
            return [work(shards[0], *(values[0] for values in own))]
        return list(_pool().map(lambda *a: jax.block_until_ready(work(*a)), shards, *own))

    def place(self, shards: Sequence[Any], values: Sequence[Any]) -> Sequence[Any]:
        """The values themselves."""
        return values
