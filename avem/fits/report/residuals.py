"""Whether the residuals look as they should."""

from __future__ import annotations

import pandas as pd

from avem.fits.fit import Fit
from avem.fits.questions.whiteness import whiteness
from avem.fits.report.html import figure_html, number, table

_LAGS = 5
_COLUMNS = {
    "mean": "mean",
    "sd": "sd",
    "lag_1": "autocorrelation at lag 1",
    "p_white": "p (white)",
    "p_normal": "p (normal)",
    "p_apart": "p (apart)",
}


def residual_checks(fit: Fit, drawn: bool) -> str:
    """Quantiles and autocorrelations, and tests of both.

    ``drawn``: at a draw of every subject's effects, which makes them normal if the model holds.
    """
    longest = int(fit._panel(None).lane_length.max()) - 1
    if longest < 1:
        return "<p>No sequence has two rows, so nothing can be said about what follows what.</p>"
    effects, lags = "drawn" if drawn else "fitted", min(_LAGS, longest)
    tests = whiteness(fit, fit._encode(None), lags, effects)
    picture = fit.plot.residuals(effects=effects)
    alt = "Quantiles of the residuals against normal ones, and their autocorrelations."
    caption = "Shaded: where 95% lie if the model holds."
    about = _about(drawn, lags, "p_apart" in tests)
    return "\n".join([about, _table(tests), figure_html(picture, alt, caption)])


def _about(drawn: bool, lags: int, apart: bool) -> str:
    effects = (
        "They are taken at one draw of every subject's effects, so that they are independent "
        "standard normal numbers if the model holds."
        if drawn
        else "They are taken at the subjects' fitted effects, which makes them a little too "
        "well-behaved."
    )
    tests = [f"white means no autocorrelation at lags 1 to {lags}"]
    tests.append("normal no skewness or excess kurtosis")
    if apart:
        tests.append("apart no correlation with the other outcomes of the same row")
    return (
        "<p>What is left of each value once the rows before it in its sequence have predicted it, "
        f"on the scale of a standard normal. {effects} Small p-values speak against the model: "
        f"{', '.join(tests)}. In a large panel the smallest misfit is significant, so look at its "
        "size.</p>"
    )


def _table(tests: pd.DataFrame) -> str:
    columns = {name: words for name, words in _COLUMNS.items() if name in tests}
    rows = [
        [str(row["outcome"]), f"{row['n']:,}", *(_cell(name, row[name]) for name in columns)]
        for row in tests.to_dict("records")
    ]
    return table("Residuals", ["", "n", *columns.values()], rows)


def _cell(name: str, value: float) -> str:
    if pd.isna(value):
        return ""
    if name.startswith("p_"):
        return "<0.001" if value < 0.001 else f"{value:.3f}"
    return number(value)
