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
from typing import Any, NamedTuple

import numpy as np

from avem.inference.em import EM, State
from avem.inference.methods.adaptive.centres import (
    between_modes,
    find_centres,
    information,
    score_pass,
    widths,
)
from avem.inference.methods.adaptive.method import MOST_BY_QUADRATURE, AdaptiveNodes
from avem.inference.methods.structured import StructuredNodes
from avem.inference.passes import Pass, Spread

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
    """Per chunk and subject: the bound, and what it lacks."""

    bound: list[np.ndarray]
    structured: list[np.ndarray]
    """The bound with the states' posterior free to follow the effect, at the same q_i."""
    marginal: list[Pass]
    """The adaptive tier's E-step; its `bound` is log p(D_i)."""


class Information(NamedTuple):
    """Per chunk (d, d, subject): of the effects, without the prior's."""

    complete: list[np.ndarray]
    """If the states were seen."""
    observed: list[np.ndarray]


def effect_information(em: EM, state: State) -> Information:
    """At the anchors."""
    sigma = state.theta["effect_covariance"]
    complete = em.each_chunk(
        lambda chunk, f: score_pass(em.kernel, state.theta, f, chunk, em.form[0])[1], state.anchors
    )
    step = 0.02 * np.sqrt(np.diagonal(sigma))
    observed = information(em, state.theta, state.anchors, step)
    return Information([np.asarray(part) for part in complete], observed)


def lost_information(em: EM, state: State, rng: np.random.Generator) -> np.ndarray:
    """(d,) the share of information lost by not seeing the states.

    Near the anchors, first. If that is little, there may yet be several modes, in which the states
    have other names: then what lies between them is lost, too.
    """
    found = effect_information(em, state)
    lost = _lacking(em, found.observed, found.complete)
    if anchoring_fails(lost.tolist()):
        return lost
    return 1.0 - (1.0 - lost) * within_modes(em, state, found, rng)


def within_modes(em: EM, state: State, found: Information, rng: np.random.Generator) -> np.ndarray:
    """(d,) the share of the posteriors' variance that does not lie between modes."""
    if not em.kernel.has_twins:
        return np.ones(em.kernel.n_effects)
    near = widths(found.observed, state.theta["effect_covariance"])
    apart = em.everyone(between_modes(em, state, near, rng)).sum(-1)
    within = np.diagonal(em.everyone(near).sum(-1))
    return within / (within + apart)


def _lacking(em: EM, parts: Sequence[Any], whole: Sequence[Any]) -> np.ndarray:
    """(d,) share of the diagonals of (d, d, subject) arrays that others lack, over all subjects."""
    one, other = (np.diagonal(em.everyone(each).sum(-1)) for each in (parts, whole))
    return 1.0 - one / np.maximum(other, 1e-300)


def anchoring_fails(lost: Sequence[float]) -> bool:
    """Whether so much is lost of an effect that variances between subjects will be too small."""
    return max(lost, default=0.0) > fails_above(len(lost))


def fails_above(n_effects: int) -> float:
    """The share of information lost from which a fit with so many effects is refined."""
    return _FAILS if n_effects <= MOST_BY_QUADRATURE else _FAILS_WITH_DRAWS


def diffuse_effects(em: EM, state: State) -> tuple[int, ...]:
    """The effects that partial anchoring should integrate: whose posterior is much wider than q."""
    d, rng = em.kernel.n_effects, np.random.default_rng(0)
    integrated = replace(em, method=AdaptiveNodes.make(d))
    passes, exact = em.e_step(state), integrated.e_step(find_centres(integrated, state, rng))
    # Several modes, too, make a posterior wider than q.
    lost = _lacking(em, [p.covariance for p in passes], [p.covariance for p in exact])
    worst = np.argsort(-lost, kind="stable")[:_MOST_INTEGRATED]
    return tuple(sorted(int(e) for e in worst if lost[e] > _DIFFUSE))


def gaps(em: EM, state: State, rng: np.random.Generator) -> Gaps:
    """The parts of log p(D_i) - ELBO_i at settled anchors."""
    passes = em.e_step(state)
    q = replace(
        state,
        anchors=tuple(np.asarray(p.mean) for p in passes),
        around=tuple(Spread(p.covariance) for p in passes),
    )
    d = em.kernel.n_effects
    free = replace(em, method=StructuredNodes.make(d, _FINER.get(d)))
    integrated = replace(em, method=AdaptiveNodes.make(d))
    return Gaps(
        bound=[np.asarray(p.bound) for p in passes],
        structured=[np.asarray(p.bound) for p in free.e_step(q)],
        marginal=integrated.e_step(find_centres(integrated, state, rng)),
    )
