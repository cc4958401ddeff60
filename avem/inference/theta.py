"""Theta as a vector, as something effects are absorbed into, and with its states renumbered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from avem.components.structure import moves_as_matrix, moves_by_distance
from avem.families import Custom, Gaussian
from avem.models.hmm import HMMModel

Theta = dict[str, np.ndarray]
_CHANCES = ("initial", "transition")


class Match(NamedTuple):
    """The fixed coefficients that an effect is added to."""

    key: str
    state: int | None
    """None: of every state."""
    place: tuple[int, ...]


def pack_theta(theta: Theta) -> np.ndarray:
    """All entries in one vector; covariances by their Cholesky factors."""
    return np.concatenate(
        [
            np.ravel(_root(theta[key]) if _is_covariance(key) else theta[key])
            for key in sorted(theta)
        ]
    )


def _is_covariance(key: str) -> bool:
    return key.endswith("covariance")


def _root(covariance: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(covariance) if covariance.size else covariance


def theta_moves(before: Theta, after: Theta) -> np.ndarray:
    """How far every entry moved; those of a covariance in units of standard deviations.

    A covariance that is nearly singular in some direction may turn in it for ever, which its factor
    shows and its entries do not.
    """
    return np.concatenate(
        [np.ravel(_moves(key, before[key], after[key])) for key in sorted(before)]
    )


def _moves(key: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    if not _is_covariance(key):
        return np.abs(new - old)
    scale = np.sqrt(np.sqrt(np.einsum("...ii->...i", new) + 1e-300))
    return np.abs(new - old) / (2.0 * scale[..., :, None] * scale[..., None, :])


def unpack_theta(vector: np.ndarray, like: Theta) -> Theta:
    """The inverse of `pack_theta`, pulled back where a probability or scale would turn negative."""
    theta, at = {}, 0
    for key in sorted(like):
        old = like[key]
        raw = vector[at : at + old.size].reshape(old.shape)
        at += old.size
        if key in _CHANCES:
            raw = np.maximum(raw, 0.1 * old)
            raw = raw / raw.sum(-1, keepdims=True)
        elif _is_covariance(key) and old.size:
            raw = _positive(raw, old)
        theta[key] = raw
    return theta


def _positive(factor: np.ndarray, old: np.ndarray) -> np.ndarray:
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
    smallest = 0.1 * np.diagonal(np.linalg.cholesky(old), axis1=-2, axis2=-1)
    lift = np.maximum(diagonal, smallest) - diagonal
    factor = factor + np.eye(old.shape[-1]) * lift[..., None]
    return factor @ np.swapaxes(factor, -1, -2)


def find_matches(model: HMMModel, fixed: frozenset[str] = frozenset()) -> tuple[Match | None, ...]:
    """For every effect, the coefficients with the same column, unless they are held."""
    structure = model.structure
    found: dict[int, Match] = {}
    for piece in structure.pieces:
        key = piece.key + "coef"
        if isinstance(piece.family, Custom):
            names = [name for name, _ in piece.family.params]
            for name, place in zip(piece.family.effects, piece.lines[0].effects[0], strict=True):
                if name in names and piece.prefix + name not in fixed:
                    found[place] = Match(key, None, (names.index(name),))
            continue
        at = 0
        for j, line in enumerate(piece.lines):
            name = piece.prefix + ("coef" if not line.parameter else f"{line.parameter}_coef")
            if name not in fixed:
                gaussian = isinstance(piece.family, Gaussian)
                _match_line(found, line, key, (j,) if gaussian else (), 0 if gaussian else at)
            at += len(line.terms)
    at = 0
    for line in structure.moves:
        if not {"transition", "transition_coef"} & fixed:
            _match_line(found, line, "moves.coef", (), at)
        at += len(line.terms)
    return tuple(found.get(place) for place in range(model.n_effects))


def _match_line(found, line, key: str, lead: tuple[int, ...], at: int) -> None:
    shared = len(set(line.effects)) == 1
    for state, places in enumerate(line.effects[:1] if shared else line.effects):
        for column, place in zip(line.z_cols, places, strict=True):
            if column in line.x_cols:
                term = at + line.x_cols.index(column)
                found[place] = Match(key, None if shared else state, (*lead, term))


def absorb(theta: Theta, matches: tuple[Match | None, ...], shift: np.ndarray) -> Theta:
    """Theta with the shift of every effect added to the coefficients it is matched with."""
    new = dict(theta)
    for match, value in zip(matches, shift, strict=True):
        if match is not None:
            if new[match.key] is theta[match.key]:
                new[match.key] = theta[match.key].copy()
            states = slice(None) if match.state is None else match.state
            new[match.key][(states, *match.place)] += value
    return new


def reorder(model: HMMModel, theta: Theta, order: np.ndarray) -> tuple[Theta, np.ndarray]:
    """The same parameters with the states renumbered, and where each effect came from."""
    k, structure = model.n_states, model.structure
    new: Theta = {}
    for key, value in theta.items():
        if key == "transition":
            new[key] = value[np.ix_(order, order)]
        elif key == "moves.coef":
            matrix = moves_as_matrix(value.reshape(k, k - 1, -1))[np.ix_(order, order)]
            new[key] = moves_by_distance(matrix).reshape(k, -1)
        elif key == "start.coef":
            rows = np.concatenate([np.zeros((1, value.size // (k - 1))), value.reshape(k - 1, -1)])
            new[key] = (rows[order] - rows[order[0]])[1:].reshape(1, -1)
        elif key != "effect_covariance":
            new[key] = value[order]
    effects = {
        (e.outcome, e.parameter, e.term, e.state, e.to_state, e.block): place
        for place, e in enumerate(structure.effects)
    }

    def old(state: int | None) -> int | None:
        return None if state is None else int(order[state])

    source = np.array(
        [
            effects[e.outcome, e.parameter, e.term, old(e.state), old(e.to_state), e.block]
            for e in structure.effects
        ],
        int,
    )
    new["effect_covariance"] = theta["effect_covariance"][np.ix_(source, source)]
    return new, source
