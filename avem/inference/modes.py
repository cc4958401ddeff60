"""Re-anchoring: moving subjects out of wrong modes of their effect's posterior.

A subject whose effect is off by the distance between two states, with its states relabelled, looks
almost the same; the mean anchor settles in whichever mode it meets first. The search tries, for all
subjects at once, a few other places, lets each climb one step, and moves a subject only where
log p(D_i, f) rises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from avem.effects.prior import log_joint
from avem.inference.em import EM, State

_MAX_SHIFTS = 12
_SAME_SHIFT = 0.5
"""Shifts closer than this many noise standard deviations lead to the same mode."""
_OTHERS = 2
"""How many other subjects' effects each subject tries."""
_RISE = 1e-3
"""Smallest rise of log p(D_i, f) that counts as another mode."""


class Search(NamedTuple):
    """What a search found."""

    state: State
    """Every subject in the best mode found."""
    moved: int
    """How many subjects moved."""
    rise: float
    """By how much sum_i log p(D_i, f_i) rose."""


def search_modes(em: EM, state: State, rng: np.random.Generator) -> Search:
    """Look for better modes of every subject's effect."""
    if em.kernel.n_effects == 0 or em.anchor == "fixed" or not em.method.anchored:
        return Search(state, 0, 0.0)
    real, everyone = em.real, em.everyone(state.anchors)
    own, height = _climb(em, state.theta, state.anchors)
    anchors, best = list(state.anchors), [level + _RISE for level in height]
    rise = 0.0
    moved = [np.zeros_like(is_real) for is_real in real]
    for move in moves(em, state.theta, everyone, rng):
        there, height = _climb(em, state.theta, tuple(move(anchor) for anchor in own))
        for c, is_real in enumerate(real):
            better = (height[c] > best[c]) & is_real
            rise += float((height[c][better] - best[c][better]).sum())
            anchors[c] = np.where(better, there[c], anchors[c])
            best[c] = np.where(better, height[c], best[c])
            moved[c] |= better
    return Search(
        state=replace(state, anchors=tuple(anchors)),
        moved=int(sum(m.sum() for m in moved)),
        rise=rise,
    )


def moves(
    em: EM, theta: dict[str, np.ndarray], everyone: np.ndarray, rng: np.random.Generator
) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Where else to look: a relabelling of the states away, at 0, at other subjects' effects."""
    for shift in label_shifts(em, theta):
        yield lambda anchor, shift=shift: anchor + shift[:, None]
    yield np.zeros_like
    for _ in range(_OTHERS):
        yield lambda anchor: everyone[:, rng.integers(everyone.shape[1], size=anchor.shape[1])]


def _climb(
    em: EM, theta: dict[str, np.ndarray], anchors: tuple[np.ndarray, ...]
) -> tuple[tuple[np.ndarray, ...], list[np.ndarray]]:
    """The effects after one q-update from the anchors, and log p(D_i, f) there."""
    there = tuple(np.asarray(p.mean) for p in em.try_e_step(State(theta, anchors)))
    there = tuple(np.where(np.isfinite(f), f, 0.0) for f in there)
    passes = em.try_e_step(State(theta, there))
    sigma, pairs = theta["effect_covariance"], zip(passes, there, strict=True)
    return there, [log_joint(p.loglik, sigma, f) for p, f in pairs]


def label_shifts(em: EM, theta: dict[str, np.ndarray]) -> np.ndarray:
    """(shift, d): the moves of an effect that a relabelling of the states would undo."""
    d, n_states = em.kernel.n_effects, em.kernel.n_states
    noise = np.ones(d)
    pairs = [(k, m) for k in range(n_states) for m in range(n_states) if k != m]
    shifts = np.zeros((len(pairs), d))
    for effect, match in enumerate(em.matches):
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
