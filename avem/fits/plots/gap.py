"""What one anchor per subject loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from avem.fits.plots.effects import LABELLED
from avem.fits.plots.figures import DARK, GREY, OKABE_ITO, Size, new_figure, plain
from avem.inference.after.diagnose import fails_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.questions.diagnosis import Diagnosis


def gap_figure(found: Diagnosis, figsize: Size | None = None) -> Figure:
    """Every subject's gap, and the information lost on each effect."""
    n, d = len(found.subjects), len(found.effects)
    height = max(2.6, 1.2 + 0.19 * n, 1.2 + 0.3 * d) if n <= LABELLED else max(5.0, 1.2 + 0.3 * d)
    figure = new_figure(figsize or (10.0, height))
    left, right = figure.subplots(1, 2)
    draw_gaps(left, found)
    draw_lost(right, found)
    figure.suptitle(found.advice if len(found.advice) < 90 else found.advice.split(":")[0])
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
    if len(table) <= LABELLED:
        ax.set_yticks(place, [plain(label) for label in table.iloc[:, 0]], fontsize="small")
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{len(table):,} subjects, sorted")
    ax.set_ylim(-0.7, len(table) - 0.3)
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
    ax.set(xlim=(0, 1.15), xlabel="share of information lost (dashed: refine above)")
    room = max(0.0, 2.5 - 0.5 * len(table))  # few effects are not to be thick bars
    ax.set_ylim(-0.7 - room, len(table) - 0.3 + room)
