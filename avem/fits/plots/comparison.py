"""Models beside each other: their criteria, and the subjects' scores."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.fits.plots.figures import DARK, GREY, OKABE_ITO, Size, panels, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = {"aic": "o", "bic": "s", "icl": "D"}


def comparison_figure(
    frames: Any, order: Sequence[str], bad: Collection[str], what: str, figsize: Size | None
) -> Figure:
    """Criteria; differences of log scores; and those of the first two models by subject.

    ``frames`` are the tables of a comparison; the models are drawn in this `order`, the best first,
    those that are `bad` hollow; ``what`` says what differences are of.
    """
    height = max(3.2, 1.6 + 0.5 * len(order))
    figure, axes = panels(3, None, figsize, (4.2, height), 3)
    names = [_wrapped(name + (" (degenerate)" if name in bad else "")) for name in order]
    _draw_criteria(axes[0], frames.table.set_index("model"), order, bad)
    _draw_scores(axes[1], frames.differences, order, bad)
    for number, ax in enumerate(axes[:2]):
        ax.set_yticks(range(len(order)), names if number == 0 else [""] * len(order))
        ax.set_ylim(len(order) - 0.5, -0.5)
    axes[1].set_title(f"{what[0].upper()}{what[1:]},\nagainst the topmost", fontsize="medium")
    scored = [name for name in order if name in frames.by_subject]
    _draw_subjects(axes[2], frames.by_subject, scored[:2])
    return figure


def _draw_criteria(ax: Axes, table: Any, order: Sequence[str], bad: Collection[str]) -> None:
    """Every criterion above the best one of a sound model."""
    sound = [name for name in order if name not in bad] or list(order)
    for number, (column, marker) in enumerate(_MARKERS.items()):
        if column not in table or table[column].isna().any():
            continue
        above = (table.loc[list(order), column] - table.loc[sound, column].min()).to_numpy(float)
        color = OKABE_ITO[number]
        fill = ["white" if name in bad else color for name in order]
        place = np.arange(len(order)) + 0.16 * (number - 1)
        ax.scatter(above, place, marker=marker, s=42, c=fill, ec=color, gid=column, zorder=3)
        ax.scatter([], [], marker=marker, color=color, label=column.upper())
    ax.axvline(0, color=GREY, lw=0.8, ls=":", zorder=0)
    ax.set_xlabel("above the best; lower is better")
    ax.set_title("Criteria", fontsize="medium")
    ax.legend(fontsize="small")
    ax.margins(x=0.12)


def _draw_scores(ax: Axes, table: Any, order: Sequence[str], bad: Collection[str]) -> None:
    """How much higher or lower the log score is than the first model's, with its interval."""
    ax.axvline(0, color=GREY, lw=0.8, ls=":", zorder=0)
    ax.plot(0, 0, "o", color=DARK, ms=6)
    for place, name in enumerate(order[1:], 1):
        for row in table.to_dict("records"):
            pair = (row["model"], row["other"])
            if set(pair) != {order[0], name}:
                continue
            sign = 1.0 if pair[0] == name else -1.0
            ends = sorted((sign * row["lower"], sign * row["upper"]))
            fill = "white" if name in bad else DARK
            ax.plot(ends, [place, place], color=DARK, lw=1.6, zorder=2)
            ax.plot(sign * row["difference"], place, "o", mec=DARK, mfc=fill, ms=6, gid=name)
    ax.set_xlabel("higher is better")
    ax.margins(x=0.12)


def _draw_subjects(ax: Axes, table: Any, pair: Sequence[str]) -> None:
    """The subjects' differences between two models, sorted."""
    if len(pair) < 2:
        ax.text(0.5, 0.5, "No pair of models has scores.", ha="center", transform=ax.transAxes)
        return
    apart = np.sort(table[pair[0]].to_numpy(float) - table[pair[1]].to_numpy(float))
    place = np.arange(len(apart))
    for chosen, color in ((apart > 0, OKABE_ITO[0]), (apart <= 0, OKABE_ITO[1])):
        ax.vlines(place[chosen], 0, apart[chosen], color=color, lw=1.0)
        ax.plot(place[chosen], apart[chosen], "o", color=color, ms=3, gid="subjects")
    ax.axhline(0, color=GREY, lw=0.8)
    ax.set_xticks([])
    ax.set_xlabel(f"{len(apart):,} subject{'' if len(apart) == 1 else 's'}, sorted")
    ax.set_ylabel("difference of log scores")
    ax.set_title(f"{_wrapped(pair[0], 44)}\nless {_wrapped(pair[1], 44)}", fontsize="small")


def _wrapped(name: str, width: int = 26) -> str:
    """A name on as many lines as it takes, up to three."""
    lines = wrap(name, width) or [""]
    return "\n".join(plain(line, width) for line in [*lines[:2], " ".join(lines[2:])][: len(lines)])
