"""Markov chains: draws, and where they are in the long run."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

_SEPARATE = 1e12
"""Condition number from which a chain counts as falling apart."""
_NEVER = 1e-250
"""The probability of leaving a state that is never left."""


def stationary(moves: Any, xp: ModuleType = np) -> Any:
    """(..., states) distributions that the transitions (..., from, to) leave as they are.

    By leaving out one state after the other (Grassmann, Taksar and Heyman): nothing is subtracted,
    so that shares of states that are hardly ever entered have all their digits, and none is
    negative. `xp` is NumPy, or `jax.numpy` in compiled code.
    """
    entered, rest = [], moves
    for last in range(moves.shape[-1] - 1, 0, -1):
        leaves = xp.maximum(rest[..., last, :last].sum(-1), _NEVER)
        into = rest[..., :last, last] / leaves[..., None]
        entered.append(into)
        rest = rest[..., :last, :last] + into[..., None] * rest[..., last, None, :last]
    share = xp.ones((*moves.shape[:-2], 1))
    for into in reversed(entered):
        share = xp.concatenate([share, (share * into).sum(-1, keepdims=True)], axis=-1)
        share = share / share.sum(-1, keepdims=True)
    return share


def _system(moves: np.ndarray) -> np.ndarray:
    """The matrix A of A pi = 1 that pi P = pi and sum(pi) = 1 amount to."""
    return np.eye(moves.shape[-1]) - np.swapaxes(moves, -1, -2) + 1.0


def long_run(moves: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """(..., states) shares of time in the long run, also where some states are never left.

    Then they depend on `start` (states,), by default uniform.
    """
    k = moves.shape[-1]
    if start is None:
        if (np.linalg.cond(_system(moves)) < _SEPARATE).all():
            return stationary(moves)
        start = np.full(k, 1 / k)
    # Staying put every second step changes no long-run share, but ends any cycling.
    lazy = (moves + np.eye(k)) / 2
    share = start @ np.linalg.matrix_power(lazy, 1 << 20)
    return share / share.sum(axis=-1, keepdims=True)


def choose(chance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(rows,) a state for each, with these chances (rows, states)."""
    passed = np.cumsum(chance, axis=1)
    return np.minimum((rng.random((len(chance), 1)) > passed).sum(1), chance.shape[1] - 1)
