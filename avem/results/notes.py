"""What a reader of a fit must be told, in sentences."""

from __future__ import annotations

import numpy as np

from avem.data import Panel
from avem.inference.avem import EFFECT_FLOOR
from avem.inference.fit_hmm import Fitted, starts_agreeing
from avem.inference.stop import Stop
from avem.models.hmm_model import HMMModel


def alarms(model: HMMModel, fitted: Fitted) -> list[str]:
    """What makes the result doubtful: goes into a warning."""
    found = []
    if fitted.run.stop is not Stop.CONVERGED:
        found.append(fitted.run.stop.value)
    collapsed = np.argwhere(fitted.collapsed)
    if len(collapsed):
        where = "; ".join(f"state {k}, {model.design.outcomes[j]}" for k, j in collapsed[:5])
        found.append(
            f"The variance of {where} fell onto (nearly) a single value and was held at its floor, "
            "a millionth of the outcome's variance. Use fewer states, or look for repeated values, "
            "missing codes and outliers."
        )
    return found


def remarks(
    model: HMMModel, panel: Panel, spread: np.ndarray, fitted: Fitted, fixed: frozenset[str]
) -> list[str]:
    """What a reader should know: goes into the summary."""
    found = []
    variances = np.diagonal(fitted.theta["effect_covariance"])
    none = variances < 10 * EFFECT_FLOOR * np.repeat(spread, len(model.design.effect_terms))
    # A collapsed state can force the effects to 0; then there is more to say, and it was said.
    if "effect_covariance" not in fixed and none.any() and not fitted.collapsed.any():
        named = zip(model.effect_names, none, strict=True)
        names = [name for name, is_none in named if is_none]
        found.append(
            f"The variance of {', '.join(names)} between subjects went to (nearly) 0: they hardly "
            "differ in it, or the states overlap too much for one anchor per subject to show it."
        )
    n_starts = len(fitted.starts)
    if n_starts > 3 and starts_agreeing(fitted.starts) == 1:
        found.append(
            f"Only 1 of {n_starts} starts found this solution. More (n_starts={5 * n_starts}) "
            "may find a better one; if not, the data hardly tell the states apart."
        )
    n_gaps, usual = panel.gaps()
    if n_gaps:
        found.append(
            f"Rows are taken as one step apart, but {n_gaps:,} steps in {panel.time!r} are longer "
            f"than the usual {usual}. Panel.from_frame(...).fill_gaps({usual}) puts the missing "
            "steps in."
        )
    return found
