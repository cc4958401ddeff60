"""The one place that chooses how a hot function runs.

A hot function (a *kernel*) is a module of this folder. Its `definition` is plain JAX and runs
anywhere; its public function asks `engine` for something faster. An engine is one line in
`ENGINES`: the kernel it stands in for, what makes it, and the limits under which it serves. It
takes the arguments of the definition and returns its arrays in the same order, under `jax.vmap` as
well, but has no derivatives: message passing is never differentiated.

With ``AVEM_NATIVE=0`` in the environment the definitions run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from avem.kernels.cpp import calls as cpp
from avem.numerics.devices import platform


@dataclass(frozen=True)
class Engine:
    """A faster way to what a kernel's definition computes, and where it serves."""

    kernel: str
    make: Callable[..., Callable[..., tuple[Any, ...]] | None]
    """From the sizes, as keywords, to the function; None where this machine cannot have it."""
    backend: str = "cpu"
    dtypes: tuple[str, ...] = ("float64",)
    at_least: Mapping[str, int] = field(default_factory=dict)
    """The smallest sizes it serves, by name; those that are not told are 0."""
    at_most: Mapping[str, int] = field(default_factory=dict)

    def serves(self, dtype: Any, sizes: Mapping[str, int]) -> bool:
        """Whether it is meant for such numbers on the backend in use."""
        return (
            self.backend == platform()
            and jnp.dtype(dtype).name in self.dtypes
            and all(sizes.get(name, 0) >= least for name, least in self.at_least.items())
            and all(sizes.get(name, 0) <= most for name, most in self.at_most.items())
        )


def _associative(**sizes: int) -> Any:
    from avem.kernels import associative

    return associative.forward_backward(**sizes)


def _pallas(kernel: str) -> Callable[..., Any]:
    """An engine of `kernels/pallas`, which takes a while to import."""

    def make(**sizes: int) -> Any:
        try:
            from avem.kernels.pallas import calls
        except ImportError:  # a JAX whose Pallas has no backend for Triton
            return None
        return getattr(calls, kernel)(**sizes)

    return make


_ON_GPU = {"states": 8, "together": 0}

ENGINES: tuple[Engine, ...] = (
    # The C++ is unrolled over the states: with more of them it is long to compile.
    Engine("forward_backward", cpp.forward_backward, at_most={"states": 8}),
    Engine("gaussian_chain", cpp.gaussian_chain, at_most={"states": 8, "outcomes": 4}),
    Engine("rates", cpp.rates, at_most={"states": 8}),
    # Chances of stays that change over time are for the definition.
    Engine("semi_markov", cpp.semi_markov, at_least={"cells": 1}, at_most={"cells": 1}),
    Engine("kalman_moments", cpp.kalman_moments, at_most={"states": 6}),
    # The definitions write smaller matrices out entry by entry, which is as fast.
    Engine("posterior", cpp.posterior, at_least={"rows": 7}),
    Engine("inverse", cpp.inverse, at_least={"rows": 7}),
    Engine("forward_backward", _associative, "gpu", at_most=_ON_GPU),
    Engine("forward_backward", _pallas("forward_backward"), "gpu", at_most=_ON_GPU),
    Engine("gaussian_chain", _pallas("gaussian_chain"), "gpu", at_most=_ON_GPU),
    # With four states it takes most of a minute to compile.
    Engine("kalman_moments", _pallas("kalman_moments"), "gpu", at_most={"states": 3}),
    Engine("viterbi", _pallas("viterbi"), "gpu", at_most={"states": 8}),
    Engine("inverse", _pallas("inverse"), "gpu", at_least={"rows": 7}, at_most={"rows": 32}),
)
"""Of several that serve, the first that can be made runs."""


def engine(kernel: str, dtype: Any, **sizes: int) -> Callable[..., tuple[Any, ...]] | None:
    """What runs in place of a kernel's definition, or None: then the definition runs.

    Parameters
    ----------
    kernel
        The name of its module.
    dtype
        Of its arrays.
    **sizes
        What the limits of engines may speak of, such as ``states`` or ``lanes``.

    Returns
    -------
    callable or None
        Takes the definition's arguments; returns a tuple of arrays.
    """
    if os.environ.get("AVEM_NATIVE") == "0":
        return None
    for candidate in ENGINES:
        if candidate.kernel == kernel and candidate.serves(dtype, sizes):
            made = candidate.make(**sizes)
            if made is not None:
                return made
    return None
