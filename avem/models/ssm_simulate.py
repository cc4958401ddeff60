"""Draws from a mixed-effects state-space model with given parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from avem.components.param_info import Params
from avem.data import Panel
from avem.errors import ModelError
from avem.models.hmm_simulate import draw_effects
from avem.models.ssm import SSMModel
from avem.models.ssm_subjects import stable_effects, subject_matrices


class SSMSimulation(NamedTuple):
    """Simulated data with the truth behind them.

    Attributes
    ----------
    frame : DataFrame
        The data: outcomes beside subject, time and covariates; the caller's kind of frame.
    states : numpy.ndarray
        (rows, n_latent) the state behind each row.
    effects : numpy.ndarray
        (subjects, effects), subjects in order of first appearance.

    Examples
    --------
    >>> ssm_fit.simulate(seed=1).effects.shape
    (60, 1)
    """

    frame: pd.DataFrame
    states: np.ndarray
    effects: np.ndarray


def simulate_ssm(
    model: SSMModel,
    params: Params,
    panel: Panel,
    rng: np.random.Generator,
    effects: np.ndarray | None = None,
    max_radius: float | None = None,
) -> SSMSimulation:
    """One data set on the rows of `panel`; cells that are missing there stay missing.

    With `max_radius`, dynamics beyond that spectral radius are scaled back to it.
    """
    model = model.in_user_units()
    theta = model.params_in(params)
    if effects is None:
        effects = draw_effects(theta["effect_covariance"], panel.n_subjects, rng)
    if max_radius is not None:
        effects = stable_effects(model, theta["dynamics"], effects, max_radius)
    draw = _Draw(model, theta, panel, effects, rng)
    states = draw.states()
    table = draw.outcomes(states)
    for name in model.outcomes:
        if name in panel.table.columns:
            table[name] = table[name].where(~panel.table[name].isna().to_numpy())
    return SSMSimulation(table, states, effects)


class _Draw:
    def __init__(self, model: SSMModel, theta: Params, panel: Panel, effects, rng) -> None:
        self.model, self.theta, self.panel, self.rng = model, theta, panel, rng
        self.own = subject_matrices(model, theta, effects)
        self.A = self._columns(panel)

    def _columns(self, panel: Panel) -> np.ndarray:
        n_parts = len(self.model.designs.parts)
        nowhere = [np.zeros(panel.n_rows, bool)] * n_parts
        return self.model.designs.apply(panel, nowhere, [False] * n_parts).A

    def _rows_at(self, step: int) -> np.ndarray:
        return np.flatnonzero(self.panel.row_step == step)

    def states(self) -> np.ndarray:
        """(rows, q) one path for every sequence of the panel."""
        panel, theta, q = self.panel, self.theta, self.model.n_latent
        if self.model.designs.parts[1].lags(set(self.model.outcomes)):
            raise ModelError(
                "simulate cannot draw states that depend on earlier outcomes: the formula of the "
                "states has a lag of an outcome."
            )
        push = self.A[:, list(self.model.drive_cols)] @ theta["drive"].T
        states = np.empty((panel.n_rows, q))
        here = np.zeros((panel.n_lanes, q))
        first = np.linalg.cholesky(theta["start_covariance"])
        for step in range(int(panel.lane_length.max())):
            at = self._rows_at(step)
            lane, subject = panel.row_lane[at], panel.row_subject[at]
            noise = self.rng.standard_normal((len(at), q))
            if step == 0:
                here[lane] = theta["start_mean"] + noise @ first.T
            else:
                moved = np.einsum("nab,nb->na", self.own.transition[subject], here[lane])
                here[lane] = moved + push[at] + noise
            states[at] = here[lane]
        return states

    def outcomes(self, states: np.ndarray) -> pd.DataFrame:
        """The panel's table with all outcomes drawn."""
        panel, names = self.panel, list(self.model.outcomes)
        table = panel.table.copy()
        back = self.model.designs.parts[0].lags(set(names))
        if not back:
            every = np.arange(panel.n_rows)
            drawn = self._draw(every, self.A, states)
            return table.assign(**dict(zip(names, drawn.T, strict=True)))
        for name in names:
            if name not in table:
                table[name] = np.nan
        # Step by step, where outcomes depend on earlier outcomes. Where there is nothing to look
        # back to, the model says nothing, and known values stay.
        for step in range(int(panel.lane_length.max())):
            window = np.flatnonzero((panel.row_step <= step) & (panel.row_step >= step - back))
            at = self._rows_at(step)
            A = self._columns(panel.part(table, window))[np.searchsorted(window, at)]
            for name, values in zip(names, self._draw(at, A, states).T, strict=True):
                column = table[name].to_numpy(float, copy=True)
                known = column[at]
                column[at] = np.where(np.isnan(known), values, known) if step < back else values
                table[name] = column
        return table

    def _draw(self, at: np.ndarray, A: np.ndarray, states: np.ndarray) -> np.ndarray:
        """(at, outcomes) the outcomes of some rows."""
        subject = self.panel.row_subject[at]
        mean = np.einsum("njk,nk->nj", self.own.loading[subject], states[at])
        known = A[:, list(self.model.shape.w_cols)]
        mean += np.einsum("njk,nk->nj", self.own.coef[subject], known)
        sd = np.sqrt(self.theta["noise_covariance"][:, 0, 0])
        return mean + sd * self.rng.standard_normal(mean.shape)
