"""Anderson acceleration of the iteration: the next state, extrapolated from the last few."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from avem.data.layout import Chunk
from avem.execution.dataset import Dataset, PerShard
from avem.inference.e_steps import State
from avem.inference.on_shard import Subjects
from avem.inference.theta import pack_theta, unpack_theta
from avem.models.restriction import Restriction
from avem.numerics.arrays import in_numpy, per_subject


class Anderson:
    """Extrapolates from the last few steps x -> F(x); the caller decides whether to accept.

    Each proposal is the combination of the past images F(x_j) whose residuals F(x_j) - x_j,
    combined the same way, nearly cancel. With `anchors`, those of all subjects belong to x: the
    shards hold theirs, and send what least squares needs of them, the triangle of a QR factor.
    """

    def __init__(
        self, data: Dataset, anchors: bool, depth: int = 8, rule: Restriction | None = None
    ) -> None:
        self._data, self._anchors, self._depth, self._rule = data, anchors, depth, rule
        # A parameter weighs like an effect of everyone.
        self._weight = np.sqrt(data.n_subjects)
        self.forget()

    def forget(self) -> None:
        """Start again from the next point."""
        self._last: np.ndarray | None = None
        self._changes: list[np.ndarray] = []
        self._past: list[PerShard] = []

    def elsewhere(self) -> Anderson:
        """For a map that changes from point to point as this one does, but has another solution."""
        new = Anderson(self._data, self._anchors, self._depth, self._rule)
        if not self._anchors:
            new._changes = self._changes[:]
        return new

    def propose(self, before: State, after: State) -> State | None:
        """The next state to try, after an iteration; None when there is no history."""
        x, image = (self._weight * pack_theta(state.theta) for state in (before, after))
        now = np.stack([image, image - x])
        if self._last is not None:
            self._changes = [*self._changes, now - self._last][-self._depth :]
        self._last = now
        if self._anchors:
            pair = (before.subjects, after.subjects)
            self._past.append(self._data.keep(_image_and_residual, pair))
            del self._past[: -self._depth - 1]
        if not self._changes:
            return None
        changes = np.stack(self._changes, axis=-1)  # (image or residual, entry, change)
        blend = self._blend(changes[1], now[1])
        theta = image - changes[0] @ blend
        unpacked = unpack_theta(theta / self._weight, after.theta)
        if self._rule is not None:
            unpacked = self._rule.within(unpacked)
            if unpacked is None:
                return None
        trial = replace(after, theta=unpacked)
        if not self._anchors:
            return trial
        own = (after.subjects, *self._past)
        return replace(
            trial, subjects=self._data.keep(partial(_extrapolated, self._depth), own, blend)
        )

    def _blend(self, changes: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Weights of the changes of residuals that come nearest to the last residual."""
        rows = [np.column_stack([changes, last])]
        if self._anchors:
            found = self._data.map(partial(_triangle, self._depth), self._past)
            rows += [triangle[:, -len(self._past) :] for triangle in found]
        system = np.concatenate(rows)
        return np.linalg.lstsq(system[:, :-1], system[:, -1], rcond=1e-6)[0]


Past = tuple[np.ndarray, np.ndarray]
"""Anchors of a shard after an iteration, and how far it had moved them; None: lost."""


def _image_and_residual(
    chunk: Chunk, before: Subjects | None, after: Subjects | None
) -> Past | None:
    if before is None or after is None:
        return None
    return after.anchor, _moved(after.anchor, before.anchor)


@per_subject
def _moved(xp: Any, after: Any, before: Any) -> Any:
    return xp.ravel(after - before)


def _triangle(depth: int, chunk: Chunk, *past: Past | None) -> Any:
    """R of the QR factors of this shard's rows of the least squares setting.

    The last columns are those of the past; what is before them is 0.
    """
    known = [step[1] for step in past if step is not None]
    if len(known) < len(past):
        return np.zeros((0, len(past)))
    return _factor(_filled(known, depth))


@per_subject
def _factor(xp: Any, residuals: tuple[Any, ...]) -> Any:
    """Of how residuals changed from step to step, and the last one, a column each."""
    columns = xp.concatenate([xp.diff(xp.stack(residuals), axis=0), residuals[-1][None]])
    return xp.linalg.qr(columns.T, mode="r")


def _extrapolated(
    depth: int, chunk: Chunk, after: Subjects | None, *past_and_blend: Any
) -> Subjects | None:
    *past, blend = past_and_blend
    images = [step[0] for step in past if step is not None]
    if after is None or len(images) < len(past):
        return after
    filled = _filled(images, depth)
    blend = np.concatenate([np.zeros(len(filled) - 1 - len(blend)), blend])
    return Subjects(_blended(after.anchor, filled, blend), after.around)


@per_subject
def _blended(xp: Any, anchor: Any, images: tuple[Any, ...], blend: Any) -> Any:
    return anchor - xp.tensordot(blend, xp.diff(xp.stack(images), axis=0), axes=1)


def _filled(past: list[Any], depth: int) -> tuple[Any, ...]:
    """One program serves all lengths of the past: what came before did not change."""
    return tuple(past if in_numpy() else [past[0]] * (depth + 1 - len(past)) + past)
