"""The outcomes of a state-space model: y_t = H_i x_t + A_i w_t + N(0, R), R diagonal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from avem.components.base import Match, Row
from avem.components.dynamics import SSMComponent
from avem.components.free import covariance_parts
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling


@dataclass(frozen=True)
class Loadings(SSMComponent):
    """Loadings (lower triangular), coefficients and noise of the outcomes."""

    n_latent: int
    outcomes: tuple[str, ...]
    terms: tuple[str, ...]
    """Of the coefficients."""
    x_cols: tuple[int, ...]
    """Their design columns."""
    w_cols: tuple[int, ...]
    """All design columns that the outcomes read."""
    column_names: tuple[str, ...]
    """Of `w_cols`."""
    first: int
    """The place in f of its first effect."""
    loading_entries: tuple[tuple[int, int], ...]
    """The entry of H that each of its first effects is added to, column by column."""
    coef_entries: tuple[tuple[int, int], ...]
    """The outcome and the design column (place in `w_cols`) of each of its last effects."""
    clock: int = -1
    """The design column of the intervals; -1: time goes in steps."""
    key = "loading"

    def _numbered(self) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        at = self.first + len(self.loading_entries)
        return dict(enumerate(self.loading_entries, self.first)), dict(
            enumerate(self.coef_entries, at)
        )

    def effects(self, states: Sequence[Any]) -> dict[int, str]:
        of_loadings, of_coefs = self._numbered()
        names, columns = self.outcomes, self.column_names
        return {
            **{e: f"loading[{names[j]}, {states[k]}]" for e, (j, k) in of_loadings.items()},
            **{e: f"{columns[place]} of {names[j]}" for e, (j, place) in of_coefs.items()},
        }

    def param_info(self) -> dict[str, ParamInfo]:
        p, words = len(self.outcomes), f"outcomes ({', '.join(self.outcomes)})"
        axes = f"{words} x states; 0 above the diagonal"
        out = {"loading_mean": ParamInfo((p, self.n_latent), "free", axes)}
        if self.terms:
            axes = f"{words} x terms ({', '.join(self.terms)})"
            out["coef"] = ParamInfo((p, len(self.terms)), "free", axes)
        out["noise"] = ParamInfo((p,), "positive", words)
        return out

    def params_out(self, theta: Params, units: Scaling) -> Params:
        scale = units.scale
        out = {"loading_mean": theta["loading"] * self._loading_unit(units)[:, None]}
        if self.terms:
            out["coef"] = theta["coef"] * scale[:, None]
            if units.constant in self.x_cols:
                out["coef"][:, self.x_cols.index(units.constant)] += units.centre
        out["noise"] = theta["noise_covariance"][:, 0, 0] * scale**2
        return out

    def params_in(self, params: Params, units: Scaling) -> Params:
        scale, p = units.scale, len(self.outcomes)
        coef = np.array(params["coef"] if self.terms else np.zeros((p, 0)), float)
        if units.constant in self.x_cols:
            coef[:, self.x_cols.index(units.constant)] -= units.centre
        return {
            "loading": params["loading_mean"] / self._loading_unit(units)[:, None],
            "coef": coef / scale[:, None],
            "noise_covariance": (np.asarray(params["noise"], float) / scale**2)[:, None, None],
        }

    def _loading_unit(self, units: Scaling) -> np.ndarray:
        """(p,) what a loading of 1 is in the user's units; see `dynamics` for that of time."""
        return units.scale / np.sqrt(units.usual_time(self.clock))

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for j, y in enumerate(self.outcomes):
            if name == "noise":
                yield Row({"outcome": y}, value[j])
            elif name == "coef":
                for i, term in enumerate(self.terms):
                    yield Row({"outcome": y, "term": term}, value[j, i])
            else:
                for k in range(min(self.n_latent, j + 1)):
                    yield Row({"state": k, "outcome": y}, value[j, k])

    def middle(self) -> Params:
        p, q = len(self.outcomes), self.n_latent
        return {
            "loading": np.zeros((p, q)),
            "coef": np.zeros((p, len(self.terms))),
            "noise_covariance": np.ones((p, 1, 1)),
        }

    def held(self, fixed) -> set[str]:
        return {"noise_covariance"} if "noise" in fixed else set()

    def free_entries(self, fixed) -> Params:
        p, q = len(self.outcomes), self.n_latent
        return {
            "loading": np.tril(np.full((p, q), "loading_mean" not in fixed)),
            "coef": np.full((p, len(self.terms)), "coef" not in fixed),
        }

    def centred_entries(self) -> dict[str, np.ndarray]:
        p, q = len(self.outcomes), self.n_latent
        varying = {self.w_cols[place] for _, place in self.coef_entries}
        columns = [column in varying for column in self.x_cols]
        return {
            "loading": np.full((p, q), bool(self.loading_entries)),
            "coef": np.tile(np.array(columns, bool), (p, 1)),
        }

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        parts = super().free_parts(theta, fixed, spread, scale)
        if "noise" not in fixed:
            for j, own in enumerate(theta["noise_covariance"]):
                unit, alone = spread[j : j + 1], np.zeros(1, int)
                parts += covariance_parts("noise_covariance", (j,), own, "spherical", unit, alone)
        return parts

    def matches(self, fixed) -> dict[int, Match]:
        of_loadings, of_coefs = self._numbered()
        found = {}
        if "loading_mean" not in fixed:
            found |= {e: Match("loading", j, (k,)) for e, (j, k) in of_loadings.items()}
        if "coef" not in fixed:
            for e, (j, place) in of_coefs.items():
                if (column := self.w_cols[place]) in self.x_cols:
                    found[e] = Match("coef", j, (self.x_cols.index(column),))
        return found

    def _by_outcome(self) -> dict[int, int]:
        """By place in f, the outcome of each effect."""
        of_loadings, of_coefs = self._numbered()
        return {e: j for e, (j, _) in (of_loadings | of_coefs).items()}

    def effect_units(self, units: Scaling):
        of_loadings, of_coefs = self._numbered()
        unit = self._loading_unit(units)
        own = {e: unit[[[j]]] for e, (j, _) in of_loadings.items()}
        own |= {e: units.scale[[[j]]] for e, (j, _) in of_coefs.items()}
        return [((e,), change) for e, change in own.items()]

    def effect_scale(self, spread: np.ndarray) -> dict[int, float]:
        return {e: spread[j] for e, j in self._by_outcome().items()}

    def turned(self, theta: Params, sign: np.ndarray) -> Params:
        kept = {key: theta[key] for key in ("coef", "noise_covariance")}
        return {"loading": theta["loading"] * sign, **kept}

    def effect_signs(self, sign: np.ndarray) -> dict[int, float]:
        return {e: sign[k] for e, (_, k) in self._numbered()[0].items()}
