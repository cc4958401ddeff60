"""How many rows of a subject are in each state, and how certain that is.

A subject's rows are cut into parts: all of them, its sessions, its rows of each condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.fits.questions.subject_intervals import effect_slope
from avem.fits.questions.uncertain_states import STATE_DRAWS, weighted_draws
from avem.inference.after.hmm_states import state_probabilities, tilted_states

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_TILT = 1e-3
MOST_PARTS = 50
"""Of a sequence, up to which the variance of each part is computed: every one takes passes."""


@dataclass(frozen=True, eq=False)
class RowParts:
    """Rows cut into parts, none of which has rows of two subjects."""

    code: np.ndarray
    """(rows,) the part of each row; -1: of none."""
    owner: np.ndarray
    """(parts,) the subject of each."""
    rows: np.ndarray
    """(parts,) how many rows it has."""

    @classmethod
    def of(cls, panel: Panel, code: np.ndarray) -> RowParts:
        """Parts numbered from 0, each with at least one row."""
        known = code >= 0
        rows = np.bincount(code[known])
        owner = np.zeros(len(rows), int)
        owner[code[known]] = panel.row_subject[known]
        return cls(code, owner, rows)

    def sums(self, chances: np.ndarray) -> np.ndarray:
        """(parts, states) from numbers (rows, states)."""
        known = self.code >= 0
        columns = [np.bincount(self.code[known], of, len(self.rows)) for of in chances[known].T]
        return np.stack(columns, axis=1)

    def in_turn(self, panel: Panel) -> np.ndarray:
        """(parts,) when each may be looked at: no two of one sequence together; -1: not at all.

        Of a single row all is known without a look.
        """
        several = np.append(self.rows > 1, False)[self.code]
        pairs = pd.DataFrame({"part": self.code[several], "lane": panel.row_lane[several]})
        pairs = pairs.drop_duplicates()
        within_lanes = not pairs["part"].duplicated().any()
        first = pairs.drop_duplicates("part")
        group = first["lane"] if within_lanes else self.owner[first["part"]]
        turn = np.full(len(self.rows), -1)
        turn[first["part"]] = first.groupby(np.asarray(group)).cumcount()
        return turn


def time_in_states(fit: HMMFit, parts: RowParts) -> tuple[np.ndarray, np.ndarray]:
    """(parts, states) mean and variance of the numbers of rows in each state, given the data.

    The parameters are taken as known. The variance is that of the path at the subject's effect,
    and what the effect's own uncertainty adds to it; NaN where a sequence has too many parts.
    """
    at, cov = fit.effects_mean, fit.effects_cov

    def counts(effects: np.ndarray) -> np.ndarray:
        every = at.copy()
        every[parts.owner] = effects
        inside = fit.model.effects_in(every)
        return parts.sums(state_probabilities(fit._own_data, fit.theta, inside))

    own = cov[parts.owner]
    slope = effect_slope(counts, at[parts.owner], own)
    following = np.einsum("nkd,nde,nke->nk", slope, own, slope)
    return counts(at[parts.owner]), _path_variance(fit, parts) + following


def drawn_time_in_states(fit: HMMFit, parts: RowParts) -> tuple[np.ndarray, np.ndarray]:
    """The same over draws of parameters and effects together."""
    weights, first, second = 0.0, 0.0, 0.0
    for weight, theta, effects in weighted_draws(fit, STATE_DRAWS, fit.info.seed):
        found = parts.sums(state_probabilities(fit._own_data, theta, effects))
        weights, first = weights + weight, first + weight * found
        second = second + weight * found**2
    mean = np.asarray(first) / weights
    between = np.maximum(np.asarray(second) / weights - mean**2, 0.0)
    return mean, _path_variance(fit, parts) + between


def _path_variance(fit: HMMFit, parts: RowParts) -> np.ndarray:
    """(parts, states) variance of the numbers of rows over all paths, at the effects' means."""
    mean = parts.sums(fit._state_probabilities(fit._own_data))
    found = np.where(parts.rows[:, None] == 1, mean * (1.0 - mean), np.nan)
    turn = parts.in_turn(fit._panel(None))
    if turn.max(initial=-1) >= MOST_PARTS:
        return found
    of_row = np.append(turn, -1)[parts.code]
    for now in range(turn.max(initial=-1) + 1):
        here = turn == now
        found[here] = np.stack(list(_spread(fit, parts, of_row == now)), axis=1)[here]
    return found


def _spread(fit: HMMFit, parts: RowParts, rows: np.ndarray) -> Iterator[np.ndarray]:
    """For each state, (parts,) the variance of how many of these rows are in it."""
    inside = fit.model.effects_in(fit.effects_mean)
    for k, unit in enumerate(np.eye(fit.model.n_states)):
        ends = []
        for sign in (1, -1):
            tilt = sign * _TILT * np.outer(rows, unit)
            chances = tilted_states(fit._own_data, fit.theta, inside, tilt)
            ends.append(parts.sums(chances)[:, k])
        yield np.maximum((ends[0] - ends[1]) / (2 * _TILT), 0.0)
