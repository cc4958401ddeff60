"""The Gaussian q_i(f_i) = N(nu_i, Omega_i) of every subject, subjects on the last axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from avem.effects.quadratic import Quadratic
from avem.kernels.inverse import inverse_and_logdet
from avem.kernels.posterior import divergence, posterior


class GaussianQ(NamedTuple):
    """Mean and covariance of q_i, and its divergence from the prior."""

    mean: Float[Array, "effect subject"]
    covariance: Float[Array, "effect effect subject"]
    divergence: Float[Array, " subject"]
    """KL(q_i || N(0, Sigma))."""

    def second_moment(self) -> Float[Array, "effect effect subject"]:
        """E_q[f f'] = Omega + nu nu'."""
        return self.covariance + self.mean[:, None] * self.mean[None]

    def total_second_moment(
        self, weight: Float[Array, " subject"]
    ) -> Float[Array, "effect effect"]:
        """Its weighted sum over subjects; as a product, which XLA does faster than sums."""
        d, n = self.mean.shape
        spread = (self.covariance.reshape(d * d, n) @ weight).reshape(d, d)
        return spread + (self.mean * weight) @ self.mean.T


def update_from_quadratic(
    sigma: Float[Array, "effect effect"],
    quadratic: Quadratic,
    anchor: Float[Array, "effect subject"],
) -> tuple[GaussianQ, Float[Array, " subject"]]:
    """The q_i that maximises the anchored bound when E[log p(D, U | f)] = h'f - f'Lambda f / 2.

    This is the paper's closed form (Section 4.5) for any Gaussian emission: Omega = (Sigma^-1 +
    Lambda)^-1 and nu = Omega h. With it, E_q Q(f) - Q(anchor).
    """
    prior, prior_logdet = inverse_and_logdet(sigma[:, :, None])
    *q, height = posterior(prior, prior_logdet, *quadratic)
    # Q is 0 at its origin.
    height = height if anchor is quadratic.origin else height - quadratic.value(anchor, None)
    return GaussianQ(*q), height


_STILL = 1e-9
"""A Newton step this small, in units of the posterior's standard deviation, is the last."""


class _Look(NamedTuple):
    """The objective at a candidate q, its slope in the mean, and the precision it asks for."""

    height: Array
    slope: Array
    target: Array


class _Search(NamedTuple):
    mean: Array
    precision: Array
    seen: _Look
    stride: Array
    largest: Array
    n_steps: Array


def update_by_newton(
    sigma: Float[Array, "effect effect"],
    terms: Callable[[Array, Array | None], Any],
    start: Float[Array, "effect subject"],
    *,
    concave: bool,
    quadrature: bool,
    max_steps: Array | int,
) -> GaussianQ:
    """The q_i for any expected log likelihood Q_i, all subjects at once.

    ``terms(mean, cov)`` gives E_q of Q_i and of its first two derivatives in f, at the point `mean`
    when `cov` is None. The Laplace form (eq. laplace_q_update) centres q_i at the mode and takes
    the curvature there. With ``quadrature`` it goes on to the maximum of the bound over all
    Gaussians (eq. optimize_q_update), where the precision is the prior's plus the *expected*
    curvature. Where Q_i is not `concave`, a subject whose curvature is no precision takes a larger
    one that is. A step that does not raise a subject's objective is halved for that subject.
    """
    prior, prior_logdet = inverse_and_logdet(sigma[:, :, None])

    def look(mean: Array, precision: Array, expected: bool) -> _Look:
        cov, logdet = inverse_and_logdet(precision) if expected else (None, 0.0)
        seen = terms(mean, cov)
        pull = (prior * mean[None]).sum(1)
        height = seen.value - 0.5 * (mean * pull).sum(0)
        if cov is not None:
            height -= 0.5 * ((prior * cov).sum((0, 1)) + logdet)
        target = prior + seen.curvature
        if not concave:
            bends_down = jnp.isfinite(inverse_and_logdet(target)[1])
            target = jnp.where(bends_down, target, prior + seen.majorant)
        return _Look(height, seen.gradient - pull, target)

    def advance(now: _Search, expected: bool) -> _Search:
        cov, _ = inverse_and_logdet(now.seen.target)
        step = (cov * now.seen.slope[None]).sum(1)
        mean = now.mean + now.stride * step
        precision = now.seen.target
        if expected:
            precision = now.precision + now.stride * (now.seen.target - now.precision)
        seen = look(mean, precision, expected)
        better = seen.height >= now.seen.height - 1e-13 * jnp.abs(now.seen.height)

        def pick(new: Array, old: Array) -> Array:
            return jnp.where(better, new, old)

        moved = jnp.abs(now.stride * step * jnp.sqrt(jnp.diagonal(now.seen.target).T))
        turned = jnp.abs(precision - now.precision) / jnp.abs(now.precision).max((0, 1))
        largest = moved.max() + (turned.max() if expected else 0.0)
        largest = jnp.where(now.n_steps == 0, jnp.inf, largest)
        return _Search(
            mean=pick(mean, now.mean),
            precision=pick(precision, now.precision),
            seen=_Look(*map(pick, seen, now.seen)),
            stride=jnp.where(better, 1.0, 0.5 * now.stride),
            largest=largest,
            n_steps=now.n_steps + 1,
        )

    full = jnp.ones(start.shape[1], start.dtype)

    def search(mean: Array, precision: Array, expected: bool) -> _Search:
        # The first round stays where it is and looks: so there is one place that does, to compile.
        unseen = _Look(-jnp.inf * full, jnp.zeros_like(mean), precision)
        far = jnp.asarray(jnp.inf, start.dtype)
        return lax.while_loop(
            lambda s: (s.n_steps <= max_steps) & (s.largest > _STILL),
            lambda s: advance(s, expected),
            _Search(mean, precision, unseen, full, far, jnp.asarray(0)),
        )

    wide = jnp.broadcast_to(prior, (*prior.shape[:2], start.shape[1]))
    found = search(start, wide, False)
    precision = found.seen.target
    if quadrature:
        found = search(found.mean, precision, True)
        precision = found.precision
    cov, precision_logdet = inverse_and_logdet(precision)
    return GaussianQ(
        found.mean, cov, divergence(prior, prior_logdet, found.mean, cov, precision_logdet)
    )
