"""`jax.jit` as avem uses it: on functions that are called from Python, quick to compile."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial, wraps
from importlib.metadata import version
from typing import Any

import jax

from avem.numerics.devices import platform

_KNOWN = ("0.8.", "0.9.", "0.10.")
"""Of jaxlib, which have the options below: one that an XLA does not know is an error."""
_QUICK = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_backend_optimization_level": 1,
}
"""They take more than half off the time of the compiler, and its code is as fast."""
_KNOWN_TO_GPUS = (*_KNOWN, "0.11.", "0.12.")
_QUICK_ON_GPU = {"xla_gpu_force_compilation_parallelism": min(16, os.cpu_count() or 1)}
_SMALL_ON_GPU = {"xla_gpu_autotune_level": 0, **_QUICK_ON_GPU}
"""For little work, which has no large products of matrices. Both take a tenth off it."""


def _allowed(options: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any] | None:
    """Those that the user's own XLA_FLAGS do not decide."""
    if not version("jaxlib").startswith(known):
        return None
    decided = re.findall(r"--(\w+)", os.environ.get("XLA_FLAGS", ""))
    return {name: value for name, value in options.items() if name not in decided}


_ON_CPU, _ON_GPU = _allowed(_QUICK, _KNOWN), _allowed(_QUICK_ON_GPU, _KNOWN_TO_GPUS)
SMALL_ON_GPU = _allowed(_SMALL_ON_GPU, _KNOWN_TO_GPUS)


def jit(*static: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for every choice of its arguments named `static`.

    It cannot be called from within another compiled one.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        # Engines are chosen while a function is traced: one trace for each platform.
        quick: Any = jax.jit(function, static_argnames=static, compiler_options=_ON_CPU)
        elsewhere: Any = jax.jit(
            partial(function), static_argnames=static, compiler_options=_ON_GPU
        )

        @wraps(function)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            return (quick if platform() == "cpu" else elsewhere)(*args, **kwargs)

        own = vars(compiled)
        own["n_compiled"] = lambda: quick._cache_size() + elsewhere._cache_size()
        own["clear_cache"] = lambda: (quick.clear_cache(), elsewhere.clear_cache())
        return compiled

    return decorate
