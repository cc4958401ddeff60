"""Responses: the mean of an outcome along a covariate, a line per state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.data.frames import to_pandas
from avem.fits.plots.figures import plain, state_colors
from avem.fits.plots.occupancy import draw_by_state
from avem.fits.predict.at import describe_means, places
from avem.fits.questions.covariate import covariates_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from avem.fits.hmm_fit import HMMFit

MOST = 6
"""Curves in one picture."""
_POINTS = 21
_PARALLEL = 1e-6
"""Share of its spread up to which the states' responses to a covariate are the same."""


class Curve(NamedTuple):
    """What one covariate does to one mean in each state."""

    covariate: str
    what: str
    table: pd.DataFrame


def find_curves(fit: HMMFit, outcomes: list[int]) -> list[Curve]:
    """Of covariates to which the states respond differently; the most different, if many."""
    if fit.panel is None or fit.model.n_states < 2:
        return []
    found: list[tuple[float, Curve]] = []
    every, read = places(fit.model), covariates_of(fit)
    for place in (every[j] for j in outcomes):
        own = [mean.label for mean in describe_means(place.piece) if mean.outcome == place.name]
        if not own:
            continue
        levels, name = place.piece.family.levels, place.name
        what = "mean of " if levels is None else "probability of "
        for covariate in read[name]:
            table: Any = to_pandas(fit.covariate(covariate, name, points=_POINTS, level=None))[0]
            if any(part.levels_of(covariate) is not None for part in fit.model.designs.parts):
                table[covariate] = table[covariate].astype(str)
            for label in own:
                told = f"{label} = 1" if levels is not None and label == name else label
                curve = Curve(covariate, what + told, table[table["outcome"] == label])
                found.append((_apart(curve, fit.model.n_states), curve))
    kept = [curve for apart, curve in found if apart > _PARALLEL]
    if len(kept) > MOST:
        least = sorted((apart for apart, _ in found), reverse=True)[MOST - 1]
        kept = [curve for apart, curve in found if apart >= least][:MOST]
    return kept


def draw_curve(ax: Axes, curve: Curve, fit: HMMFit) -> None:
    """One panel."""
    colors = state_colors(fit.model.n_states)
    draw_by_state(ax, curve.table, curve.covariate, "estimate", colors, "state")
    earlier = " one row before" if curve.covariate in fit.model.outcomes else ""
    at = " at effect 0" if fit.model.n_effects else ""
    if curve.what.startswith("probability"):
        ax.set_ylim(0, 1)
    ax.set(xlabel=plain(curve.covariate, 40) + earlier, ylabel=plain(curve.what, 40) + at)


def _apart(curve: Curve, n_states: int) -> float:
    """How much the states' responses differ, against all that the curves span."""
    height = curve.table["estimate"].to_numpy(float).reshape(-1, n_states)
    own = height - height.mean(0)  # each state's response, wherever it lies
    span = float(np.ptp(height))
    return float(np.ptp(own, axis=1).max()) / span if span > 0 else 0.0
