"""The states of a state-space model: x_1 ~ N(m, P), x_t = G_i x_{t-1} + B s_t + N(0, I).

In continuous time dx = (A_i x + B s) dt + dW. A fit's unit of time is a usual interval, u of the
user's; so that the noise is that of one unit in both, the user's states are sqrt(u) times its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from avem.components.base import Component, Match, Row
from avem.components.free import Plain, covariance_parts
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling


class SSMComponent(Component, ABC):
    """A part of a state-space model."""

    def effects(self, states: Sequence[Any]) -> dict[int, str]:
        """Its effects: their places in f, and their names, with states called as given."""
        return {}

    @abstractmethod
    def turned(self, theta: Params, sign: np.ndarray) -> Params:
        """Its entries of theta when the states' signs are turned by `sign` (q,)."""

    def effect_signs(self, sign: np.ndarray) -> dict[int, float]:
        """By place in f, the signs that its effects then take."""
        return {}

    def centred_entries(self) -> dict[str, np.ndarray]:
        """Entries that differ between subjects, which the paper moves with the effects' mean."""
        return {}


def dynamics_word(continuous: bool) -> str:
    """What the matrix that moves the states is called."""
    return "drift" if continuous else "transition"


@dataclass(frozen=True)
class FirstState(SSMComponent):
    """The distribution of a sequence's first state."""

    n_latent: int
    clock: int = -1
    """The design column of the intervals; -1: time goes in steps."""
    key = "start_"

    def param_info(self) -> dict[str, ParamInfo]:
        q = self.n_latent
        return {
            "initial_mean": ParamInfo((q,), "free", "states"),
            "initial_covariance": ParamInfo((q, q), "covariance", "states, both ways"),
        }

    def params_out(self, theta: Params, units: Scaling) -> Params:
        usual = units.usual_time(self.clock)
        return {
            "initial_mean": theta["start_mean"] * np.sqrt(usual),
            "initial_covariance": theta["start_covariance"] * usual,
        }

    def params_in(self, params: Params, units: Scaling) -> Params:
        usual = units.usual_time(self.clock)
        return {
            "start_mean": np.asarray(params["initial_mean"], float) / np.sqrt(usual),
            "start_covariance": np.asarray(params["initial_covariance"], float) / usual,
        }

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for i in range(self.n_latent):
            if name == "initial_mean":
                yield Row({"state": i}, value[i])
            else:
                for j in range(i + 1):
                    yield Row({"state": i, "other": f"state {j}"}, value[i, j])

    def middle(self) -> Params:
        return {"start_mean": np.zeros(self.n_latent), "start_covariance": np.eye(self.n_latent)}

    def held(self, fixed) -> set[str]:
        names = {"initial_mean": "start_mean", "initial_covariance": "start_covariance"}
        return {key for name, key in names.items() if name in fixed}

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        q, parts = self.n_latent, []
        if "initial_mean" not in fixed:
            parts.append(Plain("start_mean", np.arange(q)))
        if "initial_covariance" not in fixed:
            own, together = theta["start_covariance"], np.zeros(q, int)
            parts += covariance_parts("start_covariance", (), own, "full", np.ones(q), together)
        return parts

    def turned(self, theta: Params, sign: np.ndarray) -> Params:
        return {
            "start_mean": sign * theta["start_mean"],
            "start_covariance": np.outer(sign, sign) * theta["start_covariance"],
        }


@dataclass(frozen=True)
class Dynamics(SSMComponent):
    """The matrices that move the states: G, of which subjects may have their own, and B."""

    n_latent: int
    terms: tuple[str, ...]
    """Of the covariates that act on the states."""
    entries: tuple[tuple[int, int], ...]
    """The entry of G that each effect is added to, column by column."""
    clock: int = -1
    """The design column of the intervals; -1: time goes in steps."""
    key = "dynamics"

    @property
    def word(self) -> str:
        """What moves the states: "transition" in steps, "drift" in continuous time."""
        return dynamics_word(self.clock >= 0)

    @property
    def _mean(self) -> str:
        return f"{self.word}_mean"

    def effects(self, states: Sequence[Any]) -> dict[int, str]:
        pairs = enumerate(self.entries)
        return {e: f"{self.word}[{states[a]}, {states[b]}]" for e, (a, b) in pairs}

    def param_info(self) -> dict[str, ParamInfo]:
        q = self.n_latent
        out = {self._mean: ParamInfo((q, q), "free", "to state x from state")}
        if self.terms:
            axes = f"states x terms ({', '.join(self.terms)})"
            out["state_coef"] = ParamInfo((q, len(self.terms)), "free", axes)
        return out

    def params_out(self, theta: Params, units: Scaling) -> Params:
        usual = units.usual_time(self.clock)
        out = {self._mean: theta["dynamics"] / usual}
        return out | ({"state_coef": theta["drive"] / np.sqrt(usual)} if self.terms else {})

    def params_in(self, params: Params, units: Scaling) -> Params:
        usual = units.usual_time(self.clock)
        drive = params["state_coef"] if self.terms else np.zeros((self.n_latent, 0))
        return {
            "dynamics": np.asarray(params[self._mean], float) * usual,
            "drive": np.asarray(drive, float) * np.sqrt(usual),
        }

    def effect_units(self, units: Scaling):
        usual = units.usual_time(self.clock)
        return [((e,), np.array([[1.0 / usual]])) for e in range(len(self.entries))]

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        states = range(self.n_latent)
        if name == self._mean:
            for a, b in product(states, states):
                yield Row({"state": b, "to_state": a}, value[a, b])
        else:
            for k, (i, term) in product(states, enumerate(self.terms)):
                yield Row({"to_state": k, "term": term}, value[k, i])

    def middle(self) -> Params:
        q = self.n_latent
        return {"dynamics": np.zeros((q, q)), "drive": np.zeros((q, len(self.terms)))}

    def free_entries(self, fixed) -> Params:
        q = self.n_latent
        return {
            "dynamics": np.full((q, q), self._mean not in fixed),
            "drive": np.full((q, len(self.terms)), "state_coef" not in fixed),
        }

    def centred_entries(self) -> dict[str, np.ndarray]:
        q = self.n_latent
        return {"dynamics": np.full((q, q), bool(self.entries))}

    def matches(self, fixed) -> dict[int, Match]:
        if self._mean in fixed:
            return {}
        return {e: Match("dynamics", a, (b,)) for e, (a, b) in enumerate(self.entries)}

    def turned(self, theta: Params, sign: np.ndarray) -> Params:
        return {
            "dynamics": np.outer(sign, sign) * theta["dynamics"],
            "drive": sign[:, None] * theta["drive"],
        }

    def effect_signs(self, sign: np.ndarray) -> dict[int, float]:
        return {e: sign[a] * sign[b] for e, (a, b) in enumerate(self.entries)}
