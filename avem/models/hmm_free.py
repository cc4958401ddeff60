"""The parameters of an HMM that are estimated, as one unconstrained vector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from avem.components.free import Free, Part, Plain, covariance_parts, odds_part
from avem.components.param_info import Params
from avem.families import Gaussian
from avem.models.hmm import HMMModel
from avem.models.hmm_params import coef_limits, free_coefs


def find_free(
    model: HMMModel, theta: Params, fixed: Sequence[str], spread: np.ndarray, scale: np.ndarray
) -> Free:
    """What is free: not held by the user, and not on the boundary.

    ``spread`` (outcome columns) and ``scale`` (effects) are the variances that others are judged
    by.
    """
    held = frozenset(fixed)
    parts: list[Part] = []
    for key in ("initial", "transition"):
        if key in theta and key not in held:
            for row in np.ndindex(theta[key].shape[:-1]):
                parts.append(odds_part(key, row, theta[key][row]))
    free, limits = free_coefs(model, held), coef_limits(model)
    for piece, at in model.each_piece():
        key = piece.key + "coef"
        parts.append(Plain(key, _free_entries(theta[key], free[key], limits.get(key))))
        if (
            isinstance(piece.family, Gaussian)
            and piece.prefix + piece.family.noise_name not in held
        ):
            own = spread[list(at)]
            for k, matrix in enumerate(theta[piece.key + "covariance"]):
                kind = piece.family.covariance
                name = piece.key + "covariance"
                parts += covariance_parts(name, (k,), matrix, kind, own, np.zeros(len(own), int))
    for key in ("start.coef", "moves.coef"):
        if key in theta:
            parts.append(Plain(key, _free_entries(theta[key], free[key], None)))
    if model.n_effects and "effect_covariance" not in held:
        kind = {"isotropic": "spherical", "diagonal": "diagonal"}.get(
            model.effect_covariance, "full"
        )
        sigma = theta["effect_covariance"]
        parts += covariance_parts("effect_covariance", (), sigma, kind, scale, model.effect_blocks)
    return Free(tuple(part for part in parts if part.size))


def _free_entries(coef: np.ndarray, free: np.ndarray, limits) -> np.ndarray:
    of_state = np.resize(free, coef[0].size) if len(free) > 1 else np.repeat(free, coef[0].size)
    open_to_move = np.tile(of_state, len(coef))
    if limits is not None:
        low, high = (np.broadcast_to(limit, coef.shape).ravel() for limit in limits)
        flat = coef.ravel()
        open_to_move &= (flat > low + 1e-3) & (flat < high - 1e-3)
    return np.flatnonzero(open_to_move)


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
