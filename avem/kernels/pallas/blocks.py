"""Arrays of many lanes to Pallas kernels that see a block of lanes at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from avem.numerics.devices import platform

_BLOCK = 64
"""Lanes of a program."""


class Arguments(NamedTuple):
    """Arrays that a kernel reads, by name; None where there is none."""

    arrays: dict[str, Any]

    def call(
        self,
        kernel: Callable[..., None],
        results: dict[str, tuple[int, ...]],
        n: int,
        dtype: Any,
        **dtypes: Any,
    ) -> dict[str, Array]:
        """Run `kernel` of references by name; lanes are the last axis of all that has `n` of them.

        Lanes are added until they fill whole blocks. Results are of `dtype`, or of their own.
        """
        block = _BLOCK
        size = -(-n // block) * block
        given = {name: value for name, value in self.arrays.items() if value is not None}
        given = {name: _padded(value, n, size) for name, value in given.items()}
        shapes = {name: (*shape, size) for name, shape in results.items()}
        names, n_given = [*given, *shapes], len(given)

        def body(*refs: Any) -> None:
            kernel(**{**dict.fromkeys(self.arrays), **dict(zip(names, refs, strict=True))})

        found = pl.pallas_call(
            body,
            grid=(size // block,),
            in_specs=[_spec(value.shape, size, block) for value in given.values()],
            out_specs=[_spec(shape, size, block) for shape in shapes.values()],
            out_shape=[
                jax.ShapeDtypeStruct(shape, dtypes.get(name, dtype))
                for name, shape in shapes.items()
            ],
            **_options(),
        )(*given.values())
        cut = (value[..., :n] if n < size else value for value in found)
        return dict(zip(names[n_given:], cut, strict=True))


def _padded(value: Any, n: int, size: int) -> Array:
    value = jnp.asarray(value)
    if value.shape[-1] != n or n == size:
        return value
    # The last lane again: it has possible values.
    return jnp.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, size - n)], mode="edge")


def _spec(shape: tuple[int, ...], size: int, block: int) -> pl.BlockSpec:
    zeros = (0,) * (len(shape) - 1)
    if shape[-1] != size:
        return pl.BlockSpec(shape, lambda i: (*zeros, 0))
    return pl.BlockSpec((*shape[:-1], block), lambda i: (*zeros, i))


def _options() -> dict[str, Any]:
    if platform() != "gpu":  # as the tests do
        return {"interpret": True}
    return {"compiler_params": triton.CompilerParams(num_warps=2, num_stages=2)}
