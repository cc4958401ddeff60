"""Gaussian outcomes as a component: everything in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array

from avem.components.base import EmissionBlock, Row
from avem.components.emission import BlockMaker, Clusters, Emission, Unit, matches_of_lines
from avem.components.free import covariance_parts
from avem.components.gaussian_kernel import GaussianKernel
from avem.components.gaussian_regressions import Sums
from avem.components.lanes import Theta, by_subject, to_lanes
from avem.components.param_info import ParamInfo, Params
from avem.components.regression import regress
from avem.components.scaling import Scaling
from avem.data.layout import Chunk
from avem.kernels import gaussian_chain as chain
from avem.numerics.covariance import floor_eigenvalues
from avem.numerics.rows import take_columns

if TYPE_CHECKING:
    from avem.families.gaussian import Gaussian

_AXES = {"spherical": "states", "full": "states x outcomes x outcomes"}


@dataclass(frozen=True)
class GaussianEmission(Emission):
    """Gaussian outcomes of one formula, with joint noise in each state."""

    family: Gaussian

    @classmethod
    def split(cls, outcomes, families):
        return [(outcomes, families[0])]

    @classmethod
    def make_lines(cls, place, outcomes, family, spec, builder):
        for name in outcomes:
            yield builder.line(place.part, name, "", name, spec.effects_by_state)

    @property
    def noise_key(self) -> str:
        """The noise in theta, (states, outcomes, outcomes)."""
        return self.key + "covariance"

    @property
    def _noise_name(self) -> str:
        return self.prefix + self.family.noise_name

    def level(self, theta: Params, a: np.ndarray) -> np.ndarray:
        return theta[self.coef_key][:, 0] @ a[list(self.lines[0].x_cols)]

    # --- parameters -----------------------------------------------------------------------------

    def coef_names(self) -> list[tuple[str, int]]:
        return [("coef", 1)]

    def param_info(self) -> dict[str, ParamInfo]:
        k, names = self.n_states, f"outcomes ({', '.join(self.outcomes)})"
        terms = self.lines[0].terms
        labels = ", ".join(line.label for line in self.lines)
        axes = f"states x outcomes ({labels}) x terms ({', '.join(terms)})"
        kind = "covariance" if self.family.covariance == "full" else "positive"
        shape = self.family.noise_shape(k, len(self.outcomes))
        words = _AXES.get(self.family.covariance, f"states x {names}")
        return {
            self.prefix + "coef": ParamInfo((k, len(self.lines), len(terms)), "free", axes),
            self._noise_name: ParamInfo(shape, kind, words),
        }

    def _scale(self, units: Scaling) -> np.ndarray:
        return units.scale[list(self.y_cols)]

    def params_out(self, theta: Params, units: Scaling) -> Params:
        coef = np.array(theta[self.coef_key])
        for j, (line, column) in enumerate(zip(self.lines, self.y_cols, strict=True)):
            unit, shift = units.scale[column], units.centre[column]
            coef[:, j] = line.coef_out(coef[:, j], units, unit, shift)
        scale = self._scale(units)
        covariance = theta[self.noise_key] * np.outer(scale, scale)
        return {
            self.prefix + "coef": coef,
            self._noise_name: self.family.noise_to_params(covariance),
        }

    def params_in(self, params: Params, units: Scaling) -> Params:
        coef = np.array(params[self.prefix + "coef"], float)
        for j, (line, column) in enumerate(zip(self.lines, self.y_cols, strict=True)):
            unit, shift = units.scale[column], units.centre[column]
            coef[:, j] = line.coef_in(coef[:, j], units, unit, shift)
        noise = self.family.noise_from_params(params[self._noise_name], len(self.outcomes))
        scale = self._scale(units)
        return {self.coef_key: coef, self.noise_key: noise / np.outer(scale, scale)}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        states, outcomes = range(self.n_states), list(enumerate(self.outcomes))
        if name == self.prefix + "coef":
            for k, (j, line) in product(states, enumerate(self.lines)):
                for i, term in enumerate(line.terms):
                    yield Row({"state": k, "outcome": line.label, "term": term}, value[k, j, i])
        elif value.ndim == 3:
            for k, (i, y), (j, other) in product(states, outcomes, outcomes):
                if j <= i:
                    yield Row({"state": k, "outcome": y, "other": other}, value[k, i, j])
        elif value.ndim == 2:
            for k, (j, y) in product(states, outcomes):
                yield Row({"state": k, "outcome": y}, value[k, j])
        else:
            for k in states:
                yield Row({"state": k}, value[k])

    def middle(self) -> Params:
        p, m = len(self.outcomes), len(self.lines[0].terms)
        return {
            self.coef_key: np.zeros((self.n_states, p, m)),
            self.noise_key: np.broadcast_to(np.eye(p), (self.n_states, p, p)),
        }

    def held(self, fixed) -> set[str]:
        names = {self.prefix + "coef": self.coef_key, self._noise_name: self.noise_key}
        return {key for name, key in names.items() if name in fixed}

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        parts = super().free_parts(theta, fixed, spread, scale)
        if self._noise_name not in fixed:
            own, together = spread[list(self.y_cols)], np.zeros(len(self.y_cols), int)
            for k, matrix in enumerate(theta[self.noise_key]):
                kind = self.family.covariance
                parts += covariance_parts(self.noise_key, (k,), matrix, kind, own, together)
        return parts

    def variance_units(self, units: Scaling) -> Params:
        scale = self._scale(units)
        by_kind = {"spherical": np.atleast_1d(scale[:1] ** 2), "full": np.diag(scale**2)}
        return {self._noise_name: by_kind.get(self.family.covariance, scale**2)}

    def floors(self, spread: np.ndarray) -> Params:
        return {self.noise_key: spread[list(self.y_cols)]}

    def matches(self, fixed):
        return matches_of_lines(self.lines, self.coef_key, self.prefix, fixed, by_outcome=True)

    def line_unit(self, i: int, units: Scaling) -> float:
        return float(units.scale[self.y_cols[i]])

    def effect_scale(self, spread: np.ndarray) -> dict[int, float]:
        return {
            place: spread[column]
            for line, column in zip(self.lines, self.y_cols, strict=True)
            for places in line.effects
            for place in places
        }

    # --- data -----------------------------------------------------------------------------------

    def unit(self, constant: int, spherical: bool) -> Unit:
        together = self.family.covariance == "spherical" or spherical
        return Unit(self.y_cols, together, constant in self.lines[0].x_cols)

    def features(self, y: np.ndarray) -> np.ndarray:
        return y

    def start(self, clusters: Clusters, rng: np.random.Generator) -> Params:
        rows, label, n_states = clusters.rows, clusters.label, clusters.n_states
        line, at = self.lines[0], list(self.y_cols)
        y = clusters.y[rows][:, at]
        if clusters.centred and clusters.constant in line.z_cols:
            y = y - clusters.subject_means[clusters.subject[rows]]
        y = np.nan_to_num(y)
        x = clusters.a[rows][:, list(line.x_cols)]
        coef = np.zeros((n_states, len(at), 0))
        if x.shape[1]:
            coef = regress(x, y, label, n_states, rng)
        residual = y - np.einsum("rpm,rm->rp", coef[label], x)
        covariance = np.zeros((n_states, len(at), len(at)))
        for k in range(n_states):
            members = residual[label == k]
            spread = members.var(0) if len(members) > 1 else residual.var(0)
            if self.family.covariance == "spherical":
                spread = np.full(len(at), spread.mean())
            covariance[k] = np.diag(np.maximum(spread, 0.05 * clusters.spread[at]))
        return {self.coef_key: coef, self.noise_key: covariance}

    def effects_start(self, clusters_means, spread, constant):
        for j, line in enumerate(self.lines):
            means, unit = clusters_means[:, j], spread[self.y_cols[j]]
            for of_state in line.effects:
                for column, place in zip(line.z_cols, of_state, strict=True):
                    if column == constant:
                        yield place, max(means.var(), 0.05 * unit), means
                    else:
                        yield place, 0.1 * unit, None

    def collapsed(self, theta: Params, spread: np.ndarray, floor: float) -> np.ndarray:
        least = 1.01 * floor * spread[list(self.y_cols)]
        return np.array([floor_eigenvalues(state, least)[1] for state in theta[self.noise_key]])

    def block(self, maker: BlockMaker) -> GaussianBlock:
        groups, seen = self.family.groups(~np.isnan(take_columns(maker.y, self.y_cols)))
        effects = tuple(
            tuple(place for line in self.lines for place in line.effects[k])
            for k in range(self.n_states)
        )
        kernel = GaussianKernel(
            self.family,
            self.n_states,
            len(self.outcomes),
            self.lines[0].x_cols,
            self.lines[0].z_cols,
            groups,
            effects,
            maker.n_effects,
        )
        constant = maker.constant if maker.constant in (*kernel.x_cols, *kernel.z_cols) else -1
        return GaussianBlock(self.key, kernel, self.y_cols, maker.mask(seen), constant)

    # --- draws ----------------------------------------------------------------------------------

    def draw(self, rng, theta, a, state, effects, extras):
        etas = self.etas(theta[self.coef_key], a, state, effects)
        noise = rng.standard_normal((len(state), len(etas)))
        root = np.linalg.cholesky(theta[self.noise_key])[state]
        values = np.stack(etas, axis=1) + np.einsum("rij,rj->ri", root, noise)
        return dict(zip(self.outcomes, values.T, strict=True))


@dataclass(frozen=True)
class GaussianBlock(EmissionBlock):
    """Gaussian outcomes to compiled code."""

    key: str
    kernel: GaussianKernel
    y_cols: tuple[int, ...]
    seen_cols: tuple[int, ...]
    constant: int = -1
    """The design column that is 1 in all rows, if it reads that one."""

    @property
    def has_effects(self) -> bool:
        return self.kernel.n_own_effects > 0

    @property
    def closed_form(self) -> bool:
        return True

    def _lists(self, chunk: Chunk) -> chain.Lists:
        return self.kernel.lists(self.y_cols, self.seen_cols, chunk.a.shape[1], self.constant)

    @property
    def _keys(self) -> tuple[str, str]:
        return self.key + "coef", self.key + "covariance"

    def _theta(self, theta: Theta) -> tuple[Array, Array]:
        return theta[self._keys[0]], theta[self._keys[1]]

    def table(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None) -> Array:
        table = chain.log_densities(self.squares(theta, f, chunk), chain.Records.of(chunk))
        if cov is None:
            return table
        spread, (_, covariance) = to_lanes(cov, chunk), self._theta(theta)
        return table - self.kernel.expected_loss(covariance, spread, self.seen_cols, chunk)

    def collect(self, state: Array, chunk: Chunk) -> Array:
        sums = chain.weighed_products(self._lists(chunk), state, chain.Records.of(chunk))
        return by_subject(sums, chunk)

    def squares(self, theta: Theta, f: Array, chunk: Chunk) -> chain.Squares:
        at = (self._lists(chunk), self.y_cols, chunk.y.shape[1])
        return self.kernel.squares(*self._theta(theta), to_lanes(f, chunk), *at)

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * share

    def quadratic(self, theta: Theta, collected: Array) -> tuple[Array, Array] | None:
        if not self.has_effects:
            return None
        return self.kernel.effect_quadratic(*self._theta(theta), collected)

    def sums(self, collected: Array, mean: Array, second: Array) -> Array:
        return self.kernel.accumulate(collected, mean, second)

    def read(self, sums: np.ndarray) -> Sums:
        return self.kernel.read(sums)

    def maximise(self, theta, sums, fixed, noise_floor):
        coef, noise = self._keys
        found = self.kernel.regressions.maximise(
            theta[coef],
            theta[noise],
            sums,
            noise_floor[list(self.y_cols)],
            hold_coef=coef in fixed,
            hold_noise=noise in fixed,
        )
        return dict(zip(self._keys, found, strict=True))

    def slopes(self, theta, sums):
        found = self.kernel.regressions.slopes(theta[self._keys[0]], theta[self._keys[1]], sums)
        return dict(zip(self._keys, found, strict=True))

    def expected(self, theta, sums):
        return self.kernel.regressions.expected(theta[self._keys[0]], theta[self._keys[1]], sums)

    def information(self, theta, sums):
        own = theta[self._keys[0]], theta[self._keys[1]]
        return dict(zip(self._keys, self.kernel.regressions.information(*own, sums), strict=True))

    def shifted(self, sums, moves) -> Sums:
        """Residuals grow by what their effects lose: r + move x."""
        move = moves(self._keys[0])
        xr = sums.xr + np.einsum("kjm,kgmn->kgjn", move, sums.xx)
        cross = np.einsum("kim,kgjm->kgij", move, sums.xr)
        fitted = np.einsum("kim,kgmn,kjn->kgij", move, sums.xx, move)
        rr = sums.rr + cross + np.swapaxes(cross, 2, 3) + fitted
        return Sums(sums.weight, sums.xx, xr, rr)
