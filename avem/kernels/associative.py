"""Forward-backward over few long chains, all of their steps at once.

A step is the matrix M_t[k, l] = p(U_t = l | U_{t-1} = k) p(y_t | U_t = l), and what is known of a
chain up to a step, and after it, are products of such matrices, which an associative scan makes in
about log2(T) rounds. That is more work than two passes, but a GPU has enough threads for it.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from avem.kernels.forward import ByCell, rows_of
from avem.kernels.forward_backward import Steps

_LONG, _FEW = 2_000, 1_024
"""Steps from which on it pays, for so many chains at most."""


def pays(times: int = 0, lanes: int = _FEW + 1, **sizes: int) -> bool:
    """Whether a GPU is faster this way."""
    return times >= _LONG and lanes <= _FEW


def forward_backward(**sizes: int) -> Any:
    """The engine of `forward_backward`, or None where two passes are faster."""
    return run if pays(**sizes) else None


def run(
    initial: Array, transition: Array | ByCell, table: Array, valid: Array, steps: Steps
) -> tuple[Array, Array, Array]:
    """Log likelihood, state and pair probabilities."""
    n_times, n_states, n = table.shape
    both = (initial, rows_of(transition))
    initial, transition = (jnp.asarray(x, table.dtype) for x in both)
    moves = transition[..., None] if transition.ndim == 2 else transition
    moves = jnp.broadcast_to(moves, (n_times, n_states, n_states, n))
    entry = initial if initial.ndim == 2 else initial[:, None]
    exists, top = valid[:, None, None], table.max(1)
    dense = jnp.exp(table - top[:, None])
    # The first matrix has the same row for whatever there was before.
    enter = jnp.broadcast_to(entry[None], (n_states, n_states, n))
    matrices = moves.at[0].set(enter) * dense[:, None]
    matrices = jnp.where(exists, matrices, jnp.eye(n_states)[:, :, None])
    logs = jnp.where(valid, top, 0.0)

    before, height = lax.associative_scan(_product, (matrices, logs))
    after, _ = lax.associative_scan(lambda b, a: _product(a, b), (matrices, logs), reverse=True)
    filtered = _shares(before[:, 0])
    loglik = height[-1] + jnp.log(before[-1, 0].sum(0))
    rest = jnp.concatenate([after[1:].sum(2), jnp.ones((1, n_states, n), table.dtype)])
    state = jnp.where(valid[:, None], _shares(filtered * rest), 0.0)

    joint = filtered[:-1, :, None] * matrices[1:] * rest[1:, None]
    joint = jnp.where(exists[1:], joint / joint.sum((1, 2), keepdims=True), 0.0)
    each = jnp.concatenate([jnp.zeros_like(joint[:1]), joint])
    if not steps.n_cells:
        pair = each
    elif steps.cell is None:
        pair = each.sum(0)[None]
    else:
        cell = steps.cell[:, None, None]
        pair = jnp.stack([jnp.where(cell == c, each, 0.0).sum(0) for c in range(steps.n_cells)])
    is_finite = jnp.isfinite(pair).all((0, 1, 2))
    return jnp.where(is_finite, loglik, jnp.nan), state, pair


def _product(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """Of matrices whose largest entry is 1, and the logarithms of what they were divided by."""
    made = (a[0][:, :, :, None] * b[0][:, None]).sum(2)
    top = made.max((1, 2))
    return made / top[:, None, None], a[1] + b[1] + jnp.log(top)


def _shares(weights: Array) -> Array:
    return weights / weights.sum(1, keepdims=True)
