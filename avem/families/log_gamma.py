"""The log of the gamma function less its leading part, with two derivatives in closed form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

# Coefficients of 1/x, 1/x^3, ... in the asymptotic series of log gamma; exact to rounding from 8.
_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_FAR = 8.0
# x (x + 7) + c for these c are the products of x, ..., x + 7 in pairs from both ends.
_PAIRS = (0.0, 6.0, 10.0, 12.0)


@jax.custom_jvp
def log_gamma_rest(x: Array) -> Array:
    """log gamma(x) less its leading part (x - 1/2) log x - x + log(2 pi) / 2.

    Differences of log gammas at large arguments lose all digits; differences of these do not. Below
    8, log gamma(x) = log gamma(x + 8) - log(x (x + 1) ... (x + 7)).
    """
    near, small, inverse = _parts(x)
    rising = 1.0
    for pair in _pairs(small):
        rising = rising * pair
    above = small + _FAR
    moved = (above - 0.5) * jnp.log(above) - (small - 0.5) * jnp.log(small) - _FAR
    series = inverse * _polynomial(inverse**2, _SERIES)
    return series + jnp.where(near, moved - jnp.log(rising), 0.0)


@jax.custom_jvp
def _slope(x: Array) -> Array:
    """Its derivative: digamma(x) - log x + 1 / (2 x)."""
    near, small, inverse = _parts(x)
    terms = [(2 * k + 1) * c for k, c in enumerate(_SERIES)]
    series = -(inverse**2) * _polynomial(inverse**2, terms)
    shares = sum(1.0 / pair for pair in _pairs(small))
    moved = jnp.log1p(_FAR / small) - 0.5 * inverse + 0.5 / small - (2.0 * small + 7.0) * shares
    return series + jnp.where(near, moved, 0.0)


def _bend(x: Array) -> Array:
    """Its second derivative: trigamma(x) - 1 / x - 1 / (2 x^2)."""
    near, small, inverse = _parts(x)
    terms = [(2 * k + 1) * (2 * k + 2) * c for k, c in enumerate(_SERIES)]
    series = inverse**3 * _polynomial(inverse**2, terms)
    shares = [1.0 / pair for pair in _pairs(small)]
    squares = sum(share * share for share in shares)
    moved = inverse - 1.0 / small + 0.5 * inverse**2 - 0.5 / small**2
    moved = moved - 2.0 * sum(shares) + (2.0 * small + 7.0) ** 2 * squares
    return series + jnp.where(near, moved, 0.0)


# Differentiated by rule, the definition becomes three times as many operations.
log_gamma_rest.defjvp(lambda x, along: (log_gamma_rest(*x), _slope(*x) * along[0]))
_slope.defjvp(lambda x, along: (_slope(*x), _bend(*x) * along[0]))


def _parts(x: Array) -> tuple[Array, Array, Array]:
    """Whether x is small; it, or 1; and 1 / x where the series holds, 8 higher where x is small."""
    near = x < _FAR
    small = jnp.where(near, x, 1.0)
    return near, small, 1.0 / jnp.where(near, small + _FAR, x)


def _pairs(x: Array) -> list[Array]:
    ends = x * (x + 7.0)
    return [ends + c for c in _PAIRS]


def _polynomial(x: Array, coefficients) -> Array:
    total = jnp.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total
