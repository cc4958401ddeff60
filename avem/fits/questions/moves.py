"""Numbers that follow from the transition probabilities: of the group, or of every subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.components.param_info import Params
from avem.errors import ModelError
from avem.fits.predict.at import moves_at, need_one_cluster
from avem.fits.questions.covariate import (
    CHAIN,
    by_cluster,
    columns_at,
    covariates_of,
    design_at,
    held_at,
    of_clusters,
)
from avem.fits.questions.keys import check_keys
from avem.fits.questions.subject_intervals import with_subject_intervals
from avem.fits.uncertainty import check_band, with_intervals

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_NUMBERS = ("probability", "rate", "survival", "share", "expected")
_COLUMNS = (*_NUMBERS, "se", "lower", "upper", "note")
_ALIKE = "the same for every subject: no effects on the transitions"
_BY_COVARIATES = "no effects on the transitions: subjects differ by their covariates alone"


def transitions_table(
    fit: HMMFit,
    by: str | None,
    at: Mapping[str, Any] | None,
    level: float | None,
    errors: str,
) -> pd.DataFrame:
    """The table of `fit.transitions`."""
    k = fit.model.n_states
    keys = {"state": np.repeat(np.arange(k), k), "to_state": np.tile(np.arange(k), k)}

    def entries(moves: np.ndarray) -> np.ndarray:
        return moves.reshape(len(moves), -1)

    table = from_moves(fit, by, at, entries, keys, "logit", level, errors)
    return table.rename(columns={"estimate": "probability"})


def from_moves(
    fit: HMMFit,
    by: str | None,
    at: Mapping[str, Any] | None,
    numbers: Callable[[np.ndarray], np.ndarray],
    keys: Mapping[str, np.ndarray],
    scale: str,
    level: float | None,
    errors: str,
    matrices: Callable[..., np.ndarray] = moves_at,
) -> pd.DataFrame:
    """A table of what `numbers` makes of matrices (rows, from, to), with intervals.

    ``keys`` say what each of the numbers is, ``scale`` where intervals are made; ``matrices`` are
    probabilities of moves, or what else takes the same arguments.
    """
    check_band(level, errors)
    model, held, table = fit.model, checked_at(fit, at), pd.DataFrame(keys)
    if by is None:
        a = (columns_at(fit, held) if held else model.averages)[None]
        table = by_cluster(model, table)

        def rows(params: Params) -> np.ndarray:
            each = [numbers(matrices(own, of_it, a)) for own, of_it in of_clusters(model, params)]
            return np.concatenate(each).ravel()

        with np.errstate(invalid="ignore"):
            return with_intervals(fit, table, rows, scale, level, errors)
    subject, n, each = _check_by(fit, by), len(fit.subjects), len(table)
    need_one_cluster(model, f"by={by!r}")
    a = subject_columns(fit, held)
    check_keys([subject], (*keys, *_COLUMNS))
    table = table.iloc[np.tile(np.arange(each), n)].reset_index(drop=True)
    table.insert(0, subject, np.repeat(np.asarray(fit.subjects), each))

    def of_subjects(params: Params, effects: np.ndarray) -> np.ndarray:
        return numbers(matrices(model, params, a, effects))

    with np.errstate(invalid="ignore"):
        table = with_subject_intervals(
            fit, table, of_subjects, fit.effects_mean, scale, level, errors=errors
        )
    return _said(fit, table, a)


def checked_at(fit: HMMFit, at: Mapping[str, Any] | None) -> dict[str, Any]:
    """Where covariates of the transitions are held."""
    known = _covariates(fit)
    what = f"they read {', '.join(map(repr, known))}" if known else "they read none"
    return held_at(at, known, f", which the transitions do not read; {what}.")


def _covariates(fit: HMMFit) -> tuple[str, ...]:
    """Those of the transitions and of the durations."""
    read = covariates_of(fit)
    return tuple(dict.fromkeys(name for key in CHAIN for name in read.get(key, ())))


def _check_by(fit: HMMFit, by: str) -> str:
    subject = str(fit.columns["subject"])
    if not isinstance(by, str) or by not in ("subject", subject):
        raise ModelError(
            f"by is {by!r}; 'subject' (or {subject!r}) gives every subject's own, nothing those of "
            "the group. For shares by another column there is fit.occupancy(by=...)."
        )
    return subject


def subject_columns(fit: HMMFit, held: Mapping[str, Any] | None = None) -> np.ndarray:
    """(subjects, design columns) averages over each subject's rows with an outcome, else all.

    Covariates of the transitions that are `held` have these values in all rows.
    """
    model = fit.model
    if not _covariates(fit):
        return np.tile(model.averages, (len(fit.subjects), 1))
    panel = fit._panel(None)
    seen = ~np.isnan(fit._own_data.y).all(axis=1)
    none = np.bincount(panel.row_subject[seen], minlength=panel.n_subjects) == 0
    rows = seen | none[panel.row_subject]
    columns = design_at(fit, held or {}, rows)
    sums = np.zeros((panel.n_subjects, columns.shape[1]))
    np.add.at(sums, panel.row_subject[rows], columns)
    return sums / np.bincount(panel.row_subject[rows], minlength=panel.n_subjects)[:, None]


def _said(fit: HMMFit, table: pd.DataFrame, a: np.ndarray) -> pd.DataFrame:
    """The table with a note where subjects have no transitions of their own."""
    note = table["note"] if "note" in table else pd.Series("", index=table.index, dtype=object)
    stays = fit.model.duration
    lines = (*fit.model.transition.lines, *(() if stays is None else stays.lines))
    if not any(line.z_cols for line in lines):
        read = sorted({column for line in lines for column in line.columns})
        alike = np.ptp(a[:, read], axis=0).max(initial=0.0) == 0
        note = note.mask(note == "", _ALIKE if alike else _BY_COVARIATES)
    return table.assign(note=note)
