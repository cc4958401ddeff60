"""What a reader of a state-space model's fit must be told, in sentences."""

from __future__ import annotations

import numpy as np

from avem.fits.notes import anchoring_remarks, general_remarks
from avem.fits.questions.diagnosis import HARD_TO_SEE
from avem.inference.fit import Fitted
from avem.inference.stop import Stop
from avem.models.encoded import Encoded
from avem.models.ssm import BLOCKS, SSMModel, effects_of
from avem.models.ssm_subjects import spectral_radius, subject_matrices

_NOTHING = 1e-5
"""An effect variance below this share of its scale is none."""
_SINGULAR = 1e-6
"""Least eigenvalue of a correlation matrix, as a share of the largest, that is more than 0."""


def ssm_alarms(model: SSMModel, fitted: Fitted) -> list[str]:
    """What makes the result doubtful: goes into a warning."""
    found = []
    if fitted.run.stop is not Stop.CONVERGED:
        found.append(fitted.run.stop.value)
    if fitted.collapsed.any():
        pairs = zip(model.outcomes, fitted.collapsed, strict=True)
        names = ", ".join(repr(name) for name, is_none in pairs if is_none)
        found.append(
            f"The noise of {names} went to 0 and was held at its floor, a millionth of the "
            "outcome's variance: the states follow it exactly. Use fewer latent states, or look "
            "for outcomes that are copies or sums of others."
        )
    return found


def ssm_remarks(
    model: SSMModel, data: Encoded, fitted: Fitted, fixed: frozenset[str], limit: float | None
) -> list[str]:
    """What a reader should know: goes into the summary."""
    sigma = fitted.theta["effect_covariance"]
    found = _variances(model, data, sigma, fixed)
    _, units = model.effects_out(np.zeros((model.n_effects, 1)), sigma[:, :, None])
    sd = np.sqrt(np.diagonal(units[0]))
    found += anchoring_remarks(model.effect_names, fitted, sd, HARD_TO_SEE)
    if fitted.held_back:
        found.append(
            f"The dynamics of {fitted.held_back:,} of {data.layout.n_subjects:,} subjects were "
            f"kept at a spectral radius of max_radius={limit:g}."
        )
    if data.n_runaway:
        found.append(
            f"{data.n_runaway:,} rows at the ends of sequences are left out: states that have "
            "grown to a thousand times their usual size there say nothing new."
        )
    found += _growing(model, fitted)
    # The starts are short runs: where they stop apart, they may still have been on one way.
    return found + general_remarks(fitted.quality, (), data.panel, data.n_without_past)


def _variances(
    model: SSMModel, data: Encoded, sigma: np.ndarray, fixed: frozenset[str]
) -> list[str]:
    found, singular = [], []
    none = np.diagonal(sigma) < _NOTHING * model.effect_scale(data.spread)
    for kind in BLOCKS:
        at = effects_of(model, kind)
        if not len(at) or f"{kind}_covariance" in fixed:
            continue
        gone = [model.effect_names[e] for e in at if none[e]]
        if gone:
            found.append(
                f"The variance of {', '.join(gone)} between subjects went to (nearly) 0: they "
                "hardly differ in it."
            )
            continue
        own = sigma[np.ix_(at, at)]
        unit = 1.0 / np.sqrt(np.diagonal(own))
        values = np.linalg.eigvalsh(own * np.outer(unit, unit))
        if values[0] < _SINGULAR * values[-1]:
            singular.append(f"{kind}_covariance")
    if singular:
        found.append(
            f"{' and '.join(singular)} went to the edge of what is possible: some effects are "
            "combinations of others. More subjects, or effect_covariance='diagonal', may help."
        )
    return found


def _growing(model: SSMModel, fitted: Fitted) -> list[str]:
    effects = fitted.effects_mean.T
    own = subject_matrices(model, fitted.theta, effects).transition
    n_growing = int((spectral_radius(own) > 1.0).sum())
    if not n_growing:
        return []
    return [
        f"The states of {n_growing:,} of {len(effects):,} subjects grow without bound under their "
        "own transitions (spectral radius above 1): do not extrapolate them. "
        "fit(..., max_radius=0.99) keeps every subject's dynamics stable."
    ]
