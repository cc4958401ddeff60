"""Every subject's effects: what the page needs to sort and draw them, and a table without that."""

from __future__ import annotations

from typing import Any

import numpy as np

from avem.fits.fit import Fit
from avem.fits.report.html import table
from avem.fits.report.numbers import with_interval
from avem.fits.report.pack import pack
from avem.fits.report.svg import figure_html, pictures

_LISTED = 100
"""Subjects of the table that is there without JavaScript, and in print."""
_ABREAST = 4
"""Effects that stand beside each other in it."""
_DRAWN = 4
"""Effects that are drawn for print."""
_MOST = 20_000
"""Subjects whose effects the page holds."""


def labels(fit: Fit) -> list[str]:
    """Every subject's label as text; equal texts are told apart by their places."""
    texts = [str(label) for label in fit.subjects.tolist()]
    if len(set(texts)) == len(texts):
        return texts
    return [f"{text} (subject {i + 1})" for i, text in enumerate(texts)]


def effects_data(fit: Fit) -> dict[str, Any] | None:
    """Mean and sd of every effect; None where there is none."""
    if not fit.model.n_effects:
        return None
    n = len(fit.subjects)
    kept = np.unique(np.linspace(0, n - 1, min(n, _MOST)).round().astype(int))
    sd = np.sqrt(np.diagonal(fit.effects_cov, axis1=1, axis2=2))
    return {
        "names": fit._parts().effect_words(),
        "subjects": pack(kept),
        "mean": [pack(column) for column in fit.effects_mean[kept].T],
        "sd": [pack(column) for column in sd[kept].T],
    }


def static_effects(fit: Fit) -> str:
    """The picture and the table that are there without JavaScript."""
    n, d = len(fit.subjects), fit.model.n_effects
    made = []
    names = fit._parts().effect_words()
    for name, words in list(zip(fit.model.effect_labels, names, strict=True))[:_DRAWN]:
        alt = f"{n:,} subjects by {words}, sorted, each with its 95% interval."
        made.append(figure_html(fit.plot.effects(name), alt))
    picture = pictures(made, "Each subject's effects, sorted.")
    groups = [range(i, min(i + _ABREAST, d)) for i in range(0, d, _ABREAST)]
    return picture + "\n".join(_table(fit, group, _LISTED // len(groups)) for group in groups)


def _table(fit: Fit, group: range, listed: int) -> str:
    """Some effects of the first subjects; more abreast would be cut off on paper."""
    names, n = fit._parts().effect_words(), len(fit.subjects)
    shown, d = min(n, max(listed, 1)), len(names)
    effects = fit._effects().iloc[: shown * d]
    columns = zip(*(effects[name] for name in ("mean", "lower", "upper")), strict=True)
    cells = [with_interval(*ends) for ends in columns]
    rows = [[str(fit.subjects[i]), *(cells[i * d + j] for j in group)] for i in range(shown)]
    caption = f"Effects with 95% intervals: {shown:,} of {n:,} subjects"
    if shown < n:
        caption += " (fit.effects() has all)"
    header = [str(fit.columns["subject"]), *(names[j] for j in group)]
    return table(caption, header, rows, tall=shown > 15)
