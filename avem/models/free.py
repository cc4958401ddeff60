"""The parameters that are estimated, as one unconstrained vector, and the way back to theta.

Probabilities by log odds against the largest of their row, variances by logarithms, covariances by
the logarithms of their Cholesky factors' diagonals and by what stands below. A probability of 0 and
a variance at its floor lie on the boundary: no slope says anything there, and they are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from avem.families import Gaussian
from avem.models.hmm_model import HMMModel
from avem.models.param_info import Params
from avem.models.params import coef_limits, free_coefs

_NO_CHANCE = 1e-6
"""Probabilities below this are on the boundary."""
_NO_VARIANCE = 1e-5
"""Variances below this share of their scale are on the boundary; so are multiple correlations
above 1 minus this."""


class _Part(Protocol):
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


@dataclass(frozen=True, eq=False)
class _Plain:
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


@dataclass(frozen=True, eq=False)
class _Odds:
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


@dataclass(frozen=True, eq=False)
class _Scale:
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


@dataclass(frozen=True, eq=False)
class _Cholesky:
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


@dataclass(frozen=True, eq=False)
class Free:
    """What is free in a model near given parameters."""

    parts: tuple[_Part, ...]

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


def find_free(
    model: HMMModel, theta: Params, fixed: Sequence[str], spread: np.ndarray, scale: np.ndarray
) -> Free:
    """What is free: not held by the user, and not on the boundary.

    ``spread`` (outcome columns) and ``scale`` (effects) are the variances that others are judged
    by.
    """
    held = frozenset(fixed)
    parts: list[_Part] = []
    for key in ("initial", "transition"):
        if key in theta and key not in held:
            for row in np.ndindex(theta[key].shape[:-1]):
                parts.append(_odds(key, row, theta[key][row]))
    free, limits = free_coefs(model, held), coef_limits(model)
    for piece, at in model.each_piece():
        key = piece.key + "coef"
        parts.append(_Plain(key, _free_entries(theta[key], free[key], limits.get(key))))
        if (
            isinstance(piece.family, Gaussian)
            and piece.prefix + piece.family.noise_name not in held
        ):
            own = spread[list(at)]
            for k, matrix in enumerate(theta[piece.key + "covariance"]):
                kind = piece.family.covariance
                name = piece.key + "covariance"
                parts += _covariance(name, (k,), matrix, kind, own, np.zeros(len(own), int))
    for key in ("start.coef", "moves.coef"):
        if key in theta:
            parts.append(_Plain(key, _free_entries(theta[key], free[key], None)))
    if model.n_effects and "effect_covariance" not in held:
        kind = {"isotropic": "spherical", "diagonal": "diagonal"}.get(
            model.effect_covariance, "full"
        )
        sigma = theta["effect_covariance"]
        parts += _covariance("effect_covariance", (), sigma, kind, scale, model.effect_blocks)
    return Free(tuple(part for part in parts if part.size))


def _odds(key: str, row: tuple[int, ...], chances: np.ndarray) -> _Odds:
    reference = int(chances.argmax())
    at = np.flatnonzero((chances > _NO_CHANCE) & (np.arange(len(chances)) != reference))
    return _Odds(key, row, at, reference)


def _free_entries(coef: np.ndarray, free: np.ndarray, limits) -> np.ndarray:
    of_state = np.resize(free, coef[0].size) if len(free) > 1 else np.repeat(free, coef[0].size)
    open_to_move = np.tile(of_state, len(coef))
    if limits is not None:
        low, high = (np.broadcast_to(limit, coef.shape).ravel() for limit in limits)
        flat = coef.ravel()
        open_to_move &= (flat > low + 1e-3) & (flat < high - 1e-3)
    return np.flatnonzero(open_to_move)


def _covariance(
    key: str,
    row: tuple[int, ...],
    matrix: np.ndarray,
    kind: str,
    scale: np.ndarray,
    blocks: np.ndarray,
) -> list[_Part]:
    if kind == "spherical":
        return [_Scale(key, row)] if matrix[0, 0] > _NO_VARIANCE * scale.min() else []
    low = np.linalg.cholesky(matrix)
    own = np.diagonal(low) ** 2  # given the others before it
    open_to_move = (own > _NO_VARIANCE * scale) & (own > _NO_VARIANCE * np.diagonal(matrix))
    lower = np.tril(blocks[:, None] == blocks, -1) & (kind == "full")
    # Below the diagonal: free where the variance of the row is.
    lower &= (np.diagonal(matrix) > _NO_VARIANCE * scale)[:, None] & open_to_move[None]
    below = np.nonzero(lower)
    return [_Cholesky(key, row, np.flatnonzero(open_to_move), (below[0], below[1]))]


def count_free(model: HMMModel, theta: Params, fixed: Sequence[str]) -> int:
    """How many parameters are estimated, those that ended on a boundary included."""

    def inside(key: str, value: np.ndarray) -> np.ndarray:
        if key in ("initial", "transition"):
            return np.full(value.shape, 1.0 / value.shape[-1])
        if key.endswith("covariance"):
            return np.broadcast_to(np.eye(value.shape[-1]), value.shape)
        return np.zeros(value.shape)

    anywhere = {key: inside(key, value) for key, value in theta.items()}
    n_columns = model.y_cols[-1][-1] + 1
    return find_free(model, anywhere, fixed, np.ones(n_columns), np.ones(model.n_effects)).size
