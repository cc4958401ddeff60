"""Effects of subjects, what one anchor per subject loses, and differences with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.errors import ModelError
from avem.fits.plots.figures import (
    DARK,
    GREY,
    LABELLED,
    OKABE_ITO,
    Size,
    grid,
    name_places,
    one_of,
    panels,
    plain,
    short_states,
    title,
    wrapped,
)
from avem.inference.after.diagnose import fails_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.questions.diagnosis import Diagnosis

_SEPARATE = 2000
"""Up to how many subjects have an interval of their own."""


def effects_figure(fit: Any, effect: str | None, ax: Any, figsize: Size | None) -> Figure:
    """One panel per effect, of any kind of fit."""
    names = list(fit.model.effect_labels)
    if not names:
        raise ModelError("No effects to draw: the subjects of this model are all alike.")
    chosen = names if effect is None else [one_of(effect, names, "effect")]
    n = len(fit.subjects)
    height = max(2.6, 1.2 + 0.19 * n) if n <= LABELLED else (5.0 if len(chosen) <= 4 else 3.4)
    figure, axes = panels(len(chosen), ax, figsize, (3.6, height), 4)
    table, inside = fit._effects(), dict(zip(names, fit.model.effect_names, strict=True))
    for panel, name in zip(axes, chosen, strict=True):
        own = table.loc[table["effect"] == inside[name]]
        draw_effect(panel, own.sort_values(by="mean"), name)
    title(figure, ax, f"Effects of {n:,} subject{'s'[: n != 1]}, 95% intervals")
    return figure


def draw_effect(ax: Axes, table: pd.DataFrame, name: str) -> None:
    """A caterpillar: rows of `table` are subjects in order of their mean."""
    n = len(table)
    place = np.arange(n)
    mean, lower, upper = (table[column].to_numpy() for column in ("mean", "lower", "upper"))
    color = OKABE_ITO[0]
    ax.axvline(0, color=GREY, lw=0.8, zorder=0)
    if n > _SEPARATE:
        ax.fill_betweenx(place, lower, upper, color=color, alpha=0.3, lw=0)
        ax.plot(mean, place, color=DARK, lw=1.2)
    else:
        room = 280 / n  # points for each subject
        ax.hlines(place, lower, upper, color=color, lw=np.clip(room / 2, 0.3, 1.4), alpha=0.7)
        ax.plot(mean, place, "o", color=DARK, mec="none", ms=np.clip(room, 0.9, 4))
    name_places(ax, place, map(plain, table.iloc[:, 0]), "subjects")
    ax.set_title(plain(name, 40), fontsize="medium")


# --- what one anchor per subject loses ------------------------------------------------------------


def gap_figure(found: Diagnosis, ax: Any = None, figsize: Size | None = None) -> Figure:
    """Every subject's gap, and the information lost on each effect."""
    n, d = len(found.subjects), len(found.effects)
    height = max(2.6, 1.2 + 0.19 * n, 1.2 + 0.3 * d) if n <= LABELLED else max(5.0, 1.2 + 0.3 * d)
    figure, axes = grid(1, 2, ax, figsize or (10.0, height))
    draw_gaps(axes[0, 0], found)
    draw_lost(axes[0, 1], found)
    title(figure, ax, wrapped(figure, found.advice), fontsize="medium")
    return figure


def draw_gaps(ax: Axes, diagnosis: Diagnosis) -> None:
    """The two parts of every subject's gap, largest on top."""
    table = diagnosis.subjects
    whole = (table["anchoring_gap"] + table["gaussian_gap"]).to_numpy(float)
    table = table.iloc[np.argsort(whole, kind="stable")]
    anchoring = np.maximum(table["anchoring_gap"].to_numpy(float), 0.0)
    gaussian = np.maximum(table["gaussian_gap"].to_numpy(float), 0.0)
    place = np.arange(len(table))
    # Few subjects are bars with names; many are one silhouette.
    height = 0.8 if len(table) <= LABELLED else 1.0
    ax.barh(place, anchoring, height, color=OKABE_ITO[1], label="anchoring: one local pass")
    ax.barh(place, gaussian, height, anchoring, color=OKABE_ITO[5], label="Gaussian: shape of q")
    name_places(ax, place, map(plain, table.iloc[:, 0]), "subjects")
    ax.set_xlabel("log likelihood lost by the bound")
    ax.locator_params(axis="x", nbins=5)
    ax.legend(loc="lower right", fontsize="small")


def draw_lost(ax: Axes, diagnosis: Diagnosis) -> None:
    """The share of information lost per effect, beside the share from which it matters."""
    table = diagnosis.effects.iloc[::-1]
    place, lost = np.arange(len(table)), np.clip(table["lost"].to_numpy(float), 0.0, 1.0)
    limit = fails_above(len(table))
    colors = [OKABE_ITO[1] if share > limit else OKABE_ITO[2] for share in lost]
    ax.barh(place, lost, 0.6, color=colors)
    for y, share in zip(place.tolist(), lost.tolist(), strict=True):
        ax.text(share + 0.02, y, f"{share:.0%}", va="center", color=DARK, fontsize="small")
    ax.axvline(limit, color=GREY, lw=1, ls="--")
    ax.set_yticks(place, [plain(name, 40) for name in table["effect"]])
    ax.set(xlim=(0, 1.15), xlabel="share of information lost (dashed: too much)")
    room = max(0.0, 2.5 - 0.5 * len(table))  # few effects are not to be thick bars
    ax.set_ylim(-0.7 - room, len(table) - 0.3 + room)


# --- differences ----------------------------------------------------------------------------------


_LESS = "\u2212"


def contrast_figure(
    fit: Any, table: pd.DataFrame, level: float, ax: Any, figsize: Size | None
) -> Figure:
    """A panel per effect or parameter, a line per pair."""
    if "effect" in table:
        what = table["effect"]
        pairs = [
            f"{plain(one, 16)} {_LESS} {plain(other, 16)}"
            for one, other in zip(table.iloc[:, 0], table["other"], strict=True)
        ]
    else:
        names = [name for name in ("parameter", "outcome", "term", "other") if name in table]
        parts = table[names].astype(object)
        what = parts.apply(lambda row: ", ".join(str(v) for v in row if v is not None), axis=1)
        named = dict(enumerate(short_states(fit, 16)))
        states = zip(table["state"], table["minus"], strict=True)
        pairs = [f"{named.get(a, a)} {_LESS} {named.get(b, b)}" for a, b in states]
    keys = list(dict.fromkeys(what))
    n = max(int((what == key).sum()) for key in keys)
    tall = max(1.7, 1.1 + 0.26 * n) if n <= LABELLED else 5.4
    figure, axes = panels(len(keys), ax, figsize, (4.2, tall), 3)
    for one, key in zip(axes, keys, strict=True):
        own = (what == key).to_numpy()
        _draw(one, table[own], [pair for pair, here in zip(pairs, own, strict=True) if here])
        one.set_title(plain(key, 40), fontsize="medium")
    bare = " (a dot alone: see its note)" if np.isnan(table["lower"].to_numpy(float)).any() else ""
    title(figure, ax, f"Differences, {level:.0%} intervals{bare}", fontsize="medium")
    return figure


def _draw(ax: Axes, table: Any, names: list[str]) -> None:
    crowded = len(names) > LABELLED
    if crowded:
        table = table.sort_values(by="difference", ascending=False)
    place = np.arange(len(table))[::-1]
    middle, lower, upper = (table[key].to_numpy(float) for key in ("difference", "lower", "upper"))
    away = (lower > 0) | (upper < 0)
    ax.axvline(0, color=GREY, lw=0.8, zorder=0)
    for here, color in ((away, DARK), (~away, GREY)):
        ax.hlines(place[here], lower[here], upper[here], color=color, lw=0.8 if crowded else 1.8)
    ax.plot(middle, place, "o", color=DARK, ms=1.5 if crowded else 4.5, gid="difference")
    name_places(ax, place, names, "pairs")
