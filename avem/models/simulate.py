"""Draws from a mixed HMM with given parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from avem.data import Design, Panel
from avem.families.gaussian import Gaussian
from avem.models.params import Params


class Simulation(NamedTuple):
    """Simulated data with the truth behind them."""

    frame: pd.DataFrame
    """The data: outcomes beside subject, time and covariates."""
    states: np.ndarray
    """(rows,) the state behind each row, from 0."""
    effects: np.ndarray
    """(subjects, effects), subjects in order of first appearance."""


def draw_effects(params: Params, n_subjects: int, rng: np.random.Generator) -> np.ndarray:
    """(subjects, d) draws from N(0, Sigma)."""
    sigma = params["effect_covariance"]
    values, vectors = np.linalg.eigh(sigma)  # works for a singular Sigma too
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return rng.standard_normal((n_subjects, len(sigma))) @ root.T


def draw_states(params: Params, panel: Panel, rng: np.random.Generator) -> np.ndarray:
    """(rows,) one path for every sequence of the panel."""
    start, move = np.cumsum(params["initial"]), np.cumsum(params["transition"], axis=1)
    last = len(start) - 1
    rows = np.lexsort((panel.row_step, panel.row_lane))
    first_row = np.cumsum(panel.lane_length) - panel.lane_length
    longest_first = np.argsort(-panel.lane_length, kind="stable")
    lengths = -panel.lane_length[longest_first]
    states = np.empty(panel.n_rows, int)
    here = np.zeros(panel.n_lanes, int)
    for t in range(int(panel.lane_length.max())):
        alive = longest_first[: np.searchsorted(lengths, -t)]  # the lanes longer than t
        chance = start if t == 0 else move[here[alive]]
        here[alive] = np.minimum((rng.random((len(alive), 1)) > chance).sum(1), last)
        states[rows[first_row[alive] + t]] = here[alive]
    return states


def draw_outcomes(
    design: Design,
    family: Gaussian,
    params: Params,
    a: np.ndarray,
    states: np.ndarray,
    effects: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """(rows, outcomes) given design columns, states (rows,) and effects (rows, d)."""
    p = len(design.outcomes)
    fixed = np.einsum("rpm,rm->rp", params["coef"][states], a[:, list(design.x_cols)])
    own = effects.reshape(len(a), p, len(design.z_cols))
    offset = np.einsum("rpe,re->rp", own, a[:, list(design.z_cols)])
    covariance = family.noise_from_params(params[family.noise_name], p)
    noise = rng.standard_normal((len(a), p))
    return fixed + offset + np.einsum("rij,rj->ri", np.linalg.cholesky(covariance)[states], noise)


def simulate(
    design: Design,
    family: Gaussian,
    params: Params,
    panel: Panel,
    rng: np.random.Generator,
    effects: np.ndarray | None = None,
) -> Simulation:
    """One data set on the rows of `panel`; cells that are missing there stay missing."""
    data = design.apply(panel, outcomes=False)
    if effects is None:
        effects = draw_effects(params, panel.n_subjects, rng)
    states = draw_states(params, panel, rng)
    y = draw_outcomes(design, family, params, data.A, states, effects[panel.row_subject], rng)
    columns = {name: y[:, j] for j, name in enumerate(design.outcomes)}
    for name in columns.keys() & set(panel.table.columns):
        columns[name] = np.where(panel.table[name].isna(), np.nan, columns[name])
    return Simulation(panel.table.assign(**columns), states, effects)
