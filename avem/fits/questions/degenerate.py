"""Fits that look better than they are: their likelihood says little, and `select` passes over them.

A variance on its floor makes a likelihood as high as one likes; a state that nobody is in, and two
states that are one, make it no higher, but count as states.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from avem.inference.m_step import NOISE_FLOOR
from avem.inference.theta import theta_moves

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_EMPTY = 1.5
"""Rows, in expectation, below which a state is as good as empty."""
_ALIKE = 0.01
"""Largest difference of a parameter, on the scale of the fit, between states that are alike."""


def degenerate_states(fit: HMMFit) -> tuple[str, ...]:
    """What is wrong with the states of a fit, in a few words each; of none of them, nothing."""
    model, data = fit.model, fit._own_data
    found, label = [], fit.state_labels
    collapsed = np.argwhere(model.collapsed(fit.theta, data.spread, NOISE_FLOOR))
    thin = sorted({int(k) for k, _ in collapsed})
    found += [f"{label[k]}: a variance at its floor" for k in thin]
    rows = fit._occupation.rows
    found += [f"{label[k]}: hardly a row" for k in np.flatnonzero(rows < _EMPTY)]
    found += [
        f"{label[k]} and {label[other]}: alike"
        for k, other in combinations(range(model.n_states), 2)
        if not {k, other} & set(model.silent) and _alike(fit, k, other)
    ]
    return tuple(found)


def _alike(fit: HMMFit, k: int, other: int) -> bool:
    """Whether outcomes have the same distributions in two states."""
    model, order = fit.model, np.arange(fit.model.n_states)
    order[[k, other]] = other, k
    swapped = {}
    for emission in model.emissions:
        swapped |= emission.relabelled(fit.theta, order)
    keys = {key for emission in model.emissions for key in _keys(fit.theta, emission.key)}
    own, its = ({key: theta[key] for key in keys} for theta in (fit.theta, swapped))
    return bool(theta_moves(own, its).max(initial=0.0) < _ALIKE) if keys else False


def _keys(theta: dict[str, np.ndarray], prefix: str) -> list[str]:
    return [key for key in theta if key.startswith(f"{prefix}.")]
