"""Any density with linear predictors: what inference needs, from pointwise derivatives alone.

A density has a few predictors, eta_p = x'b_kp + z'f, for each state k. Given the local posterior,
the expected log likelihood is a sum over *cells* of weight x log density(y, eta), so values,
gradients and curvatures in the effect f and in the coefficients b follow from the first two
derivatives of the log density in eta, which are elementwise. Nothing else is differentiated.

Under a Gaussian q(f) the predictors of a cell are jointly Gaussian in as many dimensions as there
are predictors with effects, nearly always one: expectations are low-dimensional quadratures.

A cell is an observed row, or, where few different rows occur, all rows that look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, nn
from jaxtyping import Float

from avem.effects.quadratic import EffectTerms
from avem.numerics.nodes import normal_rule

_BLOCK = 1024
"""Rows that are integrated over q at a time."""


@dataclass(frozen=True)
class Predictor:
    """One linear predictor: which columns it reads, and where its effects stand in f."""

    x_cols: tuple[int, ...]
    z_cols: tuple[int, ...]
    effects: tuple[tuple[int, ...], ...]
    """For every state, the place in f of the effect of each of `z_cols`."""
    constant: bool
    """It reads the intercept alone and has no effects: it is one number per state."""
    offset: int = -1
    """The column that is added as it is; -1: none."""

    @property
    def shared(self) -> bool:
        """The states have the same effects."""
        return len(set(self.effects)) == 1

    def own_effects(self, values: Array, column: int) -> Array:
        """Entries of `values` (d, ...) for the effects of one of `z_cols`: (states or 1, ...)."""
        places = [of_state[column] for of_state in self.effects]
        return values[np.array(places[:1] if self.shared else places)]


class Cells(NamedTuple):
    """Data and weights; every array broadcasts to (cell, state, lane)."""

    y: tuple[Array, ...]
    a: Float[Array, "cell column lane"]
    """One lane where all lanes have the same rows."""
    weight: Float[Array, "cell state lane"] | None
    """Expected number of observations; None where `y` already holds the counts."""


class CoefTerms(NamedTuple):
    """E_q of Q and its derivatives in the coefficients, summed over lanes; a problem per state."""

    value: Any
    """(problem,)."""
    gradient: Any
    """(problem, coefficient)."""
    curvature: Any
    """(problem, coefficient, coefficient)."""


def joined(first: CoefTerms, second: CoefTerms) -> CoefTerms:
    """The terms of two parts in the same coefficients; one problem, where one of them ties all."""
    if len(first.value) == len(second.value):
        return CoefTerms(*(a + b for a, b in zip(first, second, strict=True)))
    return CoefTerms(*(a + b for a, b in zip(_tied(first), _tied(second), strict=True)))


def _tied(terms: CoefTerms) -> CoefTerms:
    """Separate problems as one, with nothing between them."""
    n, size = terms.gradient.shape
    diagonal = jnp.einsum("kpq,kl->kplq", terms.curvature, jnp.eye(n))
    curvature = diagonal.reshape(1, n * size, n * size)
    return CoefTerms(terms.value.sum(keepdims=True), terms.gradient.reshape(1, -1), curvature)


@dataclass(frozen=True)
class GeneralKernel:
    """A density with its predictors; hashable, so that jit can key on it."""

    density: Any
    n_states: int
    n_effects: int
    """Of the whole model: the length of f."""
    predictors: tuple[Predictor, ...]
    concave: bool
    """The log density is concave in its predictors."""

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each predictor's coefficients stand in a row of `coef` (states, coefficients)."""
        ends = np.cumsum([len(p.x_cols) for p in self.predictors]).tolist()
        return tuple(slice(a, b) for a, b in zip([0, *ends], ends, strict=False))

    @property
    def with_effects(self) -> tuple[int, ...]:
        """The predictors that have effects."""
        return tuple(i for i, p in enumerate(self.predictors) if p.z_cols)

    # --- predictors -----------------------------------------------------------------------------

    def etas(
        self, coef: Float[Array, "state coef"], f: Float[Array, "d lane"], a: Array
    ) -> list[Float[Array, "cell state lane"]]:
        """Every predictor at the effects f; axes that a predictor does not need have length 1."""
        out = []
        for part, p in zip(self.slices, self.predictors, strict=True):
            b = coef[:, part].T[:, None, :, None]  # (term, 1, state, 1)
            if p.constant:
                eta = b[0]
            else:
                eta = jnp.zeros((1, 1, 1), coef.dtype)
                eta = a[:, p.offset][:, None] if p.offset >= 0 else eta
                eta = sum((a[:, c][:, None] * b[i] for i, c in enumerate(p.x_cols)), eta)
            for j, c in enumerate(p.z_cols):
                eta = eta + a[:, c][:, None] * p.own_effects(f, j)[None]
            out.append(eta)
        return out

    def _spread(self, cov: Float[Array, "d d lane"], a: Array) -> list[list[Array]]:
        """Cholesky factor of the covariance under q of the predictors with effects, by entry."""
        bearing = [self.predictors[i] for i in self.with_effects]
        low: list[list[Array]] = []
        for i, p in enumerate(bearing):
            row: list[Array] = []
            for j, q in enumerate(bearing[:i]):
                rest = self._covariance(p, q, cov, a)
                rest -= sum((row[m] * low[j][m] for m in range(j)), 0.0)
                # A predictor whose effects do not act in a cell has variance 0 there.
                acts = low[j][j] > 0
                row.append(jnp.where(acts, rest / jnp.where(acts, low[j][j], 1.0), 0.0))
            square = self._covariance(p, p, cov, a) - sum((r * r for r in row), 0.0)
            low.append([*row, jnp.sqrt(jnp.maximum(square, 0.0))])
        return low

    def _covariance(self, p: Predictor, q: Predictor, cov: Array, a: Array) -> Array:
        total: Array | float = 0.0
        together = p.shared and q.shared
        for i, ci in enumerate(p.z_cols):
            for j, cj in enumerate(q.z_cols):
                rows = np.array([e[i] for e in p.effects][: 1 if together else None])
                cols = np.array([e[j] for e in q.effects][: 1 if together else None])
                total = total + (a[:, ci] * a[:, cj])[:, None] * cov[rows, cols][None]
        return jnp.asarray(total)

    def _at_nodes(
        self, coef: Array, mean: Array, cov: Array | None, a: Array
    ) -> tuple[tuple[Array, ...], Array]:
        """Predictors at the nodes of q (node, cell, state, lane), and the nodes' weights."""
        etas = self.etas(coef, mean, a)
        if cov is None or not self.with_effects:
            return tuple(eta[None] for eta in etas), jnp.ones(1, coef.dtype)
        points, weights = normal_rule(len(self.with_effects))
        low = self._spread(cov, a)
        nodes = [eta[None] for eta in etas]
        for i, number in enumerate(self.with_effects):
            shift = sum(low[i][m][None] * points[:, m][:, None, None, None] for m in range(i + 1))
            nodes[number] = nodes[number] + shift
        return tuple(nodes), jnp.asarray(weights)

    # --- sums over cells ------------------------------------------------------------------------

    def table(
        self, coef: Array, mean: Array, cov: Array | None, y: tuple[Array, ...], a: Array
    ) -> Array:
        """E_q of the log density of each cell in every state."""
        etas, weights = self._at_nodes(coef, mean, cov, a)
        return _average(weights, self.density.log_density(y, etas))

    def expectation(
        self, function: Callable[..., Any], coef: Array, mean: Array, cov: Array | None, a: Array
    ) -> Any:
        """E_q of a function of the tuple of predictors (node, cell, state, lane).

        Arrays that it gives have the nodes first.
        """
        etas, weights = self._at_nodes(coef, mean, cov, a)
        return jax.tree.map(lambda values: _average(weights, values), function(etas))

    def log_chances(self, coef: Array, mean: Array, cov: Array | None, a: Array) -> Array:
        """(cell, state, level, lane) E_q of log probabilities, where the predictors are log odds.

        The first level is the reference.
        """
        etas, weights = self._at_nodes(coef, mean, cov, a)
        shape = np.broadcast_shapes(*(eta.shape for eta in etas))
        shape = (*shape[:-1], mean.shape[-1])
        logits = [jnp.zeros(shape), *(jnp.broadcast_to(eta, shape) for eta in etas)]
        return _average(weights, nn.log_softmax(jnp.stack(logits, axis=3), axis=3))

    def value(self, coef: Array, mean: Array, cov: Array | None, cells: Cells) -> Array:
        """E_q Q(f) of each lane; at the point `mean` when `cov` is None."""
        if cov is not None and _many(cells):
            parts = _in_blocks(lambda *block: self._value(coef, *block), mean, cov, cells)
            return parts.reshape(-1)[: mean.shape[-1]]
        return self._value(coef, mean, cov, cells)

    def _value(self, coef: Array, mean: Array, cov: Array | None, cells: Cells) -> Array:
        etas, weights = self._at_nodes(coef, mean, cov, cells.a)
        expected = _average(weights, self.density.log_density(cells.y, etas))
        return _weigh(expected, cells, self.n_states).sum((0, 1))

    def effect_terms(
        self, coef: Array, mean: Array, cov: Array | None, cells: Cells
    ) -> EffectTerms:
        """E_q of Q(f) with gradient and curvature in f, per lane."""
        etas, weights = self._at_nodes(coef, mean, cov, cells.a)
        value, first, second = self._pointwise(cells, etas, weights, self.with_effects)
        n_lanes = value.shape[-1]
        gradient = jnp.zeros((self.n_effects, n_lanes), value.dtype)
        curvature = jnp.zeros((self.n_effects, self.n_effects, n_lanes), value.dtype)
        majorant = curvature
        for p in self.with_effects:
            gradient = self._add_gradient(gradient, p, first[p], cells.a)
            dominating = jnp.zeros_like(value)
            for q in self.with_effects:
                bend = second[min(p, q), max(p, q)]
                curvature = self._add_curvature(curvature, p, q, bend, cells.a)
                dominating += jnp.maximum(bend, 0.0) if p == q else jnp.abs(bend)
            if not self.concave:
                majorant = self._add_curvature(majorant, p, p, dominating, cells.a)
        if self.concave:
            majorant = curvature
        return EffectTerms(value.sum((0, 1)), gradient, curvature, majorant)

    def _place(self, predictor: Predictor, column: int) -> Array:
        """(state, d) 0s and 1s that put the effects of one of `z_cols` in their places.

        A product with it is what a scatter would do, without a scatter.
        """
        places = np.array([of_state[column] for of_state in predictor.effects])
        return jnp.asarray(places[:, None] == np.arange(self.n_effects), float)

    def _add_gradient(self, total: Array, p: int, slope: Array, a: Array) -> Array:
        predictor = self.predictors[p]
        for j, column in enumerate(predictor.z_cols):
            parts = (slope * a[:, column][:, None]).sum(0)  # (state, lane)
            total += jnp.einsum("kl,kd->dl", parts, self._place(predictor, j))
        return total

    def _add_curvature(self, total: Array, p: int, q: int, bend: Array, a: Array) -> Array:
        first, second = self.predictors[p], self.predictors[q]
        for i, ci in enumerate(first.z_cols):
            for j, cj in enumerate(second.z_cols):
                parts = (bend * (a[:, ci] * a[:, cj])[:, None]).sum(0)
                rows, cols = self._place(first, i), self._place(second, j)
                total += jnp.einsum("kl,kd,ke->del", parts, rows, cols)
        return total

    def coef_terms(self, coef: Array, mean: Array, cov: Array | None, cells: Cells) -> CoefTerms:
        """E_q of Q with gradient and curvature in the coefficients, summed over lanes."""
        if cov is not None and _many(cells):
            parts = _in_blocks(lambda *block: self._coef_terms(coef, *block), mean, cov, cells)
            return jax.tree.map(lambda part: part.sum(0), parts)
        return self._coef_terms(coef, mean, cov, cells)

    def _coef_terms(self, coef: Array, mean: Array, cov: Array | None, cells: Cells) -> CoefTerms:
        etas, weights = self._at_nodes(coef, mean, cov, cells.a)
        every = tuple(range(len(self.predictors)))
        value, first, second = self._pointwise(cells, etas, weights, every)
        gradient = jnp.concatenate(
            [_project(first[p], cells.a, self.predictors[p].x_cols) for p in every], axis=1
        )
        curvature = jnp.concatenate(
            [
                jnp.concatenate(
                    [
                        _project_twice(
                            second[min(p, q), max(p, q)],
                            cells.a,
                            self.predictors[p].x_cols,
                            self.predictors[q].x_cols,
                        )
                        for q in every
                    ],
                    axis=2,
                )
                for p in every
            ],
            axis=1,
        )
        return CoefTerms(value.sum((0, 2)), gradient, curvature)

    def _pointwise(
        self, cells: Cells, etas: tuple[Array, ...], weights: Array, which: Sequence[int]
    ) -> tuple[Array, dict[int, Array], dict[tuple[int, int], Array]]:
        """Weighted E_q of the log density, its slopes, and minus its second derivatives."""

        def ell(*eta: Array) -> Array:
            return self.density.log_density(cells.y, eta)

        def weighed(values: Array) -> Array:
            return _weigh(_average(weights, values), cells, self.n_states)

        slopes = {p: _along(ell, p) for p in which}
        first = {p: weighed(slopes[p](*etas)) for p in which}
        second = {
            (p, q): -weighed(_along(slopes[p], q)(*etas)) for p in which for q in which if p <= q
        }
        return weighed(ell(*etas)), first, second


def _many(cells: Cells) -> bool:
    """Rows whose values at all nodes of q do not stay in the cache together."""
    return cells.weight is not None and cells.a.shape[-1] >= 2 * _BLOCK


def _in_blocks(function: Callable[..., Any], mean: Array, cov: Array, cells: Cells) -> Any:
    """`function` of a few rows at a time, stacked; what is added at the end weighs nothing."""
    n_blocks = -(-mean.shape[-1] // _BLOCK)
    missing = n_blocks * _BLOCK - mean.shape[-1]

    def cut(part: Array, mode: str = "edge") -> Array:
        part = jnp.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, missing)], mode=mode)
        return jnp.moveaxis(part.reshape(*part.shape[:-1], n_blocks, _BLOCK), -2, 0)

    assert cells.weight is not None
    data = Cells(tuple(map(cut, cells.y)), cut(cells.a), cut(cells.weight, "constant"))
    return jax.lax.map(lambda block: function(*block), (cut(mean), cut(cov), data))


def _along(function: Callable[..., Array], which: int) -> Callable[..., Array]:
    """The elementwise derivative in one argument, by forward mode."""

    def derivative(*eta: Array) -> Array:
        # The others are no arguments: zeros along them would be computed with.
        def of_one(value: Array) -> Array:
            return function(*eta[:which], value, *eta[which + 1 :])

        return jax.jvp(of_one, (eta[which],), (jnp.ones_like(eta[which]),))[1]

    return derivative


def _average(weights: Array, values: Array) -> Array:
    """Over the nodes, the first axis."""
    if values.shape[0] == 1:
        return values[0]
    return jnp.tensordot(weights, values, axes=1)


def _weigh(values: Array, cells: Cells, n_states: int) -> Array:
    """Values times weights, as a whole (cell, state, lane) array."""
    if cells.weight is not None:
        return values * cells.weight
    shape = np.broadcast_shapes(values.shape, cells.y[0].shape, (1, n_states, 1))
    return jnp.broadcast_to(values, shape)


def _project(slope: Array, a: Array, columns: tuple[int, ...]) -> Array:
    """(state, term) sums of slope x column."""
    x = a[:, np.array(columns, int)]
    if x.shape[-1] == 1:
        return jnp.einsum("cm,ck->km", x[..., 0], slope.sum(-1))
    return jnp.einsum("cml,ckl->km", x, slope)


def _project_twice(bend: Array, a: Array, rows: tuple[int, ...], cols: tuple[int, ...]) -> Array:
    """(state, term, term) sums of bend x column x column."""
    x, w = a[:, np.array(rows, int)], a[:, np.array(cols, int)]
    if x.shape[-1] == 1:
        return jnp.einsum("cm,cn,ck->kmn", x[..., 0], w[..., 0], bend.sum(-1))
    return jnp.einsum("cml,cnl,ckl->kmn", x, w, bend)
