"""One subject's linear-Gaussian state space given its parameters: numbers in, moments out.

    x_1 ~ N(m, P),   x_t = G x_{t-1} + u_t + N(0, Q),   y_t = H x_t + N(0, R),   R diagonal.

As in `hmm`, many sequences ("lanes") are passed at once, on the last axis, with small matrices
unrolled over it. The update is in information form: what the outcomes of a step say of the state is
H'R^-1 H and H'R^-1 y, to which a missing cell adds nothing, so no matrix of the outcomes' dimension
is ever inverted. The backward pass shows the moments of one step after the other to a `visit`, so
that sums over time need no arrays over time.

A lane may be shorter than the arrays: ``valid`` marks its steps. A padded step leaves the recursion
as it was and contributes exactly 0. A missing observation is not a padded step: the state moves on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float

from avem.kernels.inverse import inverse_and_logdet
from avem.numerics.matrices import Matrix, pack

_LOG_2PI = float(np.log(2 * np.pi))


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


class Problem(NamedTuple):
    """Parameters and outcomes of all lanes."""

    system: System
    y: Float[Array, "time p lane"]
    """Anything where not seen."""
    seen: Bool[Array, "time p lane"]
    valid: Bool[Array, "time lane"]
    drive: Float[Array, "time q lane"] | None = None
    """u_t, which moves the state into step t; at the first, from the mean it starts at."""
    more: More | None = None


class Filtered(NamedTuple):
    """What is known at every step from the outcomes up to it."""

    loglik: Float[Array, " lane"]
    mean: Float[Array, "time q lane"]
    cov: Float[Array, "time q q lane"]


class Predicted(NamedTuple):
    """What is known of every step from the outcomes before it."""

    mean: Float[Array, "time q lane"]
    cov: Float[Array, "time q q lane"]


class Smoothed(NamedTuple):
    """What is known at every step from all outcomes; 0 at padded steps."""

    loglik: Float[Array, " lane"]
    mean: Float[Array, "time q lane"]
    cov: Float[Array, "time q q lane"]
    cross: Float[Array, "time q q lane"]
    """Cov(x_t, x_{t-1}); 0 at the first step."""


class Step(NamedTuple):
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
    also: Any
    """What the caller wants to see at this step."""


class _Packed(NamedTuple):
    """A system's matrices."""

    transition: Matrix
    state_noise: Matrix
    loading: Matrix

    @classmethod
    def of(cls, system: System, n_lanes: int) -> _Packed:
        def full(array: Array) -> Array:
            return jnp.broadcast_to(array, (*array.shape[:-1], n_lanes))

        loading = pack(full(system.loading))
        transition = pack(full(system.transition), loading)
        return cls(transition, pack(full(system.state_noise), loading), loading)

    def ahead(self, mean: Matrix, cov: Matrix, drive: Matrix | None) -> tuple[Matrix, Matrix]:
        """Mean and covariance of the next step's state."""
        mean = self.transition @ mean
        cov = self.transition @ cov @ self.transition.T + self.state_noise
        return (mean if drive is None else mean + drive), cov


def _column(array: Float[Array, "*time i lane"], alike: Matrix) -> Matrix:
    return pack(array[..., None, :], alike)


def _filter(problem: Problem) -> tuple[_Packed, Array, Matrix, Matrix, Matrix | None]:
    """The matrices, log likelihood, filtered means and covariances, and the next step's drive."""
    system, y, seen, valid, drive, more = problem
    n_lanes = y.shape[-1]
    packed = _Packed.of(system, n_lanes)
    loading = packed.loading
    weight = jnp.where(seen, 1.0 / system.noise, 0.0)
    constant = jnp.where(seen, _LOG_2PI + jnp.log(system.noise), 0.0).sum(1)
    # The drive of the next step acts when this one is left.
    after = None if drive is None else _column(jnp.roll(drive, -1, axis=0), loading)
    if more is not None:
        more = (pack(more.precision, loading), _column(more.linear, loading), more.constant)

    def step(carry, now):
        mean, cov, total = carry
        y_t, w, const, valid_t, u, other = now
        prior, prior_logdet = cov.inverse_and_logdet()
        weighed = loading.scaled(w)
        precision = prior + loading.T @ weighed
        miss = y_t - loading @ mean
        pull = weighed.T @ miss
        if other is not None:
            precision, pull = precision + other[0], pull + other[1] - other[0] @ mean
        posterior, logdet = precision.inverse_and_logdet()
        known = mean + posterior @ pull
        # r'S^-1 r with S^-1 r = R^-1 (y - H x), x the filtered state: nothing large cancels.
        square = miss.scaled(w).dot(y_t - loading @ known)
        if other is not None:
            square += mean.dot(other[0] @ known) - other[1].dot(mean + known) - 2.0 * other[2]
        total += jnp.where(valid_t, -0.5 * (const + prior_logdet + logdet + square), 0.0)
        next_mean, next_cov = packed.ahead(known, posterior, u)
        carry = (next_mean.where(valid_t, mean), next_cov.where(valid_t, cov), total)
        return carry, (known, posterior)

    first = system.start_mean + (0.0 if drive is None else drive[0])
    q = len(first)
    start = (
        _column(jnp.broadcast_to(first, (q, n_lanes)), loading),
        pack(jnp.broadcast_to(system.start_cov, (q, q, n_lanes)), loading),
        jnp.zeros(n_lanes, y.dtype),
    )
    # What was not seen has weight 0; it must be a number all the same.
    values = _column(jnp.where(seen, y, 0.0), loading)
    scanned = (values, _column(weight, loading), constant, valid, after, more)
    (_, _, loglik), (mean, cov) = lax.scan(step, start, scanned)
    return packed, loglik, mean, cov, after


def filter_states(problem: Problem) -> Filtered:
    """Means and covariances of the states given the past, and the log likelihood of every lane."""
    _, loglik, mean, cov, _ = _filter(problem)
    return Filtered(loglik, mean.unpack()[..., 0, :], cov.unpack())


def predict_states(problem: Problem) -> Predicted:
    """Means and covariances of the states given the outcomes before each step."""
    packed, _, mean, cov, after = _filter(problem)
    ahead, spread = (part.unpack() for part in packed.ahead(mean, cov, after))
    system, n_lanes = problem.system, problem.y.shape[-1]
    first = system.start_mean + (0.0 if problem.drive is None else problem.drive[0])
    first = jnp.broadcast_to(first, (len(first), n_lanes))
    start = jnp.broadcast_to(system.start_cov, (len(first), *first.shape))
    return Predicted(
        jnp.concatenate([first[None], ahead[:-1, :, 0]]),
        jnp.concatenate([start[None], spread[:-1]]),
    )


def visit_smoothed(
    problem: Problem, visit: Callable[[Any, Step], tuple[Any, Any]], total: Any, also: Any = None
) -> tuple[Array, Any, Any]:
    """From the last step to the first: `visit` gets what it returned before, and the step.

    Returns the log likelihood, its last total, and what else it returned at every step; ``also``
    has time on its first axis.
    """
    packed, loglik, mean, cov, after = _filter(problem)
    valid = problem.valid
    goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])

    def step(carry, now):
        ahead, cov_ahead, total = carry
        mean, cov, u, valid_t, goes_on, also_t = now
        predicted, predicted_cov = packed.ahead(mean, cov, u)
        inverse, _ = predicted_cov.inverse_and_logdet()
        gain = cov @ packed.transition.T @ inverse
        back = mean + gain @ (ahead - predicted)
        spread = cov + gain @ (cov_ahead - predicted_cov) @ gain.T
        cross = (cov_ahead @ gain.T).where(goes_on)
        mean, cov = back.where(goes_on, mean), spread.where(goes_on, cov)
        seen = Step(mean, cov, ahead, cross, valid_t, goes_on, also_t)
        total, each = visit(total, seen)
        return (mean, cov, total), each

    n_lanes, q = problem.y.shape[-1], problem.system.transition.shape[0]
    nothing = jnp.zeros((q, n_lanes), problem.y.dtype)
    last = (
        _column(nothing, packed.loading),
        pack(jnp.zeros((q, *nothing.shape), nothing.dtype), packed.loading),
        total,
    )
    (_, _, total), each = lax.scan(
        step, last, (mean, cov, after, valid, goes_on, also), reverse=True
    )
    return loglik, total, each


def smooth(problem: Problem) -> Smoothed:
    """Means, covariances and lag-one covariances of the states given all outcomes of the lane."""

    def visit(_, step: Step):
        return None, (step.mean.where(step.valid), step.cov.where(step.valid), step.cross)

    loglik, _, (mean, cov, cross) = visit_smoothed(problem, visit, None)
    # The pair (t+1, t) was met at t; the last step has none.
    crosses = jnp.roll(cross.unpack(), 1, axis=0)
    return Smoothed(loglik, mean.unpack()[..., 0, :], cov.unpack(), crosses)


def sample_states(
    problem: Problem, normal: Float[Array, "time q lane"]
) -> Float[Array, "time q lane"]:
    """One draw of every lane's states given its outcomes, from given standard normal numbers."""
    packed, _, mean, cov, after = _filter(problem)
    valid = problem.valid
    goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])

    def step(ahead, now):
        mean, cov, u, goes_on, z = now
        predicted, predicted_cov = packed.ahead(mean, cov, u)
        inverse, _ = predicted_cov.inverse_and_logdet()
        gain = cov @ packed.transition.T @ inverse
        back = mean + gain @ (ahead - predicted)
        left = cov - gain @ predicted_cov @ gain.T
        centre, spread = back.where(goes_on, mean), left.where(goes_on, cov)
        drawn = centre + spread.cholesky() @ z
        return drawn, drawn

    nothing = jnp.zeros(normal.shape[1:], normal.dtype)
    z = _column(normal, packed.loading)
    _, path = lax.scan(
        step, _column(nothing, packed.loading), (mean, cov, after, goes_on, z), reverse=True
    )
    return jnp.where(valid[:, None], path.unpack()[..., 0, :], 0.0)


def expected_log_density(problem: Problem, found: Smoothed) -> Float[Array, " lane"]:
    """E log p(y, x) of every lane, the states being distributed as `found`."""
    system, y, seen, valid, drive, _ = problem
    mean, cov = found.mean, found.cov
    start, start_logdet = inverse_and_logdet(system.start_cov)
    away = mean[0] - system.start_mean - (0.0 if drive is None else drive[0])
    second = cov[0] + away[:, None] * away[None]
    total = jnp.where(valid[0], -0.5 * ((start * second).sum((0, 1)) + start_logdet), 0.0)

    noise, noise_logdet = inverse_and_logdet(system.state_noise)
    g = system.transition
    step = mean[1:] - jnp.einsum("abn,tbn->tan", g, mean[:-1])
    step = step if drive is None else step - drive[1:]
    turned = jnp.einsum("abn,tcbn->tacn", g, found.cross[1:])  # G Cov(x_{t-1}, x_t)
    spread = cov[1:] - turned - jnp.swapaxes(turned, 1, 2)
    spread += jnp.einsum("abn,tbcn,dcn->tadn", g, cov[:-1], g)
    second = spread + step[:, :, None] * step[:, None]
    moves = -0.5 * ((noise * second).sum((1, 2)) + noise_logdet)
    total += jnp.where(valid[1:], moves, 0.0).sum(0)

    miss = y - jnp.einsum("jan,tan->tjn", system.loading, mean)
    square = miss**2 + jnp.einsum("jan,tabn,jbn->tjn", system.loading, cov, system.loading)
    density = -0.5 * (square / system.noise + jnp.log(system.noise) + _LOG_2PI)
    total += jnp.where(seen, density, 0.0).sum((0, 1))
    return total - 0.5 * _LOG_2PI * mean.shape[1] * valid.sum(0)
