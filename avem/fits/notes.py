"""What a reader of a fit must be told, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from avem.components.clusters import SHARES
from avem.data import Panel
from avem.data.clock import varied_intervals
from avem.fits.common import effect_sd
from avem.fits.durations import beyond
from avem.fits.questions.diagnosis import HARD_TO_SEE, far, why_lost
from avem.inference.after.hmm_states import occupation, total_loglik
from avem.inference.fit import Fitted
from avem.inference.loop import Tried
from avem.inference.starts import starts_agreeing
from avem.inference.stop import Stop
from avem.models.encoded import Encoded
from avem.models.hmm import HMMModel
from avem.models.ssm import SSMModel, effects_of
from avem.models.ssm_subjects import spectral_radius, subject_matrices

_NOTHING, _NOTHING_ON_A_LINK = 1e-7, 1e-3
"""An effect variance below this share of the outcome's own, or on the scale of a link, is none."""
_NOTHING_OF_AN_ENTRY = 1e-5
"""The same of an entry of a state-space model's matrices, as a share of its scale."""
_HARDLY, _LONG = 1.5, 1000
"""Rows of a state that is as good as none; steps of a sequence that tell how often it is visited.
"""
_FURTHER, _ALL_ONE, _GAINED = 0.1, 1e-3, 2.0
"""A step further out, as a share of the way; what it may change; what the way must have gained."""
REFINED = "So the fit was refined to maximum likelihood."
"""The end of a note that asks nothing of the reader: what it is about has been seen to."""
_MUCH = 0.1
"""Of the information on an effect: lost by not seeing the states."""
_NEARLY_ALL = 0.9
"""Share of max_iter from which it was the number of steps that ended a fit."""
_SINGULAR = 1e-6
"""Least eigenvalue of a correlation matrix, as a share of the largest, that is more than 0."""


def ending(stop: Stop, n_iter: int, max_iter: int) -> list[str]:
    """How the iteration ended, and what to do about it; nothing where it converged."""
    if stop is Stop.CONVERGED:
        return []
    if stop is not Stop.OUT_OF_STEPS:
        return [stop.value]
    if n_iter >= _NEARLY_ALL * max_iter:
        return [stop.value, f"Raise max_iter ({max_iter:,} now), or loosen tol."]
    return [
        stop.value,
        f"Only {n_iter:,} of {max_iter:,} steps could be kept; the others lowered the bound and "
        "were taken back, so that more of them will hardly help. Loosen tol, or use fewer states, "
        "fewer effects or a simpler formula.",
    ]


def alarms(model: HMMModel, fitted: Fitted) -> list[str]:
    """What makes the result doubtful beside how it ended: goes into a warning."""
    collapsed, found = np.argwhere(fitted.collapsed), beyond(model, fitted.theta)
    if not len(collapsed):
        return found
    names = dict(zip(model.outcome_columns, model.outcomes, strict=True))
    where = "; ".join(f"state {k}, {names[j]}" for k, j in collapsed[:5])
    return [
        *found,
        f"The variance of {where} fell onto (nearly) a single value and was held at its floor, "
        "a millionth of the outcome's variance. Use fewer states, or look for repeated values, "
        "missing codes and outliers, or keep variances from 0: priors='weak'.",
    ]


def _in_own_unit(model: HMMModel) -> np.ndarray:
    """(d,) which effects are in the outcome's own unit, not on the scale of a link."""
    names = {n for e in model.emissions if e.family.linear_gaussian for n in e.outcomes}
    return np.array([effect.outcome in names for effect in model.structure.effects])


def remarks(model: HMMModel, data: Encoded, fitted: Fitted, fixed: frozenset[str]) -> list[str]:
    """What a reader should know: goes into the summary."""
    found = []
    variances = np.diagonal(fitted.theta["effect_covariance"])
    scale = model.effect_scale(data.spread)
    none = variances < np.where(_in_own_unit(model), _NOTHING, _NOTHING_ON_A_LINK) * scale
    # A collapsed state can force the effects to 0; then there is more to say, and it was said.
    if "effect_covariance" not in fixed and none.any() and not fitted.collapsed.any():
        found.append(_alike(list(compress(model.effect_names, none))))
    found += _hardly_seen(model, data, fitted)
    found += _run_away(model, data, fitted, fixed)
    found += _anchoring(model, fitted, lambda: _why(data, fitted))
    found += _silent(model)
    if model.n_states > 1:
        found += _uneven(model, data.panel, "MixedHMM")
    own = (fitted.quality, fitted.starts, data.panel, data.n_without_past, model.continuous)
    return found + general_remarks(*own)


def _silent(model: HMMModel) -> list[str]:
    """States that no row with an outcome can be in."""
    return [
        f"No row with an outcome can be in state {k}: parameters of its outcomes are copies of "
        "another's, say nothing, and are not counted."
        for k in model.silent
    ]


def _uneven(model: HMMModel | SSMModel, panel: Panel, name: str) -> list[str]:
    """Rows that are no steps, nor multiples of one, apart."""
    if model.continuous or not panel.in_memory:
        return []
    found = varied_intervals(panel)
    if found is None or panel.gaps()[0]:
        return []
    return [
        f"Rows are taken as one step apart, but in {panel.time!r} they are from {found[0]:.3g} to "
        f"{found[1]:.3g} apart (between the 10% shortest and longest). "
        f"{name}(..., time_scale='continuous') takes times as they are."
    ]


def _hardly_seen(model: HMMModel, data: Encoded, fitted: Fitted) -> list[str]:
    """States that the chain visits for hardly a row in all."""
    theta, n_sequences = fitted.theta, data.panel.n_lanes
    if (
        model.n_states == 1
        or model.duration is not None
        or "initial" not in theta
        or "transition" not in theta
    ):
        return []
    rows = np.zeros(model.n_states)
    for c, share in enumerate(theta.get(SHARES, np.ones(1))):
        own = model.theta_of(theta, c)
        now = np.asarray(own["initial"])
        for _ in range(min(data.panel.n_rows // n_sequences, _LONG)):
            rows, now = rows + share * n_sequences * now, now @ own["transition"]
    return [
        f"State {k} is that of hardly a row: look for missing codes and outliers, or use fewer "
        "states; priors='weak' keeps states from vanishing."
        for k in np.flatnonzero(rows < _HARDLY)
    ]


def _run_away(model: HMMModel, data: Encoded, fitted: Fitted, fixed: frozenset[str]) -> list[str]:
    """Parameters that grow without an end, as a log odds of 29.

    The likelihood was better for every step that they took, and now it is all one to it.
    """
    far = [(e.coef_key, one) for e in model.emissions for one in e.far_out(fitted.theta)]
    far = [(key, one) for key, one in far if one.name not in fixed]
    if not far:
        return []

    def loglik(key: str, place: tuple[int, ...], value: float) -> float:
        coef = np.array(fitted.theta[key])
        coef[place] = value
        return total_loglik(data, {**fitted.theta, key: coef}, fitted.effects_mean)

    found = []
    for key, one in far:
        value = float(fitted.theta[key][one.place])
        here = loglik(key, one.place, value)
        beyond = loglik(key, one.place, value + _FURTHER * (value - one.began))
        gained = here - loglik(key, one.place, one.began)
        if abs(beyond - here) < _ALL_ONE and not gained < _GAINED:
            found.append(
                f"The {one.label} of state {one.state} ran away, to {value:.3g}: the "
                "likelihood no longer depends on it there, and its number means nothing but "
                f"'very large' or 'very small'. {one.advice}"
            )
    return found


def _alike(effects: Sequence[str]) -> str:
    return (
        f"The variance of {', '.join(effects)} between subjects went to (nearly) 0: they hardly "
        "differ in it."
    )


def general_remarks(
    quality: np.ndarray | None,
    starts: Sequence[Tried],
    panel: Panel,
    n_without_past: int,
    continuous: bool = False,
) -> list[str]:
    """What a reader of any model's fit should know."""
    found = []
    if quality is not None and (quality == 0).any():
        n_laplace = int((quality == 0).sum())
        found.append(
            f"The effects of {n_laplace:,} of {len(quality):,} subjects were integrated by "
            "Laplace approximations, because importance weights rested on too few draws. More "
            "draws (avem.Adaptive(n_draws=1024)) may help."
        )
    n_starts = len(starts)
    if n_starts > 3 and starts_agreeing(starts) == 1:
        found.append(
            f"Only 1 of {n_starts} starts found this solution. More (n_starts={5 * n_starts}) "
            "may find a better one; if not, the data hardly tell the states apart."
        )
    if n_without_past:
        found.append(
            f"{n_without_past:,} observed values are not modelled, but only looked back at: "
            "lag() needs rows before them."
        )
    n_gaps, usual = (0, 0) if continuous else panel.gaps()
    if n_gaps:
        advice = f"Panel.from_frame(...).fill_gaps({usual}) puts the missing steps in."
        if isinstance(usual, pd.Timedelta):
            advice = "Turn the dates into a count of steps, and " + advice.replace(str(usual), "")
        if not panel.in_memory:
            advice = "Put the missing steps into the table, and scan it again."
        found.append(
            f"Rows are taken as one step apart, but {n_gaps:,} step{'s'[: n_gaps != 1]} in "
            f"{panel.time!r} {'is' if n_gaps == 1 else 'are'} longer than the "
            f"usual {step_words(usual)}. {advice}"
        )
    return found


def step_words(step: Any) -> str:
    """A step of time: a number as it is, of dates in days or in hours, minutes and seconds."""
    if not isinstance(step, pd.Timedelta):
        return str(step)
    days = step.total_seconds() / 86400
    if days % 1:
        return str(step).removeprefix("0 days ")
    return "day" if days == 1 else f"{days:.0f} days"


def _why(data: Encoded, fitted: Fitted) -> str:
    return why_lost(occupation(data, fitted.theta, fitted.effects_mean).unsure)


def _anchoring(
    model: HMMModel | SSMModel, fitted: Fitted, find_why: Callable[[], str]
) -> list[str]:
    """Where anchoring does not hold: what was done about it, or could be."""
    found = fitted.gate
    if found is None or not found.fails:
        return []
    why = find_why() if max(found.lost, default=0.0) > _MUCH else ""
    if fitted.refined:  # and is elsewhere than when this was asked
        off = f"one anchor per subject would have put estimates {far(found.bias)} off. {REFINED}"
        return [f"{why}: on the way here, {off}" if why else f"On the way here, {off}"]
    words = f"With one anchor per subject, estimates are {far(found.bias)} off."
    words = f"{why}: {words[0].lower()}{words[1:]}" if why else words
    figures = ", ".join(f"{s:.3g}" for s in effect_sd(model, fitted.theta))
    return [
        words + f" The standard deviations between subjects ({figures}) are likely too small: "
        "use refine='adaptive'."
    ]


# --- of state-space models ----------------------------------------------------------------------


def ssm_alarms(model: SSMModel, fitted: Fitted) -> list[str]:
    """What makes the result doubtful beside how it ended: goes into a warning."""
    if not fitted.collapsed.any():
        return []
    names = ", ".join(map(repr, compress(model.outcomes, fitted.collapsed)))
    return [
        f"The noise of {names} went to 0 and was held at its floor, a millionth of the "
        "outcome's variance: the states follow it exactly. Use fewer latent states, or look "
        "for outcomes that are copies or sums of others."
    ]


def ssm_remarks(
    model: SSMModel, data: Encoded, fitted: Fitted, fixed: frozenset[str], limit: float | None
) -> list[str]:
    """What a reader should know: goes into the summary."""
    sigma = fitted.theta["effect_covariance"]
    found = _variances(model, data, sigma, fixed)
    found += _anchoring(model, fitted, lambda: HARD_TO_SEE)
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
    found += _growing(model, fitted) + _uneven(model, data.panel, "MixedSSM")
    # The starts are short runs: where they stop apart, they may still have been on one way.
    own = (data.panel, data.n_without_past, model.continuous)
    return found + general_remarks(fitted.quality, (), *own)


def _variances(
    model: SSMModel, data: Encoded, sigma: np.ndarray, fixed: frozenset[str]
) -> list[str]:
    found, singular = [], []
    none = np.diagonal(sigma) < _NOTHING_OF_AN_ENTRY * model.effect_scale(data.spread)
    for kind in model.spec.kinds:
        at = effects_of(model, kind)
        if not len(at) or f"{kind}_covariance" in fixed:
            continue
        gone = [model.effect_names[e] for e in at if none[e]]
        if gone:
            found.append(_alike(gone))
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
    own = subject_matrices(model, fitted.theta, effects).dynamics
    n_growing = int((spectral_radius(model, own) > 1.0).sum())
    if not n_growing:
        return []
    return [
        f"The states of {n_growing:,} of {len(effects):,} subjects grow without bound under their "
        f"own {model.spec.kinds[0]}s (spectral radius above 1): do not extrapolate them. "
        "fit(..., max_radius=0.99) keeps every subject's dynamics stable."
    ]
