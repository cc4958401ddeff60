"""What default fits compile for a GPU, and how long it takes: on a machine that has none.

    pip install "jax[cuda13]"                      # the compiler is what is needed of it
    python bench/gpu_compile.py                    # panels of 10,000, 100,000 and a million subjects
    python bench/gpu_compile.py 1000000 --of 65536 # the last one, seen through fewer subjects

A fit runs on the processor in the way it takes on a GPU (`tools/pretended_gpu.py`), and every program
that JAX would compile there is compiled for an H200 as well, but not run. What a program is depends
on how many subjects need which nodes, so that a smaller panel stands for a large one, with chunks
and prices to match; a few rare subjects more or less may make a program more or less. Times are of
this machine's cores; what a GPU would try out while it tunes products of matrices is not in them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT.parent)]
os.environ["JAX_PLATFORMS"] = "cpu,cuda"
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # which asks the driver

import jax
from jax import export, lax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

TARGET = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132  fpus_per_core: 128  clock_rate_ghz: 1.98
  threads_per_warp: 32  threads_per_block_limit: 1024  threads_per_core_limit: 2048
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
  shared_memory_per_block: 49152  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000  l2_cache_size: 52428800  device_memory_size: 151397597184
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H200"
"""
"""What XLA wants to know of a GPU."""
CUSTOM_CALLS = ("__gpu$xla.gpu.triton", "cusolver_potrf_ffi", "cusolver_getrf_ffi")

Program = tuple[str, export.Exported, dict[str, Any]]
PROGRAMS: list[Program] = []


class Recorded:
    """A compiled function whose programs are written down: `jax.jit` while avem is imported."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self._jitted = PLAIN_JIT(function, **options)
        self._name = getattr(function, "__name__", None) or getattr(
            function.func, "__name__", "?"  # pyright: ignore[reportFunctionMemberAccess]
        )
        self._options = options.get("compiler_options") or {}
        self._seen: set[Any] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if recording and not any(
            isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs))
        ):
            self._record(args, kwargs)
        return self._jitted(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jitted, name)

    def _record(self, args: Any, kwargs: Any) -> None:
        leaves, tree = jax.tree.flatten((args, kwargs))
        shapes = (getattr(leaf, "shape", leaf) for leaf in leaves)
        kinds = (str(getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
        key = tree, tuple(shapes), tuple(kinds)
        if key in self._seen:
            return
        self._seen.add(key)
        allowed = [export.DisabledSafetyCheck.custom_call(name) for name in CUSTOM_CALLS]
        made = export.export(self._jitted, platforms=["cuda"], disabled_checks=allowed)
        PROGRAMS.append((self._name, made(*args, **kwargs), self._options))


recording = False
PLAIN_JIT = jax.jit


@wraps(PLAIN_JIT)
def _jit(function: Any = None, **options: Any) -> Any:
    if function is None:
        return lambda function: Recorded(function, **options)
    return Recorded(function, **options)
