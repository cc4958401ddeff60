"""Whether the residuals look as they should."""

from __future__ import annotations

from avem.results._html import figure_html, number, table
from avem.results.report._about import Fit
from avem.results.ssm_fit import SSMFit

_LAGS = 5


def residual_checks(fit: Fit) -> str:
    """Quantiles, autocorrelations, and tests of both."""
    if not isinstance(fit, SSMFit):
        return ""
    lags = min(_LAGS, int(fit._panel(None).lane_length.max()) - 1)
    found = fit.whiteness(lags)
    header = ["", "n", "mean", "sd", "lag 1", "white", "normal", "apart"]
    names = ("mean", "sd", "lag_1", "p_white", "p_normal", "p_apart")
    rows = [
        [str(row["outcome"]), f"{row['n']:,}", *(number(row[name]) for name in names)]
        for row in found.to_dict("records")
    ]
    about = "<p>What is left of each outcome once the rows before it have predicted it.</p>"
    alt = "Quantiles of the residuals against normal ones, and their autocorrelations."
    caption = "Shaded: where 95% lie if the model holds."
    return "\n".join(
        [about, table("Residuals", header, rows), figure_html(fit.plot.residuals(), alt, caption)]
    )
