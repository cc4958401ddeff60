"""Draws from a mixed HMM with given parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from avem.components.clusters import SHARES
from avem.components.durations import Stay
from avem.components.emission import Emission
from avem.components.outcome import read_extras
from avem.components.param_info import Params
from avem.data import Panel
from avem.data.layout import constant_in_lanes
from avem.errors import ModelError
from avem.models.draw import Draw, Emitter
from avem.models.hmm import HMMModel
from avem.models.known import possible_states
from avem.models.known_draws import entry_times, relabelled
from avem.numerics.markov import choose


class Simulation(NamedTuple):
    """Simulated data with the truth behind them.

    Attributes
    ----------
    frame : DataFrame
        The data: outcomes beside subject, time and covariates; the caller's kind of frame.
    states : numpy.ndarray
        (rows,) the state behind each row: from 0, or its name where the states have names.
    effects : numpy.ndarray
        (subjects, effects), subjects in order of first appearance.
    clusters : numpy.ndarray or None
        (subjects,) the type of each, where a model has several.

    Examples
    --------
    >>> fit.simulate(seed=1).effects.shape
    (60, 1)
    """

    frame: pd.DataFrame
    states: np.ndarray
    effects: np.ndarray
    clusters: np.ndarray | None = None


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
    return Simulation(*HMMDraw.data_set(model, params, panel, rng, effects))


class HMMDraw(Draw):
    """Paths of states, and what they emit."""

    of_states = "the transitions or of the start"
    model: HMMModel

    @cached_property
    def row_effects(self) -> np.ndarray:
        """(rows, d)."""
        return self.effects[self.panel.row_subject]

    # --- states ---------------------------------------------------------------------------------

    @property
    def clusters(self) -> np.ndarray | None:
        return self._clusters

    @cached_property
    def _clusters(self) -> np.ndarray | None:
        if self.model.n_clusters == 1:
            return None
        return self.rng.choice(self.model.n_clusters, self.panel.n_subjects, p=self.theta[SHARES])

    def states(self) -> np.ndarray:
        """(rows,) one path for every sequence of the panel."""
        panel, rows = self.panel, self.panel.order
        first_row = np.cumsum(panel.lane_length) - panel.lane_length
        longest_first = np.argsort(-panel.lane_length, kind="stable")
        lengths = -panel.lane_length[longest_first]
        states = np.empty(panel.n_rows, int)
        here = np.zeros(panel.n_lanes, int)
        stays = self.model.duration
        if stays is not None and not stays.duration.cuts[1]:
            raise ModelError(
                f"simulate cannot draw sequences that end with a whole stay, as {stays.duration!r} "
                "says. Use cut=True or cut='end'."
            )
        lasted = np.zeros(panel.n_lanes, int)  # how many rows more than one
        read = [] if stays is None else sorted(stays.columns)
        constant = constant_in_lanes(panel, self.A[:, read])
        for t in range(int(panel.lane_length.max())):
            alive = longest_first[: np.searchsorted(lengths, -t)]  # the lanes longer than t
            at = rows[first_row[alive] + t]
            chance = self._start(at) if t == 0 else self.move(at, here[alive])
            now = choose(chance, self.rng)
            if stays is not None:
                if t == 0 or not constant:
                    own = stays.at(self.theta, self.A[at], self.row_effects[at])
                elif len(alive) < len(own.leave):
                    own = Stay(*(part[: len(alive)] for part in own))
                before = None if t == 0 else (here[alive], lasted[alive])
                now, lasted[alive] = stays.draw_step(own, now, before, self.rng)
            here[alive] = states[at] = now
        return states

    def _start(self, at: np.ndarray) -> np.ndarray:
        initial, moves = self.model.initial, self.model.transition

        def chances(theta: Params, some: np.ndarray) -> np.ndarray:
            own = (theta, self.A[at[some]], self.row_effects[at[some]])
            return initial.chances(*own, lambda: moves.matrices(*own))

        return self._by_type(at, chances)

    def move(self, at: np.ndarray, state: np.ndarray) -> np.ndarray:
        """(at, states) the chances to go from these states to each state at some rows."""

        def chances(theta: Params, some: np.ndarray) -> np.ndarray:
            own = (theta, self.A[at[some]], self.row_effects[at[some]], state[some])
            return self.model.transition.chances(*own)

        return self._by_type(at, chances)

    def _by_type(
        self, at: np.ndarray, chances: Callable[[Params, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """(at, states) what `chances` gives for the places of each type's rows in `at`."""
        if self.clusters is None:
            return chances(self.theta, np.arange(len(at)))
        found = np.zeros((len(at), self.model.n_states))
        types = self.clusters[self.panel.row_subject[at]]
        for c in range(self.model.n_clusters):
            some = np.flatnonzero(types == c)
            found[some] = chances(self.model.theta_of(self.theta, c), some)
        return found

    # --- outcomes -------------------------------------------------------------------------------

    def emitters(self) -> Iterator[Emitter]:
        """Every emission that does not remember earlier outcomes."""
        for emission in self.model.emissions:
            if not emission.remembers:
                draw = partial(self.draw, emission)
                yield Emitter(emission.outcomes, emission.parts, draw)

    def outcomes(self, states: np.ndarray) -> pd.DataFrame:
        """The panel's table with all outcomes drawn, last those that remember."""
        table, own = super().outcomes(states), (self.panel, self.A, states, self.row_effects)
        for emission in self.model.emissions:
            if emission.remembers:
                table = table.assign(**emission.draw_sequences(self.rng, self.theta, *own))
        return self._marked(table, states)

    def _marked(self, table: pd.DataFrame, states: np.ndarray) -> pd.DataFrame:
        """With what was known of the states, as it is on these paths."""
        model, panel = self.model, self.panel
        known, clock = model.spec.known, model.transition.clock
        if known is not None and known in table:
            allowed = possible_states(panel, known, model.state_names, model.n_states)
            table = table.assign(**{known: relabelled(panel, known, model, allowed, states)})
        if clock is None or clock.event is None:
            return table
        gone = np.isin(states, model.transition.absorbing)
        before = panel.lag(states.astype(float))
        entered = gone & ~np.isin(before, model.transition.absorbing) & ~np.isnan(before)
        table = table.assign(**{clock.event: entered})
        rows = np.flatnonzero(entered)
        if len(rows):
            early = self._entry_times(rows, before[rows].astype(int), states[rows])
            table[panel.time] = clock.moved(panel, rows, early)
        for name in model.outcomes:
            table[name] = table[name].where(~gone)
        return table

    def _entry_times(self, rows: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """(rows,) how long before each the absorbing state was entered."""
        early, types = np.zeros(len(rows)), np.zeros(len(rows), int)
        if self.clusters is not None:
            types = self.clusters[self.panel.row_subject[rows]]
        for c in np.unique(types):
            some = np.flatnonzero(types == c)
            theta = self.model.theta_of(self.theta, int(c))
            own = (theta, self.A[rows[some]], self.row_effects[rows[some]])
            moves = self.model.transition
            early[some] = entry_times(moves, own, before[some], after[some], self.rng)
        return early

    def draw(self, emission: Emission, at: np.ndarray, A: np.ndarray, states: np.ndarray) -> dict:
        """Outcome columns of an emission at some rows."""
        extras = tuple(column[at] for column in read_extras(emission.family, self.panel))
        return emission.draw(self.rng, self.theta, A, states[at], self.row_effects[at], extras)
