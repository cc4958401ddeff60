"""Draws from a mixed HMM with given parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from avem.components.emission import Emission
from avem.components.outcome import read_extras
from avem.components.param_info import Params
from avem.data import Panel
from avem.errors import ModelError
from avem.models.hmm import HMMModel


class Simulation(NamedTuple):
    """Simulated data with the truth behind them.

    Attributes
    ----------
    frame : DataFrame
        The data: outcomes beside subject, time and covariates; the caller's kind of frame.
    states : numpy.ndarray of int
        (rows,) the state behind each row, from 0.
    effects : numpy.ndarray
        (subjects, effects), subjects in order of first appearance.

    Examples
    --------
    >>> fit.simulate(seed=1).effects.shape
    (60, 1)
    """

    frame: pd.DataFrame
    states: np.ndarray
    effects: np.ndarray


def draw_effects(sigma: np.ndarray, n_subjects: int, rng: np.random.Generator) -> np.ndarray:
    """(subjects, d) draws from N(0, Sigma)."""
    values, vectors = np.linalg.eigh(sigma)  # works for a singular Sigma too
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return rng.standard_normal((n_subjects, len(sigma))) @ root.T


def simulate(
    model: HMMModel,
    params: Params,
    panel: Panel,
    rng: np.random.Generator,
    effects: np.ndarray | None = None,
) -> Simulation:
    """One data set on the rows of `panel`; cells that are missing there stay missing.

    So do known outcomes at rows where their lag looks back to nothing: they are not modelled.
    """
    model = model.in_user_units()
    if effects is None:
        effects = draw_effects(params["effect_covariance"], panel.n_subjects, rng)
    draw = Draw(model, model.params_in(params), panel, effects, rng)
    states = draw.states()
    table = draw.outcomes(states)
    for name in model.outcomes:
        if name in panel.table.columns:
            table[name] = table[name].where(~panel.table[name].isna().to_numpy())
    return Simulation(table, states, effects)


class Draw:
    """States and outcomes of the rows of a panel, drawn at given effects; in the user's units."""

    def __init__(self, model, theta, panel: Panel, effects: np.ndarray, rng) -> None:
        self.model: HMMModel = model
        self.theta, self.panel, self.rng = theta, panel, rng
        self.effects = effects[panel.row_subject]
        self.A = self.columns(panel)

    def columns(self, panel: Panel) -> np.ndarray:
        """(rows, design columns) of a panel, 0 where there is nothing to look back to."""
        n_parts = len(self.model.designs.parts)
        nowhere = [np.zeros(panel.n_rows, bool)] * n_parts
        return self.model.designs.apply(panel, nowhere, [False] * n_parts).A

    # --- states ---------------------------------------------------------------------------------

    def states(self) -> np.ndarray:
        """(rows,) one path for every sequence of the panel."""
        panel, k = self.panel, self.model.n_states
        rows = panel.order
        first_row = np.cumsum(panel.lane_length) - panel.lane_length
        longest_first = np.argsort(-panel.lane_length, kind="stable")
        lengths = -panel.lane_length[longest_first]
        states = np.empty(panel.n_rows, int)
        here = np.zeros(panel.n_lanes, int)
        for t in range(int(panel.lane_length.max())):
            alive = longest_first[: np.searchsorted(lengths, -t)]  # the lanes longer than t
            at = rows[first_row[alive] + t]
            chance = self._start(at) if t == 0 else self.move(at, here[alive])
            passed = np.cumsum(chance, axis=-1)
            here[alive] = np.minimum((self.rng.random((len(alive), 1)) > passed).sum(1), k - 1)
            states[at] = here[alive]
        return states

    def _start(self, at: np.ndarray) -> np.ndarray:
        own = (self.theta, self.A[at], self.effects[at])
        return self.model.initial.chances(*own[:2], lambda: self.model.transition.matrices(*own))

    def move(self, at: np.ndarray, state: np.ndarray) -> np.ndarray:
        """(at, states) the chances to go from these states to each state at some rows."""
        return self.model.transition.chances(self.theta, self.A[at], self.effects[at], state)

    # --- outcomes -------------------------------------------------------------------------------

    def outcomes(self, states: np.ndarray) -> pd.DataFrame:
        """The panel's table with all outcomes drawn."""
        panel, theta, effects = self.panel, self.theta, self.effects
        table = panel.table.copy()
        back = self._look_back()
        alone = [emission for emission in self.model.emissions if not emission.remembers]
        if not back:
            every = np.arange(panel.n_rows)
            drawn = [self.draw(emission, every, self.A, states) for emission in alone]
            for values in drawn:
                table = table.assign(**values)
        else:
            self._draw_in_order(alone, states, table, back)
        for emission in self.model.emissions:
            if emission.remembers:
                found = emission.draw_sequences(self.rng, theta, panel, self.A, states, effects)
                table = table.assign(**found)
        return table

    def _look_back(self) -> int:
        """How many rows the designs look back at outcomes; 0 when they do not."""
        names, parts = set(self.model.outcomes), self.model.designs.parts
        n_emission = sum(len(spec.formulas) for spec in self.model.spec.outcomes)
        if any(part.lags(names) for part in parts[n_emission:]):
            raise ModelError(
                "simulate cannot draw states that depend on earlier outcomes: the formula of the "
                "transitions or of the start has a lag of an outcome."
            )
        return max(part.lags(names) for part in parts[:n_emission])

    def _draw_in_order(
        self, emissions: list[Emission], states: np.ndarray, table: pd.DataFrame, back: int
    ) -> None:
        """Step by step, where outcomes depend on earlier outcomes.

        Where there is nothing to look back to, the model says nothing: known values stay.
        """
        panel, names = self.panel, set(self.model.outcomes)
        for emission in emissions:
            for name in emission.outcomes:
                known = table[name].to_numpy() if name in table else None
                table[name] = np.nan if known is None else known
        for t in range(int(panel.lane_length.max())):
            window = np.flatnonzero((panel.row_step <= t) & (panel.row_step >= t - back))
            at = np.flatnonzero(panel.row_step == t)
            A = self.columns(panel.part(table, window))[np.searchsorted(window, at)]
            for emission in emissions:
                own = max(self.model.designs.parts[part].lags(names) for part in emission.parts)
                for name, values in self.draw(emission, at, A, states).items():
                    column = table[name].to_numpy(copy=True)
                    if t < own:
                        values = np.where(pd.isna(column[at]), values, column[at])
                    column[at] = values
                    table[name] = column

    def draw(self, emission: Emission, at: np.ndarray, A: np.ndarray, states: np.ndarray) -> dict:
        """Outcome columns of an emission at some rows."""
        extras = tuple(column[at] for column in read_extras(emission.family, self.panel))
        return emission.draw(self.rng, self.theta, A, states[at], self.effects[at], extras)
