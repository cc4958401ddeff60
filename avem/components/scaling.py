"""Fits run on outcomes of mean 0 and variance 1 and on covariates of unit size.

So floors, tolerances and starting values mean the same for data in volts and in nanovolts. Outcomes
are rescaled where a family has a location and a scale (Gaussian, Student t); elsewhere their unit
is part of what they mean. The change of units is exact: parameters go in and come out in the
user's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from avem.components.structure import Line, Structure
from avem.families import Custom, Gaussian

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
    def learn(
        cls,
        structure: Structure,
        y_cols: Sequence[tuple[int, ...]],
        Y: np.ndarray,
        A: np.ndarray,
        constant: int,
        effect_covariance: str,
    ) -> Scaling:
        """The scaling for a data set; ``y_cols`` are the columns of Y of each piece."""
        centre, scale = np.zeros(Y.shape[1]), np.ones(Y.shape[1])
        isotropic = effect_covariance == "isotropic"
        for piece, columns in zip(structure.pieces, y_cols, strict=True):
            at = list(columns)
            if isinstance(piece.family, Gaussian):
                found = np.array([spread(y) for y in Y[:, at].T])
                if piece.family.covariance == "spherical" or isotropic:
                    found = np.full_like(found, np.exp(np.log(found).mean()))
                can_shift = constant in piece.lines[0].x_cols
            elif piece.family.location_scale:
                at = at[:1]
                found = np.array([spread(Y[:, at[0]])])
                can_shift = constant in piece.lines[0].x_cols
                if constant not in piece.lines[1].x_cols:  # the scale's formula has no intercept
                    continue
            else:
                continue
            if isotropic and len(structure.pieces) > 1 and structure.effects:
                found = np.ones_like(found)
            scale[at] = found
            if can_shift:
                centre[at] = np.nanmedian(Y[:, at], axis=0)
        column_centre, column_scale = np.zeros(A.shape[1]), np.ones(A.shape[1])
        used = A[~np.isnan(Y).all(axis=1)]
        for column in set(range(A.shape[1])) - {constant}:
            may_shift, may_scale = _freedom(structure, column, constant, effect_covariance)
            if may_shift:
                column_centre[column] = used[:, column].mean()
            if may_scale:
                column_scale[column] = _size(used[:, column] - column_centre[column])
        return cls(centre, scale, column_centre, column_scale, constant)

    @classmethod
    def none(cls, n_outcomes: int, n_columns: int, constant: int) -> Scaling:
        """Leave everything in the user's units, for the paper's iteration to the letter."""
        outcomes = np.zeros(n_outcomes), np.ones(n_outcomes)
        return cls(*outcomes, np.zeros(n_columns), np.ones(n_columns), constant)

    def data_in(self, Y: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes and design columns on the scale of the fit."""
        return (Y - self.centre) / self.scale, (A - self.column_centre) / self.column_scale

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

    def effects_to_user(self, structure: Structure, units: dict[Line, float]) -> np.ndarray:
        """(d, d) matrix from internal effects to the user's; ``units`` of a line default to 1."""
        matrix = np.eye(len(structure.effects))
        lines = [line for piece in structure.pieces for line in piece.lines]
        for line in (*lines, *structure.moves):
            if line.z_cols:
                change = units.get(line, 1.0) * self.to_user(line.z_cols)
                for places in set(line.effects):
                    matrix[np.ix_(places, places)] = change
        return matrix

    def log_jacobian(self, observed: np.ndarray) -> np.ndarray:
        """(rows,) what to add to an internal log density to have it in the user's units."""
        return -(observed * np.log(self.scale)).sum(1)

    def to_json(self) -> dict[str, Any]:
        """The numbers that `from_json` needs."""
        return {name: getattr(self, name).tolist() for name in _UNITS} | {"constant": self.constant}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Scaling:
        """The scaling of a saved fit."""
        units = {name: np.array(state[name], float) for name in _UNITS}
        return cls(**units, constant=int(state["constant"]))


def _freedom(
    structure: Structure, column: int, constant: int, effect_covariance: str
) -> tuple[bool, bool]:
    """Whether a design column may be centred, and scaled, without changing the model."""
    pieces = structure.pieces
    lines = [(line, piece.family) for piece in pieces for line in piece.lines]
    lines += [(line, None) for line in (*structure.moves, *structure.start)]
    may_shift = may_scale = True
    for line, family in lines:
        if column in (*line.x_cols, *line.z_cols) and isinstance(family, Custom):
            return False, False  # the user's function reads the user's units
        if column in line.x_cols:
            may_shift &= constant in line.x_cols
        if column in line.z_cols:
            # A centred slope is correlated with its intercept: only one full block allows that.
            blocks = {structure.effects[e].block for e in line.effects[0]}
            mixes = effect_covariance in ("full", "block") and len(blocks) == 1
            may_shift &= mixes and constant in line.z_cols
            may_scale &= effect_covariance != "isotropic"
    return may_shift, may_scale


def spread(values: np.ndarray) -> float:
    """Standard deviation of what is not missing, not counting a few wild values.

    1 where nothing varies. Values are scaled before they are squared, so that no unit overflows.
    """
    values = values[~np.isnan(values)]
    deviation = values - values.mean() if len(values) else values
    largest = np.abs(deviation).max(initial=0.0)
    if not largest > 0:
        return 1.0
    sd = float(largest * np.sqrt(np.mean((deviation / largest) ** 2)))
    quarters = np.quantile(values, [0.75, 0.25])
    middle = float(quarters[0] - quarters[1]) / 1.349
    return min(sd, middle) if middle > 1e-9 * np.abs(quarters).max() else sd


def _size(values: np.ndarray) -> float:
    """Root mean square, 1 where all is 0."""
    largest = np.abs(values).max(initial=0.0)
    return float(largest * np.sqrt(np.mean((values / largest) ** 2))) if largest > 0 else 1.0
