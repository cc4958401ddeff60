"""`jax.jit` as avem uses it: on functions that are called from Python, quick to compile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import jax

_KNOWN = ("0.8.", "0.9.", "0.10.")
"""Of jaxlib, which have the options below: one that an XLA does not know is an error."""
_QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
"""They halve the time of the compiler, and its code is as fast."""


def jit(*static: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for every choice of its arguments named `static`.

    It cannot be called from within another compiled one.
    """
    options = _QUICK if version("jaxlib").startswith(_KNOWN) else None

    return partial(jax.jit, static_argnames=static, compiler_options=options)
