"""What constraints and priors are to the engine: linear conditions on theta, and a penalty.

The numbers that users see follow linearly from theta (or their logarithms, log odds, do), so that
every constraint is a row of linear equations or inequalities in the entries of theta themselves.
Nothing here knows of which component they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from avem.components.base import Match
from avem.components.free import Span
from avem.components.param_info import Params
from avem.components.priors import Prior
from avem.numerics.polyhedron import Polyhedron

_TURNS, _SHARE = 500, 0.01
"""Of looking for positive covariances; their least eigenvalue then, as a share of the largest."""
_ACTIVE = 1e-5
"""A bound is reached where a number, on the scale of the fit, is this close to it."""


class OfPrior(NamedTuple):
    """A prior and what it is of."""

    name: str
    """The user's parameter."""
    at: np.ndarray | None
    """Flat places; None: the whole of it."""
    prior: Prior
    kind: str
    """Of the parameter."""

    def value(self, params: Params) -> np.ndarray:
        """What it is a density of."""
        own = params[self.name]
        return own if self.at is None else own.ravel()[self.at]

    def log_density(self, params: Params) -> float:
        """At parameters."""
        return self.prior.log_density(self.value(params), self.kind)


class Together(NamedTuple):
    """Some of the entries of theta of a restriction."""

    keys: tuple[str, ...]
    numbers: np.ndarray
    """(numbers,) bool: which are theirs."""
    sides: Polyhedron
    """Of these alone."""


@dataclass(frozen=True, eq=False)
class Restriction:
    """What theta must be, in some of its numbers, and what is said of them beforehand."""

    spans: tuple[Span, ...]
    sides: Polyhedron
    """Of the numbers of all spans."""
    priors: tuple[OfPrior, ...]
    params_out: Callable[[Params], Params]
    likes: Params
    """Theta inside all bounds, with what is held where it is held."""
    told_apart: bool
    """Constraints themselves, not only probabilities' sums, are among the sides."""

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The entries of theta that are concerned."""
        return tuple(dict.fromkeys(span.key for span in self.spans))

    @cached_property
    def _slices(self) -> list[slice]:
        ends = np.cumsum([0, *(span.places.shape[1] for span in self.spans)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def places(self, key: str) -> np.ndarray:
        """(entries of theta[key], numbers) which entries each number is."""
        parts = [
            span.places if span.key == key else np.zeros((self.likes[key].size, width))
            for span, width in zip(self.spans, map(width, self._slices), strict=True)
        ]
        return np.concatenate(parts, axis=1)

    def read(self, theta: Params) -> np.ndarray:
        """The numbers in theta."""
        return read_numbers(self.spans, theta)

    def write(self, numbers: np.ndarray, theta: Params) -> Params:
        """Theta with these numbers."""
        new = dict(theta)
        for span, own in zip(self.spans, self._slices, strict=True):
            flat = np.array(new[span.key], float).ravel()
            mine = span.places.any(1)
            flat[mine] = span.places[mine] @ numbers[own]
            new[span.key] = flat.reshape(theta[span.key].shape)
        return new

    def allows(self, theta: Params, new: Params) -> bool:
        """Whether `new` parameters are allowed, and as probable as theta beforehand."""
        x, sides = self.read(new), self.sides
        apart = np.abs(sides.equal @ x - sides.level).max(initial=0.0)
        inside = bool((sides.above @ x >= sides.least - 1e-7).all())
        return apart < 1e-7 and inside and abs(self.log_prior(new) - self.log_prior(theta)) < 1e-7

    def within(self, theta: Params, inside: float = 0.0) -> Params | None:
        """The nearest theta that is allowed; None where that is no theta.

        With `inside`, probabilities that may be more are at least that.
        """
        x = self.read(theta)
        sides = self.sides
        if inside:
            least = sides.least.copy()
            rows = [slice(0, 0)] + [own for s, own in self._chance_rows() if s]
            for own in rows:
                moving = np.abs(sides.free[own]).max(1, initial=0.0) > 1e-9
                least[own] = np.where(moving, inside, 0.0)
            roomy = replace(sides, least=least).nearest(x)
            if roomy is not None:
                return self._checked(roomy, theta)
        found = sides.nearest(x)
        return None if found is None else self._checked(found, theta)

    def _chance_rows(self) -> list[tuple[bool, slice]]:
        # The first rows of `above` are the numbers themselves, in their order.
        return [(s.chances, own) for s, own in zip(self.spans, self._slices, strict=True)]

    def reached_from(self, theta: Params) -> Params | None:
        """A theta that is allowed, by turns the nearest one and one with positive covariances."""
        for _ in range(_TURNS):
            found = self.within(theta)
            numbers = self.sides.nearest(self.read(theta))
            if found is not None or numbers is None:
                return found
            theta = self.write(numbers, theta)
            for key in self.keys:
                if key.endswith("covariance"):
                    values, vectors = np.linalg.eigh(theta[key])
                    least = _SHARE * np.abs(values).max(axis=-1, keepdims=True)
                    lifted = vectors * np.maximum(values, least)[..., None, :]
                    theta[key] = lifted @ np.swapaxes(vectors, -1, -2)
        return None

    def _checked(self, numbers: np.ndarray, theta: Params) -> Params | None:
        new = self.write(numbers, theta)
        for key in self.keys:
            is_covariance = key.endswith("covariance") and bool(new[key].size)
            if is_covariance and np.linalg.eigvalsh(new[key]).min() <= 0:
                return None
        return new

    @cached_property
    def groups(self) -> tuple[Together, ...]:
        """Entries of theta that conditions tie to each other, to be found together."""
        owner = np.concatenate(
            [np.full(width(own), self.keys.index(span.key)) for span, own in self.pairs()]
        )
        label = np.arange(len(self.keys))
        for row in (*self.sides.equal, *self.sides.above):
            both = label[np.unique(owner[np.abs(row) > 1e-12])]
            label[np.isin(label, both)] = both.min()
        found = []
        for number in np.unique(label):
            keys = np.flatnonzero(label == number)
            own = np.isin(owner, keys)
            mine = [np.abs(part[:, own]).any(1) for part in (self.sides.equal, self.sides.above)]
            sides = Polyhedron(
                self.sides.equal[mine[0]][:, own],
                self.sides.level[mine[0]],
                self.sides.above[mine[1]][:, own],
                self.sides.least[mine[1]],
            )
            found.append(Together(tuple(self.keys[k] for k in keys), own, sides))
        return tuple(found)

    def pairs(self) -> list[tuple[Span, slice]]:
        return list(zip(self.spans, self._slices, strict=True))

    def with_floors(
        self,
        floors: Mapping[str, np.ndarray],
        limits: Mapping[str, tuple[np.ndarray, np.ndarray]],
    ) -> Restriction:
        """With the smallest variances (by key, of the diagonal), and coefficients' limits."""
        least, above = self.sides.least.copy(), [self.sides.above]
        more: list[float] = []
        n = self.sides.above.shape[1]
        for span, own in self.pairs():
            if span.positive and span.key in floors:
                of_entry = np.broadcast_to(np.diag(floors[span.key]), self.likes[span.key].shape)
                lowest = np.array([of_entry.ravel()[c > 0].max() for c in span.places.T])
                at = np.arange(own.start, own.start + span.positive)
                least[at] = np.maximum(least[at], lowest[: span.positive])
            if span.key in limits:
                shape = self.likes[span.key].shape
                low, high = (np.broadcast_to(one, shape).ravel() for one in limits[span.key])
                for number, column in enumerate(span.places.T):
                    entry = int(column.argmax())
                    for sign, bound in ((1.0, low[entry]), (-1.0, -high[entry])):
                        if np.isfinite(bound):
                            row = np.zeros((1, n))
                            row[0, own.start + number] = sign
                            above.append(row)
                            more.append(bound)
        least = np.concatenate([least, more])
        return replace(self, sides=replace(self.sides, above=np.concatenate(above), least=least))

    def tied(self, key: str) -> np.ndarray:
        """Of the shape of theta[key], which entries a condition of a user's speaks of."""
        n = self.sides.equal.shape[1]
        rows = np.concatenate([self.sides.equal, self.sides.above[n:]])
        numbers = (np.abs(rows) > 1e-12).any(0) if len(rows) else np.zeros(n, bool)
        found = self.places(key)[:, numbers].sum(axis=1) > 0
        return np.reshape(found, self.likes[key].shape)

    def of_states(self, keys: Collection[str], states: Collection[int]) -> np.ndarray:
        """(numbers,) bool: those of some states, the first axis of these entries of theta."""
        found = np.zeros(self.sides.equal.shape[1], bool)
        for key in set(keys) & set(self.keys):
            own = np.zeros(self.likes[key].shape, bool)
            own[list(states)] = True
            found |= self.places(key)[own.ravel()].any(0)
        return found

    # --- what follows from it -------------------------------------------------------------------

    def moves_with(self, match: Match | None) -> Match | None:
        """The match of an effect, unless the coefficients are constrained or have a prior."""
        if match is None or match.key not in self.keys:
            return match
        move = np.zeros(self.likes[match.key].shape)
        states = slice(None) if match.state is None else match.state
        move[(states, *match.place)] = 1.0
        numbers = self.places(match.key).T @ move.ravel()
        concerned = (*self.sides.equal, *self.sides.above)
        if any(abs(row @ numbers) > 1e-9 for row in concerned) or self._has_prior(match.key):
            return None
        return match

    def _has_prior(self, key: str) -> bool:
        return any(np.abs(self.slope_of(one)[key]).max() > 0 for one in self.priors)

    def slope_of(self, one: OfPrior) -> Params:
        """By key, how much what a prior is about depends on theta's entries."""
        jacobian = self._jacobian(one, self.likes)
        total = np.abs(jacobian).sum(0)
        return {key: self.places(key) @ total for key in self.keys}

    def _jacobian(self, one: OfPrior, theta: Params) -> np.ndarray:
        """(numbers, own numbers) derivative of what a prior is about."""
        x = self.read(theta)
        columns = []
        for j in range(len(x)):
            step = 1e-5 * max(1.0, abs(x[j])) * (np.arange(len(x)) == j)
            up = one.value(self.params_out(self.write(x + step, theta)))
            down = one.value(self.params_out(self.write(x - step, theta)))
            columns.append((up - down).ravel() / (2 * step[j]))
        return np.array(columns).T.reshape(-1, len(x))

    @cached_property
    def _fixed_jacobians(self) -> list[np.ndarray | None]:
        """Of every prior; None where it is not the same everywhere."""
        found: list[np.ndarray | None] = []
        other = self.write(self.read(self.likes) * 1.3 + 0.1, self.likes)
        for one in self.priors:
            here, there = self._jacobian(one, self.likes), self._jacobian(one, other)
            same = np.allclose(here, there, rtol=1e-6, atol=1e-9)
            found.append(np.where(np.abs(here) < 1e-9, 0.0, here) if same else None)
        return found

    def log_prior(self, theta: Params) -> float:
        """Of the parameters, up to a constant."""
        if not self.priors:
            return 0.0
        params = self.params_out(theta)
        return float(sum(one.log_density(params) for one in self.priors))

    def prior_terms(self, theta: Params) -> tuple[np.ndarray, np.ndarray]:
        """Slope and curvature of `log_prior` in the numbers; the curvature is never negative."""
        n = self.sides.equal.shape[1]
        slope, curvature = np.zeros(n), np.zeros((n, n))
        if not self.priors:
            return slope, curvature
        params = self.params_out(theta)
        for one, fixed in zip(self.priors, self._fixed_jacobians, strict=True):
            jacobian = self._jacobian(one, theta) if fixed is None else fixed
            first, second = one.prior.terms(one.value(params), one.kind)
            slope += jacobian.T @ first.ravel()
            curvature += jacobian.T @ second @ jacobian
        return slope, curvature

    def prior_slope(self, theta: Params) -> Params:
        """Slope of `log_prior` in the entries of theta, as `Free.pull` takes them."""
        slope, _ = self.prior_terms(theta)
        out = {}
        for key in self.keys:
            places = self.places(key)
            # A number that is several entries shares its slope among them.
            out[key] = (places @ (slope / np.maximum(places.sum(0), 1.0))).reshape(theta[key].shape)
        return out

    def reached(self, theta: Params) -> np.ndarray:
        """(rows, numbers) the bounds that theta is at, as conditions."""
        x = self.read(theta)
        size = np.maximum(np.linalg.norm(self.sides.above, axis=1), 1e-300)
        near = (self.sides.above @ x - self.sides.least) / size < _ACTIVE
        own = np.arange(len(self.sides.above)) >= len(x)  # beyond those of the numbers themselves
        return self.sides.above[near & own]


def width(own: slice) -> int:
    return own.stop - own.start


def read_numbers(spans: Sequence[Span], theta: Params) -> np.ndarray:
    parts = [
        span.places.T @ theta[span.key].ravel() / span.places.sum(0).clip(1.0) for span in spans
    ]
    return np.concatenate(parts or [np.zeros(0)])
