"""Forward and backward pass of hidden Markov chains, a block of lanes per program.

The recursions of `kernels/forward_backward.py`, whose scans are the definition: every lane is one
thread, a step's numbers are vectors over the lanes of a block, and the loop over time is inside the
kernel. Filtered probabilities go to memory and come back; densities are computed twice, which is
cheaper than keeping them. Where densities come from and what becomes of the state probabilities is
for `BlockRows` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl

from avem.numerics.devices import platform

_BLOCK = 64
"""Lanes of a program."""

Vectors = Sequence[Array]


class BlockRows(Protocol):
    """The data of a block of lanes."""

    def densities(self, t: Any) -> Vectors:
        """Log densities of step t in every state."""
        ...

    def nothing(self) -> Any:
        """What `take` begins with."""
        ...

    def take(self, t: Any, chance: Vectors, so_far: Any) -> Any:
        """State probabilities of step t, the last step first."""
        ...

    def finish(self, so_far: Any) -> None:
        """After all steps."""
        ...


class Chain(NamedTuple):
    """References to what describes the chains, and to where their results go."""

    initial: Any
    transition: Any
    """(1 or time, state, state, 1 or lane)."""
    valid: Any
    cell: Any
    loglik: Any
    pair: Any
    filtered: Any


def run(chain: Chain, rows: BlockRows, n_cells: int) -> None:
    """Both passes of the lanes of a block."""
    n_times, n_states, _ = chain.filtered.shape
    states = range(n_states)
    zero = jnp.zeros(chain.valid.shape[-1:], chain.loglik.dtype)
    varies = chain.transition.shape[0] > 1

    def read_moves(t: Any) -> list[list[Array]]:
        return [[zero + chain.transition[t, k, m, :] for m in states] for k in states]

    fixed = None if varies else read_moves(0)

    def moves(t: Any) -> list[list[Array]]:
        """Of the step into t; of any, where that is too late."""
        return read_moves(jnp.minimum(t, n_times - 1)) if fixed is None else fixed

    def emission(t: Any) -> tuple[Array, list[Array]]:
        log = rows.densities(t)
        top = reduce(jnp.maximum, log)
        return top, [jnp.exp(own - top) for own in log]

    def forward(t: Any, carry: Any) -> Any:
        predicted, total = carry
        valid = chain.valid[t, :] != 0
        top, dense = emission(t)
        joint = [predicted[k] * dense[k] for k in states]
        norm = _sum(joint)
        over = 1.0 / norm
        here = [one * over for one in joint]
        for k in states:
            chain.filtered[t, k, :] = here[k]
        step = moves(t + 1)
        ahead = [_sum([here[k] * step[k][m] for k in states]) for m in states]
        predicted = tuple(jnp.where(valid, ahead[m], predicted[m]) for m in states)
        return predicted, total + jnp.where(valid, top + jnp.log(norm), 0.0)

    start = tuple(zero + chain.initial[k, :] for k in states)
    _, loglik = lax.fori_loop(0, n_times, forward, (start, zero))

    # With the same moves in every step, these are multiplied in at the end.
    simple = not varies and n_cells == 1

    def backward(i: Any, carry: Any) -> Any:
        beta, pairs, taken = carry
        t = n_times - 1 - i
        after = jnp.minimum(t + 1, n_times - 1)
        goes_on = (chain.valid[after, :] != 0) & (i > 0)
        here = [chain.filtered[t, k, :] for k in states]
        step = moves(t + 1)
        _, dense = emission(after)
        ahead = [dense[m] * beta[m] for m in states]
        back = [_sum([step[k][m] * ahead[m] for m in states]) for k in states]
        over = 1.0 / _sum([here[k] * back[k] for k in states])
        moved = [
            jnp.where(goes_on, here[k] * (ahead[m] * over) * (1.0 if simple else step[k][m]), 0.0)
            for k in states
            for m in states
        ]
        pairs = _add(chain, pairs, moved, t, after, n_cells)
        beta = tuple(jnp.where(goes_on, back[k] * over, 1.0) for k in states)
        valid = chain.valid[t, :] != 0
        chance = [jnp.where(valid, here[k] * beta[k], 0.0) for k in states]
        return beta, pairs, rows.take(t, chance, taken)

    one = zero + 1.0
    sums = (zero,) * (max(n_cells, 1) * n_states**2)
    begin = ((one,) * n_states, sums, rows.nothing())
    _, pairs, taken = lax.fori_loop(0, n_times, backward, begin)
    rows.finish(taken)
    total = _sum(pairs)
    if n_cells:
        for number, pair in enumerate(pairs):
            cell, k, m = number // n_states**2, number // n_states % n_states, number % n_states
            chain.pair[cell, k, m, :] = pair * fixed[k][m] if simple and fixed else pair
    # The backward pass can overflow where the forward one does not: one flag for both.
    chain.loglik[:] = jnp.where(total - total == 0.0, loglik, jnp.nan)


def _add(
    chain: Chain, pairs: Vectors, moved: Vectors, t: Any, after: Any, n_cells: int
) -> tuple[Array, ...]:
    """The pairs of the step into `after` go to its cell, or are stored one by one."""
    n_pairs, n_states = len(moved), chain.filtered.shape[1]
    if not n_cells:
        # The last step has none after it: what it would store is what the first one has, nothing.
        place = lax.rem(t + 1, chain.filtered.shape[0])
        for number, one in enumerate(moved):
            chain.pair[place, number // n_states, number % n_states, :] = one
        return tuple(a + b for a, b in zip(pairs, moved, strict=True))
    if chain.cell is None:
        return tuple(a + b for a, b in zip(pairs, moved, strict=True))
    cell = chain.cell[after, :]
    return tuple(
        total + jnp.where(cell == number // n_pairs, moved[number % n_pairs], 0.0)
        for number, total in enumerate(pairs)
    )


def _sum(parts: Vectors) -> Array:
    return reduce(jnp.add, parts)


class Arguments(NamedTuple):
    """Arrays that a kernel reads, by name; None where there is none."""

    arrays: dict[str, Any]

    def call(
        self, kernel: Callable[..., None], results: dict[str, tuple[int, ...]], n: int, dtype: Any
    ) -> dict[str, Array]:
        """Run `kernel` of references by name; lanes are the last axis of all that has `n` of them.

        Lanes are added until they fill whole blocks.
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
            out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape in shapes.values()],
            **_options(),
        )(*given.values())
        cut = (value[..., :n] if n < size else value for value in found)
        return dict(zip(names[n_given:], cut, strict=True))


def _padded(value: Any, n: int, size: int) -> Array:
    value = jnp.asarray(value)
    if value.dtype == bool:
        value = value.astype(jnp.int8)
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
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=2, num_stages=2)}
