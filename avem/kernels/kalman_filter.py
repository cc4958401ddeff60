"""The Kalman filter: linear-Gaussian states given the outcomes up to each step, or before it.

    x_1 ~ N(m, P),   x_t = G x_{t-1} + u_t + N(0, Q),   y_t = H x_t + N(0, R),   R diagonal.

G and Q may be those of each step. As in `forward_backward`, many sequences ("lanes") are passed at
once, on the last axis, with small matrices unrolled over it. The update is in information form:
what the outcomes of a step say of the state is H'R^-1 H and H'R^-1 y, to which a missing cell adds
nothing, so no matrix of the outcomes' dimension is ever inverted.

A lane may be shorter than the arrays: ``valid`` marks its steps. A padded step leaves the recursion
as it was and contributes exactly 0. A missing observation is not a padded step: the state moves on.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float

from avem.kernels.matrices import Matrix, pack

LOG_2PI = float(np.log(2 * np.pi))


class System(NamedTuple):
    """The parameters of every lane; an axis of lanes of length 1 is shared by all."""

    start_mean: Float[Array, "q lane"]
    start_cov: Float[Array, "q q lane"]
    transition: Float[Array, "q q lane"]
    state_noise: Float[Array, "q q lane"]
    loading: Float[Array, "p q lane"]
    noise: Float[Array, "p lane"]
    """Variances of the outcomes given the state."""


class More(NamedTuple):
    """What else is known at every step: a log density of -x'Jx/2 + l'x + c is added to the rest."""

    precision: Float[Array, "time q q lane"]
    linear: Float[Array, "time q lane"]
    constant: Float[Array, "time lane"]


class StepLaws(NamedTuple):
    """What moves the state into each step, in place of the system's; anything at the first."""

    transition: Float[Array, "time q q lane"]
    noise: Float[Array, "time q q lane"]


class Problem(NamedTuple):
    """Parameters and outcomes of all lanes."""

    system: System
    y: Float[Array, "time p lane"]
    """Arbitrary where `seen` is False."""
    seen: Bool[Array, "time p lane"]
    valid: Bool[Array, "time lane"]
    drive: Float[Array, "time q lane"] | None = None
    """u_t, which moves the state into step t; at the first, from the mean it starts at."""
    more: More | None = None
    moves: StepLaws | None = None


class Filtered(NamedTuple):
    """What is known at every step from the outcomes up to it."""

    loglik: Float[Array, " lane"]
    mean: Float[Array, "time q lane"]
    cov: Float[Array, "time q q lane"]


class Predicted(NamedTuple):
    """What is known of every step from the outcomes before it."""

    mean: Float[Array, "time q lane"]
    cov: Float[Array, "time q q lane"]


class Leaving(NamedTuple):
    """What leads from a step to the next, where it is not the same for all steps."""

    drive: Matrix | None
    transition: Matrix | None
    noise: Matrix | None


class Packed(NamedTuple):
    """A system's matrices."""

    transition: Matrix
    state_noise: Matrix
    loading: Matrix

    @classmethod
    def of(cls, system: System, n_lanes: int) -> Packed:
        def full(array: Array) -> Array:
            return jnp.broadcast_to(array, (*array.shape[:-1], n_lanes))

        loading = pack(full(system.loading))
        transition = pack(full(system.transition), loading)
        return cls(transition, pack(full(system.state_noise), loading), loading)

    def leaving(self, after: Leaving) -> Packed:
        """With the matrices that lead to the next step."""
        if after.transition is None or after.noise is None:
            return self
        return Packed(after.transition, after.noise, self.loading)

    def ahead(self, mean: Matrix, cov: Matrix, after: Leaving) -> tuple[Matrix, Matrix]:
        """Mean and covariance of the next step's state."""
        transition, noise, _ = self.leaving(after)
        mean = transition @ mean
        cov = transition @ cov @ transition.T + noise
        return (mean if after.drive is None else mean + after.drive), cov


def column(array: Float[Array, "*time i lane"], alike: Matrix) -> Matrix:
    return pack(array[..., None, :], alike)


class Now(NamedTuple):
    """What the filter reads at a step."""

    y: Matrix
    """(p, 1); a number also where nothing was seen."""
    weight: Matrix
    """(p, 1), 1 over the noise; 0 where nothing was seen."""
    constant: Array
    valid: Array
    after: Leaving
    more: tuple[Matrix, Matrix, Array] | None


Known = tuple[Matrix, Matrix]
"""Mean and covariance."""


def filter_step(
    packed: Packed, carry: tuple[Matrix, Matrix, Array], now: Now
) -> tuple[tuple[Matrix, Matrix, Array], Known]:
    """What is known before the next step, with the log likelihood so far; and after this one."""
    mean, cov, total = carry
    y, weight, constant, valid, after, other = now
    loading = packed.loading
    prior, prior_logdet = cov.inverse_and_logdet()
    weighed = loading.scaled(weight)
    precision = prior + loading.T @ weighed
    miss = y - loading @ mean
    pull = weighed.T @ miss
    if other is not None:
        precision, pull = precision + other[0], pull + other[1] - other[0] @ mean
    posterior, logdet = precision.inverse_and_logdet()
    moved = posterior @ pull
    known = mean + moved
    # r'S^-1 r as squares at the filtered state: however wide the prior is, nothing cancels.
    left = y - loading @ known
    square = left.scaled(weight).dot(left) + moved.dot(prior @ moved)
    if other is not None:
        square += known.dot(other[0] @ known) - 2.0 * (other[1].dot(known) + other[2])
    total += jnp.where(valid, -0.5 * (constant + prior_logdet + logdet + square), 0.0)
    next_mean, next_cov = packed.ahead(known, posterior, after)
    return (next_mean.where(valid, mean), next_cov.where(valid, cov), total), (known, posterior)


def filter_pass(problem: Problem) -> tuple[Packed, Array, Matrix, Matrix, Leaving]:
    """The matrices, log likelihood, filtered means and covariances, and what leads on."""
    system, y, seen, valid, drive, more, moves = problem
    n_lanes = y.shape[-1]
    packed = Packed.of(system, n_lanes)
    loading = packed.loading
    weight = jnp.where(seen, 1.0 / system.noise, 0.0)
    constant = jnp.where(seen, LOG_2PI + jnp.log(system.noise), 0.0).sum(1)

    # What moves the state into the next step acts when this one is left.
    def next_step(array: Array) -> Array:
        return jnp.roll(array, -1, axis=0)

    after = Leaving(
        None if drive is None else column(next_step(drive), loading),
        None if moves is None else pack(next_step(moves.transition), loading),
        None if moves is None else pack(next_step(moves.noise), loading),
    )
    if more is not None:
        more = (pack(more.precision, loading), column(more.linear, loading), more.constant)

    def step(carry, now):
        return filter_step(packed, carry, Now(*now))

    first = system.start_mean + (0.0 if drive is None else drive[0])
    q = len(first)
    start = (
        column(jnp.broadcast_to(first, (q, n_lanes)), loading),
        pack(jnp.broadcast_to(system.start_cov, (q, q, n_lanes)), loading),
        jnp.zeros(n_lanes, y.dtype),
    )
    # What was not seen has weight 0; it must be a number all the same.
    values = column(jnp.where(seen, y, 0.0), loading)
    scanned = (values, column(weight, loading), constant, valid, after, more)
    (_, _, loglik), (mean, cov) = lax.scan(step, start, scanned)
    return packed, loglik, mean, cov, after


def filter_states(problem: Problem) -> Filtered:
    """Means and covariances of the states given the past, and the log likelihood of every lane."""
    _, loglik, mean, cov, _ = filter_pass(problem)
    return Filtered(loglik, mean.unpack()[..., 0, :], cov.unpack())


def predict_states(problem: Problem) -> Predicted:
    """Means and covariances of the states given the outcomes before each step."""
    packed, _, mean, cov, after = filter_pass(problem)
    ahead, spread = (part.unpack() for part in packed.ahead(mean, cov, after))
    system, n_lanes = problem.system, problem.y.shape[-1]
    first = system.start_mean + (0.0 if problem.drive is None else problem.drive[0])
    first = jnp.broadcast_to(first, (len(first), n_lanes))
    start = jnp.broadcast_to(system.start_cov, (len(first), *first.shape))
    return Predicted(
        jnp.concatenate([first[None], ahead[:-1, :, 0]]),
        jnp.concatenate([start[None], spread[:-1]]),
    )
