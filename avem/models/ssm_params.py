"""A state-space model's parameters as the user knows them, and the way to theta and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from avem.components.param_info import ParamInfo, Params, check_arrays
from avem.errors import ModelError
from avem.models.ssm import BLOCKS, SSMModel

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
    q, outcomes = model.n_latent, model.outcomes
    p, words = len(outcomes), f"outcomes ({', '.join(outcomes)})"
    out = {
        "initial_mean": ParamInfo((q,), "free", "states"),
        "initial_covariance": ParamInfo((q, q), "covariance", "states, both ways"),
        "transition_mean": ParamInfo((q, q), "free", "to state x from state"),
    }
    if model.drive_cols:
        axes = f"states x terms ({', '.join(model.state_terms)})"
        out["state_coef"] = ParamInfo((q, len(model.drive_cols)), "free", axes)
    out["loading_mean"] = ParamInfo((p, q), "free", f"{words} x states; 0 above the diagonal")
    if model.x_cols:
        axes = f"{words} x terms ({', '.join(model.terms)})"
        out["coef"] = ParamInfo((p, len(model.x_cols)), "free", axes)
    out["noise"] = ParamInfo((p,), "positive", words)
    for kind in BLOCKS:
        at = effects_of(model, kind)
        if len(at):
            names = ", ".join(model.effect_names[e] for e in at)
            shape = (len(at), len(at))
            axes = f"effects ({names}), both ways"
            out[f"{kind}_covariance"] = ParamInfo(shape, "covariance", axes)
    return out


def effects_of(model: SSMModel, kind: str) -> np.ndarray:
    """The places of the effects of one kind."""
    return np.flatnonzero([own == kind for own in model.effect_kinds])


def ssm_params_out(model: SSMModel, theta: Params) -> Params:
    """The user's parameters from theta."""
    scale, units = model.scaling.scale, model.effect_units
    out = {
        "initial_mean": np.array(theta["start_mean"]),
        "initial_covariance": np.array(theta["start_covariance"]),
        "transition_mean": np.array(theta["dynamics"]),
        "state_coef": np.array(theta["drive"]),
        "loading_mean": theta["loading"] * scale[:, None],
        "coef": theta["coef"] * scale[:, None],
        "noise": theta["noise_covariance"][:, 0, 0] * scale**2,
    }
    if model.scaling.constant in model.x_cols:
        out["coef"][:, model.x_cols.index(model.scaling.constant)] += model.scaling.centre
    sigma = theta["effect_covariance"] * np.outer(units, units)
    for kind in BLOCKS:
        at = effects_of(model, kind)
        out[f"{kind}_covariance"] = sigma[np.ix_(at, at)]
    return {name: out[name] for name in ssm_param_info(model)}


def ssm_params_in(model: SSMModel, params: Params) -> Params:
    """Theta from all of the user's parameters."""
    scale, units = model.scaling.scale, model.effect_units
    q, p = model.n_latent, len(model.outcomes)
    coef = np.array(params.get("coef", np.zeros((p, 0))), float)
    if model.scaling.constant in model.x_cols:
        coef[:, model.x_cols.index(model.scaling.constant)] -= model.scaling.centre
    sigma = np.zeros((model.n_effects, model.n_effects))
    for kind in BLOCKS:
        at = effects_of(model, kind)
        if len(at):
            sigma[np.ix_(at, at)] = params[f"{kind}_covariance"]
    noise = np.asarray(params["noise"], float) / scale**2
    return {
        "start_mean": np.array(params["initial_mean"], float),
        "start_covariance": np.array(params["initial_covariance"], float),
        "dynamics": np.array(params["transition_mean"], float),
        "drive": np.array(params.get("state_coef", np.zeros((q, 0))), float),
        "loading": params["loading_mean"] / scale[:, None],
        "coef": coef / scale[:, None],
        "noise_covariance": noise[:, None, None],
        "effect_covariance": sigma / np.outer(units, units),
    }


def ssm_override(model: SSMModel, theta: Params, params: Params) -> Params:
    """Theta with some of the user's parameters put in the place of its own."""
    if not params:
        return theta
    return ssm_params_in(model, {**ssm_params_out(model, theta), **params})


def ssm_effects_in(model: SSMModel, effects: np.ndarray) -> np.ndarray:
    """Internal effects (d, subjects) from the user's deviations (subjects, d)."""
    return (effects / model.effect_units).T


def ssm_effects_out(
    model: SSMModel, mean: np.ndarray, cov: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The user's (subjects, d) and (subjects, d, d) from (d, subjects) and (d, d, subjects)."""
    units = model.effect_units
    return mean.T * units, np.moveaxis(cov, -1, 0) * np.outer(units, units)


def check_ssm_params(given: Any, model: SSMModel, where: str) -> Params:
    """The given parameters as arrays, or an error that says which is wrong and how."""
    checked = check_arrays(given, ssm_param_info(model), where)
    loading = checked.get("loading_mean")
    if loading is not None and np.triu(loading, 1).any():
        raise ModelError(
            f"{where}['loading_mean'] has values above the diagonal; they are 0 in this model, "
            "which is what tells the states apart."
        )
    for kind, structure in zip(BLOCKS, model.spec.effect_covariance, strict=True):
        sigma = checked.get(f"{kind}_covariance")
        if (
            sigma is not None
            and structure == "diagonal"
            and (sigma != np.diag(np.diag(sigma))).any()
        ):
            raise ModelError(
                f"{where}['{kind}_covariance'] is not diagonal, as effect_covariance says it is."
            )
    return checked


def free_matrices(model: SSMModel, fixed: Sequence[str], centred: bool) -> dict[str, np.ndarray]:
    """For each population matrix of theta, which entries the M-step moves.

    ``centred`` is the paper's iteration: what differs between subjects moves with the effects' mean
    alone.
    """
    q, p = model.n_latent, len(model.outcomes)
    free = {
        "dynamics": np.ones((q, q), bool),
        "drive": np.ones((q, len(model.drive_cols)), bool),
        "loading": np.tril(np.ones((p, q), bool)),
        "coef": np.ones((p, len(model.x_cols)), bool),
    }
    for name, key in OF_THETA.items():
        if name in fixed and key in free:
            free[key][:] = False
    if centred:
        if "transition" in model.spec.random:
            free["dynamics"][:] = False
        if "loading" in model.spec.random:
            free["loading"][:] = False
        z_cols = model.designs.z_cols(0)
        free["coef"][:, [c in z_cols for c in model.x_cols]] = False
    return free
