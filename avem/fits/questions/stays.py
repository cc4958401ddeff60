"""Runs of one state in a decoded path, and what their lengths say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from avem.data import Panel


class Runs(NamedTuple):
    """Every stay in a state: one entry each."""

    subject: np.ndarray
    state: np.ndarray
    length: np.ndarray
    begun: np.ndarray
    """Its beginning was seen: it is not the first of its sequence."""
    ended: np.ndarray
    """Its end was seen: it is not the last of its sequence."""


def find_runs(panel: Panel, state: np.ndarray) -> Runs:
    """The runs of a path (rows,), sequence after sequence."""
    path, lane = state[panel.order], panel.row_lane[panel.order]
    new_lane = np.diff(lane, prepend=-1) != 0
    first = np.flatnonzero(new_lane | (np.diff(path, prepend=-1) != 0))
    last_of_lane = np.append(new_lane[1:], True)
    end = np.append(first[1:], len(path)) - 1
    return Runs(
        subject=panel.lane_subject[lane[first]],
        state=path[first],
        length=end - first + 1,
        begun=~new_lane[first],
        ended=~last_of_lane[end],
    )


def mean_stay(runs: Runs, n_states: int) -> np.ndarray:
    """(states,) rows per leaving: the mean of a geometric distribution fitted to cut runs, too."""
    # The last row of a cut run has no next one, so nobody knows whether the state was left there.
    steps = np.bincount(runs.state, runs.length - ~runs.ended, minlength=n_states)
    left = np.bincount(runs.state, runs.ended, minlength=n_states)
    with np.errstate(divide="ignore", invalid="ignore"):
        return steps / left


def lengths_table(runs: Runs, staying: np.ndarray) -> pd.DataFrame:
    """Per state and length: the share of stays that last so long, decoded and implied.

    ``staying`` (subjects, states) are the chances to stay one step more. Decoded shares are those
    of Kaplan and Meier, because the end of a sequence cuts stays short; a stay that was going on
    when the sequence began has no known length, and is left out.
    """
    parts = []
    for k in range(staying.shape[1]):
        own = runs.begun & (runs.state == k)
        length, ended = runs.length[own], runs.ended[own]
        if not len(length):
            continue
        n = int(length.max()) + 1
        stopped = np.bincount(length[ended], minlength=n)[1:]
        cut = np.bincount(length[~ended], minlength=n)[1:]
        # A stay that is cut after d rows was not seen to end after the d-th, nor to go on.
        at_risk = np.cumsum((stopped + cut)[::-1])[::-1] - cut
        chance = stopped / np.maximum(at_risk, 1)
        alive = np.concatenate([[1.0], np.cumprod(1 - chance)[:-1]])
        stay = staying[runs.subject[own], k]
        steps = np.arange(1, n)
        implied = [float(((1 - stay) * stay ** (d - 1)).mean()) for d in steps]
        found = {"state": k, "length": steps, "at_risk": at_risk, "ended": stopped}
        parts.append(pd.DataFrame(found | {"decoded": alive * chance, "implied": implied}))
    columns = ["state", "length", "at_risk", "ended", "decoded", "implied"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
