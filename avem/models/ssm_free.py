"""The parameters of a state-space model that are estimated, as one unconstrained vector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from avem.components.free import Free, Part, Plain, covariance_parts
from avem.components.param_info import Params
from avem.models.ssm import SSMModel
from avem.models.ssm_params import OF_THETA, free_matrices


def find_ssm_free(
    model: SSMModel, theta: Params, fixed: Sequence[str], spread: np.ndarray, scale: np.ndarray
) -> Free:
    """What is free: not held by the user, and not on the boundary.

    ``spread`` (outcomes) and ``scale`` (effects) are the variances that others are judged by.
    """
    held = {OF_THETA[name] for name in fixed if name in OF_THETA}
    q = model.n_latent
    parts: list[Part] = []
    if "start_mean" not in held:
        parts.append(Plain("start_mean", np.arange(q)))
    if "start_covariance" not in held:
        own = theta["start_covariance"]
        parts += covariance_parts("start_covariance", (), own, "full", np.ones(q), np.zeros(q, int))
    for key, free in free_matrices(model, fixed, centred=False).items():
        parts.append(Plain(key, np.flatnonzero(free)))
    if "noise_covariance" not in held:
        for j, own in enumerate(theta["noise_covariance"]):
            unit = spread[j : j + 1]
            parts += covariance_parts(
                "noise_covariance", (j,), own, "spherical", unit, np.zeros(1, int)
            )
    if model.n_effects and not _covariances_held(fixed):
        sigma = theta["effect_covariance"]
        blocks = model.effect_blocks
        parts += covariance_parts("effect_covariance", (), sigma, "full", scale, blocks)
    return Free(tuple(part for part in parts if part.size))


def _covariances_held(fixed: Sequence[str]) -> bool:
    return any(name.endswith("_covariance") and name not in OF_THETA for name in fixed)


def count_ssm_free(model: SSMModel, theta: Params, fixed: Sequence[str]) -> int:
    """How many parameters are estimated, those that ended on a boundary included."""

    def inside(key: str, value: np.ndarray) -> np.ndarray:
        if key.endswith("covariance"):
            return np.broadcast_to(np.eye(value.shape[-1]), value.shape)
        return np.zeros(value.shape)

    anywhere = {key: inside(key, value) for key, value in theta.items()}
    ones = np.ones(len(model.outcomes)), np.ones(model.n_effects)
    return find_ssm_free(model, anywhere, fixed, *ones).size
