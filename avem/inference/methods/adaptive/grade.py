"""Every subject gets the first rule of the ladder that a finer one confirms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.inference.catch_up import known, seen
from avem.inference.e_steps import ESteps, State
from avem.inference.methods.adaptive.centres import by_count, find_centres
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.adaptive.parts import (
    Group,
    Portions,
    apart,
    enough_of,
    everyone,
    of_members,
)
from avem.inference.methods.adaptive.proposal import integral
from avem.inference.methods.adaptive.rules import Rule, again
from avem.inference.on_shard import Setting, Subjects
from avem.inference.passes import over_nodes
from avem.inference.tuning import ENOUGH, GROWTH
from avem.models.kernel import Kernel
from avem.numerics.jit import jit

_FAR_LESS = 0.1
"""What a rule of the next degree is off by, as a share of how far the one before is."""
_SHRINKS = 0.2
"""Largest ratio of two differences in a row from which the next one is foreseen."""
_OF_DRAWS = 0.02
"""What the draws, too, are off by, of a subject: nodes that differ less are as good as they are."""


class Grades(NamedTuple):
    """The subjects with the rules that they need."""

    state: State
    loglik: np.ndarray
    """(subjects,) log p(D_i), by the finest rule that was run."""
    error: np.ndarray
    """(subjects,) how far it may be off."""
    better: bool
    """The log likelihood is another than before by more than may be neglected."""
    drawn: bool
    """Some are integrated by draws."""


def grade(
    e: ESteps,
    state: State,
    rng: np.random.Generator,
    before: float = np.nan,
    search: bool = True,
) -> Grades:
    """As many nodes as it takes, at the same parameters; first, new centres if so wanted.

    `before` is the log likelihood as it was.
    """
    if not e.kernel.n_effects:
        (loglik,) = e.of_subjects(e.e_step(state).state, "bound")
        return Grades(state, loglik, np.zeros_like(loglik), better=False, drawn=False)
    if search:
        state = find_centres(e, state, rng)
    enough = ENOUGH * max(1.0, (e.data.n_subjects / 100) ** GROWTH)
    allowance = enough / e.data.n_subjects
    subjects, parts = e.data.run(_graded, (state.subjects,), e.setting(state), allowance)
    loglik, error = e.data.join([part[:2] for part in parts])
    drawn = sum(part[2] for part in parts)
    # The nodes stay where they were found.
    state = replace(state, subjects=subjects, placed=state.theta)
    return Grades(state, loglik, error, not abs(loglik.sum() - before) < 10 * enough, bool(drawn))


# --- on a shard ---------------------------------------------------------------------------------


def _graded(
    chunk: Chunk, subjects: Subjects | None, setting: Setting, allowance: float
) -> tuple[Subjects, tuple[np.ndarray, np.ndarray, int]]:
    """Subjects with rules; log likelihoods, their errors, and how many are drawn for."""
    found = seen(chunk, subjects := known(chunk, subjects, setting), setting)
    parts: Portions = subjects.around or found.around
    centres, real = parts.joined(), np.asarray(chunk.real)
    method: Any = setting.method
    ladder, groups = method.ladder, []
    loglik, error = np.array(found.loglik), np.zeros(len(real))
    before = np.full(len(real), np.inf)
    spare = allowance * real.sum()
    for group in _by_level(by_count(centres, real), parts.levels()):
        near = centres
        for level in range(group.level + 1, len(ladder)):
            if ladder[level].by_draws and level > 1:
                # Draws are dear, and no better than nodes that coarser ones are already near.
                good = _FAR_LESS * error[group.members] < _OF_DRAWS
                error[group.members[good]] *= _FAR_LESS
                groups.append(group._replace(members=group.members[good]))
                centres = _of(centres, near, group.members)
                group = group._replace(members=group.members[~good])
                if not len(group.members):
                    break
            finer, left = group._replace(level=level), group.members
            new, nearer = _logliks(chunk, near, finer, setting)
            off = np.abs(new - loglik[left])
            off = np.where(np.isfinite(off), off, np.inf)
            fine = _afford(off, spare)
            spare -= off[fine].sum()
            if ladder[level].by_draws:
                fine |= off < _OF_DRAWS
            groups.append(group._replace(members=left[fine]))
            # The finer rule itself is good where differences shrink so fast that it must be.
            ahead = np.where(fine, np.inf, _ahead(before[left], off))
            good = _afford(ahead, spare)
            spare -= ahead[good].sum()
            groups.append(finer._replace(members=left[good]))
            loglik[left], error[left] = new, _extrapolated(error[left], off)
            before[left] = off
            centres, near = _of(centres, near, left), nearer
            group = finer._replace(members=left[~(fine | good)])
            if not len(group.members):
                break
        groups.append(group)
        centres = _of(centres, near, group.members)
        if ladder[group.level].by_draws and len(group.members):
            here = group.members
            loglik[here], error[here] = _of_two_sets(chunk, centres, group, setting, loglik[here])
    drawn = sum(len(group.members) for group in groups if ladder[group.level].by_draws)
    n_nodes = [len(rule.points) for rule in ladder]
    around = apart(chunk, centres, groups, n_nodes, setting.code_price)
    return Subjects(subjects.anchor, around), (loglik, error, drawn)


def _by_level(groups: Sequence[Group], levels: np.ndarray) -> Iterator[Group]:
    """Groups of subjects who have the same rule so far."""
    for group in groups:
        for level in np.unique(levels[group.members]):
            members = group.members[levels[group.members] == level]
            yield Group(group.n_centres, int(level), members)


def _afford(off: np.ndarray, spare: float) -> np.ndarray:
    """(subject,) who may stay as far off, the nearest first.

    Half of what may yet be wrong, so that finer rules, too, have something to spare.
    """
    order, fine = np.argsort(off, kind="stable"), np.zeros(len(off), bool)
    fine[order] = np.cumsum(off[order]) <= 0.5 * spare
    return fine


def _ahead(before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """How far off a rule is at most, from the last difference and the one before it.

    Infinite where the differences do not shrink as those of a smooth function do.
    """
    ratio = now / before
    return np.where(np.isfinite(before) & (ratio < _SHRINKS), now * np.maximum(ratio, 0.1), np.inf)


def _extrapolated(before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """How far a rule is off, from how far the one before it was and the one before that.

    Where differences shrink from rule to rule, they go on shrinking.
    """
    shrinks = (before > 0) & (now < 0.5 * before)
    return np.where(shrinks, now**2 / np.where(shrinks, before, 1.0), now)


def _of(centres: Centres, near: Centres, members: np.ndarray) -> Centres:
    mask = np.zeros(centres.log_share.shape[-1], bool)
    mask[members] = True
    return centres.put_where(mask, near)


def _logliks(
    chunk: Chunk, centres: Centres, group: Group, setting: Setting
) -> tuple[np.ndarray, Centres]:
    """(members,) by a level's rule; and everyone's centres, those of members as it found them."""
    method: Any = setting.method
    members, rule = group.members, method.ladder[group.level]
    few = centres.first(group.n_centres)
    own = enough_of(chunk, members, group.n_centres * len(rule.points), setting.code_price)
    whole = own is chunk
    here = few if whole else of_members(few, members, len(own.real))
    if rule.by_draws:
        p = setting.look(own, Subjects(here.mean[0], everyone(here, group.level)))
        found, moved = p.loglik, p.around.joined()
    else:
        found, moved = _integrals(own, here, rule, setting)
    if whole:
        return np.asarray(found)[members], moved
    return np.asarray(found)[: len(members)], few.put(members, moved)


def _of_two_sets(
    chunk: Chunk, centres: Centres, group: Group, setting: Setting, first: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(members,) by one set of draws and another: what both together say, and how far they are off.

    `first` is what the one set gave.
    """
    method: Any = setting.method
    other = replace(setting, method=replace(method, ladder=(again(method.ladder[group.level]),)))
    second, _ = _logliks(chunk, centres, group._replace(level=0), other)
    second = np.where(np.isfinite(second), second, first)
    return np.logaddexp(first, second) - np.log(2), 0.5 * np.abs(second - first)


def _integrals(
    chunk: Chunk, centres: Centres, rule: Rule, setting: Setting
) -> tuple[np.ndarray, Centres]:
    """(subject,) log p(D_i); and the centres, with the moments of what was found near them."""
    kernel, theta, form = setting.kernel, setting.theta, setting.form
    sigma = np.asarray(theta["effect_covariance"])
    return integral(
        centres.under(sigma), rule, sigma, lambda at: _loglik_at(kernel, theta, at, chunk, form)
    )


@jit("kernel", "form")
def _loglik_at(kernel: Kernel, theta: Theta, at: Array, chunk: Chunk, form: str) -> Array:
    return over_nodes(lambda f: kernel.local(theta, f, chunk, form).loglik, (at,), chunk)
