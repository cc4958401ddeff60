"""Letting the anchors catch up with the parameters.

At given parameters the mean anchor climbs, pass by pass, to a mode of log p(D_i, f). Where states
overlap, some subjects' steps are short: following every change of the parameters with one such step
would take hundreds of iterations, or stop halfway. Here every subject extrapolates its own last two
steps, and goes on from a new place only if its own log p(D_i, f) is not lower there.

`settle_q` does the same for methods whose q_i is more than an anchor. `best_anchors` looks for the
anchors of Lemma 2, near the means of q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from avem.effects.prior import log_joint
from avem.inference.methods.anchored import bound_at
from avem.inference.passes import Pass, Spread

if TYPE_CHECKING:
    from avem.inference.em import EM, State

_MOST_PASSES = 8
_FURTHEST = 8.0
"""An extrapolation goes at most this many times as far as the plain step."""


class _Place(NamedTuple):
    """Anchors of a chunk, where the next q-update puts them, and log p(D_i, f) at them."""

    at: np.ndarray
    towards: np.ndarray
    height: np.ndarray


def settle(em: EM, state: State, passes: list[Pass], still: float) -> tuple[State, list[Pass]]:
    """Anchors whose next step is at most `still` (root mean square), and the passes at them."""
    sigma = state.theta["effect_covariance"]

    def look(anchor: np.ndarray, seen: Pass) -> _Place:
        return _Place(anchor, seen.mean, log_joint(seen.loglik, sigma, anchor))

    def run(chunks: list[int], anchors: dict[int, np.ndarray]) -> dict[int, Pass]:
        part = replace(state, anchors=tuple(anchors[c] for c in chunks))
        return dict(zip(chunks, em.on(chunks).try_e_step(part), strict=True))

    found: dict[int, Pass | None] = dict(enumerate(passes))
    best = {c: look(anchor, passes[c]) for c, anchor in enumerate(state.anchors)}
    trial = {c: place.towards for c, place in best.items()}
    real = em.real
    for _ in range(_MOST_PASSES):
        restless = [c for c in best if _distance(best[c], real[c]) > still]
        if not restless:
            break
        for c, there in run(restless, trial).items():
            old, new = best[c], look(trial[c], there)
            rose = new.height >= old.height - 1e-9
            trial[c] = np.where(rose, _extrapolated(old, new), old.towards)
            best[c] = _Place(*(np.where(rose, n, o) for n, o in zip(new, old, strict=True)))
            found[c] = there if (rose | ~real[c]).all() else None
    again = [c for c, seen in found.items() if seen is None]
    found.update(run(again, {c: best[c].at for c in again}) if again else {})
    anchors = tuple(best[c].at for c in range(len(best)))
    return replace(state, anchors=anchors), [seen for seen in found.values() if seen is not None]


def _distance(place: _Place, real: np.ndarray) -> float:
    return float(np.sqrt(np.mean((place.towards - place.at)[:, real] ** 2)))


def _extrapolated(old: _Place, new: _Place) -> np.ndarray:
    """Each subject's secant through its last two steps, where that goes on, and not too far."""
    before, now = old.towards - old.at, new.towards - new.at
    change = now - before
    share = (now * change).sum(0) / np.maximum((change**2).sum(0), 1e-300)
    step = now - share * (new.towards - old.towards)
    length = np.sqrt((step**2).sum(0))
    plain = np.sqrt((now**2).sum(0))
    step = step * np.minimum(1.0, _FURTHEST * plain / np.maximum(length, 1e-300))
    onward = (step * now).sum(0) > 0
    return new.at + np.where(onward, step, now)


def settle_q(em: EM, state: State, passes: list[Pass], still: float) -> tuple[State, list[Pass]]:
    """The q_i whose next step moves the means by at most `still`, and the passes at them.

    A subject whose own bound falls stays where it was and tries a step of half the length.
    """
    stride = [np.ones(len(is_real)) for is_real in em.real]
    for _ in range(_MOST_PASSES):
        moves = [p.mean - anchor for p, anchor in zip(passes, state.anchors, strict=True)]
        if np.sqrt(np.mean(em.everyone(moves) ** 2)) <= still:
            break
        tried = _stepped(state, passes, stride)
        there = em.try_e_step(tried)
        fine = [
            (new.bound >= old.bound - 1e-9) | ~r
            for new, old, r in zip(there, passes, em.real, strict=True)
        ]
        if all(f.all() for f in fine):
            state, passes = tried, there
        else:
            stride = [np.where(f, s, 0.5 * s) for f, s in zip(fine, stride, strict=True)]
            state = _stepped(
                state, passes, [np.where(f, s, 0.0) for f, s in zip(fine, stride, strict=True)]
            )
            passes = em.try_e_step(state)
    return state, passes


def _stepped(state: State, passes: Sequence[Pass], stride: Sequence[np.ndarray]) -> State:
    """Every q_i part of the way to where its E-step would put it."""
    anchors, around = [], []
    old_around = state.around or [None] * len(passes)
    for old, spread, p, s in zip(state.anchors, old_around, passes, stride, strict=True):
        anchors.append(old + s * (p.mean - old))
        if spread is None:
            around.append(p.around)
        elif not isinstance(spread, Spread):  # nodes stay where they are
            around.append(spread)
        else:
            pairs = zip(p.around, spread, strict=True)
            parts = [was + s * (np.asarray(new) - was) for new, was in pairs]
            around.append(type(spread)(*parts))
    return replace(state, anchors=tuple(anchors), around=tuple(around))


def best_anchors(
    em: EM,
    theta: dict[str, np.ndarray],
    means: tuple[np.ndarray, ...],
    passes: Sequence[Pass],
) -> tuple[np.ndarray, ...]:
    """From the means of q, one parabola along each effect towards Lemma 2's anchor."""

    def height(anchors: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = em.each_chunk(
            lambda chunk, anchor, mean, p: bound_at(
                em.kernel, theta, anchor, mean, p.covariance, chunk, em.form[0]
            ),
            anchors,
            means,
            passes,
        )
        return [np.asarray(level) for level in found]

    best, level = list(means), height(means)
    for j in range(em.kernel.n_effects):
        along = (np.arange(em.kernel.n_effects) == j)[:, None]
        reach = [along * 0.5 * np.sqrt(np.asarray(p.covariance)[j, j]) for p in passes]
        pairs = list(zip(best, reach, strict=True))
        up, down = height([a + r for a, r in pairs]), height([a - r for a, r in pairs])
        tops = [_parabola_top(*levels) for levels in zip(down, level, up, strict=True)]
        tried = [a + top * r for (a, r), top in zip(pairs, tops, strict=True)]
        there = height(tried)
        better = [new > old for new, old in zip(there, level, strict=True)]
        best = [np.where(b, t, a) for b, t, a in zip(better, tried, best, strict=True)]
        level = [np.where(b, t, a) for b, t, a in zip(better, there, level, strict=True)]
    return tuple(best)


def _parabola_top(down: np.ndarray, middle: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Where the parabola through -1, 0 and 1 is highest, if it bends down; at most 2 away."""
    bend = 2 * middle - up - down
    top = 0.5 * (up - down) / np.where(bend > 0, bend, np.inf)
    return np.clip(np.nan_to_num(top), -2.0, 2.0)
