"""Draws from a model with given parameters: what is alike whatever its states are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from avem.components.param_info import Params
from avem.data import Panel
from avem.effects.draws import draw_new_effects
from avem.errors import ModelError


class Emitter(NamedTuple):
    """Outcomes that are drawn together."""

    outcomes: tuple[str, ...]
    parts: Collection[int]
    """The designs that they read."""
    draw: Callable[[np.ndarray, np.ndarray, np.ndarray], dict[str, np.ndarray]]
    """Their columns at some rows, from these, their design columns, and the states of all rows."""


class Draw(ABC):
    """States and outcomes of the rows of a panel, drawn at given effects; in the user's units."""

    of_states: ClassVar[str]
    """Whose formulas act on the states."""
    model: Any

    def __init__(
        self, model: Any, theta: Params, panel: Panel, effects: np.ndarray, rng: np.random.Generator
    ) -> None:
        self.model, self.theta, self.panel, self.rng = model, theta, panel, rng
        self.effects = effects
        self.A = model.designs.columns(panel)

    @classmethod
    def data_set(
        cls,
        model: Any,
        params: Params,
        panel: Panel,
        rng: np.random.Generator,
        effects: np.ndarray | None = None,
        **options: Any,
    ) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray | None]:
        """Table, states, effects and types of subjects of one data set on the rows of `panel`.

        Cells that are missing there stay missing. Without `effects` (subjects, d), the subjects are
        new; `options` are those of a leaf.
        """
        model = model.in_user_units()
        theta = model.params_in(params)
        if effects is None:
            effects = draw_new_effects(theta["effect_covariance"], panel.n_subjects, rng)
        draw = cls(model, theta, panel, effects, rng, **options)
        draw.check_covariates()
        states = draw.states()
        table = draw.outcomes(states)
        for name in model.outcomes:
            if name in panel.table.columns:
                table[name] = table[name].where(~panel.table[name].isna().to_numpy())
        return table, states, draw.effects, draw.clusters

    def check_covariates(self) -> None:
        """Raise where a covariate is missing that something is drawn from.

        Where an outcome of the panel is missing, so may be its covariates. Formulas that look back
        at outcomes are left out: these are yet to be drawn.
        """
        model, panel = self.model, self.panel
        y = np.zeros((panel.n_rows, max(model.outcome_columns) + 1))
        for name, column in zip(model.outcomes, model.outcome_columns, strict=True):
            if name in panel.table.columns:
                y[:, column] = np.where(panel.table[name].isna(), np.nan, 0.0)
        parts, nowhere = model.designs.parts, np.zeros(panel.n_rows, bool)
        back = [part.lags(set(model.outcomes)) for part in parts]
        pairs = zip(model.needed(panel, y), back, strict=True)
        needed = [nowhere if lag else rows for rows, lag in pairs]
        model.designs.apply(panel, needed, [False] * len(parts))

    @property
    def clusters(self) -> np.ndarray | None:
        """(subjects,) the type of each; None: there is one."""
        return None

    @abstractmethod
    def states(self) -> np.ndarray:
        """(rows, ...) one path for every sequence of the panel."""

    @abstractmethod
    def emitters(self) -> Iterator[Emitter]:
        """All outcomes whose distribution depends on nothing but their row and designs."""

    def steps(self) -> Iterator[tuple[int, np.ndarray]]:
        """The steps of the sequences, 0, 1, ..., and the rows that are at each."""
        for step in range(int(self.panel.lane_length.max())):
            yield step, np.flatnonzero(self.panel.row_step == step)

    def outcomes(self, states: np.ndarray) -> pd.DataFrame:
        """The panel's table with all outcomes drawn.

        Step by step, where outcomes depend on earlier outcomes. Where there is nothing to look back
        to, the model says nothing: known values stay.
        """
        table, emitters, panel = self.panel.table.copy(), list(self.emitters()), self.panel
        lags = [part.lags(set(self.model.outcomes)) for part in self.model.designs.parts]
        n_outcomes = len(lags) - len(self.model.spec.state_formulas) - 1
        if any(lags[n_outcomes:]):
            raise ModelError(
                "simulate cannot draw states that depend on earlier outcomes: the formula of "
                f"{self.of_states} has a lag of an outcome."
            )
        back = max(lags[:n_outcomes])
        if not back:
            every = np.arange(panel.n_rows)
            for values in [emitter.draw(every, self.A, states) for emitter in emitters]:
                table = table.assign(**values)
            return table
        for name in [name for emitter in emitters for name in emitter.outcomes]:
            if name not in table:
                table[name] = np.nan
        for step, at in self.steps():
            window = np.flatnonzero((panel.row_step <= step) & (panel.row_step >= step - back))
            seen = self.model.designs.columns(panel.part(table, window))
            A = seen[np.searchsorted(window, at)]
            for emitter in emitters:
                own = max(lags[part] for part in emitter.parts)
                for name, values in emitter.draw(at, A, states).items():
                    _put(table, name, at, values, keep_known=step < own)
        return table


def _put(table: pd.DataFrame, name: str, at: np.ndarray, values: Any, keep_known: bool) -> None:
    """Write some rows of a column; where known values are kept, those that are missing."""
    column = table[name].to_numpy()
    if keep_known:
        values = np.where(pd.isna(column[at]), values, column[at])
    column = column.astype(np.result_type(column, values))
    column[at] = values
    table[name] = column
