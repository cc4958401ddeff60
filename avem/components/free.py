"""The parameters that are estimated, as one unconstrained vector, and the way back to theta.

Probabilities by log odds against the largest of their row, variances by logarithms, covariances by
the logarithms of their Cholesky factors' diagonals and by what stands below. A probability of 0 and
a variance at its floor lie on the boundary: no slope says anything there, and they are held.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from avem.components.param_info import Params

_NO_CHANCE = 1e-6
"""Probabilities below this are on the boundary."""
_NO_VARIANCE = 1e-5
"""Variances below this share of their scale are on the boundary; so are multiple correlations
above 1 minus this."""


class Part(Protocol):
    """Some of the vector's entries."""

    @property
    def key(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, theta: Params) -> np.ndarray:
        """The part's entries of the vector."""
        ...

    def write(self, theta: Params, values: np.ndarray) -> None:
        """Put them into theta, in place."""
        ...

    def pull(self, theta: Params, slope: np.ndarray) -> np.ndarray:
        """The derivative in them, from that in theta[key]."""
        ...

    def without(self, states: Collection[int], each: int) -> Part:
        """The same but for some states, the first axis of theta[key], with `each` entries."""
        ...

    def span(self, theta: Params) -> Span:
        """The numbers of theta that it is about, as they are."""
        ...


class Span(NamedTuple):
    """Some entries of an array of theta as numbers that add up linearly."""

    key: str
    places: np.ndarray
    """(entries of theta[key], numbers) of 0s and 1s: which entries a number is."""
    chances: bool = False
    """They are probabilities with a fixed sum."""
    positive: int = 0
    """So many of them, the first, are variances."""


def _span(key: str, theta: Params, numbers: Sequence[Sequence[Any]], **facts: Any) -> Span:
    """From the entries that each number is."""
    places = np.zeros((len(numbers), *theta[key].shape))
    for number, entries in enumerate(numbers):
        for entry in entries:
            places[(number, *entry)] = 1.0
    return Span(key, places.reshape(len(numbers), -1).T, **facts)


@dataclass(frozen=True, eq=False)
class Plain:
    """Entries of an array as they are."""

    key: str
    at: np.ndarray
    """Flat positions."""

    @property
    def size(self) -> int:
        return len(self.at)

    def read(self, theta: Params) -> np.ndarray:
        return theta[self.key].ravel()[self.at]

    def write(self, theta: Params, values: np.ndarray) -> None:
        theta[self.key].reshape(-1)[self.at] = values

    def pull(self, theta: Params, slope: np.ndarray) -> np.ndarray:
        return slope.ravel()[self.at]

    def without(self, states: Collection[int], each: int) -> Plain:
        """The same but for some states, which have `each` entries."""
        return Plain(self.key, self.at[~np.isin(self.at // each, list(states))])

    def span(self, theta: Params) -> Span:
        return Span(self.key, np.eye(theta[self.key].size)[:, self.at])


@dataclass(frozen=True, eq=False)
class Odds:
    """One row of probabilities."""

    key: str
    row: tuple[int, ...]
    at: np.ndarray
    """The free entries."""
    reference: int

    @property
    def size(self) -> int:
        return len(self.at)

    def read(self, theta: Params) -> np.ndarray:
        p = theta[self.key][self.row]
        return np.log(p[self.at] / p[self.reference])

    def write(self, theta: Params, values: np.ndarray) -> None:
        p = theta[self.key][self.row]
        p[self.at] = p[self.reference] * np.exp(values)
        p /= p.sum()

    def pull(self, theta: Params, slope: np.ndarray) -> np.ndarray:
        p, g = theta[self.key][self.row], slope[self.row]
        return p[self.at] * (g[self.at] - (p * g).sum())

    def without(self, states: Collection[int], each: int) -> Part:
        """The same but for some states: nothing, where it is one of theirs."""
        return Plain(self.key, np.zeros(0, int)) if self.row[0] in states else self

    def span(self, theta: Params) -> Span:
        own = sorted([*self.at.tolist(), self.reference])
        return _span(self.key, theta, [[(*self.row, m)] for m in own], chances=True)


@dataclass(frozen=True, eq=False)
class Scale:
    """A covariance that is one variance times the identity."""

    key: str
    row: tuple[int, ...]
    size: int = 1

    def read(self, theta: Params) -> np.ndarray:
        return np.log(theta[self.key][self.row][:1, 0])

    def write(self, theta: Params, values: np.ndarray) -> None:
        matrix = theta[self.key][self.row]
        matrix[:] = np.eye(len(matrix)) * np.exp(values[0])

    def pull(self, theta: Params, slope: np.ndarray) -> np.ndarray:
        return np.array([theta[self.key][self.row][0, 0] * np.trace(slope[self.row])])

    def without(self, states: Collection[int], each: int) -> Part:
        """The same but for some states: nothing, where it is one of theirs."""
        return Plain(self.key, np.zeros(0, int)) if self.row[0] in states else self

    def span(self, theta: Params) -> Span:
        every = range(len(theta[self.key][self.row]))
        return _span(self.key, theta, [[(*self.row, i, i) for i in every]], positive=1)


@dataclass(frozen=True, eq=False)
class Cholesky:
    """A covariance by its Cholesky factor; diagonal when nothing below is free."""

    key: str
    row: tuple[int, ...]
    diagonal: np.ndarray
    below: tuple[np.ndarray, np.ndarray]

    @property
    def size(self) -> int:
        return len(self.diagonal) + len(self.below[0])

    def read(self, theta: Params) -> np.ndarray:
        low = np.linalg.cholesky(theta[self.key][self.row])
        return np.concatenate([np.log(np.diagonal(low)[self.diagonal]), low[self.below]])

    def write(self, theta: Params, values: np.ndarray) -> None:
        matrix = theta[self.key][self.row]
        low = np.linalg.cholesky(matrix)
        low[self.diagonal, self.diagonal] = np.exp(values[: len(self.diagonal)])
        low[self.below] = values[len(self.diagonal) :]
        matrix[:] = low @ low.T

    def pull(self, theta: Params, slope: np.ndarray) -> np.ndarray:
        low = np.linalg.cholesky(theta[self.key][self.row])
        of_low = 2.0 * slope[self.row] @ low
        own = (np.diagonal(low) * np.diagonal(of_low))[self.diagonal]
        return np.concatenate([own, of_low[self.below]])

    def without(self, states: Collection[int], each: int) -> Part:
        """The same but for some states: nothing, where it is one of theirs."""
        return Plain(self.key, np.zeros(0, int)) if self.row[0] in states else self

    def span(self, theta: Params) -> Span:
        own = [[(*self.row, i, i)] for i in self.diagonal.tolist()]
        pairs = zip(*(part.tolist() for part in self.below), strict=True)
        numbers = own + [[(*self.row, i, j), (*self.row, j, i)] for i, j in pairs]
        return _span(self.key, theta, numbers, positive=len(own))


@dataclass(frozen=True, eq=False)
class Free:
    """What is free in a model near given parameters."""

    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(part.size for part in self.parts)

    def vector(self, theta: Params) -> np.ndarray:
        """The free parameters in theta."""
        return np.concatenate([part.read(theta) for part in self.parts] or [np.zeros(0)])

    def theta(self, vector: np.ndarray, like: Params) -> Params:
        """Theta with the free parameters of the vector, and the others of `like`."""
        new = {key: np.array(value, float) for key, value in like.items()}
        at = 0
        for part in self.parts:
            part.write(new, vector[at : at + part.size])
            at += part.size
        return new

    def pull(self, theta: Params, slope: Params) -> np.ndarray:
        """The derivative in the vector, from that in theta (symmetric for covariances)."""
        found = [part.pull(theta, slope[part.key]) for part in self.parts]
        return np.concatenate(found or [np.zeros(0)])


def odds_part(key: str, row: tuple[int, ...], chances: np.ndarray) -> Odds:
    """What is free in a row of probabilities."""
    reference = int(chances.argmax())
    at = np.flatnonzero((chances > _NO_CHANCE) & (np.arange(len(chances)) != reference))
    return Odds(key, row, at, reference)


def covariance_parts(
    key: str,
    row: tuple[int, ...],
    matrix: np.ndarray,
    kind: str,
    scale: np.ndarray,
    blocks: np.ndarray,
) -> list[Part]:
    """What is free in a covariance "spherical", "diagonal" or "full" within its `blocks`.

    ``scale`` are the variances that its own are judged by.
    """
    if kind == "spherical":
        return [Scale(key, row)] if matrix[0, 0] > _NO_VARIANCE * scale.min() else []
    low = np.linalg.cholesky(matrix)
    own = np.diagonal(low) ** 2  # given the others before it
    open_to_move = (own > _NO_VARIANCE * scale) & (own > _NO_VARIANCE * np.diagonal(matrix))
    lower = np.tril(blocks[:, None] == blocks, -1) & (kind == "full")
    # Below the diagonal: free where the variance of the row is.
    lower &= (np.diagonal(matrix) > _NO_VARIANCE * scale)[:, None] & open_to_move[None]
    below = np.nonzero(lower)
    return [Cholesky(key, row, np.flatnonzero(open_to_move), (below[0], below[1]))]
