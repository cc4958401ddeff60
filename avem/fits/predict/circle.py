"""How far round the circle an angle lies in its predictive distribution."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from avem.families.base import ANGLE
from avem.families.evaluate import log_densities
from avem.fits.predict.mixture import Mixture

_PLACES = 72
"""Where the circle may be cut."""
_ARC = 0.01
"""Radians on either side of the cut that count as the cut itself: half a degree."""
_SMALLEST = np.finfo(float).epsneg


def passed_round(mixture: Mixture, y: np.ndarray, share: np.ndarray | None) -> np.ndarray:
    """(rows,) probability of the arc from a cut of the circle anticlockwise to y (rows,).

    A circle has no end to count from, so it is cut where the density is lowest. Wherever the cut
    is, the probability is uniform if the distribution holds. A value at the cut is as far from one
    end as from the other: within half a degree of it, a random point of that arc is taken, by
    `share` (rows,) of it, which leaves the probabilities uniform; with None, the middle of the half
    that begins at the cut.
    """
    y, cut = ANGLE.to_natural(y), lowest(mixture)
    start = mixture.cdf(cut)

    def beyond(angle: np.ndarray) -> np.ndarray:
        return mixture.cdf(angle) - start

    found = beyond(y) + (y < cut)  # past half a turn, where `cdf` begins
    near = np.abs(ANGLE.to_natural(y - cut)) < _ARC
    if near.any():
        before, after = (_small(beyond(cut + side)) for side in (-_ARC, _ARC))
        part = 0.75 if share is None else share
        found = np.where(near, np.mod(before + part * (after - before), 1.0), found)
    return np.clip(found, _SMALLEST, 1.0 - _SMALLEST)


def _small(difference: np.ndarray) -> np.ndarray:
    """A difference of probabilities that may have gone past the end of the circle."""
    return np.mod(difference + 0.5, 1.0) - 0.5


def lowest(mixture: Mixture) -> np.ndarray:
    """(rows,) the angle with the least density, of those 5 degrees apart round the circle."""
    opposite = mixture.mean + np.pi
    least, at = np.full(len(opposite), np.inf), opposite
    for turn in 2 * np.pi * np.arange(_PLACES) / _PLACES:
        angle = opposite + turn
        of_part = log_densities(mixture.family, (angle[:, None],), mixture.eta)
        height = np.asarray(logsumexp(of_part, axis=1, b=mixture.weight))
        lower = height < least
        least, at = np.where(lower, height, least), np.where(lower, angle, at)
    return ANGLE.to_natural(at)
