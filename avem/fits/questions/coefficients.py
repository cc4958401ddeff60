"""Every subject's own coefficients: the population's plus its deviation, and how certain they are.

`subject_intervals` says where their standard errors come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from avem.components.param_info import Params, check_level
from avem.errors import ModelError
from avem.fits.common import effects_table
from avem.fits.questions.keys import check_keys
from avem.fits.questions.subject_intervals import with_subject_intervals
from avem.fits.uncertainty import covariance_of_estimates, quantile_of_subjects
from avem.fits.words import PARAMETERS, SCALES, check_word

if TYPE_CHECKING:
    from avem.fits.fit import Fit

_PLACES = ("state", "to_state", "outcome", "term", "other")


def coefficients_table(
    fit: Fit, level: float, parameters: str, scale: str = "link"
) -> pd.DataFrame:
    """Per subject and coefficient that differs between subjects: estimate, se, interval."""
    check_level(level)
    check_word("parameters", parameters, PARAMETERS)
    check_word("scale", scale, SCALES)
    _check_clusters(fit)
    added, n = _added(fit), len(fit.subjects)
    who = np.flatnonzero(np.abs(added).max(1, initial=0.0) > 0)
    own = added[who] @ np.linalg.inv(fit.model.effect_units)  # of effects in the user's units
    every = fit._table()[["parameter", *_PLACES]].iloc[who]
    response = fit._response(every) if scale == "response" else None

    def numbers(params: Params, effects: np.ndarray) -> np.ndarray:
        linked = fit.values_of(params)[who][None] + effects @ own.T
        return linked if response is None else response.values(params, effects, linked)

    shown = [c for c in every if c == "parameter" or every[c].notna().any()]
    table = every[shown].iloc[np.tile(np.arange(len(who)), n)].reset_index(drop=True)
    check_keys([str(fit.columns["subject"])], (*table, "estimate", "se", "lower", "upper", "note"))
    table.insert(0, str(fit.columns["subject"]), np.repeat(np.asarray(fit.subjects), len(who)))
    scales = "" if response is None else np.tile(response.scales, n)
    table = with_subject_intervals(
        fit,
        table,
        numbers,
        fit._posterior("adaptive")[0],
        scales,
        level,
        parameters=parameters if len(who) else "fixed",
    )
    if response is None:
        return table
    said = pd.Series(np.tile(response.note, n), index=table.index)
    return table.assign(note=said.where(said != "", table["note"]))


def uncertain_effects(fit: Fit, level: float) -> pd.DataFrame:
    """The subjects' effects, with what the parameters' uncertainty adds to theirs."""
    mean, cov = fit._posterior("adaptive")
    own = np.einsum("ab,pbn->nap", fit.model.effect_units, fit._curvature.following)
    shared = own @ covariance_of_estimates(fit) @ np.swapaxes(own, 1, 2)
    table = effects_table(fit, fit.subjects, mean, cov + shared, level)
    of_parameters = np.diagonal(shared, axis1=1, axis2=2).ravel()
    mean, sd = (table[name].to_numpy(float) for name in ("mean", "sd"))
    half = sd * quantile_of_subjects(fit, level, of_parameters, sd**2)
    return table.assign(lower=mean - half, upper=mean + half)


def _check_clusters(fit: Fit) -> None:
    """Raise where effects are added to coefficients that every type of subjects has for itself."""
    n = fit.model.n_clusters
    if n > 1 and any(line.z_cols for line in fit.model.state_lines):
        raise ModelError(
            f"With n_clusters={n}, coefficients of moves or of the first state are those of a "
            "subject's cluster, and nobody knows of which it is: fit.effects() has the deviations, "
            "fit.clusters() the probabilities."
        )


def _added(fit: Fit) -> np.ndarray:
    """(rows of the parameters' table, d) what a unit of each internal effect adds to them."""
    model, theta = fit.model, fit.theta
    rows = fit.values_of(model.params_out(theta))
    columns = []
    for match in model.matches():
        moved: Params = dict(theta)
        if match is not None:
            coef = np.array(theta[match.key], float)
            coef[(slice(None) if match.state is None else match.state, *match.place)] += 1.0
            moved[match.key] = coef
        columns.append(fit.values_of(model.params_out(moved)) - rows)
    found = np.array(columns).T.reshape(len(rows), model.n_effects)
    return np.where(np.abs(found) > 1e-9, found, 0.0)
