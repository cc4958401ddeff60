"""Re-anchoring: moving subjects out of wrong modes of their effect's posterior.

A subject whose effect is off by the distance between two states, with its states relabelled, looks
almost the same; the mean anchor settles in whichever mode it meets first. The search tries, for all
subjects at once, a few other places, lets each climb one step, and moves a subject only where
log p(D_i, f) rises.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from avem.inference.avem import AnchoredEM, State, climb

_MAX_SHIFTS = 12
_SAME_SHIFT = 0.5
"""Shifts closer than this many noise standard deviations lead to the same mode."""
_RISE = 1e-3
"""Smallest rise of log p(D_i, f) that counts as another mode."""


def search_modes(
    em: AnchoredEM, state: State, rng: np.random.Generator
) -> tuple[State, int]:
    """The state with every subject in the best mode found, and how many subjects moved."""
    if em.kernel.n_effects == 0:
        return state, 0
    shifts = label_shifts(em, state.theta)
    everyone = np.concatenate(
        [a[:, np.asarray(c.real)] for a, c in zip(state.anchors, em.chunks, strict=True)], axis=1
    )

    def candidates(anchor: np.ndarray) -> np.ndarray:
        others = everyone[:, rng.integers(everyone.shape[1], size=(2, anchor.shape[1]))]
        return np.concatenate(
            [
                anchor[None],
                anchor[None] + shifts[:, :, None],
                np.zeros_like(anchor)[None],
                np.moveaxis(others, 1, 0),
            ]
        )

    climbed = em.each_chunk(
        lambda chunk, places: climb(em.kernel, state.theta, places, chunk, em.form[0]),
        [candidates(anchor) for anchor in state.anchors],
    )
    anchors, moved = [], 0
    for anchor, chunk, (places, heights) in zip(state.anchors, em.chunks, climbed, strict=True):
        heights = np.where(np.isfinite(heights), heights, -np.inf)
        best = heights.argmax(0)
        subject = np.arange(anchor.shape[1])
        better = (heights[best, subject] > heights[0] + _RISE) & np.asarray(chunk.real)
        anchors.append(np.where(better, np.asarray(places)[best, :, subject].T, anchor))
        moved += int(better.sum())
    return replace(state, anchors=tuple(anchors)), moved


def label_shifts(em: AnchoredEM, theta: dict[str, np.ndarray]) -> np.ndarray:
    """(shift, d): the moves of an effect that a relabelling of the states would undo."""
    coef, at = theta["coef"], em.matched >= 0
    outcome = np.repeat(np.arange(coef.shape[1]), len(em.kernel.emission.z_cols))
    noise = np.sqrt(np.diagonal(theta["covariance"], axis1=1, axis2=2).mean(0))
    pairs = [(k, m) for k in range(len(coef)) for m in range(len(coef)) if k != m]
    shifts = np.zeros((len(pairs), len(at)))
    for number, (k, m) in enumerate(pairs):
        shifts[number, at] = (coef[k] - coef[m])[outcome[at], em.matched[at]]
    size = np.abs(shifts / noise[outcome]).max(1, initial=0.0)
    kept: list[np.ndarray] = []
    for number in np.argsort(size, kind="stable"):
        distance = [np.abs((shifts[number] - other) / noise[outcome]).max() for other in kept]
        if size[number] > _SAME_SHIFT and min(distance, default=np.inf) > _SAME_SHIFT:
            kept.append(shifts[number])
    return np.array(kept[:_MAX_SHIFTS]).reshape(-1, len(at))
