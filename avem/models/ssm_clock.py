"""States in continuous time: dx = (A_i x + B s) dt + dW, over the intervals between rows.

The complete data are the whole path of the states, not its values at the rows: then the expected
log likelihood, E of int (A x)'dx - int |A x|^2 dt / 2, is quadratic in the drift and in the effects
on it, and has the closed forms of a model in steps, with integrals in the place of sums. The filter
needs of an interval what it does from end to end, and the smoother's moments at its ends say what
happens within it. Both follow from the drift by `numerics.diffusion`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from avem.components.cells import from_cells
from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.kernels.kalman import Smoothed, by_step, step_spread
from avem.kernels.kalman_filter import Problem, StepLaws
from avem.numerics.diffusion import Ends, discretise, integrals
from avem.numerics.generator import product

if TYPE_CHECKING:
    from avem.models.ssm_kernel import SSMKernel

MOST_SHARED = 4096
"""Different intervals up to which each has its matrices computed once, where subjects are alike."""
FAR = 1e100
"""A variance within an interval that no data have; the drift behind it has a likelihood of 0."""
FEW = 8
"""Up to which moments of rows with the same interval are added up before they are integrated."""


def moves(
    kernel: SSMKernel, theta: Theta, f: Float[Array, "d lane"], chunk: Chunk, s: Array
) -> tuple[StepLaws, Float[Array, "time q lane"] | None]:
    """What each interval does to the states, and how far the known columns `s` push them in it."""
    q = kernel.n_latent
    made = discretise(_drift(kernel, theta, f), _times(kernel, chunk), q, _repeated)
    transition = _on_rows(kernel, made.transition[:q], chunk)
    noise = _on_rows(kernel, made.noise, chunk)
    # Nothing leads into a first row, or to infinity; matrices of some kind must be there.
    on, unit = _on(chunk)[:, None, None], jnp.eye(q)[:, :, None]
    near = (jnp.abs(noise) < FAR).all((1, 2), keepdims=True)
    there = on & near
    drive = None
    if kernel.drive_cols:
        push = (transition[:, :, q:] * s[:, None]).sum(2)
        drive = jnp.where(there[:, 0], push, 0.0)
    noise = jnp.where(there, noise, jnp.where(on, FAR * unit, unit))
    return StepLaws(jnp.where(there, transition[:, :, :q], unit), noise), drive


def lost(problem: Problem, found: Smoothed) -> Bool[Array, " lane"]:
    """Where a drift leads to infinity, within an interval or over several."""
    moved = problem.moves
    assert moved is not None
    return (moved.noise[:, 0, 0] >= FAR).any(0) | ~jnp.isfinite(found.loglik)


def within(
    kernel: SSMKernel,
    theta: Theta,
    f: Array,
    chunk: Chunk,
    s: Array,
    problem: Problem,
    found: Smoothed,
) -> tuple[Float[Array, "r r lane"], Float[Array, "q r lane"]]:
    """Of r = (x, s) along the paths: int E r r' dt, and int E (dx - (A x + B s) dt) r'."""
    q, moved = kernel.n_latent, problem.moves
    assert moved is not None
    transition, noise = moved.transition[1:], moved.noise[1:]
    away = found.mean[1:] - (transition * found.mean[:-1, None]).sum(2)
    away = away if problem.drive is None else away - problem.drive[1:]
    spread = step_spread(transition, found) - noise
    lag = (found.cov[:-1, :, :, None] * jnp.swapaxes(transition, 1, 2)[:, None]).sum(2)
    lag = jnp.swapaxes(found.cross[1:], 1, 2) - lag
    begin = jnp.concatenate([found.mean[:-1], s[1:]], axis=1)
    size = begin.shape[1] - q
    wide = [(0, 0), (0, size)]
    zz = begin[:, :, None] * begin[:, None] + jnp.pad(found.cov[:-1], [*wide, wide[1], (0, 0)])
    ze = begin[:, :, None] * away[:, None] + jnp.pad(lag, [*wide, (0, 0), (0, 0)])
    ee = away[:, :, None] * away[:, None] + spread
    inverse = jnp.moveaxis(by_step(noise)[0], 0, 2)
    on = _on(chunk)[1:]

    def rows(values: Array) -> Array:
        """(i, j, time, lane)."""
        return jnp.moveaxis(jnp.where(on[:, None, None], values, 0.0), 0, 2)

    ends = Ends(
        rows(zz),
        product(rows(ze), inverse),
        product(product(inverse, rows(ee)), inverse),
        on.astype(zz.dtype),
    )
    time = jnp.where(on, chunk.a[1:, kernel.clock], 0.0)
    if kernel.by_cell:
        time = _times(kernel, chunk)
        ends = Ends(*map(_sums_by_cell(kernel, chunk), ends))
    path = integrals(_drift(kernel, theta, f), time, ends, q, _repeated)
    return path.zz.sum(2), path.ez.sum(2)


def _drift(kernel: SSMKernel, theta: Theta, f: Array) -> Float[Array, "r r 1 lane"]:
    """The drift of (x, s), in which s stays; one lane if all are alike."""
    own = theta["dynamics"][:, :, None]
    if kernel.random_transition:
        own = kernel.transition(theta, f)
    q, size = kernel.n_latent, len(kernel.drive_cols)
    push = jnp.broadcast_to(theta["drive"][:, :, None], (q, size, own.shape[-1]))
    top = jnp.concatenate([own, push], axis=1)
    return jnp.pad(top, [(0, size), (0, 0), (0, 0)])[:, :, None]


def _times(kernel: SSMKernel, chunk: Chunk) -> Array:
    """(cell, 1) the different intervals; or (time, lane) those of the rows."""
    if kernel.n_cells:
        return chunk.patterns[0].a[:, kernel.clock, None]
    return jnp.where(_on(chunk), chunk.a[:, kernel.clock], 0.0)


def _on(chunk: Chunk) -> Array:
    """(time, lane) bool: there is a row before."""
    return chunk.valid.at[0].set(False)


def _on_rows(kernel: SSMKernel, values: Float[Array, "i j cell lane"], chunk: Chunk) -> Array:
    """(time, i, j, lane)."""
    cells = jnp.moveaxis(values, 2, 0)
    if not kernel.n_cells:
        return cells
    index = chunk.patterns[0].index
    if cells.shape[-1] == 1 and len(cells) > FEW:
        return jnp.moveaxis(cells[..., 0][jnp.minimum(index, len(cells) - 1)], 1, -1)
    return from_cells(cells, index)


def _sums_by_cell(kernel: SSMKernel, chunk: Chunk) -> Callable[[Array], Array]:
    """From (..., time, lane) to (..., cell, lane)."""
    index = chunk.patterns[0].index[1:]
    if kernel.n_cells == 1:
        return lambda rows: rows.sum(-2, keepdims=True)
    masks = [index == cell for cell in range(kernel.n_cells)]
    return lambda rows: jnp.stack([jnp.where(m, rows, 0.0).sum(-2) for m in masks], axis=-2)


def _repeated(n: Any, function: Callable[[Any, Any], Any], x: Any) -> Any:
    return lax.fori_loop(0, n.astype(int), function, x)
