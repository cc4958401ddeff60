"""What is free under constraints, as one unconstrained vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from avem.components.free import Free
from avem.components.param_info import Params
from avem.models.restriction import Restriction

_STEP = 1e-6
_CORRECTIONS = 8


@dataclass(frozen=True, eq=False)
class RestrictedFree(Free):
    """The free parameters near an origin among those that constraints allow.

    In the coordinates of `Free` the constraints are a surface; a point of the vector is one of the
    plane that touches it at the origin, moved straight onto the surface.
    """

    rule: Restriction
    origin: Params
    rows: np.ndarray
    """(conditions, numbers of the rule) that are kept, bounds that were reached among them."""

    @cached_property
    def _all(self) -> Free:
        return Free(self.parts)

    @cached_property
    def _centre(self) -> np.ndarray:
        return self._all.vector(self.origin)

    def _kept(self, vector: np.ndarray) -> np.ndarray:
        """What must stay as it is."""
        return self.rows @ self.rule.read(self._all.theta(vector, self.origin))

    def _slope(self, vector: np.ndarray) -> np.ndarray:
        """(conditions, entries) its derivative."""
        columns = [
            (self._kept(vector + _STEP * unit) - self._kept(vector - _STEP * unit)) / (2 * _STEP)
            for unit in np.eye(len(vector))
        ]
        return np.array(columns).T.reshape(len(self.rows), len(vector))

    @cached_property
    def _bases(self) -> tuple[np.ndarray, np.ndarray]:
        """(entries, free) along the surface, and (entries, conditions that matter) across it."""
        _, values, right = np.linalg.svd(self._slope(self._centre), full_matrices=True)
        rank = int((values > 1e-7 * max(1.0, values.max(initial=0.0))).sum())
        return right[rank:].T, right[:rank].T

    @property
    def size(self) -> int:
        return self._bases[0].shape[1]

    def vector(self, theta: Params) -> np.ndarray:
        return self._bases[0].T @ (self._all.vector(theta) - self._centre)

    def theta(self, vector: np.ndarray, like: Params) -> Params:
        along, across = self._bases
        at, wanted = self._centre + along @ vector, self._kept(self._centre)
        for _ in range(_CORRECTIONS if across.shape[1] else 0):
            miss = wanted - self._kept(at)
            if np.abs(miss).max(initial=0.0) < 1e-14:
                break
            at = at + across @ np.linalg.lstsq(self._slope(at) @ across, miss, rcond=1e-10)[0]
        return self._all.theta(at, like)

    def pull(self, theta: Params, slope: Params) -> np.ndarray:
        along, across = self._bases
        whole = self._all.pull(theta, slope)
        if not across.shape[1]:
            return along.T @ whole
        there = self._slope(self._all.vector(theta))
        follow = np.linalg.lstsq(there @ across, there @ along, rcond=1e-10)[0]
        return along.T @ whole - follow.T @ (across.T @ whole)


def restricted_free(
    free: Free, rule: Restriction | None, theta: Params, follow: np.ndarray | None = None
) -> Free:
    """What is free of `free` at theta under a restriction.

    Numbers that are not free in themselves may `follow` others.
    """
    if rule is None or not rule.told_apart:
        return free
    rows = np.concatenate([rule.sides.equal, rule.reached(theta)])
    if follow is not None and follow.any():
        # Only what is left once they have been eliminated says something of the others.
        left, values, _ = np.linalg.svd(rows[:, follow], full_matrices=True)
        rank = int((values > 1e-9).sum())
        rows = left[:, rank:].T @ rows
    return RestrictedFree(free.parts, rule, theta, rows)
