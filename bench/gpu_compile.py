"""What default fits compile for a GPU, and how long it takes: on a machine that has none.

    pip install "jax[cuda13]"        # the compiler is what is needed of it
    python bench/gpu_compile.py      # panels of 10,000, 100,000 and a million subjects
    python bench/gpu_compile.py 1000000 --of 262144 # one of them, by more subjects than usual

A fit runs on the processor in the way it takes on a GPU (`tools/pretended_gpu.py`), and every
program that JAX would compile there is compiled for an H200 as well, but not run. Which programs
these are depends on how many subjects need which nodes: a smaller panel stands for a large one,
with chunks and prices to match, but a few rare subjects more or less may make a program more or
less. Times are of this machine's cores; what a GPU would try out to tune products of matrices is
not in them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
from jax import export, lax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT.parent)]
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu,cuda",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # which asks the driver
}
if __name__ == "__main__" and not ENVIRONMENT.items() <= os.environ.items():
    again = [sys.executable, *sys.argv]
    sys.exit(subprocess.run(again, check=False, env={**os.environ, **ENVIRONMENT}).returncode)

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
        named = getattr(function, "func", function)  # a partial has no name
        self._name = getattr(named, "__name__", "?")
        self._options = options.get("compiler_options") or {}
        self._seen: set[Any] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            self._record(args, kwargs)
        return self._jitted(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jitted, name)

    def _record(self, args: Any, kwargs: Any) -> None:
        leaves, tree = jax.tree.flatten((args, kwargs))
        key = tree, tuple(map(_kind, leaves))
        if key in self._seen:
            return
        self._seen.add(key)
        allowed = [export.DisabledSafetyCheck.custom_call(name) for name in CUSTOM_CALLS]
        made = export.export(self._jitted, platforms=["cuda"], disabled_checks=allowed)
        with where_it_would_run():
            PROGRAMS.append((self._name, made(*args, **kwargs), self._options))


def where_it_would_run() -> AbstractContextManager[Any]:
    """Since JAX 0.12, Pallas wants to know the GPU when it translates a kernel."""
    if not hasattr(jax.sharding, "AbstractDevice"):
        return nullcontext()
    device = jax.sharding.AbstractDevice(device_kind="NVIDIA H200", num_cores=132, platform="gpu")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)


def _kind(leaf: Any) -> Any:
    """What one of a program's arguments is, whatever its numbers."""
    if isinstance(leaf, bool | int | float):
        return type(leaf)
    return (leaf.shape, str(leaf.dtype)) if hasattr(leaf, "dtype") else leaf


PLAIN_JIT = jax.jit


@wraps(PLAIN_JIT)
def _recording_jit(function: Any = None, **options: Any) -> Any:
    if function is None:
        return lambda function: Recorded(function, **options)
    return Recorded(function, **options)


jax.jit = _recording_jit  # before avem is imported, and for what it imports when it is needed
import gpu  # noqa: E402

from avem.kernels import dispatch  # noqa: E402
from avem.numerics import devices  # noqa: E402
from avem.numerics.precision import in_float64  # noqa: E402
from tools.pretended_gpu import pretended_gpu  # noqa: E402

ENGINE = dispatch.engine


def both_engines(kernel: str, dtype: Any, **sizes: int) -> Callable[..., tuple[Any, ...]] | None:
    """What runs on the processor, and in the program for a GPU what would run there."""
    there = ENGINE(kernel, dtype, **sizes)
    if there is None:
        return None
    token = devices._platform.set("cpu")
    here = ENGINE(kernel, dtype, **sizes) or import_module(f"avem.kernels.{kernel}").definition
    devices._platform.reset(token)

    def either(*args: Any) -> tuple[Any, ...]:
        leaves, tree = jax.tree.flatten(args)
        arrays = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]

        def by(engine: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
            def run(*given: Any) -> tuple[Any, ...]:
                own = dict(zip(arrays, given, strict=True))
                filled = [own.get(i, leaf) for i, leaf in enumerate(leaves)]
                return tuple(engine(*jax.tree.unflatten(tree, filled)))

            return run

        return lax.platform_dependent(*(leaves[i] for i in arrays), cpu=by(here), cuda=by(there))

    return either


@contextmanager
def on_pretended_gpu(n_lanes: int, speed: float) -> Iterator[None]:
    """Fits inside have the engines of both."""
    users = [m for m in sys.modules.values() if getattr(m, "engine", None) is ENGINE]
    with ExitStack() as stack:
        for module in users:
            stack.enter_context(patch.object(module, "engine", both_engines))
        stack.enter_context(pretended_gpu(n_lanes, speed))
        yield


@in_float64
def compiled(programs: list[Program], device: Any) -> Counter[str]:
    """Seconds that they take to compile, by name."""
    taken: Counter[str] = Counter()
    where = SingleDeviceSharding(device)
    for name, program, options in programs:

        def flat(*leaves: Any, program: export.Exported = program) -> Any:
            args, kwargs = jax.tree.unflatten(program.in_tree, leaves)
            return program.call(*args, **kwargs)

        jitted = PLAIN_JIT(flat, in_shardings=where, out_shardings=where, compiler_options=options)
        lowered = jitted.lower(*program.in_avals)
        began = time.perf_counter()
        lowered.compile()
        taken[name] += time.perf_counter() - began
    return taken


def seen_through(meant: int, n: int, device: Any) -> None:
    """The programs of a default fit of `meant` subjects, found by one of `n`."""
    chunks = 1 if meant <= 1 << 17 else 4
    with on_pretended_gpu(-(-n // chunks), speed=1000.0 * n / meant):
        gpu.GAUSSIAN.fit(gpu.gaussian(n), time="t")
    taken = compiled(PROGRAMS, device)
    most = ", ".join(f"{name} {seconds:.1f}" for name, seconds in taken.most_common(5))
    gpu.say(
        f"default fit {meant:>9,d} x {gpu.N_TIMES}, by {n:,d}: {len(PROGRAMS)} programs,",
        f"{taken.total():.1f} s to compile, of which {most}",
    )


def main() -> None:
    """What was asked for, each panel in a process that has compiled nothing yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("meant", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--of", type=int, default=65_536, help="the most subjects that are fitted")
    told = parser.parse_args()
    if len(told.meant) > 1:
        for meant in told.meant:
            command = [sys.executable, __file__, str(meant), "--of", str(told.of)]
            subprocess.run(command, check=False)
        return
    warnings.simplefilter("ignore")
    try:
        found = topologies.get_topology_desc("", "cuda", target_config=TARGET, topology="1x1x1")
    except NotImplementedError:
        sys.exit('JAX has no compiler for GPUs here: pip install "jax[cuda13]"')
    device, (meant,) = found.devices[0], told.meant
    gpu.say(f"--- {device.device_kind}, {os.cpu_count()} cores here, JAX {jax.__version__}")
    seen_through(meant, min(meant, told.of), device)


if __name__ == "__main__":
    main()
