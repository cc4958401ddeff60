"""Outcomes of any family with linear predictors, as components."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.components.base import EmissionBlock, Row
from avem.components.cells import from_cells, in_cells
from avem.components.emission import (
    BlockMaker,
    Clusters,
    Emission,
    Unit,
    matches_of_lines,
)
from avem.components.far_out import FarOut, of_lines
from avem.components.lanes import Theta, by_subject, q_on_lanes, to_lanes
from avem.components.linear import Cells, CoefTerms, GeneralKernel
from avem.components.lines import Line, general_kernel
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms

if TYPE_CHECKING:
    from avem.families.univariate import Univariate

_NARROWEST = np.log(1e-3)
"""Of the log of a scale, in the units of the fit; a variance is then a millionth."""
_SLOPE_LIMIT = 3.0


@dataclass(frozen=True)
class FamilyEmission(Emission):
    """One outcome whose family gives a density in its linear predictors."""

    family: Univariate

    @classmethod
    def make_lines(cls, place, outcomes, family, spec, builder):
        (name,) = outcomes
        own = {parameter: place.part + 1 + i for i, (parameter, _) in enumerate(spec.parameters)}
        for i, parameter in enumerate(family.parameters):
            if i < family.n_location:
                label = f"{name}[{parameter.name}]" if family.by_level else name
                yield builder.line(place.part, name, "", label, spec.effects_by_state)
            elif parameter.name in own:
                part, word = own[parameter.name], parameter.name
                yield builder.line(part, name, word, name, spec.effects_by_state)
            else:
                yield builder.constant(name, parameter.name, name)

    @property
    def outcome(self) -> str:
        """Its name."""
        return self.outcomes[0]

    def _etas_of_states(self, coef: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, ...]:
        """(states,) of each line at effects 0, at design columns (columns,)."""
        out, at = [], 0
        for line in self.lines:
            eta = coef[:, at : at + len(line.terms)] @ a[list(line.x_cols)]
            out.append(eta + a[line.offset] if line.offset >= 0 else eta)
            at += len(line.terms)
        return tuple(out)

    def level(self, theta: Params, a: np.ndarray) -> np.ndarray:
        return self.family.mean(self._etas_of_states(theta[self.coef_key], a))

    # --- parameters -----------------------------------------------------------------------------

    def coef_names(self) -> list[tuple[str, int]]:
        return [(line.param_name, len(line.terms)) for line in self.lines]

    def _by_name(self) -> dict[str, list[tuple[int, Line]]]:
        """Its lines with their numbers, by the user's parameter that holds them."""
        found: dict[str, list[tuple[int, Line]]] = {}
        for i, line in enumerate(self.lines):
            found.setdefault(self.prefix + line.param_name, []).append((i, line))
        return found

    def param_info(self) -> dict[str, ParamInfo]:
        k, out = self.n_states, {}
        for name, own in self._by_name().items():
            i, line = own[0]
            if line.has_formula:
                labels = tuple(of.outcome if of.parameter else of.label for _, of in own)
                axes = f"states x outcomes ({{}}) x terms ({', '.join(line.terms)})"
                shape = (k, len(own), len(line.terms))
                out[name] = ParamInfo(shape, "free", axes, names=labels)
            else:
                link, names = self.family.parameters[i].link, (self.outcome,)
                out[name] = ParamInfo((k, 1), "natural", "states x outcomes ({})", link, names)
        return out

    def _unit(self, i: int, units: Scaling) -> tuple[float, float]:
        """The user's unit and origin of line `i`, in those of the fit."""
        if self.family.location_scale and i < 2:
            scale, centre = units.scale[self.y_cols[0]], units.centre[self.y_cols[0]]
            return (scale, centre) if i == 0 else (1.0, np.log(scale))
        return 1.0, 0.0

    def params_out(self, theta: Params, units: Scaling) -> Params:
        found: dict[str, list[np.ndarray]] = {}
        at = 0
        for i, line in enumerate(self.lines):
            b = theta[self.coef_key][:, at : at + len(line.terms)]
            at += len(line.terms)
            b = line.coef_out(b, units, *self._unit(i, units))
            if not line.has_formula:
                b = self.family.parameters[i].link.to_natural(b[:, 0])
            found.setdefault(self.prefix + line.param_name, []).append(b)
        return {name: np.stack(parts, axis=1) for name, parts in found.items()}

    def params_in(self, params: Params, units: Scaling) -> Params:
        parts: list[np.ndarray] = []
        for name, own in self._by_name().items():
            for row, (i, line) in enumerate(own):
                b = np.asarray(params[name], float)[:, row]
                if not line.has_formula:
                    b = self.family.parameters[i].link.to_eta(b)[:, None]
                parts.append(line.coef_in(b, units, *self._unit(i, units)))
        return {self.coef_key: np.concatenate(parts, axis=1)}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        own = self._by_name()[name]
        if value.ndim == 2:
            for k in range(self.n_states):
                yield Row({"state": k, "outcome": self.outcome}, value[k, 0])
            return
        for k, (j, (_, line)) in product(range(self.n_states), enumerate(own)):
            for m, term in enumerate(line.terms):
                yield Row({"state": k, "outcome": line.label, "term": term}, value[k, j, m])

    def middle(self) -> Params:
        size = sum(len(line.terms) for line in self.lines)
        return {self.coef_key: np.zeros((self.n_states, size))}

    def far_out(self, theta: Params) -> Iterator[FarOut]:
        discrete = self.family.discrete
        return of_lines(theta[self.coef_key], self.lines, self.prefix) if discrete else iter(())

    def limits(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        low: list[float] = []
        high: list[float] = []
        for line, parameter in zip(self.lines, self.family.parameters, strict=True):
            alone = not line.has_formula
            low += [_NARROWEST if alone and parameter.collapse < 0 else -np.inf] * len(line.terms)
            high += [-2 * _NARROWEST if alone and parameter.collapse > 0 else np.inf] * len(
                line.terms
            )
        if not np.isfinite([*low, *high]).any():
            return {}
        return {self.coef_key: (np.array(low), np.array(high))}

    def matches(self, fixed):
        return matches_of_lines(self.lines, self.coef_key, self.prefix, fixed, by_outcome=False)

    def line_unit(self, i: int, units: Scaling) -> float:
        return float(units.scale[self.y_cols[0]]) if self.family.location_scale and i == 0 else 1.0

    def slope_units(self, units: Scaling) -> Iterator[tuple[str, float]]:
        for line in self.lines:
            if line.has_formula and not (self.family.location_scale and not line.parameter):
                for column, term in zip(line.x_cols, line.terms, strict=True):
                    if column != units.constant:
                        name = f"{self.prefix}{line.param_name}[:, {term!r}]"
                        yield name, float(units.column_scale[column])

    # --- data -----------------------------------------------------------------------------------

    def unit(self, constant: int, spherical: bool) -> Unit | None:
        if not self.family.location_scale or constant not in self.lines[1].x_cols:
            return None  # a scale whose formula has no intercept cannot take up another unit
        beside = self.y_cols[1:] if self.family.beside_in_unit else ()
        return Unit(self.y_cols[:1], False, constant in self.lines[0].x_cols, beside)

    def in_units(self, y: np.ndarray) -> np.ndarray:
        found = super().in_units(y)
        found[:, 0] &= self.family.has_density(tuple(y.T))
        return found

    @property
    def by_value(self) -> bool:
        return not self.family.discrete

    @property
    def n_values_per_state(self) -> int:
        return len(self.lines[0].terms) + (not self.family.takes_levels)

    def features(self, y: np.ndarray) -> np.ndarray:
        return standardised(y, lambda seen: self.family.features(tuple(seen.T)))

    def start(self, clusters: Clusters, rng: np.random.Generator) -> Params:
        y = clusters.y[clusters.rows][:, list(self.y_cols)]
        seen = ~np.isnan(y[:, 0])
        coef = []
        for k in range(clusters.n_states):
            members = seen & (clusters.label == k)
            if members.sum() < 3:  # too few: somewhere near the whole
                members = seen & (rng.random(len(seen)) < 0.2) if seen.sum() > 20 else seen
            a = clusters.a[clusters.rows][members]
            coef.append(self._start_of_state(y[members], a, clusters.constant))
        return {self.coef_key: np.array(coef)}

    def _start_of_state(self, y: np.ndarray, a: np.ndarray, constant: int) -> np.ndarray:
        """Coefficients of one state from its rows: moments, and slopes by least squares."""
        columns = tuple(y.T)
        etas = self.family.start(columns)
        out = []
        for i, (line, eta) in enumerate(zip(self.lines, etas, strict=True)):
            if line.offset >= 0 and len(a):
                eta = eta - a[:, line.offset].mean()
            b = np.zeros(len(line.x_cols))
            x = a[:, list(line.x_cols)]
            moving = [j for j, c in enumerate(line.x_cols) if c != constant]
            if not line.parameter and moving and len(x) > 2 * len(moving) + 2:
                b[moving] = _slopes(self.family, etas, i, columns[0], x[:, moving])
            if constant in line.x_cols:
                place = line.x_cols.index(constant)
                b[place] = eta - x[:, moving].mean(0) @ b[moving] if moving else eta
            elif len(x):
                b = np.linalg.lstsq(x, np.full(len(x), eta), rcond=1e-8)[0]
            out.append(b)
        return np.concatenate(out)

    def block(self, maker: BlockMaker) -> FamilyBlock:
        seen = ~np.isnan(maker.y[:, self.y_cols[0]])
        (column,) = maker.mask(seen[:, None])
        concave, constant = self.family.concave, maker.constant
        kernel = general_kernel(
            self.family, concave, self.n_states, maker.n_effects, self.lines, constant
        )
        pattern = maker.pattern(self.lines, self.y_cols, seen)
        listed = maker.row_list(seen) if pattern < 0 else -1
        return FamilyBlock(self.key, kernel, self.y_cols, column, pattern, listed)

    # --- draws ----------------------------------------------------------------------------------

    def draw(self, rng, theta, a, state, effects, extras):
        etas = self.etas(theta[self.coef_key], a, state, effects)
        values = self.family.draw(rng, etas, extras)
        if self.family.takes_levels:
            values = np.array(self.family.levels)[values.astype(int)]
        return {self.outcome: values}


def standardised(y: np.ndarray, features) -> np.ndarray:
    """(rows, features) of mean 0 and sd 1, NaN where the first column is missing."""
    seen = ~np.isnan(y[:, 0])
    found = features(y[seen])
    out = np.full((len(y), found.shape[1]), np.nan)
    out[seen] = (found - found.mean(0)) / np.maximum(found.std(0), 1e-12)
    return out


def _slopes(family: Univariate, etas, i: int, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Slopes of a predictor: those of the outcome's mean, divided by the link's slope."""
    if family.n_location > 1:  # log odds of a level against the first
        share, base = max((y == i + 1).mean(), 0.02), max((y == 0).mean(), 0.02)
        response = (y == i + 1) / share - (y == 0) / base
    else:
        moved = tuple(e + (1e-4 if j == i else 0.0) for j, e in enumerate(etas))
        rate = float(family.mean(moved) - family.mean(tuple(etas))) / 1e-4
        response = y / (rate if abs(rate) > 1e-3 else np.inf)
    centred = x - x.mean(0)
    slope = np.linalg.lstsq(centred, response - response.mean(), rcond=1e-8)[0]
    return np.clip(slope, -_SLOPE_LIMIT, _SLOPE_LIMIT)


@dataclass(frozen=True)
class FamilyBlock(EmissionBlock):
    """An outcome of any family with linear predictors, to compiled code."""

    key: str
    kernel: GeneralKernel
    y_cols: tuple[int, ...]
    seen_col: int
    pattern: int
    """Which of the chunk's patterns gathers its rows into cells; -1: each row is a cell."""
    row_list: int
    """Then: which of the chunk's lists holds its observed rows."""

    @property
    def newton_keys(self) -> tuple[str, ...]:
        return (self.key + "coef",)

    @property
    def concave(self) -> bool:
        return self.kernel.concave

    @property
    def has_effects(self) -> bool:
        return bool(self.kernel.with_effects)

    def _possible(self, columns: list[Array], seen: Array) -> tuple[Array, ...]:
        # 0 may be no possible value: then even a weight of 0 would not save the sums.
        stand_in = (self.kernel.density.harmless, *[1.0] * (len(columns) - 1))
        pairs = zip(columns, stand_in, strict=True)
        return tuple(jnp.where(seen, column, other) for column, other in pairs)

    def _data(self, chunk: Chunk) -> tuple[tuple[Array, ...], Array]:
        """The outcome columns (cell, 1, lane) and the design (cell, column, lane)."""
        if self.pattern < 0:
            rows = chunk.lists[self.row_list]
            y = self._possible([rows.y[c] for c in self.y_cols], rows.real)
            return tuple(column[None, None] for column in y), rows.a[None]
        cells = chunk.patterns[self.pattern]
        return tuple(cells.y[:, c][:, None, None] for c in self.y_cols), cells.a[:, :, None]

    def table(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None) -> Array:
        coef, n_states = theta[self.key + "coef"], self.kernel.n_states
        if self.pattern < 0:
            seen = chunk.seen[:, self.seen_col]
            y = self._possible([chunk.y[:, c] for c in self.y_cols], seen)
            columns = tuple(column[:, None] for column in y)
            table = self.kernel.table(coef, *q_on_lanes(f, cov, chunk), columns, chunk.a)
            table = jnp.where(seen[:, None], table, 0.0)
            return jnp.broadcast_to(table, (len(chunk.y), n_states, chunk.y.shape[-1]))
        y, a = self._data(chunk)
        table = self.kernel.table(coef, f, cov, y, a)
        table = jnp.broadcast_to(table, (len(a), n_states, f.shape[1]))
        return from_cells(to_lanes(table, chunk), chunk.patterns[self.pattern].index)

    def collect(self, state: Array, chunk: Chunk) -> Array:
        if self.pattern < 0:
            rows = chunk.lists[self.row_list]
            own = state[rows.step, :, rows.lane].T
            return jnp.where(rows.real, own, 0.0)[None]
        cells = chunk.patterns[self.pattern]
        return by_subject(in_cells(state, cells.index, len(cells.a)), chunk)

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * (share if self.pattern >= 0 else share[chunk.lists[self.row_list].owner])

    def _on_cells(self, mean: Array, cov: Array | None, chunk: Chunk):
        """q of the subject that each lane of the cells belongs to."""
        if self.pattern >= 0:
            return mean, cov
        owner = chunk.lists[self.row_list].owner
        return mean[:, owner], None if cov is None else cov[:, :, owner]

    def _per_subject(self, terms: Any, chunk: Chunk) -> Any:
        if self.pattern >= 0:
            return terms
        rows, n = chunk.lists[self.row_list], chunk.real.shape[0]

        def add(part: Array) -> Array:
            total = jnp.zeros((*part.shape[:-1], n), part.dtype)
            return total.at[..., rows.owner].add(jnp.where(rows.real, part, 0.0))

        return jax.tree.map(add, terms)

    def value(self, theta: Theta, mean, cov, collected: Array, chunk: Chunk) -> Array:
        cells = Cells(*self._data(chunk), collected)
        q = self._on_cells(mean, cov, chunk)
        return self._per_subject(self.kernel.value(theta[self.key + "coef"], *q, cells), chunk)

    def effect_terms(self, theta: Theta, mean, cov, collected: Array, chunk: Chunk) -> EffectTerms:
        cells = Cells(*self._data(chunk), collected)
        q = self._on_cells(mean, cov, chunk)
        terms = self.kernel.effect_terms(theta[self.key + "coef"], *q, cells)
        return self._per_subject(terms, chunk)

    def coef_terms(self, key, coef: Array, mean, cov, collected: Array, chunk) -> CoefTerms:
        cells = Cells(*self._data(chunk), collected)
        return self.kernel.coef_terms(coef, *self._on_cells(mean, cov, chunk), cells)
