"""Theta as a vector, and as something that effects are absorbed into."""

from __future__ import annotations

import numpy as np

from avem.components.base import Match
from avem.components.param_info import Params as Theta

_CHANCES = ("initial", "transition", "clusters")


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
