"""The effects of subjects that the fit did not see, at its parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from avem.components.param_info import Params
from avem.data.layout import Chunk
from avem.inference.catch_up import known, seen
from avem.inference.e_steps import ESteps, Guard, State, state_at
from avem.inference.mode_search import search_modes
from avem.inference.on_shard import Setting, Subjects
from avem.numerics.precision import in_float64

_MAX_STEPS = 100
_SETTLED = 1e-8


@in_float64
def infer_effects(e: ESteps, theta: Params) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d, subjects) and covariance (d, d, subjects) of q_i at fixed parameters."""
    rng = np.random.default_rng(0)
    zero = np.zeros((e.kernel.n_effects, e.data.layout.n_subjects))
    state = _settle(e, state_at(e.data, theta, zero))
    for _ in range(3):
        found = search_modes(e, state, rng)
        if not found.moved:
            break
        state = _settle(e, found.state)
    return e.of_subjects(e.e_step(state).state, "mean", "covariance")


def _settle(e: ESteps, state: State) -> State:
    """Repeat E-steps until no anchor moves."""
    for _ in range(_MAX_STEPS):
        found = e.e_step(state).state
        own, setting = (found.subjects,), e.setting(found)
        subjects, moves = e.data.run(_follow, own, setting, e.guard)
        state = replace(found, subjects=subjects)
        if max(moves, default=0.0) < _SETTLED:
            break
    return state


def _follow(
    chunk: Chunk, subjects: Subjects | None, setting: Setting, guard: Guard | None
) -> tuple[Subjects, Any]:
    """On a shard: anchors where the E-step puts them, and the largest move."""
    subjects = known(chunk, subjects, setting)
    anchor = seen(chunk, subjects, setting).mean
    if guard is not None:
        anchor = guard(setting.theta, anchor)
    return Subjects(anchor), np.abs(anchor - subjects.anchor).max(initial=0.0)
