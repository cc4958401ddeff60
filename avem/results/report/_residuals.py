"""Whether the residuals look as they should."""

from __future__ import annotations

import numpy as np
import pandas as pd

from avem.results._html import figure_html, number, table
from avem.results._plot_residuals import residuals_figure
from avem.results._whiteness import whiteness_table
from avem.results.report._about import Fit

_LAGS = 5
_MOST = 8
"""Outcomes that are drawn."""
_COLUMNS = {
    "mean": "mean",
    "sd": "sd",
    "lag_1": "autocorrelation at lag 1",
    "p_white": "p (white)",
    "p_normal": "p (normal)",
}


def residual_checks(fit: Fit, drawn: bool) -> str:
    """Quantiles and autocorrelations, and tests of both.

    ``drawn``: at a draw of every subject's effects, which makes them normal if the model holds.
    """
    panel = fit._panel(None)
    longest = int(panel.lane_length.max()) - 1
    if longest < 1:
        return "<p>No sequence has two rows, so nothing can be said about what follows what.</p>"
    found = fit.residuals(effects="drawn" if drawn else "fitted")
    values = {name: np.asarray(found[name], float) for name in fit.model.outcomes}
    lags = min(_LAGS, longest)
    tests = whiteness_table(panel, list(values), np.stack(list(values.values()), axis=1), lags)
    shown = dict(list(values.items())[:_MOST])
    alt = "Quantiles of the residuals against normal ones, and their autocorrelations."
    caption = "Shaded: where 95% lie if the model holds."
    if len(shown) < len(values):
        caption += f" The first {len(shown)} of {len(values)} outcomes."
    picture = residuals_figure(panel, shown, "Residuals, given the rows before")
    return "\n".join([_about(drawn, lags), _table(tests), figure_html(picture, alt, caption)])


def _about(drawn: bool, lags: int) -> str:
    effects = (
        "They are taken at one draw of every subject's effects, so that they are independent "
        "standard normal numbers if the model holds."
        if drawn
        else "They are taken at the subjects' fitted effects, which makes them a little too "
        "well-behaved."
    )
    return (
        "<p>What is left of each value once the rows before it in its sequence have predicted it, "
        f"on the scale of a standard normal. {effects} Small p-values speak against the model: "
        f"white means no autocorrelation at lags 1 to {lags}, normal no skewness or excess "
        "kurtosis. In a large panel the smallest misfit is significant, so look at its size.</p>"
    )


def _table(tests: pd.DataFrame) -> str:
    rows = [
        [str(row["outcome"]), f"{row['n']:,}", *(_cell(name, row[name]) for name in _COLUMNS)]
        for row in tests.to_dict("records")
    ]
    return table("Residuals", ["", "n", *_COLUMNS.values()], rows)


def _cell(name: str, value: float) -> str:
    if pd.isna(value):
        return ""
    if name.startswith("p_"):
        return "<0.001" if value < 0.001 else f"{value:.3f}"
    return number(value)
