"""Moves over time: rates, probabilities over any interval, and survival."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.data.clock import is_date
from avem.errors import ModelError
from avem.fits.predict.at import generators_at, moves_at
from avem.fits.questions.moves import from_moves
from avem.models.hmm import HMMModel

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit
    from avem.fits.ssm_fit import SSMFit

_MOST = 1000
"""Times that are asked for at once."""


def rates_table(
    fit: HMMFit, by: str | None, at: Mapping[str, Any] | None, level: float | None, errors: str
) -> pd.DataFrame:
    """The table of `fit.rates`."""
    _need_clock(fit, "rates()")
    if fit.model.n_states == 1:
        raise ModelError("rates() is of moves between states, and there is only one.")
    first, second = np.nonzero(_moves_of(fit) > 0)

    def entries(generators: np.ndarray) -> np.ndarray:
        return generators[:, first, second]

    keys = {"state": first, "to_state": second}
    table = from_moves(fit, by, at, entries, keys, "log", level, errors, generators_at)
    return table.rename(columns={"estimate": "rate"})


def probabilities_table(
    fit: HMMFit,
    horizon: Any,
    by: str | None,
    at: Mapping[str, Any] | None,
    level: float | None,
    errors: str,
) -> pd.DataFrame:
    """The table of `fit.transition_probabilities`."""
    if fit.model.duration is not None:
        raise ModelError(
            "With duration=, where one is after some steps depends on how long the stay has lasted "
            "already: predict(horizon=..., of='states') takes that from the rows so far, and "
            "transitions() says where a stay leads to when it ends."
        )
    k, times = fit.model.n_states, _times(fit, horizon, "horizon")
    keys = {
        "horizon": np.repeat(times, k * k),
        "state": np.tile(np.repeat(np.arange(k), k), len(times)),
        "to_state": np.tile(np.arange(k), k * len(times)),
    }

    def entries(moves: np.ndarray) -> np.ndarray:
        found = [moves_over(fit.model, moves, time) for time in times]
        return np.stack(found, axis=1).reshape(len(moves), -1)

    over = generators_at if fit.model.continuous else moves_at
    table = from_moves(fit, by, at, entries, keys, "logit", level, errors, over)
    return table.rename(columns={"estimate": "probability"})


def survival_table(
    fit: HMMFit,
    times: Any,
    by: str | None,
    at: Mapping[str, Any] | None,
    level: float | None,
    errors: str,
) -> pd.DataFrame:
    """The table of `fit.survival`."""
    model, asked = fit.model, _times(fit, times, "times")
    ends = list(model.transition.absorbing)
    if not ends or len(ends) == model.n_states:
        moves = "transition='absorbing', or pairs of states, transition=[(0, 1), ...]."
        if model.continuous:
            moves = "transition=avem.rates(moves=[...])."
        raise ModelError(
            "survival() is the probability of not yet being in a state that is never left, and "
            f"every state of this model can be left. Say which moves there are: {moves}"
        )
    alive = np.setdiff1d(np.arange(model.n_states), ends)
    keys = {"time": np.repeat(asked, len(alive)), "state": np.tile(alive, len(asked))}

    def chances(moves: np.ndarray) -> np.ndarray:
        found = [moves_over(model, moves, time)[:, alive][:, :, alive].sum(2) for time in asked]
        return np.stack(found, axis=1).reshape(len(moves), -1)

    over = generators_at if model.continuous else moves_at
    table = from_moves(fit, by, at, chances, keys, "logit", level, errors, over)
    return table.rename(columns={"estimate": "survival"})


# --- inside -------------------------------------------------------------------------------------


def average_rates(fit: HMMFit) -> np.ndarray:
    """(from, to) rates of moves at effect 0 and average covariates; 0 for staying."""
    found = generators_at(fit.model, fit.params, fit.model.averages[None])[0]
    return np.where(np.eye(len(found), dtype=bool), 0.0, found)


def _moves_of(fit: HMMFit) -> np.ndarray:
    """(from, to) the largest rate of each move that a type of subjects has."""
    if fit.model.n_clusters == 1:
        return average_rates(fit)
    every = range(fit.model.n_clusters)
    return np.max([average_rates(fit._of_cluster(c)) for c in every], axis=0)


def moves_over(model: HMMModel, moves: np.ndarray, time: float) -> np.ndarray:
    """(rows, from, to) probabilities over a time, from rates, or from those of one step."""
    return model.transition.over(moves, np.full(len(moves), time))


def time_words(fit: HMMFit | SSMFit, n: float | None = None) -> str:
    """The unit of time: "days", "day" for one; where nobody named it, "units of time"."""
    clock = fit.model.clock
    unit = "rows" if clock is None else clock.unit or ""
    if not unit:
        unit = "days" if fit.panel is not None and is_date(fit.panel) else "units of time"
    if n == 1:
        return "unit of time" if unit == "units of time" else unit.removesuffix("s")
    return unit


def _need_clock(fit: HMMFit, what: str) -> None:
    if not fit.model.continuous:
        raise ModelError(
            f"{what} is of models in continuous time; in this one rows are one step apart, and "
            "fit.transitions() has the probabilities of a step. For rates fit "
            "MixedHMM(..., time_scale='continuous')."
        )


def _times(fit: HMMFit, given: Any, what: str) -> np.ndarray:
    """What a user gave as one time, or several, after which to look."""
    whole = not fit.model.continuous
    try:
        times = np.atleast_1d(np.asarray(given, dtype=float))
    except (TypeError, ValueError):
        times = np.full(1, np.nan)
    good = times.ndim == 1 and 1 <= len(times) <= _MOST and bool((times >= 0).all())
    if not good or not np.isfinite(times).all() or (whole and (times != np.rint(times)).any()):
        kind = "whole numbers of steps" if whole else f"numbers of {time_words(fit)}"
        raise ModelError(
            f"{what} is {given!r}; {kind}, none negative, are wanted (at most {_MOST:,})."
        )
    return times.astype(int) if whole else times
