"""What would be known of the states of drawn paths: labels, and times of entering a state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from avem.components.param_info import Params
from avem.components.transitions import Transitions
from avem.data import Panel
from avem.models.hmm import HMMModel

_BISECTIONS = 50


def relabelled(
    panel: Panel, known: str, model: HMMModel, allowed: np.ndarray | None, states: np.ndarray
) -> pd.Series:
    """The column of what is known, for other states: as vague as it was, where that is true."""
    old: Any = panel.table[known]
    assert allowed is not None
    wrong = ~allowed[np.arange(panel.n_rows), states]
    if not wrong.any():
        return old
    labels = np.array(model.state_names or range(model.n_states), dtype=object)
    new = old.astype(object).copy()
    new[wrong] = labels[states[wrong]]
    return new


def entry_times(
    transition: Transitions,
    own: tuple[Params, np.ndarray, np.ndarray],
    before: np.ndarray,
    after: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """(rows,) how long before each row its absorbing state was entered, given the states around.

    By inversion: an absorbing state has been entered by time s with probability P_kl(s).
    """
    generator, interval = transition.generators(*own), transition.intervals(own[1])
    assert generator is not None
    every = np.arange(len(before))

    def entered(time: np.ndarray) -> np.ndarray:
        return transition.over(generator, time)[every, before, after]

    wanted = rng.random(len(before)) * entered(interval)
    low, high = np.zeros(len(before)), interval.copy()
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        later = entered(middle) < wanted
        low, high = np.where(later, middle, low), np.where(later, high, middle)
    return interval - high
