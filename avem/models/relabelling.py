"""Effects at which a subject looks (almost) the same, its states under other names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from avem.models.ssm_kernel import SSMKernel

Move = Callable[[np.ndarray], np.ndarray]
"""From the effects (d, subjects) to others."""
_MAX_SHIFTS = 12
_SAME_SHIFT = 0.5
"""Shifts closer than this many noise standard deviations lead to the same mode."""
_MOST_FLIPS = 15


def sign_flips(kernel: SSMKernel, theta: dict[str, np.ndarray]) -> list[Move]:
    """States of a state-space model with other signs: the loadings and dynamics turned with them.

    The subject's likelihood is the same but for its first state; the prior tells which it is.
    """
    if not kernel.random_loading:
        return []
    choices = product((1.0, -1.0), repeat=kernel.n_latent)
    return [_flip(kernel, theta, np.array(sign)) for sign in choices if min(sign) < 0][:_MOST_FLIPS]


def _flip(kernel: SSMKernel, theta: dict[str, np.ndarray], sign: np.ndarray) -> Move:
    at = len(kernel.transition_effects)
    turn, mean = [], []
    for a, b in kernel.transition_effects:
        turn.append(sign[a] * sign[b])
        mean.append(theta["dynamics"][a, b])
    for j, k in kernel.loading_effects:
        turn.append(sign[k])
        mean.append(theta["loading"][j, k])
    turned, centre = np.array(turn)[:, None], np.array(mean)[:, None]
    end = at + len(kernel.loading_effects)
    return partial(_turned, turned, centre, end)


def _turned(turn: np.ndarray, centre: np.ndarray, end: int, f: np.ndarray) -> np.ndarray:
    return np.concatenate([turn * (f[:end] + centre) - centre, f[end:]])


def label_shifts(n_states: int, theta: dict[str, np.ndarray], matches: Sequence[Any]) -> np.ndarray:
    """(shift, d): the moves of an effect that a relabelling of an HMM's states would undo."""
    d = len(matches)
    noise = np.ones(d)
    pairs = [(k, m) for k in range(n_states) for m in range(n_states) if k != m]
    shifts = np.zeros((len(pairs), d))
    for effect, match in enumerate(matches):
        if match is None or match.state is not None:
            continue  # an effect of one state moves no other
        own = theta[match.key][(slice(None), *match.place)]
        shifts[:, effect] = [own[k] - own[m] for k, m in pairs]
        covariance = theta.get(match.key.replace("coef", "covariance"))
        if covariance is not None:
            noise[effect] = np.sqrt(covariance[:, match.place[0], match.place[0]].mean())
    size = np.abs(shifts / noise).max(1, initial=0.0)
    kept: list[np.ndarray] = []
    for number in np.argsort(size, kind="stable"):
        distance = [np.abs((shifts[number] - other) / noise).max() for other in kept]
        if size[number] > _SAME_SHIFT and min(distance, default=np.inf) > _SAME_SHIFT:
            kept.append(shifts[number])
    return np.array(kept[:_MAX_SHIFTS]).reshape(-1, d)
