"""Predictive distributions: mixtures over states, and over what is not known of the effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from avem.components.param_info import Params
from avem.errors import ModelError
from avem.families.univariate import Univariate
from avem.fits.predict.at import Place, distribution, places
from avem.models.hmm import HMMModel

_CLOSE = 1e-18
"""How well a quantile is found, in parts of where it was looked for."""
_NEAR = 1e-10
"""How well its probability is met; either will do."""
_CELLS = 1_000_000
"""Rows x parts of a mixture that are worked on at once."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """One outcome's predictive distribution in each of some rows."""

    family: Univariate
    weight: np.ndarray
    """(rows, parts), sums of 1."""
    eta: tuple[np.ndarray, ...]
    """The linear predictors of every part, (rows, parts) each."""
    extras: tuple[np.ndarray, ...]
    """(rows, 1) each."""

    def some(self, rows: np.ndarray) -> Mixture:
        """Those of some rows."""
        eta, extras = (tuple(part[rows] for part in of) for of in (self.eta, self.extras))
        return Mixture(self.family, self.weight[rows], eta, extras)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """(rows,) probability of at most y (rows,)."""
        return self._average(self.family.cdf(y[:, None], self.eta, self.extras))

    def below(self, y: np.ndarray) -> np.ndarray:
        """(rows,) probability of less than y (rows,)."""
        return self._average(self.family.below(y[:, None], self.eta, self.extras))

    def chances(self, n_levels: int) -> np.ndarray:
        """(rows, levels) probability of each level."""
        up_to = [self.cdf(np.full(len(self.weight), float(level))) for level in range(n_levels)]
        return np.diff(np.stack(up_to, axis=1), axis=1, prepend=0.0)

    @cached_property
    def mean(self) -> np.ndarray:
        """(rows,) expected outcome; of an angle, its mean direction."""
        return np.angle(self._vector) if self.family.angular else self._average(self._means)

    @cached_property
    def sd(self) -> np.ndarray:
        """(rows,) standard deviation; of an angle, the circular one."""
        if self.family.angular:
            return np.sqrt(np.maximum(-2.0 * np.log(np.abs(self._vector)), 0.0))
        within = self._average(self.family.variance(self.eta, self.extras))
        between = self._average((self._means - self.mean[:, None]) ** 2)
        return np.sqrt(within + between)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Both ends (rows,) of the central interval of this probability.

        Of an angle: of the arc around the mean direction with as much on either side, from the
        first end anticlockwise to the second.
        """
        ends = (0.5 - level / 2, 0.5 + level / 2)
        if not self.family.angular:
            return self.quantile(ends[0]), self.quantile(ends[1])
        turned = (self.eta[0] - self.mean[:, None], *self.eta[1:])
        around = Mixture(self.family, self.weight, turned, self.extras)
        found = [
            _search(around.cdf, p, np.full(len(self.mean), -np.pi), np.full(len(self.mean), np.pi))
            for p in ends
        ]
        low, high = (np.angle(np.exp(1j * (self.mean + end))) for end in found)
        return low, high

    def quantile(self, p: float) -> np.ndarray:
        """(rows,) the smallest value with at least this probability up to it."""
        mean, sd = (self.mean, self.sd) if self.family.discrete else self._heaviest
        sd = np.where(np.isfinite(sd), sd, 1.0 + np.abs(mean))
        width = np.maximum(4.0 * sd, 1e-9 * (1.0 + np.abs(mean)))
        if self.family.discrete:
            p, width = p - 1e-12, np.ceil(width) + 1.0
            low, high = np.full(len(sd), -1.0), np.ceil(mean)
        else:
            low, high = mean - width, mean + width
            low = _move(lambda at: self.cdf(at) < p, low, -width)
            low = np.where(self.cdf(np.zeros(len(sd))) == 0, np.maximum(low, 0.0), low)
        high = _move(lambda at: self.cdf(at) >= p, high, width)
        if self.family.discrete:
            return _search_whole(self.cdf, p, low, high)
        found, none = _search(self.cdf, p, low, high), np.zeros(len(sd))
        at_zero = (self.below(none) < p) & (p <= self.cdf(none))
        return np.where(at_zero, 0.0, found)

    @property
    def _heaviest(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows,) mean and sd of the part that weighs most: others may be far away."""
        at = self.weight.argmax(1)[:, None]
        found = (self._means, np.sqrt(self.family.variance(self.eta, self.extras)))
        mean, sd = (
            np.take_along_axis(np.broadcast_to(part, self.weight.shape), at, axis=1)[:, 0]
            for part in found
        )
        return mean, sd

    @property
    def _means(self) -> np.ndarray:
        return self.family.expected(self.eta, self.extras)

    @cached_property
    def _vector(self) -> np.ndarray:
        """(rows,) mean of the unit vectors."""
        length = 1.0 - self.family.variance(self.eta, self.extras)
        return self._average(length * np.exp(1j * self._means))

    def _average(self, values: np.ndarray) -> np.ndarray:
        return (self.weight * values).sum(1)


@dataclass(frozen=True, eq=False)
class Drawn:
    """One outcome's predictive distribution in each of some rows, known by draws alone."""

    values: np.ndarray
    """(rows, draws)."""

    def some(self, rows: np.ndarray) -> Drawn:
        """Those of some rows."""
        return Drawn(self.values[rows])

    def chances(self, n_levels: int) -> np.ndarray:
        """(rows, levels) probability of each level."""
        return (self.values[:, :, None] == np.arange(n_levels)).mean(1)

    @property
    def mean(self) -> np.ndarray:
        """(rows,) expected outcome."""
        return self.values.mean(1)

    @property
    def sd(self) -> np.ndarray:
        """(rows,) standard deviation."""
        return self.values.std(1)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Both ends (rows,) of the central interval of this probability."""
        ends = (0.5 - level / 2, 0.5 + level / 2)
        low, high = np.quantile(self.values, ends, axis=1, method="inverted_cdf")
        return low, high


def mixtures(
    model: HMMModel,
    theta: Params,
    rows: np.ndarray,
    A: np.ndarray,
    Y: np.ndarray,
    effects: np.ndarray,
    weight: np.ndarray,
) -> Iterator[tuple[np.ndarray, int, Place, Mixture]]:
    """The distributions of all outcomes, for some rows at a time: (rows, number, place, mixture).

    Everything is in the user's units, and theta as the kernels lay it out: A (rows, columns), Y
    (rows, outcome columns, read only for what families need beside the outcome), effects (rows,
    nodes, d) and weight (rows, nodes, states). `rows` are those wanted.
    """
    n_nodes, n_states = weight.shape[1:]
    parts = n_nodes * n_states
    state = np.tile(np.arange(n_states), n_nodes)
    for some in np.array_split(rows, max(1, -(-len(rows) * parts // _CELLS))):
        if not len(some):
            continue
        flat = (
            np.repeat(A[some], parts, axis=0),
            np.tile(state, len(some)),
            np.repeat(effects[some].reshape(len(some) * n_nodes, -1), n_states, axis=0),
        )
        heights = weight[some].reshape(len(some), parts)
        found: dict[str, Any] = {}
        for number, place in enumerate(places(model)):
            piece = place.piece
            if piece.key not in found:
                etas = piece.etas(theta[piece.key + "coef"], *flat)
                found = {piece.key: [eta.reshape(len(some), parts) for eta in etas]}
            family, eta = distribution(place, theta, tuple(found[piece.key]), state)
            extras = tuple(Y[some, column][:, None] for column in place.extras)
            yield some, number, place, Mixture(family, heights, eta, extras)


def need_distributions(model: HMMModel, what: str) -> None:
    """Raise where an outcome's distribution is known by its log density alone."""
    for place in places(model):
        if place.piece.family.alone(place.number) is None:
            raise ModelError(
                f"{what} need the distribution function of every outcome, and of {place.name!r}, "
                f"{place.piece.family!r}, only the log probability is known."
                + (" predict draws it." if what == "Predictions" else "")
            )


# --- finding quantiles --------------------------------------------------------------------------


def _move(holds: Callable[[np.ndarray], np.ndarray], at: np.ndarray, by: np.ndarray) -> np.ndarray:
    """The places, moved by ever larger steps until the condition holds."""
    for _ in range(200):
        wrong = ~holds(at)
        if not wrong.any():
            break
        at, by = np.where(wrong, at + by, at), 2.0 * by
    return at


def _search_whole(
    cdf: Callable[[np.ndarray], np.ndarray], p: float, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Smallest whole numbers with cdf >= p, between low (where it is less) and high."""
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        enough = cdf(middle) >= p
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _search(
    cdf: Callable[[np.ndarray], np.ndarray], p: float, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Where cdf reaches p, between low and high: false position and halves in turn."""
    close = _CLOSE * (high - low)
    below, above = cdf(low) - p, cdf(high) - p
    side, found = np.zeros(len(low)), 0.5 * (low + high)
    done = np.zeros(len(low), bool)
    for step in range(120):
        slope = above - below
        share = np.where(slope > 0, -below / np.where(slope > 0, slope, 1.0), 0.5)
        share = np.full(len(low), 0.5) if step % 2 else np.clip(share, 1e-12, 1 - 1e-12)
        middle = low + share * (high - low)
        height = cdf(middle) - p
        up = height < 0
        # Illinois: an end that stays twice counts half, so that the other one moves, too.
        above = np.where(up, np.where(side == 1, 0.5 * above, above), height)
        below = np.where(up, height, np.where(side == -1, 0.5 * below, below))
        low, high = np.where(up, middle, low), np.where(up, high, middle)
        side = np.where(up, 1, -1)
        near = np.abs(height) < _NEAR
        found = np.where(done, found, np.where(near, middle, high))
        done |= near | (high - low <= close)
        if done.all():
            break
    return found
