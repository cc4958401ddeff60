"""How long the states last, and how much of the time they take up in the long run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import logit

from avem.components.param_info import Params
from avem.errors import ModelError
from avem.fits.derived import check_band, effect_variance, with_intervals
from avem.fits.predict.at import moves_at
from avem.fits.questions.stays import find_runs, lengths_table, mean_stay
from avem.numerics.markov import long_run

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit


def dwell_table(
    fit: HMMFit, by: str | None, level: float | None = 0.95, errors: str = "observed"
) -> pd.DataFrame:
    """The table of `fit.dwell`."""
    check_band(level, errors)
    n_states = fit.model.n_states
    if by == "length":
        runs = find_runs(fit._panel(None), np.asarray(fit.decode()))
        return lengths_table(runs, _staying(_subject_moves(fit)))

    def log_odds(moves: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return logit(_staying(moves))

    # Of 1 / (1 - p), an interval is best made where p is free: on its log odds.
    table = _by_state(fit, by, log_odds, "", level, errors)
    odds = np.exp(table["estimate"].to_numpy(float))
    table = table.rename(columns={"estimate": "expected"}).assign(expected=1 + odds)
    if level is not None:
        with np.errstate(over="ignore"):  # endless
            lower, upper = (1 + np.exp(table[name]) for name in ("lower", "upper"))
        table = table.assign(se=odds * table["se"], lower=lower, upper=upper)
    if by is None and fit.panel is not None:
        runs = find_runs(fit.panel, np.asarray(fit.decode()))
        counts = np.bincount(runs.state, minlength=n_states)
        place = table.columns.get_loc("expected")
        assert isinstance(place, int)
        table.insert(place + 1, "decoded", mean_stay(runs, n_states))
        table.insert(place + 2, "visits", counts)
    return table


def stationary_table(
    fit: HMMFit, by: str | None, level: float | None = 0.95, errors: str = "observed"
) -> pd.DataFrame:
    """The table of `fit.stationary`."""
    check_band(level, errors)
    table = _by_state(fit, by, long_run, "logit", level, errors)
    return table.rename(columns={"estimate": "share"})


# --- inside -------------------------------------------------------------------------------------


def _by_state(fit: HMMFit, by, numbers, scale: str, level, errors: str) -> pd.DataFrame:
    """A number of every state from the moves, of the group or of each subject."""
    model, k = fit.model, fit.model.n_states
    if by is None:
        table = pd.DataFrame({"state": np.arange(k)})
        a, mean, more = model.averages[None], None, 0.0
    else:
        subject = _check_by(fit, by)
        a, mean = subject_columns(fit), fit.effects_mean
        table = pd.DataFrame(
            {subject: np.repeat(fit.subjects, k), "state": np.tile(np.arange(k), len(a))}
        )
        with np.errstate(invalid="ignore"):
            more = effect_variance(
                lambda f: numbers(moves_at(model, fit.params, a, f)), mean, fit.effects_cov
            ).ravel()

    def rows(params: Params) -> np.ndarray:
        return numbers(moves_at(model, params, a, mean)).ravel()

    with np.errstate(invalid="ignore"):
        return with_intervals(fit, table, rows, scale, level, errors, more)


def _check_by(fit: HMMFit, by: str) -> str:
    subject = str(fit.columns["subject"])
    if by not in ("subject", subject):
        raise ModelError(
            f"by is {by!r}; 'subject' (or {subject!r}) gives every subject's own, nothing those of "
            "the group. For shares by another column there is fit.occupancy(by=...)."
        )
    return subject


def subject_columns(fit: HMMFit) -> np.ndarray:
    """(subjects, design columns) averages over each subject's rows with an outcome, else all."""
    panel = fit._panel(None)
    data = fit.model.read(panel)
    seen = ~np.isnan(data.Y).all(axis=1)
    none = np.bincount(panel.row_subject[seen], minlength=panel.n_subjects) == 0
    rows = seen | none[panel.row_subject]
    sums = np.zeros((panel.n_subjects, data.A.shape[1]))
    np.add.at(sums, panel.row_subject[rows], data.A[rows])
    return sums / np.bincount(panel.row_subject[rows], minlength=panel.n_subjects)[:, None]


def _subject_moves(fit: HMMFit) -> np.ndarray:
    """(subjects, from, to) at each subject's average covariates and effects."""
    return moves_at(fit.model, fit.params, subject_columns(fit), fit.effects_mean)


def _staying(moves: np.ndarray) -> np.ndarray:
    return np.diagonal(moves, axis1=-2, axis2=-1)
