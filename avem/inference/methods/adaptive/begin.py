"""From an anchored solution to the maximum of the marginal likelihood: where the tier begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from avem.data.layout import Chunk
from avem.inference.e_steps import ESteps, State
from avem.inference.em import EM
from avem.inference.methods.adaptive.centres import find_centres, information, score
from avem.inference.methods.avem import Anchored
from avem.inference.mode_search import Search
from avem.inference.on_shard import Setting, Subjects

_COLLAPSED = 2.0
"""A variance is lifted when the slopes of the likelihood ask for one this many times as large."""
_SINGULAR = 0.1
"""Smallest eigenvalue of the effects' correlations."""
_FEW = 4


def begin(em: EM, state: State, rng: np.random.Generator) -> State:
    """The state with centres, and with variances out of the corner where EM would creep.

    `em` is the adaptive iteration, `state` an anchored solution.
    """
    raised = lifted(em, state)
    if nearly_singular(em, state):
        # In a direction without variance EM finds no way back; from too much of it, it does.
        raised = _less_correlated(raised or state)
    if raised is None:
        return find_centres(em.e, state, rng)
    if em.method.by_draws:
        return find_centres(em.e, raised, rng)
    found, other = (_on_its_way(em, find_centres(em.e, s, rng)) for s in (state, raised))
    return max(found, other, key=lambda s: loglik(em.e, s))


def rise_of_larger_variances(em: EM, state: State, rng: np.random.Generator) -> float:
    """How much more likely the data are soon, with the variances that their slopes ask for."""
    raised = lifted(em, state)
    if raised is None:
        return 0.0
    here, there = (
        loglik(em.e, _on_its_way(em, find_centres(em.e, em.e.without_nodes(s), rng)))
        for s in (state, raised)
    )
    return max(there - here, 0.0)


def _on_its_way(em: EM, state: State) -> State:
    """The state after a few iterations, when it shows where it leads to."""
    for _ in range(_FEW):
        state = em.step(state).state
    return state


def nearly_singular(em: EM, state: State) -> bool:
    """The effects of some block are all but functions of another one of it."""
    sigma = state.theta["effect_covariance"]
    if (
        len(sigma) < 2
        or em.m_step.structure in ("diagonal", "isotropic")
        or "effect_covariance" in em.m_step.fixed
    ):
        return False
    unit = np.sqrt(np.diagonal(sigma))
    return float(np.linalg.eigvalsh(sigma / np.outer(unit, unit))[0]) < _SINGULAR


def _less_correlated(state: State) -> State:
    """The effects' covariance halfway to a diagonal one."""
    sigma = state.theta["effect_covariance"]
    halfway = 0.5 * (sigma + np.diag(np.diagonal(sigma)))
    return replace(state, theta={**state.theta, "effect_covariance": halfway})


def loglik(e: ESteps, state: State) -> float:
    """The objective at a state; -inf where it is not finite."""
    total = e.try_e_step(state).bound
    return total if np.isfinite(total) else -np.inf


def renew(e: ESteps, state: State, rng: np.random.Generator) -> Search:
    """New centres at the same parameters, if these find more of the likelihood than the old."""
    found = find_centres(e, state, rng)
    rise = loglik(e, found) - loglik(e, state)
    return Search(found, 0, rise) if rise > 0 else Search(state, 0, 0.0)


def lifted(em: EM, state: State) -> State | None:
    """Larger effect variances, where the likelihood's slopes at effects of 0 speak for them."""
    if "effect_covariance" in em.m_step.fixed:
        return None
    sigma, hint = state.theta["effect_covariance"], variance_hint(em.e, state)
    if not np.isfinite(hint).all():
        return None
    factor = np.sqrt(np.maximum(hint / np.diagonal(sigma), 1.0))
    if factor.max() ** 2 < _COLLAPSED:
        return None
    if em.m_step.structure == "isotropic":
        factor[:] = np.sqrt(np.mean(factor**2))
    theta = {**state.theta, "effect_covariance": sigma * np.outer(factor, factor)}
    return replace(state, theta=theta)


def variance_hint(e: ESteps, state: State) -> np.ndarray:
    """(d,) the effects' variances that the subjects' slopes at effects of 0 point to.

    With s_i the slope and I_i the information of subject i in one effect, the log likelihood rises
    with its variance at rate sum(s_i^2 - I_i) / 2, and the variance that this points to is
    sum(s_i^2 - I_i) / sum(I_i^2).
    """
    step = 0.05 * np.sqrt(np.diagonal(state.theta["effect_covariance"]))
    rise, curvature = e.data.sum(_slopes, (state.subjects,), e.setting(state), step)
    return rise / np.maximum(curvature, 1e-300)


def _slopes(chunk: Chunk, subjects: Subjects | None, setting: Setting, step: np.ndarray) -> Any:
    """On a shard: the sums of `variance_hint`, (d,) each."""
    nowhere = np.zeros((setting.kernel.n_effects, np.shape(chunk.real)[0]))
    slope = score(chunk, nowhere, replace(setting, method=Anchored()))
    real, info = np.asarray(chunk.real), information(chunk, nowhere, setting, step)
    slope, info = np.asarray(slope)[:, real], np.diagonal(info).T[:, real]
    return (slope**2 - info).sum(1), (info**2).sum(1)
