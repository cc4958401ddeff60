"""Predictions by simulation, where coming values depend on values that are still to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from avem.components.outcome import read_extras
from avem.data.ahead import Ahead
from avem.data.folds import with_rows
from avem.fits.predict.at import Place, distribution, places, user_theta
from avem.fits.predict.mixture import Drawn, Mixture
from avem.fits.predict.posterior import in_user_units, nodes_for
from avem.inference.after.hmm_states import custom_histories, states_given
from avem.models.encoded import Encoded
from avem.models.hmm import HMMModel
from avem.models.hmm_paths import Begin, PathStep, draw_ahead, look_back

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_CELLS = 1_000_000
"""Rows x paths that are worked on at once."""


def must_simulate(model: HMMModel, horizon: int, of: str) -> bool:
    """Whether there is no other way to the outcomes, or states, of so many steps."""
    names = set(model.outcomes)
    moves = model.parts_ahead[-1:] if model.transition.lines else ()
    if of == "states":
        return horizon > 1 and any(part.lags(names) for part in moves)
    only_drawn = any(piece.family.alone(0) is None for piece in model.emissions)
    return only_drawn or (horizon > 1 and look_back(model) > 0)


class _Start(NamedTuple):
    """What is known of some sequences at their first step ahead."""

    chance: np.ndarray
    """(sequences, nodes, states)."""
    effects: np.ndarray
    """(sequences, nodes, d), in the user's units."""
    histories: dict[str, Any]
    """Of custom emissions, (sequences, nodes, states, ...)."""


@dataclass(frozen=True, eq=False)
class Simulated:
    """Coming rows with draws of their states and outcomes; like `_hmm_predict.Predictive`."""

    fit: HMMFit
    source: Encoded
    """What happened so far."""
    ahead: Ahead
    horizon: int
    effects: str
    n_draws: int
    seed: int

    @property
    def chance(self) -> np.ndarray:
        """(rows, states) probability of each state."""
        return np.concatenate([chance for _, chance in self._runs(False)])

    def each(self) -> Iterator[tuple[np.ndarray, Place, Mixture | Drawn, np.ndarray]]:
        """(rows from 0, place, distribution, whether the model says anything), block by block."""
        done = 0
        for found, _ in self._runs(True):
            for place, values, known in found:
                rows = done + np.arange(len(known))
                yield rows, place, values, known
            done += len(found[0][2])

    @cached_property
    def _start(self) -> _Start:
        model, theta, panel = self.fit.model, self.fit.theta, self.ahead.panel
        later = np.zeros(panel.n_rows, bool)
        later[self._ahead_rows[:, 1:]] = True
        one_more = model.encode(with_rows(panel, ~later))
        rows = np.cumsum(one_more.panel.lane_length)[self._lanes] - 1
        nodes = nodes_for(self.fit, self.source, self.effects)
        who = one_more.panel.row_subject[rows]
        states = states_given(one_more, theta, nodes.at, "before", rows)
        return _Start(
            chance=states * nodes.share[:, who].T[:, :, None],
            effects=in_user_units(self.fit, nodes)[who],
            histories=custom_histories(model, one_more, theta, nodes.at, rows),
        )

    @property
    def _ahead_rows(self) -> np.ndarray:
        """(sequences, horizon) the rows ahead of all sequences, of a panel that is in order."""
        ends = np.cumsum(self.ahead.panel.lane_length)
        return ends[:, None] - self.horizon + np.arange(self.horizon)

    @property
    def _lanes(self) -> np.ndarray:
        """The sequences that are asked for."""
        return self.ahead.panel.row_lane[self.ahead.rows[:: self.horizon]]

    def _runs(self, outcomes: bool) -> Iterator[tuple[list, np.ndarray]]:
        """What is drawn for some sequences at a time: outcomes where wanted, chances of states."""
        start, model = self._start, self.fit.model.in_user_units()
        n = len(start.chance)
        some = max(1, _CELLS // (self.horizon * self.n_draws))
        for number, first in enumerate(range(0, n, some)):
            own = np.arange(first, min(first + some, n))
            rng = np.random.default_rng([self.seed, number])
            begin = self._begin(own, rng)
            steps = list(draw_ahead(model, user_theta(self.fit), begin, self.horizon, rng))
            shape = (len(own), self.n_draws)
            chances = [start.chance[own].sum(1)]
            chances += [step.chance.reshape(*shape, -1).mean(1) for step in steps[1:]]  # type: ignore[union-attr]
            found = self._outcomes(model, own, steps, begin) if outcomes else []
            yield found, np.stack(chances, axis=1).reshape(len(own) * self.horizon, -1)

    def _begin(self, own: np.ndarray, rng: np.random.Generator) -> Begin:
        """Every path at a node of its effects and in a state, as often as each weighs."""
        start, panel, draws = self._start, self.ahead.panel, self.n_draws
        n_states = self.fit.model.n_states
        weight = start.chance[own].reshape(len(own), -1)
        # Systematic draws: each node and state comes as often as it should, to within one path.
        u = (np.arange(draws) + rng.random((len(own), 1))) / draws
        passed = np.cumsum(weight, axis=1) / weight.sum(1, keepdims=True)
        chosen = np.stack([np.searchsorted(c, at) for c, at in zip(passed, u, strict=True)])
        chosen = np.minimum(chosen, weight.shape[1] - 1).ravel()
        who, node = np.repeat(own, draws), chosen // n_states
        lanes, most = self._lanes[own], look_back(self.fit.model) + self.horizon
        length = np.minimum(panel.lane_length[lanes], most)
        ends = np.cumsum(panel.lane_length)[lanes]
        rows = np.concatenate(
            [np.tile(np.arange(end - n, end), draws) for end, n in zip(ends, length, strict=True)]
        )
        return Begin(
            table=panel.table.iloc[rows].reset_index(drop=True),
            time=panel.time,
            length=np.repeat(length, draws),
            effects=start.effects[who, node],
            state=chosen % n_states,
            histories=start.histories,
            place=(who, node),
        )

    def _outcomes(
        self, model: HMMModel, own: np.ndarray, steps: list[PathStep], begin: Begin
    ) -> list[tuple[Place, Mixture | Drawn, np.ndarray]]:
        """The distribution of each outcome: over the paths, of what follows from each of them."""
        theta, found, shape = user_theta(self.fit), [], (len(own), self.n_draws)
        at = self.ahead.rows.reshape(-1, self.horizon)[own].ravel()

        def rows(of_steps: list[np.ndarray]) -> np.ndarray:
            """(rows, paths), sequence after sequence, from (paths,) of every step."""
            each = np.stack([values.reshape(shape) for values in of_steps], axis=1)
            return each.reshape(-1, self.n_draws)

        state = rows([step.state for step in steps])
        weight = np.full(state.shape, 1.0 / self.n_draws)
        for place in places(model):
            piece = place.piece
            known = rows([step.known[piece.key] for step in steps]).all(axis=1)
            if piece.family.alone(place.number) is None:
                values: Any = Drawn(rows([step.drawn[place.name] for step in steps]))
            else:
                coef = theta[piece.key + "coef"]
                by_step = [piece.etas(coef, s.A, s.state, begin.effects) for s in steps]
                etas = tuple(rows(list(line)) for line in zip(*by_step, strict=True))
                family, eta = distribution(place, theta, etas, state)
                extras = [column[at, None] for column in read_extras(family, self.ahead.panel)]
                values = Mixture(family, weight, eta, tuple(extras))
            found.append((place, values, known))
        return found
