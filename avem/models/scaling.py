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

Params = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Scaling:
    """Centre and scale of each outcome, scale of each design column."""

    centre: np.ndarray
    scale: np.ndarray
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
        centre = np.nanmean(data.Y, axis=0) if constant >= 0 else np.zeros(data.Y.shape[1])
        # Deviations are scaled before they are squared: 1e200 is a legal, if unusual, unit.
        deviation = data.Y - centre
        size = np.nanmax(np.abs(deviation), axis=0)
        scale = size * np.sqrt(np.nanmean((deviation / size) ** 2, axis=0))
        if family.covariance == "spherical" or structure == "isotropic":
            scale = np.full_like(scale, np.exp(np.log(scale).mean()))
        column_scale = np.ones(data.A.shape[1])
        if structure != "isotropic":
            largest = np.abs(data.A).max(axis=0, initial=0.0)
            column_scale = np.where(largest > 0, largest, 1.0)
            column_scale *= np.sqrt(np.mean((data.A / column_scale) ** 2, axis=0))
            column_scale = np.where(largest > 0, column_scale, 1.0)
        if constant >= 0:
            column_scale[constant] = 1.0
        return cls(centre, scale, column_scale, constant, design.x_cols, design.z_cols, family)

    @classmethod
    def none(cls, design: Design, data: DesignData, family: Gaussian) -> Scaling:
        """Leave everything in the user's units, for the paper's iteration to the letter."""
        p, a = data.Y.shape[1], data.A.shape[1]
        constant = constant_column(design, data)
        columns = (design.x_cols, design.z_cols)
        return cls(np.zeros(p), np.ones(p), np.ones(a), constant, *columns, family)

    def data_in(self, data: DesignData) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes and design columns on the scale of the fit."""
        return (data.Y - self.centre) / self.scale, data.A / self.column_scale

    def data_out(self, y: np.ndarray) -> np.ndarray:
        """Outcomes in the user's units."""
        return y * self.scale + self.centre

    @property
    def effect_scale(self) -> np.ndarray:
        """(d,) size of one internal unit of each effect, in the user's units."""
        of_column = self.column_scale[list(self.z_cols)]
        return (self.scale[:, None] / of_column[None]).ravel()

    def _coef_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """(outcomes, terms) size of one internal unit, and the shift of the intercept."""
        size = self.scale[:, None] / self.column_scale[list(self.x_cols)][None]
        shift = np.zeros_like(size)
        if self.constant in self.x_cols:
            shift[:, self.x_cols.index(self.constant)] = self.centre
        return size, shift

    def params_in(self, params: Params) -> Params:
        """Internal theta from (some of) the user's parameters."""
        theta = {k: np.array(params[k], float) for k in ("initial", "transition") if k in params}
        if "coef" in params:
            size, shift = self._coef_scale()
            theta["coef"] = (params["coef"] - shift) / size
        noise = self.family.noise_name
        if noise in params:
            covariance = self.family.noise_from_params(params[noise], len(self.scale))
            theta["covariance"] = covariance / np.outer(self.scale, self.scale)
        if "effect_covariance" in params:
            size = self.effect_scale
            theta["effect_covariance"] = params["effect_covariance"] / np.outer(size, size)
        return theta

    def params_out(self, theta: Params) -> Params:
        """The user's parameters from internal theta."""
        size, shift = self._coef_scale()
        covariance = theta["covariance"] * np.outer(self.scale, self.scale)
        effect = self.effect_scale
        return {
            "initial": np.array(theta["initial"]),
            "transition": np.array(theta["transition"]),
            "coef": theta["coef"] * size + shift,
            self.family.noise_name: self.family.noise_to_params(covariance),
            "effect_covariance": theta["effect_covariance"] * np.outer(effect, effect),
        }

    def log_jacobian(self, observed: np.ndarray) -> float:
        """What to add to an internal log density to have it in the user's units."""
        return float(-(observed.sum(0) * np.log(self.scale)).sum())

    def to_json(self) -> dict[str, Any]:
        """The numbers that `from_json` needs beside the design and family."""
        names = ("centre", "scale", "column_scale")
        return {name: getattr(self, name).tolist() for name in names} | {"constant": self.constant}

    @classmethod
    def from_json(cls, state: dict[str, Any], design: Design, family: Gaussian) -> Scaling:
        """The scaling of a saved fit."""
        centre, scale, column_scale = (
            np.array(state[name], float) for name in ("centre", "scale", "column_scale")
        )
        constant = int(state["constant"])
        return cls(centre, scale, column_scale, constant, design.x_cols, design.z_cols, family)


def constant_column(design: Design, data: DesignData) -> int:
    """The design column that is 1 everywhere and is a fixed term, or -1."""
    for column in design.x_cols:
        if (data.A[:, column] == 1.0).all():
            return column
    return -1
