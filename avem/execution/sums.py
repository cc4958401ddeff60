"""Sums over shards, added up by a tree in a fixed order.

The tree is that of the shards: neighbours in pairs, then pairs of pairs, and so on. Whoever has
some of the shards can add up those of its branches that it has whole. So the sum is the same to the
last bit, whoever adds up which part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Branches = dict[tuple[int, int], Any]
"""(level, number): the sum over the shards number * 2^level to before (number + 1) * 2^level."""


def add_up(parts: Sequence[Any]) -> Any:
    """The sum of all shards' arrays, as NumPy."""
    if len(parts) == 1:
        return jax.tree.map(np.asarray, parts[0])
    return jax.tree.map(lambda *each: _whole(np.stack(each)), *parts)


@jax.jit
def added_there(parts: Sequence[Any]) -> Any:
    """What `add_up` gives, of arrays that are on one device and stay there."""
    return jax.tree.map(lambda *each: _whole(jnp.stack(each)), *parts)


def _whole(values: Any) -> Any:
    """The sum over the first axis: what `total` gives of all branches, a level at a time."""
    single = []
    while len(values) > 1:
        if len(values) % 2:
            single.append(values[-1])
            values = values[:-1]
        values = values[0::2] + values[1::2]
    found = values[0]
    for branch in reversed(single):
        found = found + branch
    return found


def branches(places: Sequence[int], parts: Sequence[Any]) -> Branches:
    """The largest branches of which all shards are here; `places` are those of the parts."""
    return joined([{(0, int(place)): part for place, part in zip(places, parts, strict=True)}])


def joined(some: Iterable[Branches]) -> Branches:
    """Branches of several places, as far as possible in one."""
    waiting = {key: value for part in some for key, value in part.items()}
    found: Branches = {}
    level = 0
    while waiting:
        for at, number in sorted(key for key in waiting if key[0] == level):
            if (at, number) not in waiting:
                continue  # it was the other one of a pair
            here, other = waiting.pop((at, number)), waiting.pop((at, number ^ 1), None)
            if other is None:
                found[at, number] = here
            else:  # in order: the one with the lower number comes first
                waiting[at + 1, number >> 1] = jax.tree.map(np.add, here, other)
        level += 1
    return found


def total(found: Branches) -> Any:
    """The sum, of the branches of all shards."""
    first, *others = [found[key] for key in sorted(found, key=lambda key: (-key[0], key[1]))]
    for other in others:
        first = jax.tree.map(np.add, first, other)
    return jax.tree.map(np.asarray, first)
