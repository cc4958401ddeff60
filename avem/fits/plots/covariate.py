"""What a covariate does, with bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.data.frames import to_pandas
from avem.fits.plots.figures import Size, panels, plain, state_colors, state_legend
from avem.fits.plots.occupancy import draw_by_state
from avem.fits.questions.covariate import choose_target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit


_STICKY = 0.9


def covariate_figure(
    fit: HMMFit, name: str, on: str | None, figsize: Size | None, options: dict[str, Any]
) -> Figure:
    """A panel per state that is left, or per outcome, or one for the long run."""
    on = choose_target(fit, name, on)
    table: Any = to_pandas(fit.covariate(name, on, **options))[0]
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
        groups = [(f"from state {k}", own) for k, own in table.groupby("state")]
        lines, label = "to_state", "probability to go to"
        title = f"Transition probabilities{' (staying left out)' if rare else ''}"
    elif on == "stationary":
        groups, lines = [("", table)], "state"
        label, title = "share of time in the long run", "Shares in the long run"
    else:
        groups = [(str(key), own) for key, own in table.groupby("outcome", sort=False)]
        lines, label, title = "state", "", "Means"
    each = (6.4, 3.8) if len(groups) == 1 else (3.8, 3.2)
    figure, axes = panels(len(groups), None, figsize, each, 3)
    for ax, (words, own) in zip(axes, groups, strict=True):
        draw_by_state(ax, own, name, "estimate", colors, lines)
        if on == "transitions":
            k = int(words.removeprefix("from state "))
            ax.set_title(words, fontsize="medium", color=colors[k], fontweight="bold")
        elif words:
            ax.set_title(plain(words, 40), fontsize="medium")
        if on in ("transitions", "stationary"):
            ax.set_ylim(0, top)
    axes[0].set_ylabel(label)
    level = options.get("level", 0.95)
    where = " at effect 0" if fit.model.n_effects else ""
    bands = "" if level is None else f", {level:.0%} intervals"
    figure.suptitle(f"{title} along {plain(name, 40)}{where}{bands}", fontsize="medium")
    state_legend(figure, colors, False)
    return figure


def _top(table: Any) -> float:
    """How high an axis of small probabilities is: its bands, unless one knows next to nothing."""
    middle = float(np.max(table["estimate"]))
    high = float(np.max(np.nan_to_num(table["upper"]))) if "upper" in table else middle
    return min(1.0, max(1.1 * middle, min(1.1 * high, 10 * middle), 1e-6))
