"""The table of parameters with further columns: errors, tests, ratios; spread in standard units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from avem.components.param_info import Params
from avem.fits.estimates import compares
from avem.fits.uncertainty import standard_errors, wald

if TYPE_CHECKING:
    from avem.fits.fit import Fit

SPREADS = ("covariance", "sd")
_RATIOS = {"ratio": "estimate", "ratio_lower": "lower", "ratio_upper": "upper"}


@dataclass(frozen=True, eq=False)
class EffectSpread:
    """Rows of the effects' covariances, read as standard deviations and correlations."""

    fit: Fit

    @cached_property
    def _rows(self) -> list[tuple[int, str, tuple[int, int]]]:
        """(row of the table, parameter, entry) of every number of the effects' covariances."""
        found, at = [], 0
        own = self.fit.model.prior.param_info()
        for name, part in self.fit._table().groupby("parameter", sort=False):
            if name in own:
                size = own[str(name)].shape[-1]
                entries = [(i, j) for i in range(size) for j in range(i + 1)]
                found += [(at + n, str(name), entry) for n, entry in enumerate(entries)]
            at += len(part)
        return found

    def values(self, params: Params) -> np.ndarray:
        """(rows,) the estimates, at any parameters."""
        numbers = self.fit.values_of(params)
        for row, name, (i, j) in self._rows:
            sigma = params[name]
            size = np.sqrt(max(sigma[i, i], 0.0)), np.sqrt(max(sigma[j, j], 0.0))
            with np.errstate(divide="ignore", invalid="ignore"):
                numbers[row] = size[0] if i == j else sigma[i, j] / np.float64(size[0] * size[1])
        return numbers

    def table(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table with these rows under names of their own."""
        names = table["parameter"].tolist()
        for row, name, (i, j) in self._rows:
            word = "sd" if i == j else "correlation"
            names[row] = f"{name.removesuffix('covariance')}{word}"
        return table.assign(parameter=names, estimate=self.values(self.fit.params))

    def scales(self, scales: np.ndarray) -> np.ndarray:
        """(rows,) where the intervals are made."""
        found = np.array(scales, dtype=object)
        for row, _, (i, j) in self._rows:
            found[row] = "log" if i == j else "atanh"
        return found


def wide_table(
    fit: Fit, errors: bool | str, level: float, ratios: bool, spread: str
) -> pd.DataFrame:
    """The table of `fit.table` with the columns that were asked for."""
    own = EffectSpread(fit) if spread == "sd" else None
    if errors:
        word = "observed" if errors is True else str(errors)
        table = standard_errors(fit, fit._curvature, word, level, own)
        may_be_0 = (
            np.array([info.kind == "free" for info in _infos(fit)], dtype=bool)
            & ~fit.model.constant_rows()
        )
        z, p = wald(fit, table["estimate"].to_numpy(float), table["se"].to_numpy(float))
        place = list(table.columns).index("se") + 1
        table.insert(place, "z", np.where(may_be_0, z, np.nan))
        table.insert(place + 1, "p", np.where(may_be_0, p, np.nan))
    else:
        table = fit._table() if own is None else own.table(fit._table())
    return _with_ratios(fit, table) if ratios else table


def _infos(fit: Fit) -> list:
    info = fit.model.param_info()
    return [info[str(name)] for name in fit._table()["parameter"]]


def _with_ratios(fit: Fit, table: pd.DataFrame) -> pd.DataFrame:
    """Further columns: exp of coefficients and of their intervals, and what that is."""
    kinds = _ratio_kinds(fit, table)
    is_one = np.array([kind is not None for kind in kinds])
    new = {}
    for name, source in _RATIOS.items():
        if source in table:
            value = np.where(is_one, table[source].to_numpy(float), np.nan)
            with np.errstate(over="ignore"):
                new[name] = np.exp(value)
    return table.assign(**new, ratio_kind=pd.Series(kinds, index=table.index, dtype=object))


def _ratio_kinds(fit: Fit, table: pd.DataFrame) -> list[str | None]:
    """Of each row; None where exp of the number compares nothing."""
    kinds, formulas, constant = fit._ratios(), {}, fit.model.constant_rows()
    keys = list(zip(table["parameter"], table["outcome"], strict=True))
    for key, term in zip(keys, table["term"], strict=True):
        formulas.setdefault(key, set()).add(term)
    return [
        kinds.get(name) if not held and compares(term, formulas[name, outcome]) else None
        for (name, outcome), term, held in zip(keys, table["term"], constant, strict=True)
    ]
