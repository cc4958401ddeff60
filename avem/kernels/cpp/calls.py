"""The kernels in C++ as engines: the arguments of a definition, as XLA hands them over.

Each function here is named after its kernel and its source, ``<kernel>.cc``. What `_compiled`
makes of it builds the source and returns the call, or None where it cannot be built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.kernels.cpp.build import find
from avem.kernels.forward import ByCell, cells_of

if TYPE_CHECKING:
    from avem.kernels.forward_backward import Steps
    from avem.kernels.gaussian_chain import Records, Squares
    from avem.kernels.kalman_filter import Problem
    from avem.kernels.kalman_moments import Shape
    from avem.kernels.rates import Pairs
    from avem.kernels.semi_markov import Stays


def _compiled(*constants: str) -> Callable[..., Any]:
    """Makes an engine of a call; the sizes named by `constants` are known to the C++ compiler."""

    def decorate(call: Callable[..., tuple[Array, ...]]) -> Callable[..., Any]:
        def make(**sizes: int) -> Callable[..., tuple[Array, ...]] | None:
            known = {name.upper(): sizes[name] for name in constants}
            target = find(call.__name__, **known)
            return None if target is None else partial(call, partial(_call, target))

        return make

    return decorate


def _call(
    target: str, shapes: Sequence[tuple[int, ...]], dtype: Any, *arguments: Any
) -> tuple[Array, ...]:
    """Results of the given shapes. An argument that a vmap leaves alone is not repeated for it."""
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return tuple(jax.ffi.ffi_call(target, results, vmap_method="expand_dims")(*arguments))


@_compiled("states")
def forward_backward(
    call: Any, initial: Array, transition: Array, table: Array, valid: Array, steps: Steps
) -> tuple[Array, ...]:
    """Log likelihood, state and pair probabilities."""
    chain, pair = _chain(initial, transition, valid, steps, table.dtype)
    shapes = [valid.shape[1:], table.shape, pair]
    return call(shapes, table.dtype, *chain, table)


@_compiled("states", "outcomes")
def gaussian_chain(
    call: Any, initial: Array, transition: Array, squares: Squares, rows: Records, steps: Steps
) -> tuple[Array, ...]:
    """Log likelihood, first states, pairs and sums of products."""
    lists, coef, constant, weight = squares
    chain, pair = _chain(initial, transition, rows.valid, steps, coef.dtype)
    n_states, n_lanes = pair[1], rows.valid.shape[-1]
    shapes = [(n_lanes,), (n_states, n_lanes), pair, (n_states, len(lists.features), n_lanes)]
    data = (rows.a, rows.y, rows.seen)
    numbers = (coef, constant, weight, *lists.arrays())
    return call(shapes, coef.dtype, *chain, *data, *numbers)


def _chain(
    initial: Array, transition: Array | ByCell, valid: Array, steps: Steps, dtype: Any
) -> tuple[tuple[Array, ...], tuple[int, ...]]:
    """First states, transitions, which is whose, valid steps, cells; and the shape of pairs."""
    n_times, n_lanes = valid.shape
    chance, index = cells_of(transition)
    initial, transition = (jnp.asarray(x, dtype) for x in (initial, chance))
    n_states = len(initial)
    if transition.ndim == 2:
        transition = transition[..., None]
    nothing = jnp.zeros((0, n_lanes), jnp.int32)
    which, cell = (nothing if x is None else x.astype(jnp.int32) for x in (index, steps.cell))
    arrays = (
        initial if initial.ndim == 2 else initial[:, None],
        transition if transition.ndim == 4 else transition[None],
        which,
        valid,
        cell,
    )
    n_apart = 1 if steps.together else n_lanes
    return arrays, (steps.n_cells or n_times, n_states, n_states, n_apart)


@_compiled()
def semi_markov(
    call: Any, initial: Array, transition: Array, stays: Stays, table: Array, valid: Array
) -> tuple[Array, ...]:
    """Log likelihood, states, moves, and what stays did; all rows are of one cell."""
    dtype = table.dtype
    initial, transition = (jnp.asarray(x, dtype) for x in (initial, transition))
    initial = initial if initial.ndim == 2 else initial[:, None]
    transition = transition if transition.ndim == 3 else transition[..., None]
    n_states, n_lanes = table.shape[1:]
    counts = (len(stays.phase), n_states, n_lanes)
    shapes = [(n_lanes,), table.shape, (n_states, n_states, n_lanes), counts, counts, counts]
    cut = jnp.full(1, stays.cut, jnp.int32)
    chances = (jnp.asarray(x, dtype) for x in (stays.phase, stays.leave[0], stays.stay[0]))
    found = call(shapes, dtype, initial, transition, *chances, table, valid, cut)
    loglik, state, pair, phase, ended, stayed = found
    return loglik, state, pair[None], phase, ended[None], stayed[None]


@_compiled("states")
def rates(
    call: Any, rates: Array, pairs: Pairs, n_states: int, slopes: bool
) -> tuple[Array, Array]:
    """Chances after intervals, and their slopes."""
    own = np.array(pairs, np.int32).reshape(-1, 2)
    n = rates.shape[-1]
    shapes = [(n_states, n_states, n), (len(own) if slopes else 0, n_states, n_states, n)]
    return call(shapes, rates.dtype, rates, own)


@_compiled("states")
def kalman_moments(
    call: Any, shape: Shape, problem: Problem, w: Array, s: Array, seen: Array
) -> tuple[Array, ...]:
    """The fields of `Moments`, which are rows of one result."""
    q, p, n_groups, n = shape.n_latent, shape.n_outcomes, len(shape.groups), w.shape[-1]
    n_w, n_s = w.shape[1], s.shape[1]
    shapes: list[tuple[int, ...]] = [(), (q,), (q, q), (q, q), (q, q), (q, n_s), (q, n_s)]
    shapes += [(n_groups, q, q), (n_groups, q, n_w), (p, q), (p, n_w), (p,)]
    ends = np.cumsum([prod(shape) for shape in shapes])
    drive = jnp.zeros((0, q, n)) if problem.drive is None else problem.drive
    groups = shape.group_of.astype(np.int32)
    arguments = (*problem.system, problem.y, seen, problem.valid, drive, w, s, groups)
    (rows,) = call([(int(ends[-1]), n)], w.dtype, *arguments)
    parts = jnp.split(rows, ends[:-1], axis=0)
    return tuple(part.reshape(*shape, n) for part, shape in zip(parts, shapes, strict=True))


@_compiled()
def posterior(
    call: Any,
    prior: Array,
    prior_logdet: Array,
    curvature: Array,
    linear: Array,
    origin: Array | None,
) -> tuple[Array, ...]:
    """Mean, covariance, divergence and expected quadratic."""
    origin = jnp.zeros_like(linear) if origin is None else origin
    shapes = [linear.shape, curvature.shape, linear.shape[1:], linear.shape[1:]]
    arguments = (prior[..., 0], prior_logdet[0], curvature, linear, origin)
    return call(shapes, linear.dtype, *arguments)


@_compiled()
def inverse(call: Any, matrix: Array) -> tuple[Array, ...]:
    """Inverses and log determinants."""
    return call([matrix.shape, matrix.shape[2:]], matrix.dtype, matrix)
