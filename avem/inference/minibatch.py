"""AVEM that updates the parameters after each batch of subjects, for many thousand of them.

Incremental EM: every shard remembers what it last contributed to the M-step; a visit replaces that
contribution, and the parameters follow at once from the sum over all shards. Contributions to
coefficients without a closed form are their gradient and curvature, so that the sum is an
aggregated Newton step. There is no step size to choose, and a round through the data makes as many
updates as there are batches. Rounds cover most of the way; the rest, where batches gain nothing, is
the accelerated iteration over all subjects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import cpu_count
from typing import NamedTuple

import numpy as np

from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.execution.sums import add_up
from avem.inference.catch_up import known, seen
from avem.inference.e_steps import State
from avem.inference.em import EM
from avem.inference.loop import Rules, Run, Watcher, iterate
from avem.inference.m_step import shifted_second
from avem.inference.newton import newton_step
from avem.inference.on_shard import Setting, ShardSums, Subjects, summary, totals_of
from avem.inference.passes import Totals
from avem.inference.theta import pack_theta

_STILL = 0.05
"""How far, root mean square, the anchors of a batch may be from their modes when it is used."""
_NEAR = 0.02
"""A round that moves no parameter further than this is the last."""
_MAX_ROUNDS = 20


def lanes_per_batch(batch_size: int | None) -> int:
    """Sequences of one chunk, when a batch is one chunk per processor; 0: as usual."""
    return 0 if batch_size is None else max(1, batch_size // (cpu_count() or 1))


class _Share(NamedTuple):
    """What one shard contributes, as NumPy."""

    totals: Totals
    pull: tuple[np.ndarray, ...]
    """For each Newton key, gradient + curvature @ coef: the quadratic's linear part."""
    curvature: tuple[np.ndarray, ...]
    n_subjects: float


def iterate_batches(
    em: EM, start: State, rules: Rules, rng: np.random.Generator, watch: Watcher
) -> Run:
    """Rounds through the shards until the parameters move little, then all shards at once."""
    n_shards, n_threads = len(em.data.shards), cpu_count() or 1
    state = start
    shares: list[_Share | None] = [None] * n_shards
    shifts = np.zeros((n_shards, em.kernel.n_effects))  # that a shard has not heard of yet
    bounds, logliks = np.zeros(n_shards), np.zeros(n_shards)
    history: list[tuple[float, float]] = []
    n_rounds = min(_MAX_ROUNDS, rules.max_iter)
    for number in range(1, n_rounds + 1):
        before = state.theta
        order = rng.permutation(n_shards)
        for at in range(0, n_shards, n_threads):
            batch = order[at : at + n_threads].tolist()
            part = em.on(batch)
            visited = replace(state, subjects=state.subjects.on(batch))
            found = part.e.e_step(_caught_up(part, visited, shifts[batch]), _STILL)
            shifts[batch] = 0.0
            there = (found.state.subjects,), part.e.setting(found.state)
            each = part.data.map(_summary, *there)
            own = part.data.keep(_at_means, *there)
            for c, seen_there in zip(batch, each, strict=True):
                shares[c] = _share(em, state.theta, seen_there, c)
                bounds[c], logliks[c] = float(seen_there.bound), float(seen_there.loglik)
            known = [share for share in shares if share is not None]
            theta, shift = _m_step(em, state.theta, known)
            state = State(theta, state.subjects.put(batch, own), form=found.state.form)
            if shift.any():
                shifts += shift
                shares = [_shifted(em, theta, share, shift) for share in shares]
        history.append((float(bounds.sum()), float(logliks.sum())))
        change = float(np.abs(pack_theta(state.theta) - pack_theta(before)).max())
        if watch(number, history[-1][0], change, state.theta) or change < _NEAR:
            break
    rest = replace(rules, max_iter=max(1, rules.max_iter - len(history)))
    run = iterate(em, _caught_up(em, state, shifts), rest, rng, watch)
    levels = np.array(history)
    return replace(
        run,
        bounds=np.concatenate([levels[:, 0], run.bounds]),
        logliks=np.concatenate([levels[:, 1], run.logliks]),
    )


def _caught_up(em: EM, state: State, shifts: np.ndarray) -> State:
    """The anchors less the shifts (shards, d) of the effects' means since they were found."""
    own = (state.subjects, em.data.place(list(shifts)))
    return replace(state, subjects=em.data.keep(_less, own))


def _less(chunk: Chunk, subjects: Subjects | None, shift: np.ndarray) -> Subjects | None:
    return None if subjects is None else Subjects(subjects.anchor - shift[:, None])


def _summary(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> ShardSums:
    subjects = known(chunk, subjects, setting)
    return summary(chunk, subjects._replace(found=seen(chunk, subjects, setting)))


def _at_means(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> Subjects:
    return Subjects(seen(chunk, subjects, setting).mean)


def _share(em: EM, theta: dict[str, np.ndarray], part: ShardSums, shard: int) -> _Share:
    pulls, curvatures = [], []
    for key, terms in zip(em.kernel.newton_keys, part.terms, strict=True):
        coef = theta[key].reshape(terms.gradient.shape)
        pulls.append(terms.gradient + np.einsum("bij,bj->bi", terms.curvature, coef))
        curvatures.append(terms.curvature)
    n_subjects = em.data.on([shard]).weight
    totals = totals_of(em.kernel, part)
    return _Share(totals, tuple(pulls), tuple(curvatures), n_subjects)


def _m_step(
    em: EM, theta: dict[str, np.ndarray], shares: Sequence[_Share]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Parameters from the sum of all contributions, and the shift of the effects' means."""
    total: _Share = add_up(shares)
    rule, moved = em.m_step, {}
    for i, key in enumerate(em.kernel.newton_keys):
        coef = theta[key].reshape(total.pull[i].shape)
        slope = total.pull[i] - np.einsum("bij,bj->bi", total.curvature[i], coef)
        terms = CoefTerms(np.zeros(len(coef)), slope, total.curvature[i])
        step = newton_step(terms, rule.free_of(key, coef))
        moved[key] = rule.within(key, coef + step, theta[key])
    return rule.update(theta, total.totals, moved, float(total.n_subjects))


def _shifted(
    em: EM, theta: dict[str, np.ndarray], share: _Share | None, shift: np.ndarray
) -> _Share | None:
    """A contribution as if the effects' means had been moved into the coefficients before it."""
    if share is None:
        return None
    n, totals = share.n_subjects, share.totals
    mean = totals.effect_mean
    second = shifted_second(totals.effect_second, mean, shift, n)
    model = em.kernel.shifted(totals.model, lambda key: em.m_step.as_coef(key, theta[key], shift))
    totals = Totals(model, mean - n * shift, second)
    pull = []
    for i, key in enumerate(em.kernel.newton_keys):
        move = em.m_step.as_coef(key, theta[key], shift).reshape(share.pull[i].shape)
        pull.append(share.pull[i] + np.einsum("bij,bj->bi", share.curvature[i], move))
    return _Share(totals, tuple(pull), share.curvature, n)
