"""Draws from a mixed HMM with given parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax

from avem.components.outcome import read_extras
from avem.components.param_info import Params
from avem.components.structure import Line, Piece
from avem.data import Panel
from avem.errors import ModelError
from avem.families import Custom, Gaussian
from avem.families.univariate import Univariate
from avem.models.hmm import HMMModel
from avem.models.hmm_params import params_in


class Simulation(NamedTuple):
    """Simulated data with the truth behind them."""

    frame: pd.DataFrame
    """The data: outcomes beside subject, time and covariates; the caller's kind of frame."""
    states: np.ndarray
    """(rows,) the state behind each row, from 0."""
    effects: np.ndarray
    """(subjects, effects), subjects in order of first appearance."""


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
    draw = Draw(model, params_in(model, params), panel, effects, rng)
    states = draw.states()
    table = draw.outcomes(states)
    for piece in model.structure.pieces:
        for name in piece.outcomes:
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
        k = self.model.n_states
        if self.model.stationary:
            by_state = [self.move(at, np.full(len(at), s)) for s in range(k)]
            moves = np.stack(by_state, axis=1)
            system = np.eye(k) - np.swapaxes(moves, 1, 2) + 1.0
            return np.linalg.solve(system, np.ones((len(at), k, 1)))[..., 0]
        if not self.model.structure.start:
            return self.theta["initial"]
        coef = self.theta["start.coef"].reshape(k - 1, -1)
        lines = self.model.structure.start
        none = np.zeros(len(at), int)
        etas = [self._chain_eta(line, coef[j], at, none) for j, line in enumerate(lines)]
        return softmax(np.stack([np.zeros(len(at)), *etas], axis=1), axis=1)

    def _chain_eta(self, line: Line, coef: np.ndarray, at: np.ndarray, state: np.ndarray):
        return line.eta(coef, self.A[at], state, self.effects[at])

    def move(self, at: np.ndarray, state: np.ndarray) -> np.ndarray:
        """(at, states) the chances to go from these states to each state at some rows."""
        k, lines = self.model.n_states, self.model.structure.moves
        if not lines:
            return self.theta["transition"][state]
        coef = self.theta["moves.coef"].reshape(k, k - 1, -1)[state]
        etas = [self._chain_eta(line, coef[:, j], at, state) for j, line in enumerate(lines)]
        chance = softmax(np.stack([np.zeros(len(at)), *etas], axis=1), axis=1)
        distance = (np.arange(k) - state[:, None]) % k
        return np.take_along_axis(chance, distance, axis=1)

    # --- outcomes -------------------------------------------------------------------------------

    def outcomes(self, states: np.ndarray) -> pd.DataFrame:
        """The panel's table with all outcomes drawn."""
        pieces, panel = self.model.structure.pieces, self.panel
        table = panel.table.copy()
        custom = [piece for piece in pieces if isinstance(piece.family, Custom)]
        back = self._look_back()
        every = np.arange(panel.n_rows)
        if not back:
            drawn = [
                self.draw(piece, every, self.A, states) for piece in pieces if piece not in custom
            ]
            for values in drawn:
                table = table.assign(**values)
        else:
            self._draw_in_order([p for p in pieces if p not in custom], states, table, back)
        for piece in custom:
            table[piece.outcomes[0]] = self._custom(piece, states, table)
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

    def _draw_in_order(self, pieces, states: np.ndarray, table: pd.DataFrame, back: int) -> None:
        """Step by step, where outcomes depend on earlier outcomes.

        Where there is nothing to look back to, the model says nothing: known values stay.
        """
        panel, names = self.panel, set(self.model.outcomes)
        for piece in pieces:
            for name in piece.outcomes:
                known = table[name].to_numpy() if name in table else None
                table[name] = np.nan if known is None else known
        for t in range(int(panel.lane_length.max())):
            window = np.flatnonzero((panel.row_step <= t) & (panel.row_step >= t - back))
            at = np.flatnonzero(panel.row_step == t)
            A = self.columns(panel.part(table, window))[np.searchsorted(window, at)]
            for piece in pieces:
                parts = {line.part for line in piece.lines if line.part >= 0}
                own = max(self.model.designs.parts[part].lags(names) for part in parts)
                for name, values in self.draw(piece, at, A, states).items():
                    column = table[name].to_numpy(copy=True)
                    if t < own:
                        values = np.where(pd.isna(column[at]), values, column[at])
                    column[at] = values
                    table[name] = column

    def draw(self, piece: Piece, at: np.ndarray, A: np.ndarray, states: np.ndarray) -> dict:
        """Outcome columns of a piece at some rows."""
        state, family = states[at], piece.family
        etas = piece.etas(self.theta[piece.key + "coef"], A, state, self.effects[at])
        if isinstance(family, Gaussian):
            noise = self.rng.standard_normal((len(at), len(etas)))
            root = np.linalg.cholesky(self.theta[piece.key + "covariance"])[state]
            values = np.stack(etas, axis=1) + np.einsum("rij,rj->ri", root, noise)
            return dict(zip(piece.outcomes, values.T, strict=True))
        assert isinstance(family, Univariate)
        extras = tuple(column[at] for column in read_extras(family, self.panel))
        values = family.draw(self.rng, etas, extras)
        if family.takes_levels:
            values = np.array(family.levels)[values.astype(int)]
        return {piece.outcomes[0]: values}

    def _custom(self, piece: Piece, states: np.ndarray, table: pd.DataFrame) -> np.ndarray:
        family, panel, line = piece.family, self.panel, piece.lines[0]
        assert isinstance(family, Custom)
        if family.draw is None:
            raise ModelError(
                f"{family!r} cannot simulate: give Custom(draw=...), a function of "
                "(rng, x, history, params, effect)."
            )
        coef = self.theta[piece.key + "coef"]
        names = [name for name, _ in family.params]
        out = np.zeros(panel.n_rows)
        for rows in np.split(panel.order, np.cumsum(panel.lane_length)[:-1]):
            effect = dict(
                zip(family.effects, self.effects[rows[0]][list(line.effects[0])], strict=True)
            )
            params = [
                {n: b + effect.get(n, 0.0) for n, b in zip(names, coef[k], strict=True)}
                for k in range(len(coef))
            ]
            histories = [family.start_history() for _ in params]
            for row in rows:
                k = states[row]
                x = dict(zip(line.terms, self.A[row, list(line.x_cols)], strict=True))
                out[row] = family.draw(self.rng, x, histories[k], params[k], effect)
                if family.update is not None:
                    histories = [
                        family.update(h, out[row], x, p, effect)
                        for h, p in zip(histories, params, strict=True)
                    ]
        return out
