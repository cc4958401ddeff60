"""Differences: between groups of subjects, between subjects, and between states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, stdtr, stdtrit

from avem.components.param_info import check_level
from avem.data.frames import column, examples
from avem.errors import DataError, ModelError
from avem.families.base import ANGLE
from avem.fits.plots.timeline import places_of
from avem.fits.predict.at import places
from avem.fits.questions.keys import factorized
from avem.fits.uncertainty import normal_interval, wald, with_intervals

if TYPE_CHECKING:
    from avem.fits.fit import Fit
    from avem.fits.hmm_fit import HMMFit

_MOST = 50
"""Groups, or subjects, up to which all pairs are made."""


def effect_contrast(
    fit: Fit, groups: Any, subjects: Any, level: float, posterior: str
) -> pd.DataFrame:
    """The tables of `fit.contrast` about groups and subjects; one of the two is given."""
    check_level(level)
    if not fit.model.n_effects:
        raise ModelError("No effects to compare: the subjects of this model are all alike.")
    mean, cov = fit._posterior(posterior)
    var = np.diagonal(cov, axis1=1, axis2=2)
    if subjects is not None:
        return _of_subjects(fit, subjects, mean, var, level)
    return _of_groups(fit, groups, mean, var, level)


# --- subjects -----------------------------------------------------------------------------------


def _of_subjects(fit: Fit, chosen: Any, mean, var, level: float) -> pd.DataFrame:
    places = places_of(fit.subjects, chosen)
    if len(set(places.tolist())) < max(2, len(places)):
        raise DataError(f"subjects is {chosen!r}; two or more different subjects are wanted.")
    _check_number(len(places), "subjects")
    pairs = list(combinations(places.tolist(), 2))
    one, other = (np.array(side) for side in zip(*pairs, strict=True))
    labels = fit.subjects
    keys = {str(fit.columns["subject"]): labels[one], "other": labels[other]}
    return _table(fit, keys, mean[one] - mean[other], var[one] + var[other], level)


# --- groups -------------------------------------------------------------------------------------


def _of_groups(fit: Fit, groups: Any, mean, var, level: float) -> pd.DataFrame:
    name, labels = _groups(fit, groups)
    codes, found = factorized(labels)
    if len(found) < 2:
        raise DataError(f"The groups are {examples(list(found))}; at least two are wanted.")
    _check_number(len(found), "groups")
    members = [np.flatnonzero(codes == g) for g in range(len(found))]
    pairs = list(combinations(range(len(found)), 2))
    rows = [_compare(mean, var, members[a], members[b], level) for a, b in pairs]
    done = list(zip(rows, pairs, strict=True))
    d, (one, other) = fit.model.n_effects, (np.array(side) for side in zip(*pairs, strict=True))
    n = np.array([len(own) for own in members])
    return pd.DataFrame(
        {
            name: np.repeat(np.asarray(found)[one], d),
            "other": np.repeat(np.asarray(found)[other], d),
            "effect": np.tile(np.array(fit.model.effect_names, dtype=object), len(pairs)),
            **{key: np.concatenate([row[key] for row in rows]) for key in rows[0]},
            "n": np.repeat(n[one], d),
            "n_other": np.repeat(n[other], d),
            "note": np.concatenate([_why_not(row["se"], n[list(p)]) for row, p in done]),
        }
    )


def _compare(mean, var, one: np.ndarray, other: np.ndarray, level: float) -> dict[str, np.ndarray]:
    """(effects,) of each number: Welch's t, and beside it the posterior of these very subjects.

    Subjects are a sample. Posterior means are shrunk, but so is their spread: the test holds.
    """
    sizes = np.array([[len(one)], [len(other)]])
    difference = mean[one].mean(0) - mean[other].mean(0)
    known = np.sqrt(var[one].sum(0) / len(one) ** 2 + var[other].sum(0) / len(other) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        away = [(mean[own] - mean[own].mean(0)) ** 2 for own in (one, other)]
        parts = np.stack([square.sum(0) for square in away]) / (sizes - 1) / sizes
        se = np.sqrt(parts.sum(0))
        se = np.where(se > 0, se, np.nan)  # all alike, or one alone: there is no spread
        freedom = parts.sum(0) ** 2 / (parts**2 / (sizes - 1)).sum(0)
        p = 2 * stdtr(freedom, -np.abs(difference) / se)
    half = stdtrit(freedom, 0.5 + level / 2) * se
    found = {"difference": difference, "se": se}
    return found | {"lower": difference - half, "upper": difference + half, "p": p, "sd": known}


def _why_not(se: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """(effects,) why there is no standard error, or nothing."""
    alone = "one subject has no spread: no test, see sd"
    why = alone if sizes.min() < 2 else "no spread between the subjects of either group: no test"
    return np.where(np.isnan(se), why, "").astype(object)


def _groups(fit: Fit, groups: Any) -> tuple[str, pd.Series]:
    """What the groups are called, and every subject's group."""
    if isinstance(groups, Mapping | pd.Series):
        given = dict(groups.items())
        absent = [label for label in fit.subjects.tolist() if label not in given]
        if absent:
            raise DataError(f"groups names no group for the subjects {examples(absent)}.")
        name = str(getattr(groups, "name", None) or "group")
        labels = pd.Series([given[label] for label in fit.subjects.tolist()])
    elif isinstance(groups, str):
        panel = fit._panel(None)
        name, values = groups, column(panel.table, groups, "the group of each subject")
        by_subject = values.groupby(panel.row_subject)
        several = by_subject.nunique(dropna=False).to_numpy() > 1
        if several.any():
            who = examples(panel.subjects[several].tolist())
            raise DataError(
                f"The column {groups!r} changes within subjects: {who}. A group is the same in all "
                "rows of a subject; for what changes, put it into the formula."
            )
        labels = by_subject.first().reset_index(drop=True)
    else:
        raise ModelError(
            f"groups is a {type(groups).__name__}; the name of a column is wanted that is the same "
            "in all rows of a subject, or a dict from subjects to groups."
        )
    if labels.isna().any():
        who = examples(fit.subjects[labels.isna().to_numpy()].tolist())
        raise DataError(f"The group of the subjects {who} is missing.")
    return name, labels


# --- states -------------------------------------------------------------------------------------


def state_contrast(fit: HMMFit, states: Any, level: float, errors: str) -> pd.DataFrame:
    """The table of `fit.contrast(states=...)`: parameters of one state less those of another."""
    check_level(level)
    model, pairs = fit.model, _pairs(states, fit.model.n_states)
    table: Any = fit._table()
    table = table[table["parameter"].isin(model.emission_params) & table["state"].notna()]
    place = table.index.to_numpy()
    keys = ["parameter", "outcome", "term", "other"]
    by_state = {k: table[table["state"] == k].reset_index(drop=True) for k in range(model.n_states)}
    parts, one, other = [], [], []
    for a, b in pairs:
        parts.append(by_state[a][keys].assign(state=a, minus=b))
        one.append(place[(table["state"] == a).to_numpy(bool)])
        other.append(place[(table["state"] == b).to_numpy(bool)])
    rows_one, rows_other = np.concatenate(one), np.concatenate(other)
    found: Any = pd.concat(parts, ignore_index=True)[["state", "minus", *keys]]
    apart = np.subtract(*(fit.values_of(fit.params)[rows] for rows in (rows_one, rows_other)))
    # The nearer way round: a whole number of turns, which the slopes do not see.
    turns = np.where(_round(fit, found), apart - ANGLE.to_natural(apart), 0.0)

    def differences(params: dict[str, np.ndarray]) -> np.ndarray:
        values = fit.values_of(params)
        return values[rows_one] - values[rows_other] - turns

    found = found.dropna(axis=1, how="all")
    found = with_intervals(fit, found, differences, "", level, errors)
    held = found["parameter"].isin(fit.info.fixed) & found["se"].isna()
    note = found.pop("note").mask(held, "held")
    _, p = wald(fit, found["estimate"].to_numpy(float), found["se"].to_numpy(float))
    return found.assign(p=p, note=note).rename(columns={"estimate": "difference"})


def _round(fit: HMMFit, table: pd.DataFrame) -> np.ndarray:
    """(rows,) bool: coefficients of an angle that mean the same a full turn further.

    They do where their column holds whole numbers: the intercept, the levels of a factor.
    """
    angular = [place for place in places(fit.model) if place.piece.family.angular]
    if not angular:
        return np.zeros(len(table), bool)
    a = fit.model.read(fit._panel(None)).A
    whole = (np.isnan(a) | (a == np.rint(a))).all(axis=0)
    known = {
        (place.piece.prefix + line.param_name, line.label, term)
        for place in angular
        for line in place.piece.lines
        if not line.parameter
        for term, at in zip(line.terms, line.x_cols, strict=True)
        if whole[at]
    }
    keys = zip(*(table[name] for name in ("parameter", "outcome", "term")), strict=True)
    return np.array([key in known for key in keys], bool)


def _pairs(states: Any, n_states: int) -> list[tuple[int, int]]:
    if n_states < 2:
        raise ModelError("There is one state, and nothing to compare it with.")
    if states is True:
        return [(b, a) for a, b in combinations(range(n_states), 2)]
    good = (
        isinstance(states, Sequence)
        and len(states) == 2
        and all(isinstance(k, int | np.integer) and 0 <= k < n_states for k in states)
        and states[0] != states[1]
    )
    if not good:
        raise ModelError(
            f"states is {states!r}; two of 0 to {n_states - 1} are wanted, (1, 0) for state 1 "
            "minus state 0, or True for all pairs."
        )
    return [(int(states[0]), int(states[1]))]


# --- inside -------------------------------------------------------------------------------------


def _table(fit: Fit, keys: dict, difference, var, level: float) -> pd.DataFrame:
    """Differences (pairs, effects) with their posterior: intervals, and how sure their sign is."""
    n, d = difference.shape
    centre, sd = difference.ravel(), np.sqrt(var).ravel()
    with np.errstate(divide="ignore", invalid="ignore"):
        # Without a difference there is no sign: as likely this one as the other.
        sure = np.where(centre == 0, 0.5, ndtr(np.abs(centre) / sd))
    found = {
        **{name: np.repeat(values, d) for name, values in keys.items()},
        "effect": np.tile(np.array(fit.model.effect_names, dtype=object), n),
        **normal_interval(centre, sd, level),
        "probability": sure,
    }
    return pd.DataFrame(found).rename(columns={"mean": "difference"})


def _check_number(n: int, what: str) -> None:
    if n > _MOST:
        raise DataError(f"There are {n} {what}; at most {_MOST} are compared pair by pair.")
