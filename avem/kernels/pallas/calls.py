"""The Pallas kernels as engines: the arguments of a definition, as a kernel reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import Array, lax

from avem.kernels import associative
from avem.kernels.forward import ByCell, rows_of
from avem.kernels.forward_backward import Steps
from avem.kernels.pallas.blocks import Arguments
from avem.kernels.pallas.chain import Chain, run
from avem.kernels.pallas.kalman import States, write
from avem.kernels.pallas.kalman import run as run_states
from avem.kernels.pallas.rows import GaussianRows, TableRows
from avem.kernels.pallas.viterbi import Chains
from avem.kernels.pallas.viterbi import run as run_paths

if TYPE_CHECKING:
    from avem.kernels.gaussian_chain import Records, Squares
    from avem.kernels.kalman_filter import Problem
    from avem.kernels.kalman_moments import Shape

_MOST_SUMS = 160
"""Vectors that a kernel adds to; more do not stay in registers, and are long to compile."""


def forward_backward(states: int, cells: int = 1, **sizes: int):
    """The engine of `forward_backward`, or None where it would have too many sums."""
    return None if cells * states**2 > _MOST_SUMS else _forward_backward


def gaussian_chain(states: int, features: int, cells: int = 1, **sizes: int):
    """The engine of `gaussian_chain`; None: too many sums, or a table is faster."""
    too_many = states * features + cells * states**2 > _MOST_SUMS
    return None if too_many or associative.pays(**sizes) else _gaussian_chain


def _forward_backward(
    initial: Array, transition: Array, table: Array, valid: Array, steps: Steps
) -> tuple[Array, ...]:
    """Log likelihood, state and pair probabilities."""
    n_times, n_states, n = table.shape
    arrays = {**_chain(initial, transition, valid, steps, table.dtype), "table": table}
    results = {**_results(n_times, n_states, steps), "state": (n_times, n_states)}

    def kernel(table, state, **refs: Any) -> None:
        run(Chain(**refs), TableRows(table, state), steps.n_cells)

    found = Arguments(arrays).call(kernel, results, n, table.dtype)
    return found["loglik"], found["state"], found["pair"]


def _gaussian_chain(
    initial: Array, transition: Array, squares: Squares, rows: Records, steps: Steps
) -> tuple[Array, ...]:
    """Log likelihood, first state, pairs, and sums of products."""
    (n_times, n), (n_states, n_outcomes, n_columns, _) = rows.valid.shape, squares.coef.shape
    dtype, lists = squares.coef.dtype, squares.lists
    n_features = len(lists.features)
    arrays = {
        **_chain(initial, transition, rows.valid, steps, dtype),
        "a": rows.a,
        "y": rows.y,
        "seen": rows.seen,
        "coef": squares.coef.reshape(n_states * n_outcomes * n_columns, -1),
        "constant": squares.constant[..., None],
        "weight": squares.weight[..., None],
    }
    results = _results(n_times, n_states, steps)
    results |= {"first": (n_states,), "sums": (n_states, n_features)}

    def kernel(a, y, seen, coef, constant, weight, first, sums, **refs: Any) -> None:
        own = GaussianRows(lists, a, y, seen, coef, constant, weight, first, sums)
        run(Chain(**refs), own, steps.n_cells)

    found = Arguments(arrays).call(kernel, results, n, dtype)
    return found["loglik"], found["first"], found["pair"], found["sums"]


def _chain(
    initial: Array, transition: Array | ByCell, valid: Array, steps: Steps, dtype: Any
) -> dict[str, Any]:
    initial, transition = (jnp.asarray(x, dtype) for x in (initial, rows_of(transition)))
    if transition.ndim == 2:
        transition = transition[..., None]
    cell = None if steps.cell is None or not steps.n_cells else steps.cell.astype(jnp.int32)
    return {
        "initial": initial if initial.ndim == 2 else initial[:, None],
        "transition": transition if transition.ndim == 4 else transition[None],
        "valid": valid,
        "cell": cell,
    }


def _results(n_times: int, n_states: int, steps: Steps) -> dict[str, tuple[int, ...]]:
    pair = (steps.n_cells or n_times, n_states, n_states)
    return {"loglik": (), "pair": pair, "filtered": (n_times, n_states)}


def kalman_moments(states: int, outcomes: int, groups: int, **sizes: int):
    """The engine of `kalman_moments`, or None where it would have too many sums."""
    n_sums = (3 + groups) * states**2 + outcomes * (states + 1)
    return None if n_sums > _MOST_SUMS else _kalman_moments


def _kalman_moments(
    shape: Shape, problem: Problem, w: Array, s: Array, seen: Array
) -> tuple[Array, ...]:
    """The fields of `Moments`."""
    n_times, n, dtype = len(w), w.shape[-1], w.dtype
    q, p, n_groups = shape.n_latent, shape.n_outcomes, len(shape.groups)
    n_w, n_s = w.shape[1], s.shape[1]
    arrays = {
        **problem.system._asdict(),
        "y": problem.y,
        "seen": seen.astype(jnp.int8),
        "valid": problem.valid.astype(jnp.int8),
        "drive": problem.drive,
        "w": w if n_w else None,
        "s": s if n_s else None,
    }
    shapes = {
        "mean": (q, 1),
        "cov": (q, q),
        "xx": (q, q),
        "ex": (q, q),
        "xs": (q, n_s),
        "es": (q, n_s),
        "seen_xx": (n_groups, q, q),
        "seen_xw": (n_groups, q, n_w),
        "seen_ex": (p, q),
        "seen_ew": (p, n_w),
        "seen_ee": (p, 1),
    }
    used = {name: own for name, own in shapes.items() if 0 not in own}

    def kernel(**refs: Any) -> None:
        results = {name: refs.pop(name) for name in used}
        write(run_states(shape, States(**refs)), results)

    own = {"loglik": (), "known": (n_times, q + q * (q + 1) // 2)}
    found = Arguments(arrays).call(kernel, {**own, **used}, n, dtype)
    parts = [found.get(name, jnp.zeros((*own, n), dtype)) for name, own in shapes.items()]
    parts[0], parts[-1] = parts[0][:, 0], parts[-1][:, 0]
    return found["loglik"], *parts


def viterbi(states: int, **sizes: int):
    """The engine of `viterbi`."""
    return _viterbi


def _viterbi(initial: Array, transition: Array, table: Array, valid: Array) -> tuple[Array, Array]:
    """Paths, and how probable they are."""
    n_times, n_states, n = table.shape
    chain = _chain(initial, transition, valid, Steps(), table.dtype)
    arrays = {
        "initial": jnp.log(chain["initial"]),
        "transition": jnp.log(chain["transition"]),
        "table": table,
        "valid": chain["valid"].astype(jnp.int8),
    }
    results = {"height": (), "path": (n_times,), "came_from": (n_times, n_states)}

    def kernel(**refs: Any) -> None:
        run_paths(Chains(**refs))

    counts = {"path": jnp.int32, "came_from": jnp.int32}
    found = Arguments(arrays).call(kernel, results, n, table.dtype, **counts)
    return found["path"].astype(int), found["height"]


def inverse(rows: int, **sizes: int):
    """The engine of `inverse`."""
    return _inverse


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """Inverses and log determinants, by exchanging one row and column after the other.

    Loops stay loops: written out entry by entry, 11 rows take a quarter of a minute to compile.
    """
    d, _, n = matrix.shape

    def kernel(matrix: Any, inverse: Any, logdet: Any) -> None:
        def copy(i: Any, _: None) -> None:
            for j in range(d):
                inverse[i, j, :] = matrix[i, j, :]

        def exchange(k: Any, total: Array) -> Array:
            pivot = inverse[k, k, :]
            pivot = jnp.where(pivot > 0.0, pivot, jnp.nan)
            over = 1.0 / pivot
            own = [jnp.where(j == k, 1.0, inverse[k, j, :]) * over for j in range(d)]

            def row(i: Any, _: None) -> None:
                here, other = i == k, inverse[i, k, :]
                for j in range(d):
                    rest = jnp.where(j == k, 0.0, inverse[i, j, :]) - other * own[j]
                    inverse[i, j, :] = jnp.where(here, own[j], rest)

            lax.fori_loop(0, d, row, None)
            return total + jnp.log(pivot)

        lax.fori_loop(0, d, copy, None)
        logdet[:] = lax.fori_loop(0, d, exchange, jnp.zeros(logdet.shape, logdet.dtype))

    results = {"inverse": (d, d), "logdet": ()}
    found = Arguments({"matrix": matrix}).call(kernel, results, n, matrix.dtype)
    return found["inverse"], found["logdet"]
