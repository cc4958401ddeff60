"""Does anchoring hold here? What is lost, per subject and per effect, by one anchor.

The marginal likelihood exceeds the anchored bound by two parts, neither of them negative:

    log p(D_i) - ELBO_i = anchoring gap + Gaussian gap.

The anchoring gap is what the bound gains when the states' posterior may follow the effect (the
structured factorisation, Lemma 1, at the same q_i); the Gaussian gap is KL(q_i || p(f | D_i)).
Seen through information: q_i is as narrow as if the states were known, and the share of that
information which the data do not have is lost. Then variances between subjects come out too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from avem.data.layout import Chunk
from avem.execution.dataset import PerShard
from avem.inference.catch_up import known, seen
from avem.inference.e_steps import ESteps, State
from avem.inference.methods.adaptive.centres import (
    between_modes,
    information,
    posterior_width,
    score_pass,
)
from avem.inference.methods.adaptive.grade import grade
from avem.inference.methods.adaptive.method import MOST_BY_QUADRATURE, AdaptiveNodes
from avem.inference.methods.structured import StructuredNodes
from avem.inference.mode_search import Elsewhere, elsewhere
from avem.inference.on_shard import Setting, Subjects
from avem.inference.passes import Spread

_DIFFUSE = 0.2
"""Share of a posterior's variance that q lacks, above which partial anchoring integrates an effect.
"""
_MOST_INTEGRATED = 2
_FAILS, _FAILS_WITH_DRAWS = 0.1, 0.25
"""Information lost, as a share, above which a fit is refined: with few effects, by quadrature, and
with many, by draws, which are slower and less exact."""
_FINER = {1: 15, 2: 9, 3: 7}
"""Gauss-Hermite nodes per effect under q_i."""


class Gaps(NamedTuple):
    """Of every subject, in the panel's order: the bound, and what it lacks."""

    bound: np.ndarray
    structured: np.ndarray
    """The bound with the states' posterior free to follow the effect, at the same q_i."""
    loglik: np.ndarray
    """log p(D_i), by the adaptive tier."""
    quality: np.ndarray


class Information(NamedTuple):
    """Of the effects at the anchors, without the prior's: the diagonal, (d, ...)."""

    complete: np.ndarray
    """If the states were seen."""
    observed: np.ndarray


def effect_information(
    e: ESteps, state: State, rng: np.random.Generator
) -> tuple[Information, np.ndarray]:
    """(d, subjects) of every subject, in the panel's order.

    And (d,) the share of the posteriors' variance that does not lie between modes.
    """
    observed, parts = e.data.run(_information, (state.subjects,), e.setting(state))
    return e.data.join(parts), _within_modes(e, state, observed, rng)


def _within_modes(
    e: ESteps, state: State, observed: PerShard, rng: np.random.Generator
) -> np.ndarray:
    if not e.kernel.has_twins:
        return np.ones(e.kernel.n_effects)
    places, drawn = elsewhere(e, state, rng)
    own = (state.subjects, observed, drawn)
    within, apart = e.data.sum(_variances, own, e.setting(state), places)
    return within / (within + apart)


def _lacking(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """(d,) the share of one total that another lacks."""
    return 1.0 - part / np.maximum(whole, 1e-300)


def anchoring_fails(lost: Sequence[float]) -> bool:
    """Whether so much is lost of an effect that variances between subjects will be too small."""
    return max(lost, default=0.0) > fails_above(len(lost))


def fails_above(n_effects: int) -> float:
    """The share of information lost from which a fit with so many effects is refined."""
    return _FAILS if n_effects <= MOST_BY_QUADRATURE else _FAILS_WITH_DRAWS


def diffuse_effects(e: ESteps, state: State) -> tuple[int, ...]:
    """The effects that partial anchoring should integrate: whose posterior is much wider than q."""
    d, rng = e.kernel.n_effects, np.random.default_rng(0)
    integrated = replace(e, method=AdaptiveNodes.make(d).for_few(e.data))

    def total_variance(e: ESteps, state: State) -> np.ndarray:
        there = e.e_step(state).state
        return e.data.sum(_variance, (there.subjects,), e.setting(there))

    exact = total_variance(integrated, grade(integrated, state, rng).state)
    # Several modes, too, make a posterior wider than q.
    lost = _lacking(total_variance(e, state), exact)
    worst = np.argsort(-lost, kind="stable")[:_MOST_INTEGRATED]
    return tuple(sorted(int(effect) for effect in worst if lost[effect] > _DIFFUSE))


def gaps(e: ESteps, state: State, rng: np.random.Generator) -> Gaps:
    """The parts of log p(D_i) - ELBO_i at settled anchors."""
    there = e.e_step(state).state
    (bound,) = e.of_subjects(there, "bound")
    q = replace(there, subjects=e.data.keep(_q, (there.subjects,), e.setting(there)))
    d = e.kernel.n_effects
    free = replace(e, method=StructuredNodes.make(d, _FINER.get(d)))
    (structured,) = free.of_subjects(free.e_step(q).state, "bound")
    integrated = replace(e, method=AdaptiveNodes.make(d).for_few(e.data))
    graded = grade(integrated, state, rng)
    there = integrated.e_step(graded.state).state
    (quality,) = integrated.of_subjects(there, "quality")
    return Gaps(bound, structured, graded.loglik, quality)


# --- on a shard ---------------------------------------------------------------------------------


def _at_anchors(
    chunk: Chunk, subjects: Subjects, setting: Setting
) -> tuple[np.ndarray, np.ndarray]:
    """(d, d, subject) information, complete and observed."""
    step = 0.02 * np.sqrt(np.diagonal(setting.theta["effect_covariance"]))
    f, kernel, theta = subjects.anchor, setting.kernel, setting.theta
    complete = np.asarray(score_pass(kernel, theta, f, chunk, setting.form)[1])
    return complete, information(chunk, f, setting, step)


def _information(
    chunk: Chunk, subjects: Subjects | None, setting: Setting
) -> tuple[np.ndarray, Information]:
    """What is observed, to be kept; and the diagonals (d, subject)."""
    complete, observed = _at_anchors(chunk, known(chunk, subjects, setting), setting)
    return observed, Information(np.diagonal(complete).T, np.diagonal(observed).T)


def _variances(
    chunk: Chunk,
    subjects: Subjects | None,
    observed: np.ndarray | None,
    drawn: np.ndarray,
    setting: Setting,
    places: Elsewhere,
) -> tuple[np.ndarray, np.ndarray]:
    """(d,) sums of the posteriors' variances near their anchors, and between their modes."""
    subjects, real = known(chunk, subjects, setting), np.asarray(chunk.real)
    if observed is None:
        _, observed = _at_anchors(chunk, subjects, setting)
    near = posterior_width(observed, setting.theta["effect_covariance"])
    apart = between_modes(chunk, subjects, drawn, setting, places, near)
    return np.diagonal(near[..., real].sum(-1)), apart[:, real].sum(-1)


def _variance(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> np.ndarray:
    covariance = np.asarray(seen(chunk, subjects, setting).covariance)
    return np.diagonal(covariance[..., np.asarray(chunk.real)].sum(-1))


def _q(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> Subjects:
    p = seen(chunk, subjects, setting)
    return Subjects(p.mean, Spread(p.covariance))
