"""Families whose tails are known in closed form, or nearly so: values beyond a limit count."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import logsumexp
from scipy.special import gammainc, gammaincc

from avem.families.base import Etas
from avem.families.univariate import Univariate

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_DEEP = 40.0
"""Where a density has fallen by exp(-40), nothing is left."""
_TINY = 1e-300


class Tailed(Univariate):
    """One continuous outcome that may be known only to lie beyond a limit."""

    @abstractmethod
    def _log_tails(self, y: Array, eta: tuple[Array, ...]) -> tuple[Array, Array]:
        """Log probabilities of at most `y` and of more, elementwise.

        Traced by JAX and differentiated twice in each `eta`.
        """

    @abstractmethod
    def _partial_moment(self, power: int, low: Any, high: Any, eta: Etas) -> np.ndarray:
        """E(y^power; low < y < high), elementwise; limits may be infinite."""


def log_normal_tails(z: Array) -> tuple[Array, Array]:
    """Of the standard normal distribution: log probabilities of at most z, and of more."""
    return _log_ndtr(z), _log_ndtr(-z)


def _log_ndtr(z: Array) -> Array:
    """Log of the normal distribution function.

    JAX's own goes through three branches, of which the derivatives of one overflow; this one is a
    continued fraction far out, and erfc elsewhere.
    """
    far, up = z < -8.0, z > 0
    near, x = jnp.where(far | up, 0.0, z), jnp.where(far, -z, 8.0)
    body = jnp.log(0.5 * lax.erfc(-near * np.sqrt(0.5)))
    most = jnp.log1p(-0.5 * lax.erfc(jnp.where(up, z, 0.0) * np.sqrt(0.5)))
    ratio = x
    for k in range(16, 0, -1):  # Laplace: 1 - F = density / (x + 1/(x + 2/(x + ...)))
        ratio = x + k / ratio
    tail = -0.5 * x**2 - 0.5 * np.log(2 * np.pi) - jnp.log(ratio)
    return jnp.where(far, tail, jnp.where(up, most, body))


def gamma_share(shape: Any, low: Any, high: Any) -> np.ndarray:
    """Probability that a gamma variable of scale 1 lies between, from whichever tail is small."""
    low, high = (np.maximum(end, 0.0) for end in (low, high))
    below = gammainc(shape, high) - gammainc(shape, low)
    above = gammaincc(shape, low) - gammaincc(shape, high)
    return np.where(low > shape, above, below)


def exponential_tails(z: Array) -> tuple[Array, Array]:
    """Of the standard exponential distribution: log probabilities of at most exp(z), and more."""
    small = z < -30.0
    ratio = bounded_exp(jnp.where(small, 0.0, z))
    return jnp.where(small, z, jnp.log(-jnp.expm1(-ratio))), -bounded_exp(z)


def bounded_exp(z: Array) -> Array:
    """exp(z), and beyond 40 a parabola that joins it: finite with its derivatives, whatever z."""
    beyond = jnp.maximum(z - _DEEP, 0.0)
    return jnp.exp(jnp.minimum(z, _DEEP)) + np.exp(_DEEP) * (beyond + 0.5 * beyond**2)


def log_gamma_tails(t: Array, shape: Array, log_height: Array) -> tuple[Array, Array]:
    """Of a gamma distribution: log probabilities of at most y, and of more; t = log(y / mean).

    The density of t is exp(log_height + shape (t - exp(t) + 1)), log-concave with its peak at 0.
    Either side of the peak is integrated over the stretch in which it falls by exp(-40); below the
    peak, where that is long because the shape is small, by a series. Nodes stay where they are
    beside the limit, so that derivatives are as exact as values.
    """
    still, deep = lax.stop_gradient(t), lax.stop_gradient(_DEEP / shape)
    moved = t - still  # 0, with a slope: all nodes go with the limit
    none = jnp.zeros_like(still)
    alone = (-1, *(1,) * max(jnp.ndim(t), jnp.ndim(shape)))
    nodes, log_weights = _NODES.reshape(alone), np.log(_WEIGHTS).reshape(alone)
    lower, upper = jnp.minimum(still, 0.0), jnp.maximum(still, 0.0)

    def between(start: Array, end: Array) -> Array:
        half = jnp.maximum(0.5 * (end - start), _TINY)
        at = 0.5 * (start + end) + moved + half * nodes
        return logsumexp(shape * (at - jnp.expm1(at)) + log_weights, axis=0) + jnp.log(half)

    left = between(lower - _fall_to_the_left(lower, deep), lower)
    left = jnp.where(shape < 1.0, _series(lower + moved, jnp.minimum(shape, 1.0)), left)
    right = between(upper, upper + _fall_to_the_right(upper, deep))
    # From the peak to the limit, on whichever side of it the limit is.
    from_peak = between(none, jnp.minimum(upper, _fall_to_the_right(none, deep)))
    to_peak = between(jnp.maximum(lower, -_fall_to_the_left(none, deep)), none)
    low = jnp.where(still > 0, jnp.logaddexp(left, from_peak), left)
    high = jnp.where(still < 0, jnp.logaddexp(right, to_peak), right)
    return log_height + low, log_height + high


def _fall_to_the_left(t: Array, deep: Array) -> Array:
    """How far left of t <= 0, at most, shape (t - exp(t) + 1) is lower by 40 = deep shape."""
    steep = deep / jnp.maximum(-jnp.expm1(t), _TINY)
    root = jnp.sqrt(3 * deep)
    return jnp.minimum(steep, jnp.where(root <= 1.0, root, deep + 1.0))


def _fall_to_the_right(t: Array, deep: Array) -> Array:
    """How far right of t >= 0, at most, it is."""
    steep = deep / jnp.maximum(jnp.expm1(t), _TINY)
    near = jnp.exp(-t)
    bent = jnp.log1p((deep + 2.0 + 2.0 * jnp.log1p(deep)) * near)
    return jnp.minimum(jnp.minimum(steep, jnp.sqrt(2 * deep * near)), bent)


def _series(t: Array, shape: Array) -> Array:
    """Log of the integral of exp(shape (u - exp(u) + 1)) over u up to t <= 0, for shapes up to 1.

    With x = shape exp(t): x^n / ((shape + 1) ... (shape + n)) add up, and x is at most 1.
    """
    x, total = shape * jnp.exp(t), jnp.ones_like(t)
    for n in range(18, 0, -1):
        total = 1.0 + x / (shape + n) * total
    return shape * (t - jnp.expm1(t)) + jnp.log(total / shape)
