"""Markov chains: draws, and where they are in the long run."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

_SEPARATE = 1e12
"""Condition number from which a chain counts as falling apart."""
_NEVER = 1e-250
"""The probability of leaving a state that is never left."""
_DOUBLINGS = 60
"""Of the steps that a chain which falls apart makes before it is looked at."""


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
    moved: np.ndarray = (moves + np.eye(k)) / 2
    for _ in range(_DOUBLINGS):
        moved = moved @ moved
        moved = moved / moved.sum(axis=-1, keepdims=True)
    return start @ moved


def in_steps(generators: np.ndarray) -> np.ndarray:
    """(..., from, to) a chain with the long-run shares of one with these rates.

    Its step is as long as the shortest mean stay.
    """
    fastest = rates_of_leaving(generators).max(axis=-1)
    often = np.where(fastest > 0, fastest, 1.0)[..., None, None]
    return np.eye(generators.shape[-1]) + generators / often


def mean_stays(generators: np.ndarray) -> np.ndarray:
    """(..., states) how long a stay lasts on average; for ever where a state is never left.

    Of rates; or, in steps, of transition probabilities less the identity.
    """
    leaving = rates_of_leaving(generators)
    return np.where(leaving > 0, 1.0 / np.where(leaving > 0, leaving, 1.0), np.inf)


def rates_of_leaving(generators: np.ndarray) -> np.ndarray:
    """(..., states) the rates at which states are left."""
    return -np.diagonal(generators, axis1=-2, axis2=-1)


def choose(chance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(rows,) a state for each, with these chances (rows, states)."""
    passed = np.cumsum(chance, axis=1)
    return np.minimum((rng.random((len(chance), 1)) > passed).sum(1), chance.shape[1] - 1)
