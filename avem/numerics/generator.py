"""Markov chains in continuous time: probabilities over an interval from rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_LARGEST, _TERMS = 0.25, 11
"""The argument of the series of exp, and its terms: the rest is below 1e-16 of it."""
_MOST = 2.0**100
"""How often a chain may leave a state within an interval: faster ones are taken to be as slow."""

Repeat = Callable[[Any, Callable[[Any, Any], Any], Any], Any]
"""(n, function, x): x after ``x = function(i, x)`` for i = 0 to n - 1."""


def in_turn(n: Any, function: Callable[[int, Any], Any], x: Any) -> Any:
    """What `Repeat` is outside compiled code."""
    for i in range(int(n)):
        x = function(i, x)
    return x


def transition_matrices(generator: Any, repeat: Repeat = in_turn) -> Any:
    """exp(Q) of generators times their intervals, (from, to, ...), of NumPy or JAX.

    By scaling and squaring of exp(Q) = e^-r exp(Q + r I), in which no term is negative: nothing is
    lost by cancellation, and small probabilities have as many digits as large ones. The rows of a
    square are made to add up to 1, so that rounding does not double every time, and a slow move
    beside fast ones keeps its digits, too. There are as many squarings as the fastest chain needs:
    in compiled code `repeat` is a loop, through which derivatives can be taken forwards.
    """
    xp = generator.__array_namespace__()
    n_states = len(generator)
    here = np.arange(n_states)
    unit = xp.reshape(xp.eye(n_states), (n_states, n_states, *[1] * (generator.ndim - 2)))
    fastest = xp.max(-generator[here, here], axis=0)
    slower = _MOST / xp.maximum(fastest, _MOST)
    fastest = fastest * slower
    squarings = xp.ceil(xp.log2(xp.maximum(fastest / _LARGEST, 1.0)))
    part = 2.0**-squarings
    base = (generator * slower + unit * fastest) * part
    total = unit + base / _TERMS
    for term in range(_TERMS - 1, 0, -1):
        total = unit + product(base, total) / term

    def square(i: Any, total: Any) -> Any:
        return xp.where(i < squarings, _adding_up(product(total, total)), total)

    return repeat(squarings.max(), square, xp.exp(-fastest * part) * total)


def _adding_up(chances: Any) -> Any:
    """Each row over its sum."""
    total: Any = sum(chances[:, j] for j in range(len(chances)))
    return chances * (1.0 / total)[:, None]


def product(first: Any, second: Any) -> Any:
    """Products of matrices (row, column, ...)."""
    parts = [first[:, j, None] * second[None, j] for j in range(len(second))]
    return sum(parts[1:], parts[0])  # faster than a sum over an axis


def generators(rates: Any) -> Any:
    """Rates of moves (from, to, ...), 0 on the diagonal, with the diagonal that makes rows 0."""
    xp = rates.__array_namespace__()
    n_states = len(rates)
    shape = (n_states, n_states, *[1] * (rates.ndim - 2))
    return rates - xp.reshape(xp.eye(n_states), shape) * rates.sum(1)[:, None]
