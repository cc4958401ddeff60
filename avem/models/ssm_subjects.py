"""The subjects' own matrices, from the population's and their effects; in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from avem.components.param_info import Params
from avem.models.ssm import SSMModel
from avem.numerics.diffusion import discretise


class Matrices(NamedTuple):
    """Of every subject."""

    dynamics: np.ndarray
    """(subjects, q, q) G_i; in continuous time the drift."""
    loading: np.ndarray
    """(subjects, p, q) H_i."""
    coef: np.ndarray
    """(subjects, p, columns) A_i, for the design columns that the outcomes read."""


def subject_matrices(model: SSMModel, theta: Params, effects: np.ndarray) -> Matrices:
    """Theta's matrices with the effects (subjects, d) added at their places; all in one unit."""
    shape, n = model.shape, len(effects)
    coef = np.zeros((len(model.outcomes), len(shape.w_cols)))
    coef[:, [shape.w_cols.index(c) for c in shape.x_cols]] = theta["coef"]
    out = Matrices(*(np.repeat(m[None], n, 0) for m in (theta["dynamics"], theta["loading"], coef)))
    entries = (shape.transition_effects, shape.loading_effects, shape.coef_effects)
    at = 0
    for matrix, places in zip(out, entries, strict=True):
        for row, column in places:
            matrix[:, row, column] += effects[:, at]
            at += 1
    return out


def transitions(model: SSMModel, dynamics: np.ndarray) -> np.ndarray:
    """(..., q, q) what the dynamics do in a step; in continuous time, in a unit of time."""
    if not model.continuous:
        return dynamics
    own = np.moveaxis(dynamics, (-2, -1), (0, 1))
    made = discretise(own, np.ones(own.shape[2:]), model.n_latent).transition
    return np.moveaxis(made, (0, 1), (-2, -1))


def spectral_radius(model: SSMModel, dynamics: np.ndarray) -> np.ndarray:
    """(...,) of what dynamics (..., q, q) do in a step, or in a unit of the model's time.

    Above 1, the states grow without bound.
    """
    values = np.linalg.eigvals(dynamics)
    return np.exp(values.real.max(-1)) if model.continuous else np.abs(values).max(-1)


def stable_effects(
    model: SSMModel, dynamics: np.ndarray, effects: np.ndarray, limit: float
) -> np.ndarray:
    """Effects (subjects, d) whose dynamics have a spectral radius of at most `limit`.

    What they do in a step, or in a unit of the user's time, is scaled back to it as a whole.
    """
    places = model.shape.transition_effects
    if not places:
        return effects
    rows, columns = np.array(places).T
    own = np.repeat(dynamics[None], len(effects), 0)
    own[:, rows, columns] += effects[:, : len(places)]
    radius = np.maximum(spectral_radius(model, own), 1e-300)
    factor = np.minimum(1.0, limit**model.usual_time / radius)[:, None, None]
    if model.continuous:
        own = own + np.log(factor) * np.eye(model.n_latent)
    else:
        own = own * factor
    out = np.array(effects)
    beyond = factor[:, 0, 0] < 1.0
    out[beyond, : len(places)] = (own - dynamics)[beyond][:, rows, columns]
    return out
