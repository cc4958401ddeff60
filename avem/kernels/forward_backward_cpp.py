"""Forward-backward by the kernel in ``native/chain.cc``: the numbers of `hmm.smooth_by_scan`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from avem.kernels import cpp as native

_MOST_STATES = 8
"""Of the kernel, whose code is unrolled over them."""


def target_for(table: Float[Array, "time state lane"]) -> str | None:
    """The kernel to call, or None where there is none for this problem or machine."""
    n_states = table.shape[1]
    if n_states > _MOST_STATES or table.dtype != jnp.float64:
        return None
    return native.find("chain", STATES=n_states)


def smooth(
    target: str,
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    cell: Int[Array, "time lane"] | None,
    n_cells: int,
) -> tuple[Array, Array, Array]:
    """Log likelihood, state and pair probabilities, as in `hmm.Posterior`.

    Arguments that a vmap leaves alone are not repeated for it.
    """
    n_times, n_states, n_lanes = table.shape
    initial, transition = (jnp.asarray(x, table.dtype) for x in (initial, transition))
    if transition.ndim == 2:
        transition = transition[..., None]
    cell = jnp.zeros((0, n_lanes), jnp.int32) if cell is None else cell.astype(jnp.int32)
    shapes = [(n_lanes,), table.shape, (n_cells or n_times, n_states, n_states, n_lanes)]
    loglik, state, pair = jax.ffi.ffi_call(
        target,
        [jax.ShapeDtypeStruct(shape, table.dtype) for shape in shapes],
        vmap_method="expand_dims",
    )(
        initial if initial.ndim == 2 else initial[:, None],
        transition if transition.ndim == 4 else transition[None],
        table,
        valid,
        cell,
    )
    return loglik, state, pair
