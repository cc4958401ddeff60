"""How long the states last, and how much of the time they take up in the long run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logit

from avem.data import Panel
from avem.errors import ModelError
from avem.fits.predict.at import chain_at, generators_at, moves_at, need_one_cluster, stays_at
from avem.fits.questions.moves import (
    checked_at,
    from_moves,
    subject_columns,
)
from avem.fits.uncertainty import check_band
from avem.numerics.markov import long_run, mean_stays

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit


def dwell_table(
    fit: HMMFit,
    by: str | None,
    level: float | None = 0.95,
    errors: str = "observed",
    at: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """The table of `fit.dwell`."""
    check_band(level, errors)
    n_states = fit.model.n_states
    if fit.model.continuous:
        return _in_time(fit, by, level, errors, at)
    if by == "length":
        need_one_cluster(fit.model, "by='length'")
        runs = find_runs(fit._panel(None), fit._decoded())
        return lengths_table(runs, _subject_lengths(fit, checked_at(fit, at), runs))

    def log_odds(moves: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return logit(_staying(moves))

    # Of 1 / (1 - p), an interval is best made where p is free: on its log odds.
    table = _by_state(fit, by, at, log_odds, "", level, errors)
    odds = np.exp(table["estimate"].to_numpy(float))
    table = table.rename(columns={"estimate": "expected"}).assign(expected=1 + odds)
    if level is not None:
        with np.errstate(over="ignore"):  # endless
            lower, upper = (1 + np.exp(table[name]) for name in ("lower", "upper"))
        table = table.assign(se=odds * table["se"], lower=lower, upper=upper)
    if by is None and fit.panel is not None:
        runs = find_runs(fit.panel, fit._decoded())
        place = table.columns.get_loc("expected")
        assert isinstance(place, int)
        if fit.model.n_clusters > 1:  # of the subjects that are most probably of each
            runs, n_states = _by_cluster(fit, runs)
        table.insert(place + 1, "decoded", mean_stay(runs, n_states))
        table.insert(place + 2, "visits", np.bincount(runs.state, minlength=n_states))
    return table


def stationary_table(
    fit: HMMFit,
    by: str | None,
    level: float | None = 0.95,
    errors: str = "observed",
    at: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """The table of `fit.stationary`."""
    table = _by_state(fit, by, at, long_run, "logit", level, errors)
    return table.rename(columns={"estimate": "share"})


# --- inside -------------------------------------------------------------------------------------


def _in_time(fit: HMMFit, by, level, errors: str, at) -> pd.DataFrame:
    """How long stays last, in the unit of time."""
    if by == "length":
        raise ModelError(
            "In continuous time a state may be left and entered again between two rows: decoded "
            "stays have no lengths. dwell() has the mean ones."
        )
    keys = {"state": np.arange(fit.model.n_states)}
    own = (mean_stays, keys, "log", level, errors, generators_at)
    return from_moves(fit, by, at, *own).rename(columns={"estimate": "expected"})


def _by_state(fit: HMMFit, by, at, numbers, scale: str, level, errors: str) -> pd.DataFrame:
    """A number of every state from the moves, of the group or of each subject."""
    keys = {"state": np.arange(fit.model.n_states)}
    return from_moves(fit, by, at, numbers, keys, scale, level, errors, chain_at)


def _subject_lengths(fit: HMMFit, held: Mapping[str, Any], runs: Runs) -> np.ndarray:
    """(subjects, states, lengths) the chance of each length that the model implies.

    At each subject's average covariates and effects.
    """
    n, own = int(runs.length.max(initial=1)), (subject_columns(fit, held), fit.effects_mean)
    if fit.model.duration is not None:
        return stays_at(fit.model, fit.params, *own).lengths(n)
    stay = _staying(moves_at(fit.model, fit.params, *own))[..., None]
    return (1 - stay) * stay ** np.arange(n)


def _by_cluster(fit: HMMFit, runs: Runs) -> tuple[Runs, int]:
    """Stays by the cluster that their subject is most probably of, and by state."""
    own, k = fit._memberships(fit._own_data).argmax(1), fit.model.n_states
    return runs._replace(state=own[runs.subject] * k + runs.state), fit.model.n_clusters * k


def _staying(moves: np.ndarray) -> np.ndarray:
    return np.diagonal(moves, axis1=-2, axis2=-1)


# --- runs of one state in a decoded path, and what their lengths say ------------------------------


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


def lengths_table(runs: Runs, lengths: np.ndarray) -> pd.DataFrame:
    """Per state and length: the share of stays that last so long, decoded and implied.

    ``lengths`` (subjects, states, length) are what the model implies. Decoded shares are those
    of Kaplan and Meier, because the end of a sequence cuts stays short; a stay that was going on
    when the sequence began has no known length, and is left out.
    """
    parts = []
    for k in range(lengths.shape[1]):
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
        steps = np.arange(1, n)
        stays = np.bincount(runs.subject[own], minlength=len(lengths))
        implied = stays @ lengths[:, k, : n - 1] / stays.sum()
        found = {"state": k, "length": steps, "at_risk": at_risk, "ended": stopped}
        parts.append(pd.DataFrame(found | {"decoded": alive * chance, "implied": implied}))
    columns = ["state", "length", "at_risk", "ended", "decoded", "implied"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
