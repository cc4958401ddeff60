"""Fits run on outcomes of mean 0 and variance 1 and on covariates of unit size.

So floors, tolerances and starting values mean the same for data in volts and in nanovolts. Outcomes
are rescaled where a family has a location and a scale (Gaussian, Student t); elsewhere their unit
is part of what they mean. The change of units is exact: parameters go in and come out in the
user's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from avem.numerics import rows
from avem.numerics.order_statistics import quantiles_of
from avem.numerics.rounding import on_grid

_UNITS = ("centre", "scale", "column_centre", "column_scale")


@dataclass(frozen=True, eq=False)
class Scaling:
    """Centre and scale of each outcome column and of each design column."""

    centre: np.ndarray
    scale: np.ndarray
    column_centre: np.ndarray
    column_scale: np.ndarray
    constant: int
    """Which design column is constant, or -1."""

    @classmethod
    def none(cls, n_outcomes: int, n_columns: int, constant: int) -> Scaling:
        """Leave everything in the user's units, for the paper's iteration to the letter."""
        outcomes = np.zeros(n_outcomes), np.ones(n_outcomes)
        return cls(*outcomes, np.zeros(n_columns), np.ones(n_columns), constant)

    def without(self) -> Scaling:
        """The user's units, for the same columns."""
        return Scaling.none(len(self.scale), len(self.column_scale), self.constant)

    def usual_time(self, clock: int) -> float:
        """The interval that is 1 in the fit, given the column of intervals; 1 without one."""
        return float(self.column_scale[clock]) if clock >= 0 else 1.0

    def data_in(self, Y: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes and design columns on the scale of the fit."""
        y = _moved(Y, self.centre, self.scale)
        return y, _moved(A, self.column_centre, self.column_scale)

    def data_out(self, y: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `data_in`."""
        return y * self.scale + self.centre, a * self.column_scale + self.column_centre

    def to_user(self, columns: tuple[int, ...]) -> np.ndarray:
        """Matrix from coefficients of the scaled columns to coefficients of the user's columns."""
        centre, scale = self.column_centre[list(columns)], self.column_scale[list(columns)]
        matrix = np.diag(1.0 / scale)
        if self.constant in columns:
            matrix[columns.index(self.constant)] -= centre / scale
        return matrix

    def log_jacobian(self, observed: np.ndarray) -> np.ndarray:
        """(rows,) what to add to an internal log density to have it in the user's units.

        ``observed`` (rows, outcome columns) is bool; or, of subjects, how many values they have.
        """
        return -(observed * np.log(self.scale)).sum(1)

    def to_json(self) -> dict[str, Any]:
        """The numbers that `from_json` needs."""
        return {name: getattr(self, name).tolist() for name in _UNITS} | {"constant": self.constant}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Scaling:
        """The scaling of a saved fit."""
        units = {name: np.array(state[name], float) for name in _UNITS}
        return cls(**units, constant=int(state["constant"]))


class ColumnSummary(NamedTuple):
    """Of the values of a column that are not missing."""

    spread: float
    """Standard deviation, not counting a few wild values; 1 where nothing varies."""
    median: float
    """NaN where there is no value."""
    largest: float
    """Absolute value, 0 where there is none."""


def summary(values: np.ndarray) -> ColumnSummary:
    """Of (rows,), NaN where missing.

    Values are scaled before they are squared, so that no unit overflows.
    """
    strided = values
    values = rows.filled(np.empty(len(strided)), lambda at: strided[at])
    if not rows.no_nan(values):
        values = values[~np.isnan(values)]
    if not len(values):
        return ColumnSummary(1.0, np.nan, 0.0)
    (lowest, highest), mean = rows.bounds(values), float(rows.means(values))
    low, median, high = quantiles_of(values, (0.25, 0.5, 0.75)).tolist()
    size, away = float(max(-lowest, highest)), max(highest - mean, mean - lowest)
    if not away > 0:
        return ColumnSummary(1.0, median, size)
    squares = rows.each(lambda at: (((values[at] - mean) / away) ** 2).sum(), len(values))
    sd = float(away * np.sqrt(sum(squares) / len(values)))
    return ColumnSummary(spread_of(sd, high, low), median, size)


def _moved(values: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """(rows, columns) less their centre, in units of their scale; itself if nothing moves."""
    if values.ndim < 2:
        return (values - centre) / scale
    moved = (centre != 0) | (scale != 1)
    if not moved.any():
        return values
    out = np.empty(values.shape)

    def move(at: slice) -> None:
        for j in range(len(scale)):
            own = values[at, j]
            out[at, j] = (own - centre[j]) / scale[j] if moved[j] else own

    rows.each(move, len(values))
    return out


def spread_of(sd: float, high: float, low: float) -> float:
    """The same from a standard deviation and the upper and lower quartile."""
    middle = float(high - low) / 1.349
    found = min(float(sd), middle) if middle > 1e-9 * max(abs(high), abs(low)) else float(sd)
    return float(on_grid(found, found))


def size(values: np.ndarray) -> float:
    """Root mean square, 1 where all is 0."""
    largest = np.abs(values).max(initial=0.0)
    if not largest > 0:
        return 1.0
    found = largest * np.sqrt(np.mean((values / largest) ** 2))
    return float(on_grid(found, found))
