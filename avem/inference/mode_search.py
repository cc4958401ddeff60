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
    """Where else to look: where the states have other names, at 0, at other subjects' effects."""
    yield from em.kernel.twins(theta, em.matches)
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
