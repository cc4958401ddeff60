"""Draws from a mixed-effects state-space model with given parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from avem.components.param_info import Params
from avem.data import Panel
from avem.models.draw import Draw, Emitter
from avem.models.ssm import SSMModel
from avem.models.ssm_subjects import stable_effects, subject_matrices
from avem.numerics.diffusion import discretise


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
    own = SSMDraw.data_set(model, params, panel, rng, effects, max_radius=max_radius)
    return SSMSimulation(*own[:3])


class SSMDraw(Draw):
    """Paths of continuous states, and what they show."""

    of_states = "the states"
    model: SSMModel

    def __init__(
        self, model: SSMModel, theta: Params, panel: Panel, effects, rng, max_radius: float | None
    ) -> None:
        if max_radius is not None:
            effects = stable_effects(model, theta["dynamics"], effects, max_radius)
        super().__init__(model, theta, panel, effects, rng)
        self.own = subject_matrices(model, theta, effects)

    def states(self) -> np.ndarray:
        """(rows, q) one path for every sequence of the panel."""
        panel, theta, q = self.panel, self.theta, self.model.n_latent
        states = np.empty((panel.n_rows, q))
        here = np.zeros((panel.n_lanes, q))
        first = np.linalg.cholesky(theta["start_covariance"])
        move, push, root = self.moves()
        for step, at in self.steps():
            lane = panel.row_lane[at]
            noise = self.rng.standard_normal((len(at), q))
            if step == 0:
                here[lane] = theta["start_mean"] + noise @ first.T
            else:
                moved = np.einsum("nab,nb->na", move[at], here[lane])
                here[lane] = moved + push[at] + np.einsum("nab,nb->na", root[at], noise)
            states[at] = here[lane]
        return states

    def moves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the step into each row: G (rows, q, q), B s (rows, q), and the root of its noise."""
        model, drive = self.model, self.theta["drive"]
        q, s = model.n_latent, self.A[:, list(model.drive_cols)]
        own = self.own.dynamics[self.panel.row_subject]
        if not model.continuous:
            return own, s @ drive.T, np.broadcast_to(np.eye(q), own.shape)
        whole = np.zeros((q + s.shape[1], q + s.shape[1], len(own)))
        whole[:q, :q], whole[:q, q:] = np.moveaxis(own, 0, -1), drive[:, :, None]
        made = discretise(whole, self.A[:, model.clock_col], q)
        moved = np.moveaxis(made.transition[:q], -1, 0)
        # A first row has no step into it, whose noise has a root of 0.
        noise = np.moveaxis(made.noise, -1, 0)
        root = np.zeros_like(noise)
        later = self.panel.row_step > 0
        root[later] = np.linalg.cholesky(noise[later])
        return moved[:, :, :q], np.einsum("nas,ns->na", moved[:, :, q:], s), root

    def emitters(self) -> Iterator[Emitter]:
        """All outcomes together."""
        yield Emitter(self.model.outcomes, (0,), self.draw)

    def draw(self, at: np.ndarray, A: np.ndarray, states: np.ndarray) -> dict[str, np.ndarray]:
        """The outcomes of some rows."""
        subject = self.panel.row_subject[at]
        mean = np.einsum("njk,nk->nj", self.own.loading[subject], states[at])
        known = A[:, list(self.model.shape.w_cols)]
        mean += np.einsum("njk,nk->nj", self.own.coef[subject], known)
        sd = np.sqrt(self.theta["noise_covariance"][:, 0, 0])
        values = mean + sd * self.rng.standard_normal(mean.shape)
        return dict(zip(self.model.outcomes, values.T, strict=True))
