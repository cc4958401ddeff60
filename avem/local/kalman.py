"""One subject's linear-Gaussian state space given its parameters: numbers in, moments out.

    x_1 ~ N(m, P),   x_t = G x_{t-1} + u_t + N(0, Q),   y_t = H x_t + N(0, R),   R diagonal.

As in `hmm`, many sequences ("lanes") are passed at once, on the last axis, with small matrices of
the latent dimension q unrolled over it. The update is in information form: what the outcomes of a
step say of the state is H'R^-1 H and H'R^-1 y, to which a missing cell adds nothing, so no matrix
of the outcomes' dimension is ever inverted.

A lane may be shorter than the arrays: ``valid`` marks its steps. A padded step leaves the recursion
as it was and contributes exactly 0. A missing observation is not a padded step: the state moves on.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float

from avem.numerics.linalg import cholesky, inverse_and_logdet

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
    predicted_mean: Float[Array, "time q lane"]
    """From the outcomes before it."""
    predicted_cov: Float[Array, "time q q lane"]


class Smoothed(NamedTuple):
    """What is known at every step from all outcomes; 0 at padded steps."""

    loglik: Float[Array, " lane"]
    mean: Float[Array, "time q lane"]
    cov: Float[Array, "time q q lane"]
    cross: Float[Array, "time q q lane"]
    """Cov(x_t, x_{t-1}); 0 at the first step."""


def filter_states(problem: Problem) -> Filtered:
    """Means and covariances of the states given the past, and the log likelihood of every lane."""
    system, y, seen, valid, drive, more = problem
    n_lanes, q = y.shape[-1], system.transition.shape[0]
    system = System(*(jnp.broadcast_to(p, (*p.shape[:-1], n_lanes)) for p in system))
    y = jnp.where(seen, y, 0.0)
    weight = jnp.where(seen, 1.0 / system.noise, 0.0)
    constant = jnp.where(seen, _LOG_2PI + jnp.log(system.noise), 0.0).sum(1)
    # The drive of the next step acts when this one is left.
    after = jnp.zeros((len(y), q, n_lanes)) if drive is None else jnp.roll(drive, -1, axis=0)

    def step(carry, now):
        mean, cov, total = carry
        y_t, seen_t, w, const, valid_t, u, other = now
        prior, prior_logdet = inverse_and_logdet(cov)
        precision = prior + jnp.einsum("jan,jn,jbn->abn", system.loading, w, system.loading)
        if other is not None:
            precision += other.precision
        posterior, logdet = inverse_and_logdet(precision)
        miss = jnp.where(seen_t, y_t - _apply(system.loading, mean), 0.0)
        pull = (system.loading * (w * miss)[:, None]).sum(0)
        if other is not None:
            pull += other.linear - _apply(other.precision, mean)
        known = mean + _apply(posterior, pull)
        # r'S^-1 r with S^-1 r = R^-1 (y - H x), x the filtered state: nothing large cancels.
        left = y_t - _apply(system.loading, known)
        square = (miss * w * left).sum(0)
        if other is not None:
            square += (mean * _apply(other.precision, known)).sum(0)
            square -= (other.linear * (mean + known)).sum(0) + 2.0 * other.constant
        total += jnp.where(valid_t, -0.5 * (const + prior_logdet + logdet + square), 0.0)
        ahead = _apply(system.transition, known) + u
        spread = _sandwich(system.transition, posterior) + system.state_noise
        here = Filtered(total, known, posterior, mean, cov)
        carry = (jnp.where(valid_t, ahead, mean), jnp.where(valid_t, spread, cov), total)
        return carry, here[1:]

    first = system.start_mean + (0.0 if drive is None else drive[0])
    start = (first, system.start_cov, jnp.zeros(n_lanes, y.dtype))
    (_, _, loglik), parts = lax.scan(step, start, (y, seen, weight, constant, valid, after, more))
    return Filtered(loglik, *parts)


def smooth(problem: Problem) -> Smoothed:
    """Means, covariances and lag-one covariances of the states given all outcomes of the lane."""
    found = filter_states(problem)
    transition, valid = problem.system.transition, problem.valid

    def step(carry, now):
        mean_ahead, cov_ahead = carry
        mean, cov, predicted_mean, predicted_cov, goes_on = now
        gain = _gain(transition, cov, predicted_cov)
        back = mean + _apply(gain, mean_ahead - predicted_mean)
        spread = cov + _sandwich(gain, cov_ahead - predicted_cov)
        cross = jnp.einsum("abn,cbn->acn", cov_ahead, gain)  # Cov(x_{t+1}, x_t)
        mean, cov = jnp.where(goes_on, back, mean), jnp.where(goes_on, spread, cov)
        return (mean, cov), (mean, cov, jnp.where(goes_on, cross, 0.0))

    scanned, goes_on = _following(found, valid)
    last = (jnp.zeros_like(found.mean[0]), jnp.zeros_like(found.cov[0]))
    _, (mean, cov, cross) = lax.scan(step, last, (*scanned, goes_on), reverse=True)
    return Smoothed(
        found.loglik,
        jnp.where(valid[:, None], mean, 0.0),
        jnp.where(valid[:, None, None], cov, 0.0),
        jnp.roll(cross, 1, axis=0),  # the pair (t+1, t) was met at t; the last step has none
    )


def sample_states(
    problem: Problem, normal: Float[Array, "time q lane"]
) -> Float[Array, "time q lane"]:
    """One draw of every lane's states given its outcomes, from given standard normal numbers."""
    found = filter_states(problem)
    transition, valid = problem.system.transition, problem.valid

    def step(ahead, now):
        mean, cov, predicted_mean, predicted_cov, goes_on, z = now
        gain = _gain(transition, cov, predicted_cov)
        back = mean + _apply(gain, ahead - predicted_mean)
        left = cov - _sandwich(gain, predicted_cov)
        centre, spread = jnp.where(goes_on, back, mean), jnp.where(goes_on, left, cov)
        drawn = centre + _apply(cholesky(spread), z)
        return drawn, drawn

    scanned, goes_on = _following(found, valid)
    _, path = lax.scan(
        step, jnp.zeros_like(found.mean[0]), (*scanned, goes_on, normal), reverse=True
    )
    return jnp.where(valid[:, None], path, 0.0)


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


def _following(found: Filtered, valid: Array) -> tuple[tuple[Array, ...], Array]:
    """What the backward passes read at t: filtered moments, the next step's predicted ones, and
    whether there is a next step."""
    ahead = [jnp.roll(part, -1, axis=0) for part in (found.predicted_mean, found.predicted_cov)]
    goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
    return (found.mean, found.cov, *ahead), goes_on


def _gain(transition: Array, cov: Array, predicted_cov: Array) -> Array:
    """P G' (P ahead)^-1."""
    inverse, _ = inverse_and_logdet(predicted_cov)
    return jnp.einsum("abn,cbn,cdn->adn", cov, transition, inverse)


def _apply(matrix: Array, vector: Array) -> Array:
    return (matrix * vector[None]).sum(1)


def _sandwich(matrix: Array, middle: Array) -> Array:
    """A M A'."""
    return jnp.einsum("abn,bcn,dcn->adn", matrix, middle, matrix)
