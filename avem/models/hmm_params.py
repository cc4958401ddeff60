"""Parameters as the user knows them, by functions of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from avem.components.emission import Emission
from avem.components.lines import Line
from avem.components.param_info import ParamInfo, Params
from avem.models.base import Model
from avem.models.hmm import HMMModel

CHAIN_PARAMS = ("initial", "initial_coef", "transition", "transition_coef", "effect_covariance")
"""The parameters that say nothing of the outcomes."""


def param_info(model: Model) -> dict[str, ParamInfo]:
    """Every parameter of the model, in the order of `fit.params`."""
    return model.param_info()


def params_out(model: Model, theta: Params) -> Params:
    """The user's parameters from theta."""
    return model.params_out(theta)


def params_in(model: Model, params: Params) -> Params:
    """Theta from all of the user's parameters."""
    return model.params_in(params)


def check_params(given: Any, model: Model, where: str) -> Params:
    """The given parameters as arrays, or an error that says which is wrong and how."""
    return model.check_params(given, where)


def effects_in(model: Model, effects: np.ndarray) -> np.ndarray:
    """Internal effects (d, subjects) from the user's (subjects, d)."""
    return model.effects_in(effects)


def effects_cov_in(model: Model, cov: np.ndarray) -> np.ndarray:
    """Internal covariances (d, d, subjects) from the user's (subjects, d, d)."""
    return model.effects_cov_in(cov)


def effects_out(model: Model, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The user's (subjects, d) and (subjects, d, d) from (d, subjects) and (d, d, subjects)."""
    return model.effects_out(mean, cov)


def by_spec(model: HMMModel) -> list[list[Emission]]:
    """The emissions that come from one formula, together."""
    numbers = sorted({emission.spec for emission in model.emissions})
    return [[e for e in model.emissions if e.spec == number] for number in numbers]


def param_name(line: Line) -> str:
    """The user's parameter that holds a line's coefficients, without its prefix."""
    return line.param_name
