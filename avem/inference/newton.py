"""Safeguarded Newton steps on small problems whose terms are sums over the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from avem.components.linear import CoefTerms

_LONGEST = 4.0
"""No coefficient moves further than this in one step: e^4 on the scale of a log link."""
_NO_MATTER = 1e-6
"""Curvature of a coefficient below which moving it by 1 changes the log likelihood by nothing."""
_SURELY = 0.03
"""Steps this short, on the scale of a link, raise the value without being asked."""
_SMALLEST = 1e-9
"""Steps below this, times the square root of the curvature, are the end."""
_HALVINGS = 12


class Climb(NamedTuple):
    """Where Newton's steps ended."""

    coef: np.ndarray
    sharpness: np.ndarray
    """(problems, coefficients) square root of the curvature: how much a move of 1 matters."""


def climb(
    evaluate: Callable[[np.ndarray], CoefTerms],
    height: Callable[[np.ndarray], np.ndarray],
    coef: np.ndarray,
    terms: CoefTerms,
    free: np.ndarray,
    max_steps: int,
) -> Climb:
    """Raise every problem's value from `coef` (problems, coefficients), where `terms` were found.

    ``evaluate`` gives the values with derivatives, ``height`` the values alone.
    """
    for number in range(max_steps):
        terms = evaluate(coef) if number else terms
        sharpness = _sharpness(terms)
        step = newton_step(terms, free)
        if not (np.abs(step) * np.minimum(1.0, sharpness)).max(initial=0.0) > _SMALLEST:
            break
        if np.abs(step).max() < _SURELY:
            coef = coef + step
            continue
        stride = np.ones(len(coef))
        for _ in range(_HALVINGS):
            tried = coef + stride[:, None] * step
            with np.errstate(invalid="ignore"):
                rose = height(tried) >= terms.value - 1e-10 * (1.0 + np.abs(terms.value))
            if rose.all():
                break
            stride = np.where(rose, stride, 0.5 * stride)
        else:
            stride = np.where(rose, stride, 0.0)
        coef = coef + stride[:, None] * step
        if not stride.any():
            break
    return Climb(coef, sharpness)


def _sharpness(terms: CoefTerms) -> np.ndarray:
    return np.sqrt(np.abs(np.diagonal(terms.curvature, axis1=1, axis2=2)))


def newton_step(terms: CoefTerms, free: np.ndarray) -> np.ndarray:
    """Newton's step of each problem, along curvatures made positive, and not too long."""
    diagonal = np.abs(np.diagonal(terms.curvature, axis1=1, axis2=2))
    # What hardly matters stays: a log odds on its way to minus infinity must not go on for ever.
    moves = free & (diagonal > _NO_MATTER) & np.isfinite(terms.curvature).all((1, 2))[:, None]
    # Unit diagonal first: coefficients may differ in size by many orders.
    size = np.sqrt(np.where(moves, diagonal, 1.0))
    both = moves[:, :, None] & moves[:, None]
    scaled = np.where(both, terms.curvature / (size[:, :, None] * size[:, None]), 0.0)
    values, vectors = np.linalg.eigh(scaled + np.eye(len(free)) * ~moves[:, :, None])
    slope = np.where(moves, terms.gradient / size, 0.0)
    along = (vectors * slope[:, :, None]).sum(1) / np.maximum(np.abs(values), 1e-8)
    step = np.where(moves, (vectors * along[:, None]).sum(2) / size, 0.0)
    longest = np.abs(step).max(1, initial=0.0, keepdims=True)
    return step * np.minimum(1.0, _LONGEST / np.maximum(longest, 1e-300))
