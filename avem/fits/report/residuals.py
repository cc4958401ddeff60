"""Whether the residuals look as they should."""

from __future__ import annotations

import pandas as pd

from avem.fits.fit import Fit
from avem.fits.plots.figures import state_dots
from avem.fits.plots.residuals import residuals_figure
from avem.fits.questions.whiteness import whiteness_table
from avem.fits.report.html import legend, listed, table
from avem.fits.report.numbers import number, p_value
from avem.fits.report.svg import figure_html, pictures

_LAGS, _DRAWN_LAGS = 5, 10
_PANEL = (4.0, 7.2)
_MOST = 8
"""Outcomes whose residuals are drawn."""
_COLUMNS = {
    "mean": "mean",
    "sd": "sd",
    "lag_1": "autocorrelation at lag 1",
    "p_white": "p (nothing carries over)",
    "p_normal": "p (normal)",
    "p_apart": "p (not correlated)",
}


def residual_checks(fit: Fit, drawn: bool) -> str:
    """Quantiles and autocorrelations, and tests of both.

    ``drawn``: at a draw of every subject's effects, which makes them normal if the model holds.
    """
    longest = int(fit._panel(None).lane_length.max()) - 1
    if longest < 1:
        return "<p>No sequence has two rows, so nothing can be said about what follows what.</p>"
    effects, lags = "drawn" if drawn else "fitted", min(_LAGS, longest)
    encoded, names = fit._encode(None), list(fit.model.outcomes)
    found = fit._residual_values(encoded, effects, 0)
    tests = whiteness_table(encoded.panel, names, found[0], lags, *found[1:])
    states, made = fit._parts().row_states(), []
    dots = None if states is None else state_dots(fit, "s")
    for name, values in list(zip(names, found[0].T, strict=True))[:_MOST]:
        given = (encoded.panel, {name: values}, "", _DRAWN_LAGS)
        picture = residuals_figure(*given, figsize=_PANEL, states=states, dots=dots)
        picture.legends.clear()  # one for all pictures is enough
        alt = f"Residuals of {name}: quantiles against normal ones, and autocorrelations."
        made.append(figure_html(picture, alt))
    caption = "Shaded: where 95% lie if the model holds."
    if len(names) > _MOST:
        caption += f" The first {_MOST} of {len(names)} outcomes."
    about = _about(drawn, lags, "p_apart" in tests)
    signs = "" if states is None else legend(fit.state_labels, ("mean", "standard normal"))
    return "\n".join([about, _table(tests), signs + pictures(made, caption)])


def _about(drawn: bool, lags: int, apart: bool) -> str:
    effects = (
        "They are taken at one draw of every subject's effects, so that they are independent "
        "standard normal numbers if the model holds."
        if drawn
        else "They are taken at the subjects' fitted effects, which makes them a little too "
        "well-behaved."
    )
    tests = [f"that nothing carries over to later rows (lags 1 to {lags})"]
    tests.append("that the residuals are normal (no skewness or excess kurtosis)")
    if apart:
        tests.append("that they are not correlated with those of other outcomes of the same row")
    return (
        "<p>A residual is what is left of a value once the rows before it in its sequence have "
        f"predicted it, on the scale of a standard normal distribution. {effects} The tests check "
        f"{listed(tests)}; small p-values speak against the model. In a large panel even a tiny "
        "misfit is significant, so look at its size.</p>"
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
        return p_value(value)
    return number(value)
