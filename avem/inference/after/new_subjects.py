"""The effects of subjects that the fit did not see, at its parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from avem.components.param_info import Params
from avem.data.layout import Chunk
from avem.inference.catch_up import known, seen
from avem.inference.em import EM, Guard, State, state_at
from avem.inference.mode_search import search_modes
from avem.inference.on_shard import Problem, Subjects
from avem.numerics.precision import in_float64

_MAX_STEPS = 100
_SETTLED = 1e-8


@in_float64
def infer_effects(em: EM, theta: Params, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d, subjects) and covariance (d, d, subjects) of q_i at fixed parameters."""
    rng = np.random.default_rng(seed)
    zero = np.zeros((em.kernel.n_effects, em.data.layout.n_subjects))
    state = _settle(em, state_at(em.data, theta, zero))
    for _ in range(3):
        found = search_modes(em, state, rng)
        if not found.moved:
            break
        state = _settle(em, found.state)
    return em.of_subjects(em.e_step(state).state, "mean", "covariance")


def _settle(em: EM, state: State) -> State:
    """Repeat E-steps until no anchor moves."""
    for _ in range(_MAX_STEPS):
        found = em.e_step(state).state
        own, problem = (found.subjects,), em.problem(found)
        subjects, moves = em.data.run(_follow, own, problem, em.guard)
        state = replace(found, subjects=subjects)
        if max(moves, default=0.0) < _SETTLED:
            break
    return state


def _follow(
    chunk: Chunk, subjects: Subjects | None, problem: Problem, guard: Guard | None
) -> tuple[Subjects, Any]:
    """On a shard: anchors where the E-step puts them, and the largest move."""
    subjects = known(chunk, subjects, problem)
    anchor = seen(chunk, subjects, problem).mean
    if guard is not None:
        anchor = guard(problem.theta, anchor)
    return Subjects(anchor), np.abs(anchor - subjects.anchor).max(initial=0.0)
