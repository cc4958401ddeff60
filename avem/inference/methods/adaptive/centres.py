"""Where the adaptive tier begins: the modes of every subject's posterior, and how wide they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.effects.prior import EffectDensity, log_joint
from avem.inference.catch_up import known
from avem.inference.e_steps import ESteps, State
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.adaptive.parts import Group, apart, enough_of, of_members
from avem.inference.methods.avem import Anchored
from avem.inference.mode_search import Elsewhere, elsewhere, modes_of
from avem.inference.on_shard import Setting, Subjects
from avem.inference.passes import Glance, effect_terms
from avem.inference.tuning import MOST_ON_AXES
from avem.models.kernel import Kernel
from avem.numerics.arrays import (
    first_ones,
    in_numpy,
    in_turn,
    less,
    log_sum,
    per_subject,
    stacked,
    unstacked,
)
from avem.numerics.jit import jit
from avem.numerics.small import contract, inverse, spectral

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
    if _steps_tell(setting.kernel):
        setting = replace(setting, method=Anchored())
    pairs = [(less(f, -one), less(f, one)) for one in np.diag(step)]
    scores = ((score(chunk, up, setting), score(chunk, down, setting)) for up, down in pairs)
    return _bend(tuple(scores), step)


def score(chunk: Chunk, f: Any, setting: Setting) -> Any:
    """(d, subject) derivative of log p(D_i | f) in f; `setting` is that of `Anchored`."""
    if not _steps_tell(setting.kernel):
        return score_pass(setting.kernel, setting.theta, f, chunk, setting.form)[0]
    p, _ = setting.glance(chunk, f)
    prior = np.linalg.inv(setting.theta["effect_covariance"])
    return _score_of(f, p.mean, p.covariance, prior)


def _steps_tell(kernel: Kernel) -> bool:
    """The anchored step is Newton's with the states seen, and says the slope.

    Its program is one that every fit has. With many effects, more work than the slope alone.
    """
    return kernel.closed_form and kernel.n_effects <= MOST_ON_AXES


@per_subject
def _score_of(xp: Any, at: Any, mean: Any, covariance: Any, prior: Any) -> Any:
    """The slope of log p(D_i, f), from the step that was taken, less that of the prior.

    `prior` is the inverse of the effects' covariance.
    """
    pull = contract(xp, "ab,bn->an", prior, at)
    return (inverse(xp, covariance) * (mean - at)).sum(1) + pull


@per_subject
def _bend(xp: Any, scores: tuple[tuple[Any, Any], ...], step: Any) -> Any:
    """(d, d, subject) from the scores on either side."""
    pairs = zip(scores, step, strict=True)
    out = xp.stack([-(up - down) / (2 * width) for (up, down), width in pairs], axis=1)
    return 0.5 * (out + xp.swapaxes(out, 0, 1))


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
    width = _width(chunk, _highest(found), setting)
    with_draws = _MOST_WITH_DRAWS if setting.kernel.has_twins else 1
    most = with_draws if method.by_draws else _MOST
    log_share, at = _choose(found, width, chunk.real, most)
    centres = Centres(log_share, at, _alike(width, at), sigma)
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
    """Subjects by their numbers of centres, rounded up to a power of 2.

    On a GPU, where all that is compiled is compiled for each size: to one, or the largest.
    """
    count = np.isfinite(np.asarray(centres.log_share)).sum(0)
    most = len(centres.log_share)
    sizes = [size for size in (1, 2, 4, 8) if size < 2 * most]
    if not in_numpy():
        sizes = sorted({1, sizes[np.searchsorted(sizes, count[real].max(initial=1))]})
    kinds = np.searchsorted(sizes, count)
    groups = (Group(min(size, most), 0, real & (kinds == k)) for k, size in enumerate(sizes))
    return [group._replace(members=np.flatnonzero(group.members)) for group in groups]


def _confirmed(chunk: Chunk, centres: Centres, setting: Setting) -> Centres:
    """The centres, second and further ones climbed to their modes; those that were none are gone.

    `setting` is that of an anchored method.
    """
    members = np.flatnonzero(np.isfinite(np.asarray(centres.log_share)[1:]).any(0))
    if not len(members):
        return centres
    n_passes = 2 * len(centres.mean) * (_NEWTON_STEPS + centres.mean.shape[1])
    own = enough_of(chunk, members, n_passes, setting.code_price)
    whole = own is chunk
    here = centres if whole else of_members(centres, members, len(own.real))
    wide = _widths(own, here.mean, setting)
    found = _looked(own, here.mean, setting)
    trial = _onward(found, found, wide)[1]
    for _ in range(_NEWTON_STEPS - 1):
        found, trial = _onward(found, _looked(own, trial, setting), wide)
    found = _in_use(found, here.log_share)
    log_share, at = _choose(found, unstacked(wide)[0], own.real, len(wide))
    if whole:
        return Centres(log_share, at, _widths(own, at, setting), here.prior)
    some = np.zeros(len(chunk.real), bool)
    some[members] = True
    alone = centres._replace(log_share=_first_of(centres.log_share, some))
    return alone.put(members, Centres(log_share, at, _widths(own, at, setting), centres.prior))


@per_subject
def _alike(xp: Any, width: Any, at: Any) -> Any:
    """The same width at all places."""
    return xp.stack([width] * len(at))


def _widths(chunk: Chunk, at: Any, setting: Setting) -> Any:
    return stacked(tuple(_width(chunk, mean, setting) for mean in unstacked(at)))


@per_subject
def _onward(xp: Any, found: _Candidates, there: _Candidates, wide: Any) -> tuple[_Candidates, Any]:
    """The better of two places for each candidate, and the next one to try."""
    # A step that does not lead upwards is taken back, and a shorter one tried.
    rose = there.height >= found.height
    at, slope = (
        xp.where(rose[:, None], its, own)
        for own, its in ((found.at, there.at), (found.slope, there.slope))
    )
    found = _Candidates(at, xp.where(rose, there.height, found.height), slope)
    steps = _newton(xp, wide, found.slope)
    return found, found.at + xp.where(rose, 1.0, 0.25)[:, None] * steps


@per_subject
def _first_of(xp: Any, log_share: Any, some: Any) -> Any:
    """The centres of some subjects not in use, but for the first one."""
    later = xp.arange(len(log_share))[:, None] > 0
    return xp.where(later & some, -xp.inf, log_share)


@per_subject
def _in_use(xp: Any, found: _Candidates, log_share: Any) -> _Candidates:
    return found._replace(height=xp.where(xp.isfinite(log_share), found.height, -xp.inf))


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
    return _between(*_choose(found, width, chunk.real, _MOST))


@per_subject
def _between(xp: Any, log_share: Any, at: Any) -> Any:
    share = xp.exp(log_share)[:, None]
    return (share * (at - (share * at).sum(0)) ** 2).sum(0)


class _Candidates(NamedTuple):
    """Places near modes, for the subjects of a chunk."""

    at: Any
    """(candidate, d, subject)."""
    height: Any
    """(candidate, subject) log p(D_i, f)."""
    slope: Any
    """(candidate, d, subject) of log p(D_i, f)."""


def _newton(xp: Any, width: Any, slope: Any) -> Any:
    """(candidate, d, subject) steps to where a posterior as wide as `width` would have its mode.

    `width` is (d, d, subject), or (candidate, d, d, subject).
    """
    move = (width * slope[:, None]).sum(2)
    gain = 0.5 * (move * slope).sum(1)
    short = xp.minimum(1.0, _FURTHEST / xp.sqrt(xp.maximum(2.0 * gain, 1e-300)))
    return short[:, None] * move


@per_subject
def _highest(xp: Any, found: _Candidates) -> Any:
    """(d, subject) the highest candidate of each."""
    best = found.height.argmax(0)
    return xp.take_along_axis(found.at, best[None, None], axis=0)[0]


def _candidates(
    chunk: Chunk,
    subjects: Subjects,
    drawn: np.ndarray,
    setting: Setting,
    places: Elsewhere,
    n_passes: int,
) -> _Candidates:
    """Where a few climbing steps lead from all the places worth trying."""
    modes, density = modes_of(subjects), setting.effect_density
    found, top = [], np.full(np.shape(chunk.real), -np.inf)
    others = list(places.places(modes[0], drawn))
    for number, at in enumerate([*modes, *others]):
        for look in range(n_passes):
            p, _ = setting.glance(chunk, at)
            here = _seen(at, p, density, top, np.float64(_HOPE[look]), chunk.real)
            hopeless = number >= len(modes) and not here.hope
            if hopeless or look == n_passes - 1:
                break
            at = here.towards
        found.append((at, here.height, here.slope))
        top = here.top
    if not in_numpy():  # one program for any number of them
        nowhere = (found[0][0], np.full(np.shape(chunk.real), -np.inf), found[0][2])
        found += [nowhere] * (max(len(modes), _MOST) + len(others) - len(found))
    return _Candidates(*_stacked(tuple(found)))


def _looked(chunk: Chunk, at: Any, setting: Setting) -> _Candidates:
    """Heights and slopes at places (candidate, d, subject)."""
    density, top = setting.effect_density, np.zeros(np.shape(chunk.real))
    found = []
    for place in unstacked(at):
        p, _ = setting.glance(chunk, place)
        here = _seen(place, p, density, top, np.float64(0.0), chunk.real)
        found.append((place, here.height, here.slope))
    return _Candidates(*_stacked(tuple(found)))


@per_subject
def _stacked(xp: Any, found: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    """Places, heights and slopes of each, to those of all."""
    return tuple(xp.stack(part) for part in zip(*found, strict=True))


class _Seen(NamedTuple):
    """What a pass says of a place."""

    height: Any
    """log p(D_i, f)."""
    slope: Any
    """Of it; the next anchor is the complete-data step. Also where there is no closed form: by
    Fisher's identity it has the same slope."""
    towards: Any
    """Where the pass would put the anchor."""
    top: Any
    """The highest log p(D_i, f) so far."""
    hope: Any
    """Somebody may have a mode near it that counts."""


@per_subject
def _seen(
    xp: Any, at: Any, p: Glance, density: EffectDensity, top: Any, enough: Any, real: Any
) -> _Seen:
    height = log_joint(p.loglik, density, at)
    slope = (inverse(xp, p.covariance) * (p.mean - at)).sum(1)
    return _Seen(
        height,
        xp.where(xp.isfinite(slope), slope, 0.0),
        xp.where(xp.isfinite(p.mean), p.mean, 0.0),
        xp.fmax(top, height),
        ((height > top - enough) & real).any(),
    )


def _choose(found: _Candidates, width: Any, real: Any, most: int) -> tuple[Any, Any]:
    """The highest modes that are apart: log shares (centre, subject) and places."""
    log_share, at, n_centres = _chosen(found, width, real, np.empty(most))
    n = int(n_centres)
    if not in_numpy():  # fewer programs: of one, or of all
        n = n if n == 1 else most
    return (log_share, at) if n == most else first_ones((log_share, at), np.empty(n))


@per_subject
def _chosen(xp: Any, found: _Candidates, width: Any, real: Any, slots: Any) -> tuple[Any, Any, Any]:
    """As many as there are `slots`, not all of them in use; and how many one has at most."""
    # Candidates that are on their way to a mode are not yet there, but not elsewhere either.
    ahead = found.at + _newton(xp, width, found.slope)
    precision = inverse(xp, width)
    order = xp.argsort(-found.height, axis=0, stable=True)
    heights = xp.take_along_axis(found.height, order, axis=0)
    places = xp.take_along_axis(ahead, order[:, None], axis=0)
    most, n = len(slots), found.height.shape[1]
    slot = xp.arange(most)[:, None]

    def take(rank: Any, so_far: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """With the place of that rank, where it is high, and apart from those that were taken."""
        count, ranks, there = so_far
        away = places[rank] - there
        distance = (away[:, :, None] * precision * away[:, None]).sum((1, 2))
        apart = ((ranks < 0) | (distance > _APART**2)).all(0)
        high = ((heights[rank] > heights[0] - _NEGLIGIBLE) & real) | (count == 0)
        new = high & apart & (count < most)
        here = new & (count == slot)
        there = xp.where(here[:, None], places[rank], there)
        return count + new, xp.where(here, rank, ranks), there

    nobody = xp.zeros(n, int), xp.full((most, n), -1), xp.stack([places[0]] * most)
    count, ranks, _ = in_turn(xp, len(order), take, nobody)
    used, pick = ranks >= 0, xp.where(ranks >= 0, ranks, ranks[0])
    log_share = xp.where(used, xp.take_along_axis(heights, pick, axis=0), -xp.inf)
    at = xp.take_along_axis(found.at, xp.take_along_axis(order, pick, axis=0)[:, None], axis=0)
    n_centres = xp.maximum(xp.where(real, count, 0).max(), 1)
    return log_share - log_sum(xp, log_share), at, n_centres


def _width(chunk: Chunk, at: Any, setting: Setting) -> Any:
    """(d, d, subject) the inverse curvature of log p(D_i, f), bounded by the prior's."""
    sigma = setting.theta["effect_covariance"]
    step = _APPROACH * np.sqrt(np.diagonal(sigma))
    return posterior_width(information(chunk, at, setting, step), sigma)


def posterior_width(info: Any, sigma: np.ndarray) -> Any:
    """(d, d, subject) a posterior's covariance, from the information in the data."""
    prior = np.linalg.inv(sigma)
    return _width_of(info, prior, 0.25 * np.linalg.eigvalsh(prior)[0])


@per_subject
def _width_of(xp: Any, info: Any, prior: Any, least: Any) -> Any:
    """With the inverse of the effects' covariance; no precision is smaller than the least."""
    precision = info + prior[:, :, None]
    precision = xp.where(xp.isfinite(precision), precision, prior[:, :, None])
    return spectral(xp, precision, lambda values: 1.0 / xp.maximum(values, least))
