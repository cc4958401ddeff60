"""The Kalman smoother: linear-Gaussian states given all outcomes of their sequence.

The backward pass shows the moments of one step after the other to a `visit`, so that sums over time
need no arrays over time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from avem.kernels.dispatch import engine
from avem.kernels.inverse import inverse_and_logdet
from avem.kernels.kalman_filter import (
    LOG_2PI,
    Known,
    Leaving,
    Packed,
    Problem,
    column,
    filter_pass,
)
from avem.kernels.lanes import has_next
from avem.kernels.matrices import Matrix, pack


class Smoothed(NamedTuple):
    """What is known at every step from all outcomes; 0 at padded steps."""

    loglik: Float[Array, " lane"]
    mean: Float[Array, "time q lane"]
    cov: Float[Array, "time q q lane"]
    cross: Float[Array, "time q q lane"]
    """Cov(x_t, x_{t-1}); 0 at the first step."""


class SmoothedStep(NamedTuple):
    """The smoothed moments of one step, and of the move from it to the next."""

    mean: Matrix
    """(q, 1)."""
    cov: Matrix
    ahead: Matrix
    """The mean of the next step."""
    cross: Matrix
    """Cov(x_{t+1}, x_t)."""
    valid: Bool[Array, " lane"]
    goes_on: Bool[Array, " lane"]
    """There is a next step."""
    also: Any = None
    """What the caller wants to see at this step."""


def smooth(problem: Problem) -> Smoothed:
    """Means, covariances and lag-one covariances of the states given all outcomes of the lane.

    An engine has no derivatives, and serves problems without ``more`` and ``moves``.
    """
    times, outcomes, lanes = problem.y.shape
    sizes = {"states": len(problem.system.transition), "outcomes": outcomes}
    run = None
    if problem.more is None and problem.moves is None:
        run = engine("kalman", problem.y.dtype, **sizes, times=times, lanes=lanes)
    return definition(problem) if run is None else Smoothed(*run(problem))


def definition(problem: Problem) -> Smoothed:
    """What `smooth` computes, by two scans over time."""

    def visit(_, step: SmoothedStep):
        return None, (step.mean.where(step.valid), step.cov.where(step.valid), step.cross)

    loglik, _, (mean, cov, cross) = visit_smoothed(problem, visit, None)
    # The pair (t+1, t) was met at t; the last step has none.
    crosses = jnp.roll(cross.unpack(), 1, axis=0)
    return Smoothed(loglik, mean.unpack()[..., 0, :], cov.unpack(), crosses)


def smooth_step(
    packed: Packed,
    here: Known,
    next_step: Known,
    after: Leaving,
    valid: Array,
    goes_on: Array,
) -> SmoothedStep:
    """What is known of a step from all outcomes: from those up to it, and from the step after."""
    mean, cov = here
    ahead, cov_ahead = next_step
    predicted, predicted_cov = packed.ahead(mean, cov, after)
    inverse, _ = predicted_cov.inverse_and_logdet()
    gain = cov @ packed.leaving(after).transition.T @ inverse
    back = mean + gain @ (ahead - predicted)
    spread = cov + gain @ (cov_ahead - predicted_cov) @ gain.T
    cross = (cov_ahead @ gain.T).where(goes_on)
    mean, cov = back.where(goes_on, mean), spread.where(goes_on, cov)
    return SmoothedStep(mean, cov, ahead, cross, valid, goes_on)


def visit_smoothed(
    problem: Problem,
    visit: Callable[[Any, SmoothedStep], tuple[Any, Any]],
    total: Any,
    also: Any = None,
) -> tuple[Array, Any, Any]:
    """From the last step to the first: `visit` gets what it returned before, and the step.

    Returns the log likelihood, its last total, and what else it returned at every step; ``also``
    has time on its first axis.
    """
    packed, loglik, mean, cov, after = filter_pass(problem)
    valid = problem.valid
    goes_on = has_next(valid)

    def step(carry, now):
        *ahead, total = carry
        mean, cov, after, valid_t, goes_on, also_t = now
        seen = smooth_step(packed, (mean, cov), (ahead[0], ahead[1]), after, valid_t, goes_on)
        total, each = visit(total, seen._replace(also=also_t))
        return (seen.mean, seen.cov, total), each

    n_lanes, q = problem.y.shape[-1], problem.system.transition.shape[0]
    nothing = jnp.zeros((q, n_lanes), problem.y.dtype)
    last = (
        column(nothing, packed.loading),
        pack(jnp.zeros((q, *nothing.shape), nothing.dtype), packed.loading),
        total,
    )
    (_, _, total), each = lax.scan(
        step, last, (mean, cov, after, valid, goes_on, also), reverse=True
    )
    return loglik, total, each


def expected_log_density(problem: Problem, found: Smoothed) -> Float[Array, " lane"]:
    """E log p(y, x) of every lane, the states being distributed as `found`."""
    system, y, seen, valid, drive, _, moves = problem
    mean, cov = found.mean, found.cov
    start, start_logdet = inverse_and_logdet(system.start_cov)
    away = mean[0] - system.start_mean - (0.0 if drive is None else drive[0])
    second = cov[0] + away[:, None] * away[None]
    total = jnp.where(valid[0], -0.5 * ((start * second).sum((0, 1)) + start_logdet), 0.0)

    g, q = system.transition[None], system.state_noise[None]
    if moves is not None:
        g, q = moves.transition[1:], moves.noise[1:]
    noise, noise_logdet = by_step(q)
    step = mean[1:] - (g * mean[:-1, None]).sum(2)
    step = step if drive is None else step - drive[1:]
    spread = step_spread(g, found)
    second = spread + step[:, :, None] * step[:, None]
    densities = -0.5 * ((noise * second).sum((1, 2)) + noise_logdet)
    total += jnp.where(valid[1:], densities, 0.0).sum(0)

    miss = y - jnp.einsum("jan,tan->tjn", system.loading, mean)
    square = miss**2 + jnp.einsum("jan,tabn,jbn->tjn", system.loading, cov, system.loading)
    density = -0.5 * (square / system.noise + jnp.log(system.noise) + LOG_2PI)
    total += jnp.where(seen, density, 0.0).sum((0, 1))
    return total - 0.5 * LOG_2PI * mean.shape[1] * valid.sum(0)


def step_spread(
    transition: Float[Array, "time q q lane"], found: Smoothed
) -> Float[Array, "time q q lane"]:
    """Covariances of x_t - G x_{t-1} of all steps but the first; one G may serve all."""
    turned = _product(transition, jnp.swapaxes(found.cross[1:], 1, 2))  # G Cov(x_{t-1}, x_t)
    back = jnp.swapaxes(transition, 1, 2)
    own = _product(_product(transition, found.cov[:-1]), back)
    return found.cov[1:] - turned - jnp.swapaxes(turned, 1, 2) + own


def by_step(matrix: Float[Array, "time q q lane"]) -> tuple[Array, Array]:
    """Inverses and log determinants of the positive definite matrices of every step."""
    times, q, _, n = matrix.shape
    flat = jnp.moveaxis(matrix, 0, 2).reshape(q, q, times * n)
    inverse, logdet = inverse_and_logdet(flat)
    return jnp.moveaxis(inverse.reshape(q, q, times, n), 2, 0), logdet.reshape(times, n)


def _product(a: Array, b: Array) -> Array:
    return (a[:, :, :, None] * b[:, None]).sum(2)
