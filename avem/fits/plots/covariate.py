"""What a covariate does, with bands; and responses, the mean of an outcome along a covariate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.fits.plots.figures import (
    Size,
    legend,
    panels,
    plain,
    state_colors,
    state_dots,
    title,
)
from avem.fits.plots.occupancy import draw_by_state
from avem.fits.predict.at import describe_means, places
from avem.fits.questions.covariate import choose_target, covariate_table, covariates_of
from avem.fits.words import errors_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit

_STICKY = 0.9


def covariate_figure(
    fit: HMMFit,
    name: str,
    on: str | None,
    ax: Any,
    figsize: Size | None,
    options: dict[str, Any],
) -> Figure:
    """A panel per state that is left, or per outcome, or one for the long run."""
    on = choose_target(fit, name, on)
    table: Any = _table(fit, name, on, **options)
    colors = state_colors(fit.model.n_states)
    if any(part.levels_of(name) is not None for part in fit.model.designs.parts):
        table[name] = table[name].astype(str)  # levels that are numbers are not on a scale
    top = 1.0
    if on == "transitions":
        stays = table["state"] == table["to_state"]
        rare = fit.model.n_states > 1 and bool((table.loc[stays, "estimate"] > _STICKY).all())
        if rare:  # beside chances to stay, of nearly 1, nothing could be seen of those to leave
            table = table[~stays]
            top = _top(table)
        groups = [(f"from {fit.state_labels[k]}", own) for k, own in table.groupby("state")]
        lines, label = "to_state", "probability to go to"
        words = f"Transition probabilities{' (staying left out)' if rare else ''}"
    elif on == "stationary":
        groups, lines = [("", table)], "state"
        label, words = "share of time in the long run", "Shares in the long run"
    elif on == "dwell":
        groups, lines = [("", table)], "state"
        label, words = "rows that a stay lasts", "Expected stays"
    else:
        groups = [(str(key), own) for key, own in table.groupby("outcome", sort=False)]
        lines, label, words = "state", "", "Means"
    each = (6.4, 3.8) if len(groups) == 1 else (3.8, 3.2)
    figure, axes = panels(len(groups), ax, figsize, each, 3)
    for one, (of, own) in zip(axes, groups, strict=True):
        draw_by_state(one, own, name, "estimate", colors, lines)
        if on == "transitions":
            color = colors[int(own["state"].iloc[0])]
            one.set_title(plain(of, 40), fontsize="medium", color=color, fontweight="bold")
        elif of:
            one.set_title(plain(of, 40), fontsize="medium")
        if on in ("transitions", "stationary"):
            one.set_ylim(0, top)
    axes[0].set_ylabel(label)
    level = options.get("level", 0.95)
    where = " at effect 0" if fit.model.n_effects else ""
    bands = "" if level is None else f", {level:.0%} intervals"
    title(figure, ax, f"{words} along {plain(name, 40)}{where}{bands}", fontsize="medium")
    legend(figure, ax, state_dots(fit), 7)
    return figure


def _table(
    fit: HMMFit,
    name: str,
    on: str | None,
    *,
    grid: Any = None,
    at: Any = None,
    points: int = 25,
    level: float | None = 0.95,
    errors: str = "observed",
    kind: str | None = None,
) -> pd.DataFrame:
    """That of `fit.covariate`, with states as numbers."""
    return covariate_table(fit, name, on, grid, at, points, level, errors_word(errors, kind))


def _top(table: Any) -> float:
    """How high an axis of small probabilities is: its bands, unless one knows next to nothing."""
    middle = float(np.max(table["estimate"]))
    high = float(np.max(np.nan_to_num(table["upper"]))) if "upper" in table else middle
    return min(1.0, max(1.1 * middle, min(1.1 * high, 10 * middle), 1e-6))


# --- responses: a line per state ------------------------------------------------------------------


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


def find_curves(fit: HMMFit, outcomes: list[int], level: float | None) -> list[Curve]:
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
            table: Any = _table(fit, covariate, name, points=_POINTS, level=level)
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
