"""Re-anchoring: moving subjects out of wrong modes of their effect's posterior.

A subject whose effect is off by the distance between two states, with its states relabelled, looks
almost the same; the mean anchor settles in whichever mode it meets first. The search tries, for all
subjects at once, a few other places, lets each climb one step, and moves a subject only where
log p(D_i, f) rises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from avem.data.layout import Chunk
from avem.effects.prior import log_joint
from avem.execution.dataset import PerShard
from avem.inference.catch_up import known
from avem.inference.e_steps import ESteps, State
from avem.inference.on_shard import Setting, Subjects
from avem.models.relabelling import Move
from avem.numerics.arrays import per_subject

_OTHERS = 2
"""How many other subjects' effects each subject tries."""
_POOL = 10_000
"""Subjects at most whose effects the others may try."""
_RISE = 1e-3
"""Smallest rise of log p(D_i, f) that counts as another mode."""


class Search(NamedTuple):
    """What a search found."""

    state: State
    """Every subject in the best mode found."""
    moved: int
    """How many subjects moved."""
    rise: float
    """By how much sum_i log p(D_i, f_i) rose."""


def search_modes(e: ESteps, state: State, rng: np.random.Generator) -> Search:
    """Look for better modes of every subject's effect."""
    if e.kernel.n_effects == 0 or e.anchor == "fixed" or not e.method.anchored:
        return Search(state, 0, 0.0)
    places, drawn = elsewhere(e, state, rng)
    own = (state.subjects, drawn)
    found, (moved, rise) = e.data.run_sum(_search, own, e.setting(state), places)
    done = None if moved else state.theta
    return Search(replace(state, subjects=found, searched=done), int(moved), float(rise))


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """Where else to look: where the states have other names, at 0, at other subjects' effects."""

    moves: tuple[Move, ...]
    pool: np.ndarray
    """(d, some subjects) effects to choose from."""

    def places(self, anchor: np.ndarray, drawn: np.ndarray) -> Iterator[np.ndarray]:
        """Other places for the anchors of a shard; `drawn` (times, subject) of the pool."""
        for move in self.moves:
            yield move(anchor)
        yield np.zeros(np.shape(anchor))
        for others in drawn:
            yield self.pool[:, others]


def elsewhere(e: ESteps, state: State, rng: np.random.Generator) -> tuple[Elsewhere, PerShard]:
    """Where else to look, and whom of the pool each subject of a shard tries."""
    every = -(-e.data.n_subjects // _POOL)
    some = e.data.map(_some, (state.subjects,), e.setting(state), every)
    pool = np.concatenate(some, axis=-1)
    sizes = [shard.slots.shape[2] for shard in e.data.shards]
    drawn = [[rng.integers(pool.shape[1], size=n) for n in sizes] for _ in range(_OTHERS)]
    moves = tuple(e.kernel.twins(state.theta, e.matches))
    per_shard = [np.stack(of_shard) for of_shard in zip(*drawn, strict=True)]
    return Elsewhere(moves, pool), e.data.place(per_shard)


def modes_of(subjects: Subjects) -> list[np.ndarray]:
    """Modes (d, subject) known so far, the heaviest first: the centres of nodes, or the anchors."""
    return [subjects.anchor] if subjects.around is None else subjects.around.modes()


# --- on a shard ---------------------------------------------------------------------------------


def _some(chunk: Chunk, subjects: Subjects | None, setting: Setting, every: int) -> np.ndarray:
    """(d, subjects) effects of every so many."""
    effects = np.asarray(modes_of(known(chunk, subjects, setting))[0])
    return effects[:, np.asarray(chunk.real)][:, ::every]


def _search(
    chunk: Chunk,
    subjects: Subjects | None,
    drawn: np.ndarray,
    setting: Setting,
    elsewhere: Elsewhere,
) -> tuple[Subjects, tuple[int, float]]:
    """Subjects in the best modes found; how many moved, and the rise of log p(D, f)."""
    anchor = known(chunk, subjects, setting).anchor
    own, height = _climb(chunk, anchor, setting)
    best = start = _Best(anchor, height + _RISE)
    for place in elsewhere.places(own, drawn):
        best = _better(best, *_climb(chunk, place, setting), chunk.real)
    return Subjects(best.anchor), _gain(start.height, best.height)


class _Best(NamedTuple):
    """Anchors, and what log p(D_i, f) must exceed elsewhere."""

    anchor: Any
    height: Any


@per_subject
def _better(xp: Any, best: _Best, there: Any, height: Any, real: Any) -> _Best:
    better = (height > best.height) & real
    return _Best(xp.where(better, there, best.anchor), xp.where(better, height, best.height))


@per_subject
def _gain(xp: Any, before: Any, after: Any) -> tuple[Any, Any]:
    """How many subjects rose, and how much in all."""
    rose = after > before
    return rose.sum(), xp.where(rose, after - before, 0.0).sum()


def _climb(chunk: Chunk, anchor: Any, setting: Setting) -> tuple[Any, Any]:
    """The effects after one q-update from the anchors, and log p(D_i, f) there."""
    there = possible(setting.glance(chunk, anchor)[0].mean)
    seen, _ = setting.glance(chunk, there)
    return there, log_joint(seen.loglik, setting.effect_density, there)


@per_subject
def possible(xp: Any, effects: Any) -> Any:
    """Effects, 0 where they are not finite."""
    return xp.where(xp.isfinite(effects), effects, 0.0)
