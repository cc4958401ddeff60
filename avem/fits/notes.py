"""What a reader of a fit must be told, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.fits.questions.diagnosis import HARD_TO_TELL
from avem.inference.after.diagnose import anchoring_fails, fails_above
from avem.inference.fit import Fitted
from avem.inference.loop import Run
from avem.inference.starts import starts_agreeing
from avem.inference.stop import Stop
from avem.models.encoded import Encoded
from avem.models.hmm import HMMModel

_NOTHING, _NOTHING_ON_A_LINK = 1e-7, 1e-3
"""An effect variance below this share of the outcome's own, or on the scale of a link, is none."""


def alarms(model: HMMModel, fitted: Fitted) -> list[str]:
    """What makes the result doubtful: goes into a warning."""
    found = []
    if fitted.run.stop is not Stop.CONVERGED:
        found.append(fitted.run.stop.value)
    collapsed = np.argwhere(fitted.collapsed)
    if len(collapsed):
        names = _column_names(model)
        where = "; ".join(f"state {k}, {names[j]}" for k, j in collapsed[:5])
        found.append(
            f"The variance of {where} fell onto (nearly) a single value and was held at its floor, "
            "a millionth of the outcome's variance. Use fewer states, or look for repeated values, "
            "missing codes and outliers."
        )
    return found


def _column_names(model: HMMModel) -> dict[int, str]:
    """The outcome of each outcome column."""
    return {
        column: name
        for piece, at in model.each_piece()
        for column, name in zip(at, piece.outcomes, strict=False)
    }


def _in_own_unit(model: HMMModel) -> np.ndarray:
    """(d,) which effects are in the outcome's own unit, not on the scale of a link."""
    pieces = model.structure.pieces
    names = {name for p in pieces if p.family.linear_gaussian for name in p.outcomes}
    return np.array([effect.outcome in names for effect in model.structure.effects])


def remarks(model: HMMModel, data: Encoded, fitted: Fitted, fixed: frozenset[str]) -> list[str]:
    """What a reader should know: goes into the summary."""
    found = []
    variances = np.diagonal(fitted.theta["effect_covariance"])
    scale = model.effect_scale(data.spread)
    none = variances < np.where(_in_own_unit(model), _NOTHING, _NOTHING_ON_A_LINK) * scale
    # A collapsed state can force the effects to 0; then there is more to say, and it was said.
    if "effect_covariance" not in fixed and none.any() and not fitted.collapsed.any():
        named = zip(model.effect_names, none, strict=True)
        names = [name for name, is_none in named if is_none]
        found.append(
            f"The variance of {', '.join(names)} between subjects went to (nearly) 0: they hardly "
            "differ in it."
        )
    sd = np.sqrt(np.diagonal(model.params_out(fitted.theta)["effect_covariance"]))
    found += anchoring_remarks(model.effect_names, fitted, sd, HARD_TO_TELL)
    panel, past = data.panel, data.n_without_past
    return found + general_remarks(fitted.quality, fitted.starts, panel, past)


def general_remarks(
    quality: np.ndarray | None, starts: Sequence[Run], panel: Panel, n_without_past: int
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
    n_gaps, usual = panel.gaps()
    if n_gaps:
        advice = f"Panel.from_frame(...).fill_gaps({usual}) puts the missing steps in."
        if isinstance(usual, pd.Timedelta):
            advice = "Turn the dates into a count of steps, and " + advice.replace(str(usual), "")
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


def anchoring_remarks(names: Sequence[str], fitted: Fitted, sd: np.ndarray, why: str) -> list[str]:
    """Where anchoring does not hold: what was done about it, or could be."""
    if not anchoring_fails(fitted.lost):
        return []
    limit, pairs = fails_above(len(fitted.lost)), zip(names, fitted.lost, strict=True)
    named = ", ".join(f"{name} ({lost:.0%})" for name, lost in pairs if lost > limit)
    words = f"{why}, and anchoring does not see the information lost by it: {named}."
    if fitted.refined:
        return [words + " So the fit was refined to maximum likelihood."]
    figures = ", ".join(f"{s:.3g}" for s in sd)
    return [
        words + f" The standard deviations between subjects ({figures}) are likely too small: "
        "use refine='adaptive'."
    ]
