"""Points under linear equations and inequalities, and the best quadratic step among them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

_SAME = 1e-9
"""Residuals this small, on the scale of the fit, are none."""
_LEAST = 1e-9
"""Smallest curvature, that of a direction of unit curvature being 1."""


@dataclass(frozen=True, eq=False)
class Polyhedron:
    """All x with ``equal @ x == level`` and ``above @ x >= least``.

    The first rows of ``above`` are the unit matrix: bounds of the entries themselves.
    """

    equal: np.ndarray
    level: np.ndarray
    above: np.ndarray
    least: np.ndarray

    @cached_property
    def free(self) -> np.ndarray:
        """(entries, free) a basis of the moves that keep the equations; one column per free entry.

        By elimination, so that a column touches few entries: those that are tied move together.
        """
        rows, n = np.array(self.equal, float), self.equal.shape[1]
        pivots: list[int] = []
        done = 0
        for row in range(len(rows)):
            rest = np.abs(rows[row:])
            size = rest.max(1, initial=0.0)
            best = row + int(size.argmax())
            if not size.max(initial=0.0) > _SAME:
                break
            rows[[row, best]] = rows[[best, row]]
            pivot = int(np.abs(rows[row]).argmax())
            rows[row] /= rows[row, pivot]
            others = np.arange(len(rows)) != row
            rows[others] -= np.outer(rows[others, pivot], rows[row])
            pivots.append(pivot)
            done += 1
        own = np.setdiff1d(np.arange(n), pivots)
        basis = np.zeros((n, len(own)))
        basis[own, np.arange(len(own))] = 1.0
        basis[pivots] = -rows[:done][:, own]
        return basis

    def clipped(self, x: np.ndarray) -> np.ndarray:
        """x without what rounding took it below its own bounds, the first of the inequalities."""
        own = self.least[: len(x)]
        return np.where((x < own) & (x > own - 1e-9), own, x)

    def nearest(self, x: np.ndarray) -> np.ndarray | None:
        """The point nearest to x; None where there is none."""
        if len(self.equal):
            x = x + np.linalg.lstsq(self.equal, self.level - self.equal @ x, rcond=1e-11)[0]
            if np.abs(self.equal @ x - self.level).max() > 1e-7 * (1 + np.abs(self.level).max()):
                return None
        step = self.step(x, np.zeros(len(x)), np.eye(len(x)))
        return None if step is None else self.clipped(x + step)

    def step(
        self,
        x: np.ndarray,
        slope: np.ndarray,
        curvature: np.ndarray,
        stay: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """The step d from x that maximises slope'd - d'Hd / 2 where x + d is allowed.

        x keeps the equations. Directions of the basis `free` that `stay` holds are not taken. None
        where no step leads into what is allowed.
        """
        basis = self.free if stay is None else self.free[:, ~stay]
        above, least = self.above @ basis, self.least - self.above @ x
        g, h = basis.T @ slope, basis.T @ curvature @ basis
        # Unit diagonal first: entries may differ in size by many orders.
        size = np.sqrt(np.maximum(np.abs(np.diagonal(h)), 1e-300))
        values, vectors = np.linalg.eigh(h / np.outer(size, size))
        root = vectors / np.sqrt(np.maximum(np.abs(values), _LEAST)) / size[:, None]
        best = _least_norm(above @ root, least, root.T @ g)
        return None if best is None else basis @ (root @ best)


def _least_norm(above: np.ndarray, least: np.ndarray, goal: np.ndarray) -> np.ndarray | None:
    """The y nearest to `goal` with ``above @ y >= least`` (Lawson and Hanson's LDP)."""
    bounded = np.isfinite(least)
    above, least = above[bounded], least[bounded] - above[bounded] @ goal
    if not (least > 1e-12).any():
        return goal
    size = np.maximum(np.linalg.norm(above, axis=1), 1e-300)
    if (least[size < 1e-200] > 1e-7).any():
        return None  # nothing moves it
    moving = size >= 1e-200
    above, least = above[moving] / size[moving, None], least[moving] / size[moving]
    if not len(least):
        return goal
    from scipy.optimize import nnls  # which takes long to import

    scale = max(1.0, float(least.max()))  # the system is solved where its numbers are about 1
    system = np.concatenate([above.T, least[None] / scale])
    wanted = np.zeros(len(system))
    wanted[-1] = 1.0
    weights, _ = nnls(system, wanted, maxiter=30 * system.shape[1] + 100)
    miss = system @ weights - wanted
    if -miss[-1] < 1e-10:
        return None
    y = scale * -miss[:-1] / miss[-1]
    return goal + y if (above @ y - least).min() > -1e-6 * scale else None
