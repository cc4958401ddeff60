"""Where the adaptive tier begins: the modes of every subject's posterior, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.effects.prior import log_joint
from avem.inference.catch_up import known
from avem.inference.e_steps import ESteps, State
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.adaptive.parts import Group, apart, enough_of, of_members
from avem.inference.methods.avem import Anchored
from avem.inference.mode_search import Elsewhere, elsewhere, modes_of
from avem.inference.on_shard import Setting, Subjects
from avem.inference.passes import Glance, effect_terms
from avem.models.kernel import Kernel
from avem.numerics.jit import jit

_CLIMB, _GLANCE = 4, 2
"""Passes that bring a candidate near its mode: to put nodes there, and to see whether it counts."""
_APART = 2.0
"""Modes closer than this, in standard deviations, are one."""
_NEGLIGIBLE = 7.0
"""A mode whose mass is smaller than the best one's by this many log units is left out."""
_HOPE = (60.0, 25.0, 12.0, _NEGLIGIBLE)
"""How far below the best a place may be, look after look, to be climbed from any further."""
_MOST, _MOST_WITH_DRAWS = 4, 2
_FURTHEST = 3.0
"""Steps towards a mode are at most so many standard deviations."""
_NEWTON_STEPS = 4
_APPROACH = 0.02
"""Distance of the points between which slopes are compared, in prior standard deviations."""
_ADAPT = 2
"""Passes in which the centres find their places and widths."""


@jit("kernel", "form")
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
    method: Any = setting.method
    sigma = setting.theta["effect_covariance"]
    climbing = replace(setting, method=Anchored("laplace", _CLIMB))
    found = _candidates(chunk, subjects, drawn, climbing, places, _CLIMB)
    best = found.height.argmax(0)
    width = _width(chunk, found.at[best, :, np.arange(len(best))].T, setting)
    with_draws = _MOST_WITH_DRAWS if setting.kernel.has_twins else 1
    most = with_draws if method.by_draws else _MOST
    log_share, at = _choose(found, width, np.asarray(chunk.real), most)
    centres = Centres(log_share, at, np.broadcast_to(width, (len(at), *width.shape)), sigma)
    centres = _confirmed(chunk, centres, replace(climbing, form=setting.form))
    n_nodes = [len(rule.points) for rule in method.ladder]
    around = apart(
        chunk, centres, by_count(centres, np.asarray(chunk.real)), n_nodes, setting.code_price
    )
    subjects = Subjects(subjects.anchor, around)
    for _ in range(_ADAPT):
        subjects = subjects._replace(around=setting.look(chunk, subjects).around)
    return subjects


def by_count(centres: Centres, real: np.ndarray) -> list[Group]:
    """Subjects by their numbers of centres, rounded up to a power of 2."""
    count = np.isfinite(np.asarray(centres.log_share)).sum(0)
    most = len(centres.log_share)
    sizes = [size for size in (1, 2, 4, 8) if size < 2 * most]
    kinds = np.searchsorted(sizes, count)
    groups = (Group(min(size, most), 0, real & (kinds == k)) for k, size in enumerate(sizes))
    return [group._replace(members=np.flatnonzero(group.members)) for group in groups]


def _confirmed(chunk: Chunk, centres: Centres, setting: Setting) -> Centres:
    """The centres, second and further ones climbed to their modes; those that were none are gone.

    `setting` is that of an anchored method.
    """
    members = np.flatnonzero(np.isfinite(centres.log_share[1:]).any(0))
    if not len(members):
        return centres
    n_passes = 2 * len(centres.mean) * (_NEWTON_STEPS + len(centres.mean[0]))
    own = enough_of(chunk, members, n_passes, setting.code_price)
    whole = own is chunk
    here = centres if whole else of_members(centres, members, len(own.real))
    wide = np.stack([_width(own, mean, setting) for mean in here.mean])
    found, trial = None, here.mean
    for _ in range(_NEWTON_STEPS):
        there = _looked(own, trial, setting)
        # A step that does not lead upwards is taken back, and a shorter one tried.
        found = there if found is None else found
        rose = there.height >= found.height
        found = found.where(~rose, there)
        step = _joined([found.only(c).nearer(wide[c]) for c in range(len(wide))]).at - found.at
        trial = found.at + np.where(rose, 1.0, 0.25)[:, None] * step
    assert found is not None
    used = np.isfinite(here.log_share)
    found = found._replace(height=np.where(used, found.height, -np.inf))
    real = np.asarray(own.real)
    log_share, at = _choose(found, wide[0], real, len(wide))
    if whole:
        return Centres(log_share, at, _widths(own, at, setting), here.prior)
    gone = np.array(centres.log_share)
    gone[1:, members] = -np.inf
    found_ones = Centres(log_share, at, _widths(own, at, setting), centres.prior)
    return centres._replace(log_share=gone).put(members, found_ones)


def _widths(chunk: Chunk, at: np.ndarray, setting: Setting) -> np.ndarray:
    return np.stack([_width(chunk, mean, setting) for mean in at])


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
    log_share, at = _choose(found, width, np.asarray(chunk.real), _MOST)
    share = np.exp(log_share)[:, None]
    return (share * (at - (share * at).sum(0)) ** 2).sum(0)


class _Candidates(NamedTuple):
    """Places near modes, for the subjects of a chunk."""

    at: np.ndarray
    """(candidate, d, subject)."""
    height: np.ndarray
    """(candidate, subject) log p(D_i, f)."""
    slope: np.ndarray
    """(candidate, d, subject) of log p(D_i, f)."""

    def only(self, number: int) -> _Candidates:
        """One of them."""
        return _Candidates(*(part[number : number + 1] for part in self))

    def where(self, keep: np.ndarray, other: _Candidates) -> _Candidates:
        """These where `keep` (candidate, subject) says so, others elsewhere."""
        height = np.where(keep, self.height, other.height)
        at, slope = (
            np.where(keep[:, None], own, its)
            for own, its in ((self.at, other.at), (self.slope, other.slope))
        )
        return _Candidates(at, height, slope)

    def nearer(self, width: np.ndarray) -> _Candidates:
        """One Newton step on, where a posterior as wide as `width` would have its mode.

        Candidates that are on their way to a mode are not yet there, but not elsewhere either.
        """
        move = np.einsum("abn,cbn->can", width, self.slope)
        gain = 0.5 * np.einsum("can,can->cn", move, self.slope)
        short = np.minimum(1.0, _FURTHEST / np.sqrt(np.maximum(2.0 * gain, 1e-300)))
        return self._replace(at=self.at + short[:, None] * move)


def _joined(parts: Sequence[_Candidates]) -> _Candidates:
    return _Candidates(*map(np.concatenate, zip(*parts, strict=True)))


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
    real, sigma = np.asarray(chunk.real), setting.theta["effect_covariance"]
    found, top = [], np.full(real.shape, -np.inf)
    for number, at in enumerate([*modes, *places.places(modes[0], drawn)]):
        for look in range(n_passes):
            p, _ = setting.glance(chunk, at)
            height = log_joint(p.loglik, sigma, at)
            hopeless = number >= len(modes) and not (height > top - _HOPE[look])[real].any()
            if hopeless or look == n_passes - 1:
                break
            at = np.where(np.isfinite(p.mean), p.mean, 0.0)
        found.append((at, height, _pull(at, p)))
        top = np.fmax(top, height)
    return _Candidates(*map(np.stack, zip(*found, strict=True)))


def _looked(chunk: Chunk, at: np.ndarray, setting: Setting) -> _Candidates:
    """Heights and slopes at places (candidate, d, subject)."""
    sigma = setting.theta["effect_covariance"]
    found = []
    for place in at:
        p, _ = setting.glance(chunk, place)
        found.append((place, log_joint(p.loglik, sigma, place), _pull(place, p)))
    return _Candidates(*map(np.stack, zip(*found, strict=True)))


def _pull(at: np.ndarray, p: Glance) -> np.ndarray:
    """(d, subject) the slope of log p(D_i, f), of which the next anchor is the complete-data step.

    Also where there is no closed form: by Fisher's identity it has the same slope.
    """
    precision = np.linalg.inv(np.moveaxis(p.covariance, -1, 0))
    slope = np.einsum("nab,bn->an", precision, p.mean - at)
    return np.where(np.isfinite(slope), slope, 0.0)


def _choose(
    found: _Candidates, width: np.ndarray, real: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """The highest modes that are apart: log shares (centre, subject) and places."""
    n, ahead = found.at.shape[-1], found.nearer(width).at
    precision = np.linalg.inv(np.moveaxis(width, -1, 0))
    order = np.argsort(-found.height, axis=0, kind="stable")
    who, count, kept = np.arange(n), np.zeros(n, int), np.full((most, n), -1)
    top = found.height[order[0], who]
    for number in order:
        at = ahead[number, :, who].T
        new = ((found.height[number, who] > top - _NEGLIGIBLE) & real) | (count == 0)
        for slot in range(most):
            away = at - ahead[np.maximum(kept[slot], 0), :, who].T
            distance = np.einsum("an,nab,bn->n", away, precision, away)
            new &= (kept[slot] < 0) | (distance > _APART**2)
        new &= count < most
        kept[count[new], who[new]] = number[new]
        count += new
    n_centres = count[real].max(initial=1)
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
