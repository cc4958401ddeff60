"""Little work on every subject: in NumPy on a processor, compiled on a GPU.

Such a function takes the library of array functions first, `numpy` or `jax.numpy`. NumPy starts at
once and compiles nothing. On a GPU the arrays stay where they are, and one program does what would
be dozens of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from avem.numerics import devices
from avem.numerics.jit import SMALL_ON_GPU

_SMALL = 1 << 16
"""Entries of an array that is fetched with others."""


def in_numpy() -> bool:
    """Whether subjects' values are NumPy's here."""
    return devices.platform() == "cpu"


def per_subject(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function of arrays its library, and compile it on a GPU.

    Its arguments, after the library, are arrays or tuples of them.
    """
    compiled: Any = jax.jit(partial(function, jnp), compiler_options=SMALL_ON_GPU)

    @wraps(function)
    def call(*args: Any) -> Any:
        if not in_numpy():
            within = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args))
            return function(jnp, *args) if within else compiled(*args)
        with np.errstate(all="ignore"):  # what is not finite is seen in the likelihood
            return function(np, *jax.tree.map(np.asarray, args))

    return call


def placed(values: dict[str, np.ndarray]) -> dict[str, Any]:
    """Numbers of the driver's, sent together to where they are read again and again."""
    if in_numpy() or not values:
        return values
    shapes = tuple((key, value.shape) for key, value in values.items())
    return _unpacked(shapes, np.concatenate([np.ravel(value) for value in values.values()]))


@partial(jax.jit, static_argnums=0)
def _unpacked(shapes: tuple[tuple[str, tuple[int, ...]], ...], values: Any) -> dict[str, Any]:
    ends = np.cumsum([int(np.prod(shape)) for _, shape in shapes])
    parts = jnp.split(values, ends[:-1])
    return {key: part.reshape(shape) for (key, shape), part in zip(shapes, parts, strict=True)}


def stay(values: Any) -> Any:
    """Results of compiled code, as NumPy's on a processor; on a GPU as they are."""
    return fetched(values) if in_numpy() else values


def fetched(values: Any) -> Any:
    """Arrays as NumPy's, those of a GPU together: each transfer takes a tenth of a millisecond."""
    if in_numpy():
        return jax.tree.map(np.asarray, values)
    leaves, tree = jax.tree.flatten(values)
    far: dict[Any, list[int]] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, jax.Array) and leaf.size <= _SMALL:
            far.setdefault(devices.of(leaf), []).append(i)
    several = [own for device, own in far.items() if device.platform != "cpu" and len(own) > 2]
    packed = [_packed(tuple(leaves[i] for i in own)) for own in several]
    for own, values in zip(several, packed, strict=True):
        ends = np.cumsum([leaves[i].size for i in own])
        for i, part in zip(own, np.split(np.asarray(values), ends[:-1]), strict=True):
            leaves[i] = part.reshape(leaves[i].shape).astype(leaves[i].dtype)
    return jax.tree.unflatten(tree, [np.asarray(leaf) for leaf in leaves])


@jax.jit
def _packed(leaves: tuple[Any, ...]) -> Any:
    """One after the other; numbers that are counted are small enough to be exact."""
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float64) for leaf in leaves])


def with_entries(array: Any, where: Any, values: Any) -> Any:
    """The array with other values at an index; compiled code leaves out what lies beyond it."""
    if not in_numpy():
        return jnp.asarray(array).at[where].set(values, mode="drop")
    out = np.array(array)
    out[where] = values
    return out


def in_turn(xp: Any, times: int, step: Callable[[Any, Any], Any], start: Any) -> Any:
    """``step(number, so_far)`` for every number; compiled once, however many there are."""
    if xp is not np:
        return lax.fori_loop(0, times, step, start)
    for number in range(times):
        start = step(number, start)
    return start


@per_subject
def stacked(xp: Any, parts: tuple[Any, ...]) -> Any:
    """Arrays of one shape along a new first axis."""
    return xp.stack(parts)


@per_subject
def less(xp: Any, values: Any, shift: Any) -> Any:
    """Effects (..., d, subject), from all of which a shift (d,) is taken."""
    return values - shift[:, None]


@per_subject
def unstacked(xp: Any, array: Any) -> tuple[Any, ...]:
    """The inverse of `stacked`."""
    return tuple(array[i] for i in range(len(array)))


@per_subject
def first_ones(xp: Any, parts: tuple[Any, ...], slots: Any) -> tuple[Any, ...]:
    """Of each array, as many entries of the first axis as there are slots."""
    return tuple(part[: len(slots)] for part in parts)


def places(members: np.ndarray, size: int) -> np.ndarray:
    """Where `with_entries` puts so many values, of which the first are those of members.

    Compiled code serves all numbers of members of one size: the others go nowhere.
    """
    if in_numpy():
        return members
    nowhere = np.full(size - len(members), np.iinfo(np.int32).max)
    return np.concatenate([members, nowhere]).astype(np.int32)


@per_subject
def taken(xp: Any, parts: tuple[Any, ...], which: Any) -> tuple[Any, ...]:
    """Of each array, the subjects `which`."""
    return tuple(part[..., which] for part in parts)


def log_sum(xp: Any, values: Any) -> Any:
    """log of the sum of exponentials over the first axis."""
    top = values.max(0)
    top = xp.where(xp.isfinite(top), top, 0.0)
    return top + xp.log(xp.exp(values - top).sum(0))
