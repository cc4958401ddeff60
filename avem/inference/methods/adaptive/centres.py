"""Where the adaptive tier begins: the modes of every subject's posterior, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.effects.prior import log_joint
from avem.inference.em import EM, State
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.avem import Anchored
from avem.inference.mode_search import moves
from avem.inference.passes import effect_terms
from avem.models.kernel import Kernel

_CLIMB, _GLANCE = 4, 2
"""Passes that bring a candidate near its mode: to put nodes there, and to see whether it counts."""
_APART = 2.0
"""Modes closer than this, in standard deviations, are one."""
_NEGLIGIBLE = 7.0
"""A mode whose mass is smaller than the best one's by this many log units is left out."""
_MOST, _MOST_WITH_DRAWS = 4, 2
_APPROACH = 0.02
"""Distance of the points between which slopes are compared, in prior standard deviations."""
_CHEAP = 1_000_000
"""Cells of a chunk, at all nodes of a centre, that are passed faster than code is compiled."""
_ADAPT = 2
"""Passes in which the centres find their places and widths."""


@partial(jax.jit, static_argnames=("kernel", "form"))
def score_pass(
    kernel: Kernel, theta: Theta, f: Array, chunk: Chunk, form: str
) -> tuple[Array, Array]:
    """Derivative of log p(D_i | f) in f, by Fisher's identity, and the complete-data information.

    (d, subject), and (d, d, subject): what would be known of f if the states were seen.
    """
    terms = effect_terms(kernel, theta, f, chunk, form)
    return terms.gradient, terms.curvature


def information(
    em: EM, theta: dict[str, np.ndarray], at: tuple[np.ndarray, ...], step: np.ndarray
) -> list[np.ndarray]:
    """Per chunk (d, d, subject): minus the second derivative of log p(D_i | f), observed.

    Central differences of the exact score, `step` (d,) apart.
    """
    d = em.kernel.n_effects

    def scores(f: list[np.ndarray]) -> list[np.ndarray]:
        found = em.each_chunk(
            lambda chunk, g: score_pass(em.kernel, theta, g, chunk, em.form[0])[0], f
        )
        return [np.asarray(s) for s in found]

    out = [np.zeros((d, d, f.shape[1])) for f in at]
    for e in range(d):
        unit = (np.arange(d) == e)[:, None] * step[e]
        up, down = scores([f + unit for f in at]), scores([f - unit for f in at])
        for c in range(len(at)):
            out[c][:, e] = -(up[c] - down[c]) / (2 * step[e])
    return [0.5 * (info + np.swapaxes(info, 0, 1)) for info in out]


def find_centres(em: EM, state: State, rng: np.random.Generator) -> State:
    """The state with centres at the modes of every subject's posterior, settled by a few passes."""
    if em.kernel.n_effects == 0:
        return state
    theta, anchored = state.theta, replace(em, method=Anchored("laplace", _CLIMB))
    found = _candidates(anchored, state, rng, _CLIMB)
    best = [c.height.argmax(0) for c in found]
    at_best = [c.at[b, :, np.arange(len(b))].T for c, b in zip(found, best, strict=True)]
    width = _widths(anchored, theta, at_best)
    with_draws = _MOST_WITH_DRAWS if em.kernel.has_twins else 1
    most = with_draws if em.method.by_draws else _MOST
    chosen = [
        _choose(candidates, own, real, _at_least(em, chunk), most)
        for candidates, own, real, chunk in zip(found, width, em.real, em.chunks, strict=True)
    ]
    slots = max(len(at) for _, at in chosen)
    # Chunks with fewer centres repeat their last one, for which there is no need to look again.
    by_slot = [
        _widths(anchored, theta, [at[min(slot, len(at) - 1)] for _, at in chosen])
        for slot in range(1, slots)
    ]
    around = [
        Centres(
            log_share,
            at,
            np.stack([width[c], *(w[c] for w in by_slot)][: len(at)]),
            theta["effect_covariance"],
        )
        for c, (log_share, at) in enumerate(chosen)
    ]
    state = replace(state, around=tuple(around))
    for _ in range(_ADAPT):
        passes = em.try_e_step(state)
        state = replace(state, around=tuple(p.around for p in passes))
    return state


def between_modes(
    em: EM, state: State, near: Sequence[np.ndarray], rng: np.random.Generator
) -> list[np.ndarray]:
    """Per chunk (d, subject): the variance between the modes of a subject's posterior.

    `em` is the anchored iteration, and `near` has the `widths` at the anchors.
    """
    out = []
    found = _candidates(em, state, rng, _GLANCE)
    for candidates, width, real in zip(found, near, em.real, strict=True):
        log_share, at = _choose(candidates, width, real, 1, _MOST)
        share = np.exp(log_share)[:, None]
        out.append((share * (at - (share * at).sum(0)) ** 2).sum(0))
    return out


def _at_least(em: EM, chunk: Chunk) -> int:
    """Centres per subject: where they are cheap, always as many, so that one shape is compiled."""
    n_cells = chunk.valid.size * em.method.n_nodes
    cheap = em.kernel.has_twins and n_cells <= _CHEAP
    return _MOST if cheap else 1


class _Candidates(NamedTuple):
    """Places near modes, for the subjects of a chunk."""

    at: np.ndarray
    """(candidate, d, subject)."""
    height: np.ndarray
    """(candidate, subject) log p(D_i, f)."""


def _candidates(em: EM, state: State, rng: np.random.Generator, n_passes: int) -> list[_Candidates]:
    """Where a few climbing steps lead from all the places worth trying."""
    known = _known(state)
    sigma = state.theta["effect_covariance"]
    found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in em.chunks]
    elsewhere = moves(em, state.theta, em.everyone(known[0]), rng)
    for at in [*known, *(tuple(move(anchor) for anchor in known[0]) for move in elsewhere)]:
        for _ in range(n_passes):
            passes = em.try_e_step(State(state.theta, at))
            last, at = at, tuple(np.where(np.isfinite(p.mean), p.mean, 0.0) for p in passes)
        for c, p in enumerate(passes):
            found[c].append((last[c], log_joint(np.asarray(p.loglik), sigma, last[c])))
    return [_Candidates(*map(np.stack, zip(*of_chunk, strict=True))) for of_chunk in found]


def _known(state: State) -> list[tuple[np.ndarray, ...]]:
    """The modes known so far, the heaviest first: centres, or else the anchors."""
    if not state.around:
        return [state.anchors]
    ordered = []
    for centres in state.around:
        order = np.argsort(-np.asarray(centres.log_share), axis=0, kind="stable")
        ordered.append(np.take_along_axis(np.asarray(centres.mean), order[:, None], axis=0))
    slots = max(len(mean) for mean in ordered)
    return [tuple(mean[min(slot, len(mean) - 1)] for mean in ordered) for slot in range(slots)]


def _choose(
    found: _Candidates, width: np.ndarray, real: np.ndarray, at_least: int, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """The highest modes that are apart: log shares (centre, subject) and places."""
    n = found.at.shape[-1]
    precision = np.linalg.inv(np.moveaxis(width, -1, 0))
    order = np.argsort(-found.height, axis=0, kind="stable")
    who, count, kept = np.arange(n), np.zeros(n, int), np.full((most, n), -1)
    top = found.height[order[0], who]
    for number in order:
        at = found.at[number, :, who].T
        new = ((found.height[number, who] > top - _NEGLIGIBLE) & real) | (count == 0)
        for slot in range(most):
            away = at - found.at[np.maximum(kept[slot], 0), :, who].T
            distance = np.einsum("an,nab,bn->n", away, precision, away)
            new &= (kept[slot] < 0) | (distance > _APART**2)
        new &= count < most
        kept[count[new], who[new]] = number[new]
        count += new
    n_centres = min(at_least, most)
    while n_centres < count[real].max(initial=1):
        n_centres *= 2
    kept, used = kept[:n_centres], kept[:n_centres] >= 0
    pick = np.where(used, kept, kept[0])
    log_share = np.where(used, found.height[pick, who], -np.inf)
    log_share -= np.logaddexp.reduce(log_share, axis=0)
    return log_share, np.moveaxis(found.at[pick, :, who], -1, 1)


def _widths(em: EM, theta: dict[str, np.ndarray], at: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Per chunk (d, d, subject): the inverse curvature of log p(D_i, f), bounded by the prior's."""
    sigma = theta["effect_covariance"]
    step = _APPROACH * np.sqrt(np.diagonal(sigma))
    return widths(information(em, theta, tuple(at), step), sigma)


def widths(infos: Sequence[np.ndarray], sigma: np.ndarray) -> list[np.ndarray]:
    """Per chunk (d, d, subject): a posterior's covariance, from the information in the data."""
    prior = np.linalg.inv(sigma)
    out = []
    for info in infos:
        precision = np.moveaxis(info, -1, 0) + prior
        values, vectors = np.linalg.eigh(np.where(np.isfinite(precision), precision, prior))
        values = np.maximum(values, 0.25 * np.linalg.eigvalsh(prior)[0])
        out.append(np.moveaxis((vectors / values[:, None]) @ np.swapaxes(vectors, 1, 2), 0, -1))
    return out
