"""The effects of subjects that the fit did not see, at its parameters."""

from __future__ import annotations

import numpy as np

from avem.components.param_info import Params
from avem.data.layout import Layout
from avem.inference.em import EM, State
from avem.inference.mode_search import search_modes
from avem.numerics.precision import in_float64

_MAX_STEPS = 100
_SETTLED = 1e-8


@in_float64
def infer_effects(
    em: EM, layout: Layout, theta: Params, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d, subjects) and covariance (d, d, subjects) of q_i at fixed parameters."""
    rng = np.random.default_rng(seed)
    zero = np.zeros((em.kernel.n_effects, layout.n_subjects))
    state = _settle(em, State(theta, tuple(layout.split(zero))))
    for _ in range(3):
        found = search_modes(em, state, rng)
        if not found.moved:
            break
        state = _settle(em, found.state)
    passes = em.e_step(state)
    return (
        layout.join([np.asarray(p.mean) for p in passes]),
        layout.join([np.asarray(p.covariance) for p in passes]),
    )


def _settle(em: EM, state: State) -> State:
    """Repeat E-steps until no anchor moves."""
    for _ in range(_MAX_STEPS):
        anchors = tuple(np.asarray(p.mean) for p in em.e_step(state))
        if em.guard is not None:
            anchors = tuple(em.guard(state.theta, anchor) for anchor in anchors)
        pairs = zip(anchors, state.anchors, strict=True)
        change = max((np.abs(new - old).max(initial=0.0) for new, old in pairs), default=0.0)
        state = State(state.theta, anchors)
        if change < _SETTLED:
            break
    return state
