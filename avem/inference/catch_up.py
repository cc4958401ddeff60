"""Letting the anchors of a shard's subjects catch up with the parameters.

At given parameters the mean anchor climbs, pass by pass, to a mode of log p(D_i, f). Where states
overlap, some subjects' steps are short: following every change of the parameters with one such step
would take hundreds of iterations, or stop halfway. Here every subject extrapolates its own last two
steps, and goes on from a new place only if its own log p(D_i, f) is not lower there.

`q_step` does the same for methods whose q_i is more than an anchor. `best_anchors` looks for the
anchors of Lemma 2, near the means of q. `known` finds subjects again that a shard has lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from avem.data.layout import Chunk
from avem.effects.prior import EffectDensity, log_joint
from avem.inference.methods.anchored import bound_at
from avem.inference.on_shard import Setting, ShardSums, Subjects, squares, summary
from avem.inference.passes import Pass
from avem.numerics.arrays import per_subject

MOST_PASSES = 8
_FURTHEST = 8.0
"""An extrapolation goes at most this many times as far as the plain step."""
_FOUND, _LONG_SEARCH = 1e-9, 100
"""How still the anchors of lost subjects must be, and passes that this may take."""
_RISE = 1e-3
"""Smallest rise of log p(D_i, f) that makes another mode of a lost subject the better one."""
_FOLLOW = 8
"""Passes in which nodes, or a q, take their places around an anchor."""


def e_step(
    chunk: Chunk, subjects: Subjects | None, setting: Setting, still: float
) -> tuple[Subjects, ShardSums]:
    """The E-step, the anchors first settled to within `still`."""
    subjects = known(chunk, subjects, setting)
    first = setting.look(chunk, subjects)
    subjects = subjects._replace(found=first)
    if still < np.inf:
        subjects = settle(chunk, subjects, setting, still)
    return subjects, summary(chunk, subjects, first)


def known(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> Subjects:
    """The subjects; those that were lost are found again at the parameters."""
    if subjects is not None:
        return subjects
    from avem.inference.methods.avem import Anchored  # which is made of iterations

    n, d = np.shape(chunk.real)[0], setting.kernel.n_effects
    anchored = replace(setting, method=Anchored())
    there = Subjects(np.zeros((d, n)))
    if not d:
        return there
    anchor, height = _climbed(chunk, there.anchor, anchored)
    for move in setting.kernel.twins(setting.theta, setting.matches):
        other, level = _climbed(chunk, move(anchor), anchored)
        anchor, height = _better((anchor, height), (other, level))
    there = Subjects(anchor)
    for _ in range(0 if setting.method.anchored else _FOLLOW):
        p = setting.look(chunk, there)
        there = Subjects(p.mean if setting.method.has_q else there.anchor, p.around)
    return there


def _climbed(chunk: Chunk, anchor: np.ndarray, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """The modes that anchors lead to, and log p(D_i, f) there."""
    there = Subjects(anchor)
    there = there._replace(found=setting.look(chunk, there))
    there = settle(chunk, there, setting, _FOUND, _LONG_SEARCH)
    p = seen(chunk, there, setting)
    return there.anchor, log_joint(p.loglik, setting.effect_density, there.anchor)


def seen(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> Pass:
    """The E-step that was run at the subjects' anchors, or is run again."""
    subjects = known(chunk, subjects, setting)
    return setting.look(chunk, subjects) if subjects.found is None else subjects.found


@per_subject
def _better(xp: Any, here: tuple[Any, Any], there: tuple[Any, Any]) -> tuple[Any, ...]:
    """Of two places and log p(D_i, f) at them, the first unless the second is clearly higher."""
    higher = there[1] > here[1] + _RISE
    return tuple(xp.where(higher, new, old) for new, old in zip(there, here, strict=True))


def whole(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> Pass:
    """`seen` with what an E-step keeps for the M-step by Newton."""
    subjects = known(chunk, subjects, setting)
    p = seen(chunk, subjects, setting)
    return setting.look(chunk, subjects) if p.kept is None else p


class _Place(NamedTuple):
    """Anchors, where the next q-update puts them, and log p(D_i, f) at them."""

    at: Any
    towards: Any
    height: Any


def settle(
    chunk: Chunk, subjects: Subjects, setting: Setting, still: float, most: int = MOST_PASSES
) -> Subjects:
    """Anchors whose next step is at most `still` (root mean square), and the E-step at them."""
    density = setting.effect_density
    found = setting.look(chunk, subjects) if subjects.found is None else subjects.found
    best, distance = _placed(subjects.anchor, found.mean, found.loglik, density, chunk.real)
    trial = best.towards
    for _ in range(most):
        if not float(distance) > still:
            break
        glance, there = setting.glance(chunk, trial)
        seen_there = (trial, glance.mean, glance.loglik, density)
        best, trial, distance, all_rose = _step(best, *seen_there, chunk.real)
        found = there if there is not None and all_rose else None
    at_best = subjects._replace(anchor=best.at, found=None)
    return at_best._replace(found=setting.look(chunk, at_best) if found is None else found)


@per_subject
def _placed(
    xp: Any, at: Any, towards: Any, loglik: Any, density: EffectDensity, real: Any
) -> tuple[_Place, Any]:
    """The first place, and how far from it the next one is."""
    place = _Place(at, towards, log_joint(loglik, density, at))
    return place, _distance(xp, place, real)


def _distance(xp: Any, place: _Place, real: Any) -> Any:
    away = place.towards - place.at
    return xp.sqrt(squares(xp, away, real) / xp.maximum(len(away) * real.sum(), 1))


@per_subject
def _step(
    xp: Any,
    best: _Place,
    at: Any,
    towards: Any,
    loglik: Any,
    density: EffectDensity,
    real: Any,
) -> tuple[_Place, Any, Any, Any]:
    """The better of two places, where to try next, how far that is, and if all have risen."""
    new = _Place(at, towards, log_joint(loglik, density, at))
    rose = new.height >= best.height - 1e-9
    trial = xp.where(rose, _extrapolated(xp, best, new), best.towards)
    best = _Place(*(xp.where(rose, n, o) for n, o in zip(new, best, strict=True)))
    return best, trial, _distance(xp, best, real), (rose | ~real).all()


def _extrapolated(xp: Any, old: _Place, new: _Place) -> Any:
    """Each subject's secant through its last two steps, where that goes on, and not too far."""
    before, now = old.towards - old.at, new.towards - new.at
    change = now - before
    share = (now * change).sum(0) / xp.maximum((change**2).sum(0), 1e-300)
    step = now - share * (new.towards - old.towards)
    length = xp.sqrt((step**2).sum(0))
    plain = xp.sqrt((now**2).sum(0))
    step = step * xp.minimum(1.0, _FURTHEST * plain / xp.maximum(length, 1e-300))
    onward = (step * now).sum(0) > 0
    return new.at + xp.where(onward, step, now)


class Walk(NamedTuple):
    """Subjects whose q_i takes steps of its own length."""

    subjects: Subjects
    stride: np.ndarray
    """(subject,) share of the way that its next step goes."""

    def lean(self) -> Walk:
        """Without what is large and can be computed again."""
        return self._replace(subjects=self.subjects.lean())


def start_walk(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> Walk:
    """With whole steps."""
    subjects = known(chunk, subjects, setting)
    subjects = subjects._replace(found=seen(chunk, subjects, setting))
    return Walk(subjects, np.ones(np.shape(chunk.real)[0]))


def q_step(chunk: Chunk, walk: Walk | None, setting: Setting) -> tuple[Walk, ShardSums]:
    """Every q_i one step nearer to where its E-steps lead.

    A subject whose own height falls stays where it was and tries a step of half the length.
    """
    walk = start_walk(chunk, None, setting) if walk is None else walk
    subjects, stride = walk
    old = seen(chunk, subjects, setting)
    there = _stepped(subjects, old, stride)
    there = there._replace(found=setting.look(chunk, there))
    new, heights = seen(chunk, there, setting), setting.method.heights
    fallen = heights(old, subjects.anchor, setting.theta) - 1e-9
    fine = (heights(new, there.anchor, setting.theta) >= fallen) | ~np.asarray(chunk.real)
    if not fine.all():
        stride = np.where(fine, stride, 0.5 * stride)
        there = _stepped(subjects, old, np.where(fine, stride, 0.0))
        there = there._replace(found=setting.look(chunk, there))
    return Walk(there, stride), summary(chunk, there)


def end_walk(chunk: Chunk, walk: Walk | None) -> Subjects | None:
    """Where it led to."""
    return None if walk is None else walk.subjects


def _stepped(subjects: Subjects, p: Pass, stride: np.ndarray) -> Subjects:
    """Every q_i part of the way to where its E-step would put it."""
    anchor = subjects.anchor + stride * (p.mean - subjects.anchor)
    if subjects.around is None:
        return Subjects(anchor, p.around)
    return Subjects(anchor, subjects.around.stepped(p.around, stride))


def best_anchors(chunk: Chunk, mean: np.ndarray, p: Pass, setting: Setting) -> np.ndarray:
    """From the means of q, one parabola along each effect towards Lemma 2's anchor."""
    d = setting.kernel.n_effects

    def height(anchor: np.ndarray) -> np.ndarray:
        at = (setting.kernel, setting.theta, anchor, mean, p.covariance, chunk, setting.form)
        return np.asarray(bound_at(*at))

    best, level = mean, height(mean)
    for j in range(d):
        reach = (np.arange(d) == j)[:, None] * 0.5 * np.sqrt(np.asarray(p.covariance)[j, j])
        up, down = height(best + reach), height(best - reach)
        tried = best + _parabola_top(down, level, up) * reach
        there = height(tried)
        better = there > level
        best, level = np.where(better, tried, best), np.where(better, there, level)
    return best


def _parabola_top(down: np.ndarray, middle: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Where the parabola through -1, 0 and 1 is highest, if it bends down; at most 2 away."""
    bend = 2 * middle - up - down
    top = 0.5 * (up - down) / np.where(bend > 0, bend, np.inf)
    return np.clip(np.nan_to_num(top), -2.0, 2.0)
