"""The subjects' own matrices, from the population's and their effects; in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from avem.components.param_info import Params
from avem.models.ssm import SSMModel


class Matrices(NamedTuple):
    """Of every subject."""

    transition: np.ndarray
    """(subjects, q, q) G_i."""
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


def spectral_radius(transition: np.ndarray) -> np.ndarray:
    """(...,) of matrices (..., q, q): above 1, the states grow without bound."""
    return np.abs(np.linalg.eigvals(transition)).max(-1)


def stable_effects(
    model: SSMModel, dynamics: np.ndarray, effects: np.ndarray, limit: float
) -> np.ndarray:
    """Effects (subjects, d) whose dynamics have a spectral radius of at most `limit`.

    Dynamics beyond it are scaled back to it as a whole.
    """
    places = model.shape.transition_effects
    if not places:
        return effects
    rows, columns = np.array(places).T
    own = np.repeat(dynamics[None], len(effects), 0)
    own[:, rows, columns] += effects[:, : len(places)]
    factor = np.minimum(1.0, limit / np.maximum(spectral_radius(own), 1e-300))
    own = own * factor[:, None, None]
    out = np.array(effects)
    beyond = factor < 1.0
    out[beyond, : len(places)] = (own - dynamics)[beyond][:, rows, columns]
    return out
