"""Expected log likelihoods without pointwise predictors: derivatives by automatic differentiation.

For terms in which one step's density depends on what happened before (a user's emission with a
history) or on all transitions at once (a stationary start). Such a term is a function
``V(coef, f) -> (problem, lane)``: what each group of coefficients and each lane contribute. Lanes
do not mix, so one sweep per effect gives the second derivatives of all lanes, and one per
coefficient those of all problems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.components.linear import CoefTerms
from avem.effects.quadratic import EffectTerms
from avem.kernels.inverse import cholesky
from avem.numerics.nodes import small_rule

Term = Callable[[Array, Array], Array]
"""(coef (problem, coefficient), f (d, lane)) -> (problem, lane)."""


def expected_value(term: Term, coef: Array, mean: Array, cov: Array | None, effects) -> Array:
    """(lane,) E_q of the term; at the point `mean` when `cov` is None."""
    return average(lambda f: term(coef, f).sum(0), mean, cov, effects)


def effect_terms(
    term: Term, coef: Array, mean: Array, cov: Array | None, effects: tuple[int, ...]
) -> EffectTerms:
    """E_q of the term and of its derivatives in the effects that it depends on."""

    def slope(f: Array) -> Array:
        return jax.grad(lambda g: term(coef, g).sum())(f)

    value = expected_value(term, coef, mean, cov, effects)
    gradient = average(slope, mean, cov, effects)
    curvature = jnp.zeros((len(mean), *mean.shape), mean.dtype)
    for j in effects:
        unit = jnp.zeros_like(mean).at[j].set(1.0)
        column = average(lambda f, unit=unit: jax.jvp(slope, (f,), (unit,))[1], mean, cov, effects)
        curvature = curvature.at[:, j].set(-column)
    # Diagonal dominance: never negative, and at least the curvature.
    dominating = jnp.abs(curvature).sum(1)
    majorant = jnp.eye(len(mean))[:, :, None] * dominating[:, None]
    return EffectTerms(value, gradient, curvature, majorant)


def coef_terms(
    term: Term, coef: Array, mean: Array, cov: Array | None, effects: tuple[int, ...]
) -> CoefTerms:
    """E_q of the term and of its derivatives in the coefficients, summed over lanes."""

    def total(b: Array) -> Array:
        return average(lambda f: term(b, f), mean, cov, effects).sum(-1)

    def slope(b: Array) -> Array:
        return jax.grad(lambda c: total(c).sum())(b)

    columns = [
        jax.jvp(slope, (coef,), (jnp.zeros_like(coef).at[:, j].set(1.0),))[1]
        for j in range(coef.shape[1])
    ]
    return CoefTerms(total(coef), slope(coef), -jnp.stack(columns, axis=2))


def average(
    function, mean: Array, cov: Array | None, effects: tuple[int, ...], at_once: bool = True
) -> Any:
    """E over q of a function of f; with nodes in the effects that matter, one by one if wanted."""
    if cov is None or not effects:
        return function(mean)
    points, weights = small_rule(len(effects))
    at = np.array(effects)
    low = cholesky(cov[at[:, None], at])
    shifts = jnp.einsum("abl,jb->jal", low, jnp.asarray(points))

    def moved(shift: Array) -> Any:
        return function(mean.at[at].add(shift))

    # All nodes in one sweep: a sweep over time costs little more for many lanes than for few.
    values = jax.vmap(moved)(shifts) if at_once else jax.lax.map(moved, shifts)
    return jax.tree.map(lambda part: jnp.tensordot(jnp.asarray(weights), part, axes=1), values)
