"""AVEM that updates the parameters after each batch of subjects, for many thousand of them.

Incremental EM: every chunk remembers what it last contributed to the M-step; a visit replaces that
contribution, and the parameters follow at once from the sum over all chunks. Contributions to
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

import jax
import numpy as np

from avem.components.linear import CoefTerms
from avem.inference.em import EM, State, add_up, shifted_second
from avem.inference.loop import Rules, Run, Watcher, iterate
from avem.inference.newton import newton_step
from avem.inference.passes import Pass, Totals
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
    """What one chunk contributes, as NumPy."""

    totals: Totals
    pull: tuple[np.ndarray, ...]
    """For each Newton key, gradient + curvature @ coef: the quadratic's linear part."""
    curvature: tuple[np.ndarray, ...]
    n_subjects: int


def iterate_batches(
    em: EM, start: State, rules: Rules, rng: np.random.Generator, watch: Watcher
) -> Run:
    """Rounds through the chunks until the parameters move little, then all chunks at once."""
    n_chunks, n_threads = len(em.chunks), cpu_count() or 1
    anchors, theta = list(start.anchors), start.theta
    shares: list[_Share | None] = [None] * n_chunks
    bounds, logliks = np.zeros(n_chunks), np.zeros(n_chunks)
    history: list[tuple[float, float]] = []
    n_rounds = min(_MAX_ROUNDS, rules.max_iter)
    for number in range(1, n_rounds + 1):
        before = theta
        order = rng.permutation(n_chunks)
        for at in range(0, n_chunks, n_threads):
            batch = order[at : at + n_threads].tolist()
            state = State(theta, tuple(anchors[c] for c in batch))
            _, passes = em.on(batch).settled_e_step(state, _STILL)
            for c, p in zip(batch, passes, strict=True):
                shares[c] = _share(em, theta, p, c)
                anchors[c] = np.asarray(p.mean)
                bounds[c], logliks[c] = float(np.sum(p.bound)), float(np.sum(p.loglik))
            theta, shift = _m_step(em, theta, [share for share in shares if share is not None])
            if shift.any():
                anchors = [anchor - shift[:, None] for anchor in anchors]
                shares = [_shifted(em, theta, share, shift) for share in shares]
        history.append((float(bounds.sum()), float(logliks.sum())))
        change = float(np.abs(pack_theta(theta) - pack_theta(before)).max())
        if watch(number, history[-1][0], change, theta) or change < _NEAR:
            break
    rest = replace(rules, max_iter=max(1, rules.max_iter - len(history)))
    run = iterate(em, State(theta, tuple(anchors)), rest, rng, watch)
    levels = np.array(history)
    return replace(
        run,
        bounds=np.concatenate([levels[:, 0], run.bounds]),
        logliks=np.concatenate([levels[:, 1], run.logliks]),
    )


def _share(em: EM, theta: dict[str, np.ndarray], p: Pass, chunk: int) -> _Share:
    terms = jax.tree.map(np.asarray, p.terms)
    pulls, curvatures = [], []
    for key, part in zip(em.kernel.newton_keys, terms, strict=True):
        coef = theta[key].reshape(part.gradient.shape)
        pulls.append(part.gradient + np.einsum("bij,bj->bi", part.curvature, coef))
        curvatures.append(part.curvature)
    n_subjects = int(np.asarray(em.chunks[chunk].real).sum())
    totals = jax.tree.map(np.asarray, p.totals)
    return _Share(totals, tuple(pulls), tuple(curvatures), n_subjects)


def _m_step(
    em: EM, theta: dict[str, np.ndarray], shares: Sequence[_Share]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Parameters from the sum of all contributions, and the shift of the effects' means."""
    total: _Share = add_up(shares)
    moved = {}
    for i, key in enumerate(em.kernel.newton_keys):
        coef = theta[key].reshape(total.pull[i].shape)
        slope = total.pull[i] - np.einsum("bij,bj->bi", total.curvature[i], coef)
        terms = CoefTerms(np.zeros(len(coef)), slope, total.curvature[i])
        moved[key] = em.within(key, coef + newton_step(terms, em.free_of(key, coef)), theta[key])
    return em.update_theta(theta, total.totals, moved, int(total.n_subjects))


def _shifted(
    em: EM, theta: dict[str, np.ndarray], share: _Share | None, shift: np.ndarray
) -> _Share | None:
    """A contribution as if the effects' means had been moved into the coefficients before it."""
    if share is None:
        return None
    n, totals = share.n_subjects, share.totals
    mean = totals.effect_mean
    second = shifted_second(totals.effect_second, mean, shift, n)
    model = em.kernel.shifted(totals.model, lambda key: em.as_coef(key, theta[key], shift))
    totals = Totals(model, mean - n * shift, second)
    pull = []
    for i, key in enumerate(em.kernel.newton_keys):
        move = em.as_coef(key, theta[key], shift).reshape(share.pull[i].shape)
        pull.append(share.pull[i] + np.einsum("bij,bj->bi", share.curvature[i], move))
    return _Share(totals, tuple(pull), share.curvature, n)
