"""Whether residuals look as they should: white, standard normal, apart from each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import chdtrc

from avem.components.param_info import check_count
from avem.data import Panel
from avem.errors import ModelError
from avem.fits.words import check_word

if TYPE_CHECKING:
    from avem.fits.fit import Fit


def check_lags(panel: Panel, lags: int) -> None:
    """Raise unless some sequence is longer."""
    check_count("lags", lags)
    longest = int(panel.lane_length.max()) - 1
    if lags > longest:
        raise ModelError(f"lags is {lags}; from 1 to {longest} are possible here.")


BY = ("outcome", "lag")


def whiteness(
    fit: Fit, encoded: Any, lags: int, effects: str, seed: int, by: str = "outcome"
) -> pd.DataFrame:
    """The table of `fit.whiteness` for encoded data.

    At effects that are fitted to them, residuals are correlated where many subjects have few rows
    each: with 200 subjects of 20 rows and 9 effects, a true state-space model was rejected at 5% in
    24% of panels, and in 3% at drawn ones.
    """
    check_lags(encoded.panel, lags)
    check_word("by", by, BY)
    found = fit._residual_values(encoded, effects, seed)
    if by == "lag":
        return lag_table(encoded.panel, list(fit.model.outcomes), found[0], lags)
    return whiteness_table(encoded.panel, list(fit.model.outcomes), found[0], lags, *found[1:])


def whiteness_table(
    panel: Panel,
    outcomes: Sequence[str],
    each: np.ndarray,
    lags: int,
    apart: np.ndarray | None = None,
) -> pd.DataFrame:
    """A row per outcome, from residuals (rows, outcomes).

    `apart` has those that are freed of the other outcomes' of the same row, if there are such.
    """
    from scipy.stats import jarque_bera  # which takes long to import

    rows = []
    for j, name in enumerate(outcomes):
        e = each[:, j]
        seen = e[~np.isnan(e)]
        pairs = autocorrelations(panel, e, lags)
        skewed: Any = jarque_bera(seen) if len(seen) > 2 else None
        deviation = (seen - seen.mean()) / seen.std() if len(seen) > 2 else np.full(1, np.nan)
        row = {
            "outcome": name,
            "n": len(seen),
            "mean": seen.mean() if len(seen) else np.nan,
            "sd": seen.std() if len(seen) else np.nan,
            **{f"lag_{k + 1}": r for k, (r, _) in enumerate(pairs)},
            "p_white": _chi_squared(pairs),
            "skewness": np.mean(deviation**3),
            "kurtosis": np.mean(deviation**4) - 3.0,
            "p_normal": np.nan if skewed is None else float(skewed.pvalue),
        }
        if apart is not None:
            others = [k for k in range(len(outcomes)) if k != j]
            row["p_apart"] = _chi_squared([_correlation(apart[:, j], apart[:, k]) for k in others])
        rows.append(row)
    return pd.DataFrame(rows)


def lag_table(panel: Panel, outcomes: Sequence[str], each: np.ndarray, lags: int) -> pd.DataFrame:
    """A row per outcome and lag, from residuals (rows, outcomes)."""
    rows = []
    for j, name in enumerate(outcomes):
        pairs = autocorrelations(panel, each[:, j], lags)
        for k, (r, n) in enumerate(pairs, 1):
            row = {"outcome": name, "lag": k, "n": n, "autocorrelation": r}
            row["se"] = 1.0 / np.sqrt(n) if n else np.nan
            rows.append(row | {"p": _chi_squared([(r, n)]), "p_white": _chi_squared(pairs[:k])})
    return pd.DataFrame(rows)


def autocorrelations(panel: Panel, e: np.ndarray, lags: int) -> list[tuple[float, int]]:
    """At lags 1, 2, ..., pooled over sequences, and the number of pairs behind each."""
    return [_correlation(e, panel.lag(e, k)) for k in range(1, lags + 1)]


def _correlation(a: np.ndarray, b: np.ndarray) -> tuple[float, int]:
    """Correlation about 0, and of how many pairs."""
    both = ~(np.isnan(a) | np.isnan(b))
    size = np.sqrt(np.sum(a[both] ** 2) * np.sum(b[both] ** 2))
    return (float(np.sum(a[both] * b[both]) / size) if size > 0 else np.nan), int(both.sum())


def _chi_squared(pairs: list[tuple[float, int]]) -> float:
    """P-value of all correlations being 0; each is known to 1 / sqrt(n)."""
    known = [n * r**2 for r, n in pairs if n > 0]
    return float(chdtrc(len(known), sum(known))) if known else np.nan
