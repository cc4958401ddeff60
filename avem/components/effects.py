"""The distribution of the effects, N(0, Sigma), as a component: its parameters alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from avem.components.base import Component, Row
from avem.components.free import covariance_parts
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling

KEY = "effect_covariance"


@dataclass(frozen=True, eq=False)
class EffectCovariance(Component):
    """Sigma, in one or several of the user's arrays."""

    names: tuple[str, ...]
    """Of the effects."""
    where: tuple[dict[str, Any], ...]
    """What the table of parameters says of each effect: outcome, term, states."""
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    """The user's arrays, and the effects that each is about."""
    structure: str
    """"full", "block", "diagonal" or "isotropic"."""
    blocks: tuple[int, ...]
    """(d,) effects of different blocks are independent."""
    units: Any = None
    """(d, d) from effects on the scale of the fit to the user's; None: 1."""
    key: str = KEY

    @property
    def n_effects(self) -> int:
        """d."""
        return len(self.names)

    @property
    def _units(self) -> np.ndarray:
        return np.eye(self.n_effects) if self.units is None else self.units

    def param_info(self) -> dict[str, ParamInfo]:
        out = {}
        for name, places in self.arrays:
            named = ", ".join(self.names[e] for e in places)
            axes = f"effects ({named}), both ways"
            out[name] = ParamInfo((len(places), len(places)), "covariance", axes)
        return out

    def params_out(self, theta: Params, units: Scaling) -> Params:
        sigma = self._units @ theta[KEY] @ self._units.T
        return {name: sigma[np.ix_(places, places)] for name, places in self.arrays}

    def params_in(self, params: Params, units: Scaling) -> Params:
        sigma = np.zeros((self.n_effects, self.n_effects))
        for name, places in self.arrays:
            sigma[np.ix_(places, places)] = params[name]
        back = np.linalg.inv(self._units)
        return {KEY: back @ sigma @ back.T}

    def _absent(self, i: int, j: int) -> bool:
        apart = self.structure in ("diagonal", "isotropic")
        return i != j and (apart or self.blocks[i] != self.blocks[j])

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        places = dict(self.arrays)[name]
        for i, e in enumerate(places):
            for j, other in enumerate(places[: i + 1]):
                where = {**self.where[e], "other": self.names[other]}
                yield Row(where, value[i, j], self._absent(e, other))

    def middle(self) -> Params:
        return {KEY: np.eye(self.n_effects)}

    def held(self, fixed) -> set[str]:
        return {KEY} if any(name in fixed for name, _ in self.arrays) else set()

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        if not self.n_effects or self.held(fixed):
            return []
        kinds = {"isotropic": "spherical", "diagonal": "diagonal"}
        kind = kinds.get(self.structure, "full")
        return list(covariance_parts(KEY, (), theta[KEY], kind, scale, np.array(self.blocks)))
