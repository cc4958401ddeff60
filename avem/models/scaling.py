"""Fits run on outcomes of mean 0 and variance 1 and on covariates of unit size.

So floors, tolerances and starting values mean the same for data in volts and in nanovolts. The
change of units is exact: parameters go in and come out in the user's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from avem.data import Design, DesignData
from avem.families.gaussian import Gaussian
from avem.models.params import Params

_UNITS = ("centre", "scale", "column_centre", "column_scale")


@dataclass(frozen=True, eq=False)
class Scaling:
    """Centre and scale of each outcome and of each design column."""

    centre: np.ndarray
    scale: np.ndarray
    column_centre: np.ndarray
    column_scale: np.ndarray
    constant: int
    """Which design column is constant, or -1."""
    x_cols: tuple[int, ...]
    z_cols: tuple[int, ...]
    family: Gaussian

    @classmethod
    def learn(cls, design: Design, data: DesignData, family: Gaussian, structure: str) -> Scaling:
        """The scaling for a data set; one common scale where the model ties outcomes together."""
        constant = constant_column(design, data)
        centre = np.nanmedian(data.Y, axis=0) if constant >= 0 else np.zeros(data.Y.shape[1])
        scale = np.array([spread(y) for y in data.Y.T])
        if family.covariance == "spherical" or structure == "isotropic":
            scale = np.full_like(scale, np.exp(np.log(scale).mean()))
        # A centred slope is correlated with its intercept: only a full covariance allows that.
        may_mix = structure == "full" and len(set(design.effect_blocks)) == 1
        may_mix = may_mix and constant in design.z_cols
        column_centre, column_scale = np.zeros(data.A.shape[1]), np.ones(data.A.shape[1])
        used = data.A[~np.isnan(data.Y).all(axis=1)]
        for column in set(range(len(column_scale))) - {constant}:
            has_effect = column in design.z_cols
            if constant >= 0 and (may_mix or not has_effect):
                column_centre[column] = used[:, column].mean()
            if structure != "isotropic" or not has_effect:
                column_scale[column] = _size(used[:, column] - column_centre[column])
        columns = (design.x_cols, design.z_cols)
        return cls(centre, scale, column_centre, column_scale, constant, *columns, family)

    @classmethod
    def none(cls, design: Design, data: DesignData, family: Gaussian) -> Scaling:
        """Leave everything in the user's units, for the paper's iteration to the letter."""
        p, a = data.Y.shape[1], data.A.shape[1]
        constant = constant_column(design, data)
        columns = (design.x_cols, design.z_cols)
        units = (np.zeros(p), np.ones(p), np.zeros(a), np.ones(a))
        return cls(*units, constant, *columns, family)

    def data_in(self, data: DesignData) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes and design columns on the scale of the fit."""
        a = (data.A - self.column_centre) / self.column_scale
        return (data.Y - self.centre) / self.scale, a

    def _to_user(self, columns: tuple[int, ...]) -> np.ndarray:
        """Matrix from coefficients of the scaled columns to coefficients of the user's columns."""
        centre, scale = self.column_centre[list(columns)], self.column_scale[list(columns)]
        matrix = np.diag(1.0 / scale)
        if self.constant in columns:
            matrix[columns.index(self.constant)] -= centre / scale
        return matrix

    @property
    def _effects_to_user(self) -> np.ndarray:
        """(d, d) matrix from internal effects to the user's."""
        return np.kron(np.diag(self.scale), self._to_user(self.z_cols))

    def effects_in(self, effects: np.ndarray) -> np.ndarray:
        """Internal effects (d, subjects) from the user's (subjects, d)."""
        return np.linalg.solve(self._effects_to_user, effects.T)

    def effects_out(self, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The user's (subjects, d) and (subjects, d, d) from (d, subjects) and (d, d, subjects)."""
        matrix = self._effects_to_user
        return (matrix @ mean).T, matrix @ np.moveaxis(cov, -1, 0) @ matrix.T

    def params_in(self, params: Params) -> Params:
        """Internal theta from (some of) the user's parameters."""
        theta = {k: np.array(params[k], float) for k in ("initial", "transition") if k in params}
        if "coef" in params:
            coef = np.array(params["coef"], float)
            if self.constant in self.x_cols:
                coef[:, :, self.x_cols.index(self.constant)] -= self.centre
            inverse = np.linalg.inv(self._to_user(self.x_cols))
            theta["coef"] = coef @ inverse.T / self.scale[:, None]
        noise = self.family.noise_name
        if noise in params:
            covariance = self.family.noise_from_params(params[noise], len(self.scale))
            theta["covariance"] = covariance / np.outer(self.scale, self.scale)
        if "effect_covariance" in params:
            inverse = np.linalg.inv(self._effects_to_user)
            theta["effect_covariance"] = inverse @ params["effect_covariance"] @ inverse.T
        return theta

    def params_out(self, theta: Params) -> Params:
        """The user's parameters from internal theta."""
        coef = theta["coef"] @ self._to_user(self.x_cols).T * self.scale[:, None]
        if self.constant in self.x_cols:
            coef[:, :, self.x_cols.index(self.constant)] += self.centre
        covariance = theta["covariance"] * np.outer(self.scale, self.scale)
        effects = self._effects_to_user
        return {
            "initial": np.array(theta["initial"]),
            "transition": np.array(theta["transition"]),
            "coef": coef,
            self.family.noise_name: self.family.noise_to_params(covariance),
            "effect_covariance": effects @ theta["effect_covariance"] @ effects.T,
        }

    def log_jacobian(self, observed: np.ndarray) -> float:
        """What to add to an internal log density to have it in the user's units."""
        return float(-(observed.sum(0) * np.log(self.scale)).sum())

    def to_json(self) -> dict[str, Any]:
        """The numbers that `from_json` needs beside the design and family."""
        return {name: getattr(self, name).tolist() for name in _UNITS} | {"constant": self.constant}

    @classmethod
    def from_json(cls, state: dict[str, Any], design: Design, family: Gaussian) -> Scaling:
        """The scaling of a saved fit."""
        units = {name: np.array(state[name], float) for name in _UNITS}
        constant = int(state["constant"])
        return cls(
            **units, constant=constant, x_cols=design.x_cols, z_cols=design.z_cols, family=family
        )


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
    middle = float(np.subtract(*np.quantile(values, [0.75, 0.25]))) / 1.349
    return min(sd, middle) if middle > 1e-9 * sd else sd


def _size(values: np.ndarray) -> float:
    """Root mean square, 1 where all is 0."""
    largest = np.abs(values).max(initial=0.0)
    return float(largest * np.sqrt(np.mean((values / largest) ** 2))) if largest > 0 else 1.0


def constant_column(design: Design, data: DesignData) -> int:
    """The design column of the fixed intercept, or -1."""
    for column in design.x_cols:
        if design.columns[column] == "Intercept" and (data.A[:, column] == 1.0).all():
            return column
    return -1
