"""The one place where double precision is entered."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

from avem.numerics.forks import refuse_forked

P = ParamSpec("P")
R = TypeVar("R")


def in_float64(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, run with JAX in double precision whatever the user's own setting is.

    JAX's setting is thread-local: a function handed to a worker thread must be wrapped itself.
    """

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_forked()
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped
