"""What a fit computes at its parameters, each once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from avem.data import Panel
from avem.fits.common import inferred_effects, panel_for, positions
from avem.fits.readable import Readable
from avem.inference.after.curvature import Curvature
from avem.inference.after.marginal import (
    Marginal,
    PosteriorNodes,
    marginal,
    posterior_nodes,
    uncertainty,
)
from avem.inference.e_steps import ESteps

COMPUTED = ("theta", "_own_data", "_marginal", "_curvature", "_nodes")
"""What a fit with other names need not compute again."""


class Computed(Readable, ABC):
    """A fit as questions see it: its data laid out, its likelihood and its curvature."""

    params: dict[str, np.ndarray]
    effects_mean: np.ndarray
    effects_cov: np.ndarray
    columns: Mapping[str, str | None]
    panel: Panel | None

    @abstractmethod
    def _e_steps(self, data: Any) -> ESteps:
        """The iteration at encoded data."""

    @cached_property
    def theta(self) -> dict[str, np.ndarray]:
        """Parameters on the scale of the fit."""
        return self.model.params_in(self.params)

    @property
    def subject_jacobian(self) -> np.ndarray:
        """(subjects,) from log densities on the scale of the fit to those of the user's units."""
        return self._jacobian(self._own_data)

    def _panel(self, data: Any) -> Panel:
        return panel_for(self, data)

    @cached_property
    def _own_data(self) -> Any:
        return self.model.encode(self._panel(None))

    def _encode(self, data: Any) -> Any:
        return self._own_data if data is None else self.model.encode(self._panel(data))

    def _effects_in(self) -> np.ndarray:
        """(d, subjects) on the scale of the fit."""
        return self.model.effects_in(self.effects_mean)

    @cached_property
    def _marginal(self) -> Marginal:
        data = self._own_data
        return marginal(self._e_steps(data), self.theta, self._effects_in())

    @cached_property
    def _nodes(self) -> PosteriorNodes:
        """Of the posterior of its own subjects' effects."""
        return posterior_nodes(self._marginal)

    @cached_property
    def _curvature(self) -> Curvature:
        return self._curvature_from(None)

    def _curvature_from(self, n_draws: int | None) -> Curvature:
        data, fixed = self._own_data, self.info.fixed
        free = self.model.find_free(self.theta, fixed, data.spread)
        found = uncertainty(self._marginal, free, n_draws, self.model.prior_slope)
        weights = data.panel.subject_weights
        return replace(found, weights=weights, survey=self.info.weights_kind == "survey")

    def _jacobian(self, data: Any) -> np.ndarray:
        return data.log_jacobian(self.model)

    def _effects_for(self, data: Any) -> np.ndarray:
        """(d, panel subjects) on the scale of the fit: fitted where known, inferred elsewhere."""
        known = positions(self, data.panel)
        fitted = self.model.effects_in(self.effects_mean[known])
        if (known >= 0).all() or not self.model.n_effects:
            return fitted
        return np.where(known < 0, inferred_effects(self, data)[0], fitted)
