"""A state-space model's parameters as the user knows them, by functions of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from avem.components.param_info import ParamInfo, Params
from avem.models.ssm import SSMModel
from avem.models.ssm import effects_of as effects_of

OF_THETA = {
    "initial_mean": "start_mean",
    "initial_covariance": "start_covariance",
    "transition_mean": "dynamics",
    "state_coef": "drive",
    "loading_mean": "loading",
    "coef": "coef",
    "noise": "noise_covariance",
}
"""The entry of theta behind each parameter; the effects' covariances are one entry together."""


def ssm_param_info(model: SSMModel) -> dict[str, ParamInfo]:
    """Every parameter of the model, in the order of `fit.params`."""
    return model.param_info()


def ssm_params_out(model: SSMModel, theta: Params) -> Params:
    """The user's parameters from theta."""
    return model.params_out(theta)


def ssm_params_in(model: SSMModel, params: Params) -> Params:
    """Theta from all of the user's parameters."""
    return model.params_in(params)


def ssm_override(model: SSMModel, theta: Params, params: Params) -> Params:
    """Theta with some of the user's parameters put in the place of its own."""
    return model.override(theta, params)


def ssm_effects_in(model: SSMModel, effects: np.ndarray) -> np.ndarray:
    """Internal effects (d, subjects) from the user's deviations (subjects, d)."""
    return model.effects_in(effects)


def ssm_effects_out(
    model: SSMModel, mean: np.ndarray, cov: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The user's (subjects, d) and (subjects, d, d) from (d, subjects) and (d, d, subjects)."""
    return model.effects_out(mean, cov)


def check_ssm_params(given: Any, model: SSMModel, where: str) -> Params:
    """The given parameters as arrays, or an error that says which is wrong and how."""
    return model.check_params(given, where)


def free_matrices(model: SSMModel, fixed: Sequence[str], centred: bool) -> dict[str, np.ndarray]:
    """For each population matrix of theta, which entries the M-step moves."""
    return model.free_entries(fixed, centred)
