"""Where the adaptive tier begins: the modes of every subject's posterior, and how wide they are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.effects.prior import log_joint
from avem.inference.catch_up import known
from avem.inference.e_steps import ESteps, State
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.avem import Anchored
from avem.inference.mode_search import Elsewhere, elsewhere, modes_of
from avem.inference.on_shard import Setting, Subjects
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


def find_centres(e: ESteps, state: State, rng: np.random.Generator) -> State:
    """The state with centres at the modes of every subject's posterior, settled by a few passes."""
    if e.kernel.n_effects == 0:
        return state
    places, drawn = elsewhere(e, state, rng)
    subjects = e.data.keep(_with_centres, (state.subjects, drawn), e.setting(state), places)
    return replace(state, subjects=subjects)


# --- on a shard ---------------------------------------------------------------------------------


def information(chunk: Chunk, f: np.ndarray, setting: Setting, step: np.ndarray) -> np.ndarray:
    """(d, d, subject) minus the second derivative of log p(D_i | f), observed.

    Central differences of the exact score, `step` (d,) apart.
    """
    d = len(f)

    def score(at: np.ndarray) -> np.ndarray:
        return np.asarray(score_pass(setting.kernel, setting.theta, at, chunk, setting.form)[0])

    out = np.zeros((d, d, f.shape[1]))
    for e in range(d):
        unit = (np.arange(d) == e)[:, None] * step[e]
        out[:, e] = -(score(f + unit) - score(f - unit)) / (2 * step[e])
    return 0.5 * (out + np.swapaxes(out, 0, 1))


def _with_centres(
    chunk: Chunk,
    subjects: Subjects | None,
    drawn: np.ndarray,
    setting: Setting,
    places: Elsewhere,
) -> Subjects:
    """Subjects with centres at their modes."""
    subjects = known(chunk, subjects, setting)
    method, kernel = setting.method, setting.kernel
    sigma = setting.theta["effect_covariance"]
    climbing = replace(setting, method=Anchored("laplace", _CLIMB))
    found = _candidates(chunk, subjects, drawn, climbing, places, _CLIMB)
    best = found.height.argmax(0)
    width = _width(chunk, found.at[best, :, np.arange(len(best))].T, setting)
    with_draws = _MOST_WITH_DRAWS if kernel.has_twins else 1
    most = with_draws if method.by_draws else _MOST
    # Where centres are cheap, always as many, so that one shape is compiled.
    cheap = kernel.has_twins and chunk.valid.size * method.n_nodes <= _CHEAP
    real = np.asarray(chunk.real)
    log_share, at = _choose(found, width, real, _MOST if cheap else 1, most)
    wide = np.stack([width, *(_width(chunk, mean, setting) for mean in at[1:])])
    subjects = Subjects(subjects.anchor, Centres(log_share, at, wide, sigma))
    for _ in range(_ADAPT):
        subjects = subjects._replace(around=setting.look(chunk, subjects).around)
    return subjects


def between_modes(
    chunk: Chunk,
    subjects: Subjects,
    drawn: np.ndarray,
    setting: Setting,
    places: Elsewhere,
    width: np.ndarray,
) -> np.ndarray:
    """(d, subject) the variance between the modes of a subject's posterior.

    `setting` is that of an anchored method, and `width` the posteriors' at the anchors.
    """
    found = _candidates(chunk, subjects, drawn, setting, places, _GLANCE)
    log_share, at = _choose(found, width, np.asarray(chunk.real), 1, _MOST)
    share = np.exp(log_share)[:, None]
    return (share * (at - (share * at).sum(0)) ** 2).sum(0)


class _Candidates(NamedTuple):
    """Places near modes, for the subjects of a chunk."""

    at: np.ndarray
    """(candidate, d, subject)."""
    height: np.ndarray
    """(candidate, subject) log p(D_i, f)."""


def _candidates(
    chunk: Chunk,
    subjects: Subjects,
    drawn: np.ndarray,
    setting: Setting,
    places: Elsewhere,
    n_passes: int,
) -> _Candidates:
    """Where a few climbing steps lead from all the places worth trying."""
    modes = modes_of(subjects)
    found = []
    for at in [*modes, *places.places(modes[0], drawn)]:
        last, p = at, setting.look(chunk, Subjects(at))
        for _ in range(n_passes - 1):
            last = np.where(np.isfinite(p.mean), p.mean, 0.0)
            p = setting.look(chunk, Subjects(last))
        found.append((last, log_joint(p.loglik, setting.theta["effect_covariance"], last)))
    return _Candidates(*map(np.stack, zip(*found, strict=True)))


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


def _width(chunk: Chunk, at: np.ndarray, setting: Setting) -> np.ndarray:
    """(d, d, subject) the inverse curvature of log p(D_i, f), bounded by the prior's."""
    sigma = setting.theta["effect_covariance"]
    step = _APPROACH * np.sqrt(np.diagonal(sigma))
    return posterior_width(information(chunk, at, setting, step), sigma)


def posterior_width(info: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """(d, d, subject) a posterior's covariance, from the information in the data."""
    prior = np.linalg.inv(sigma)
    precision = np.moveaxis(info, -1, 0) + prior
    values, vectors = np.linalg.eigh(np.where(np.isfinite(precision), precision, prior))
    values = np.maximum(values, 0.25 * np.linalg.eigvalsh(prior)[0])
    return np.moveaxis((vectors / values[:, None]) @ np.swapaxes(vectors, 1, 2), 0, -1)
