"""A user's own density as a component: plain JAX functions of one step, perhaps with a history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from avem.components import autodiff as auto
from avem.components.base import EmissionBlock, Match, Row
from avem.components.emission import BlockMaker, Clusters, Emission
from avem.components.glm import standardised
from avem.components.lanes import Theta, by_subject, q_on_lanes, sum_lanes, to_lanes
from avem.components.linear import CoefTerms
from avem.components.lines import Line
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.errors import ModelError
from avem.numerics.jit import jit
from avem.numerics.precision import in_float64

if TYPE_CHECKING:
    from avem.families.custom import Custom


@dataclass(frozen=True)
class CustomEmission(Emission):
    """An outcome with a user's own density."""

    family: Custom

    @classmethod
    def make_lines(cls, place, outcomes, family, spec, builder):
        """One line: the covariates and effects that the user's function sees."""
        (name,), design = outcomes, builder.designs.parts[place.part]
        what = {"outcome": name, "parameter": "", "state": None, "to_state": None}
        places = tuple(builder.effect(place.part, 0, term=e, **what) for e in family.effects)
        kept = [i for i, term in enumerate(design.terms) if term != "Intercept"]
        columns = builder.designs.x_cols(place.part)
        terms, x_cols = tuple(design.terms[i] for i in kept), tuple(columns[i] for i in kept)
        by_state = (places,) * builder.n_states
        yield Line(name, "", name, place.part, terms, x_cols, (), by_state)

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self.family.params]

    def level(self, theta: Params, a: np.ndarray) -> np.ndarray:
        return theta[self.coef_key][:, 0]

    # --- parameters -----------------------------------------------------------------------------

    def coef_names(self) -> list[tuple[str, int]]:
        return [(name, 1) for name in self._names]

    def param_info(self) -> dict[str, ParamInfo]:
        info = ParamInfo((self.n_states,), "free", "states")
        return {self.prefix + name: info for name in self._names}

    def params_out(self, theta: Params, units: Scaling) -> Params:
        coef = theta[self.coef_key]
        return {self.prefix + name: coef[:, i].copy() for i, name in enumerate(self._names)}

    def params_in(self, params: Params, units: Scaling) -> Params:
        parts = [params[self.prefix + name] for name in self._names]
        return {self.coef_key: np.stack(parts, axis=1).astype(float)}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for k in range(self.n_states):
            yield Row({"state": k, "outcome": self.outcomes[0]}, value[k])

    def middle(self) -> Params:
        return {self.coef_key: np.zeros((self.n_states, len(self._names)))}

    def matches(self, fixed) -> dict[int, Match]:
        names = self._names
        pairs = zip(self.family.effects, self.lines[0].effects[0], strict=True)
        return {
            place: Match(self.coef_key, None, (names.index(name),))
            for name, place in pairs
            if name in names and self.prefix + name not in fixed
        }

    # --- data -----------------------------------------------------------------------------------

    @property
    def reads_user_units(self) -> bool:
        return True

    def features(self, y: np.ndarray) -> np.ndarray:
        return standardised(y, lambda seen: seen[:, :1])

    def start(self, clusters: Clusters, rng: np.random.Generator) -> Params:
        base = np.array([[value for _, value in self.family.params]] * self.n_states)
        jitter = 0.5 * rng.standard_normal(base.shape) if self.n_states > 1 else 0.0
        return {self.coef_key: base + jitter}

    def block(self, maker: BlockMaker) -> CustomBlock:
        line = self.lines[0]
        self.family.check(line.terms)
        (column,) = maker.mask(~np.isnan(maker.y[:, self.y_cols[:1]]))
        return CustomBlock(
            self.key,
            self.family,
            self.n_states,
            line.terms,
            line.x_cols,
            line.effects,
            self.y_cols[0],
            column,
        )

    # --- draws ----------------------------------------------------------------------------------

    @property
    def remembers(self) -> bool:
        return True

    def why_not_drawn(self, what: str) -> str:
        if self.family.draw is not None:
            return ""
        return (
            f"{self.family!r} cannot {what}: give Custom(draw=...), a function of (rng, x, "
            "history, params, effect)."
        )

    def draw_sequences(self, rng, theta, panel, A, states, effects):
        draw, update, line = self.family.draw, self.family.update, self.lines[0]
        if draw is None:
            raise ModelError(self.why_not_drawn("simulate"))
        coef, names = theta[self.coef_key], self._names
        out = np.zeros(panel.n_rows)
        for rows in np.split(panel.order, np.cumsum(panel.lane_length)[:-1]):
            own = effects[rows[0]][list(line.effects[0])]
            effect = dict(zip(self.family.effects, own, strict=True))
            params = [
                {n: b + effect.get(n, 0.0) for n, b in zip(names, coef[k], strict=True)}
                for k in range(len(coef))
            ]
            histories = [self.family.start_history() for _ in params]
            for row in rows:
                k = states[row]
                x = dict(zip(line.terms, A[row, list(line.x_cols)], strict=True))
                out[row] = draw(rng, x, histories[k], params[k], effect)
                if update is not None:
                    pairs = zip(histories, params, strict=True)
                    histories = [update(h, out[row], x, p, effect) for h, p in pairs]
        return {self.outcomes[0]: out}

    def paths(self, theta: Params, begin: Any) -> CustomPaths:
        return CustomPaths(self, theta, begin)


class CustomPaths:
    """A custom emission along many paths, with what it remembers of each."""

    def __init__(self, emission: CustomEmission, theta: Params, begin: Any) -> None:
        self.family, self.line = emission.family, emission.lines[0]
        places = np.array(self.line.effects, int).reshape(emission.n_states, -1)
        own = begin.effects[:, places]  # (paths, states, effects)
        self.effect = {name: own[..., e] for e, name in enumerate(self.family.effects)}
        coef = theta[emission.coef_key]
        self.params = {
            name: coef[:, p] + self.effect.get(name, np.zeros(own.shape[:2]))
            for p, (name, _) in enumerate(self.family.params)
        }
        self.history = jax.tree.map(lambda leaf: leaf[begin.place], begin.histories[emission.key])

    def step(self, rng, A: np.ndarray, state: np.ndarray, known: np.ndarray) -> np.ndarray:
        """(paths,) the outcomes of one step, which are then remembered."""
        draw = self.family.draw
        assert draw is not None
        paths, x = np.arange(len(state)), A[:, list(self.line.x_cols)]
        leaves, tree = jax.tree.flatten(self.history)
        leaves = [leaf[paths, state] for leaf in leaves]
        params = {name: values[paths, state] for name, values in self.params.items()}
        effect = {name: values[paths, state] for name, values in self.effect.items()}
        terms, out = self.line.terms, np.full(len(state), np.nan)
        for p in paths[known]:
            out[p] = draw(
                rng,
                dict(zip(terms, x[p], strict=True)),
                tree.unflatten([leaf[p] for leaf in leaves]),
                {name: values[p] for name, values in params.items()},
                {name: values[p] for name, values in effect.items()},
            )
        if self.family.update is not None:
            of = (self.history, out, dict(zip(terms, x.T, strict=True)), self.params, self.effect)
            self.history = _remember(self.family, known, *of)
        return out


@in_float64
def _remember(family: Custom, known: np.ndarray, history: Any, *of: Any) -> Any:
    """The histories (paths, states, ...) after a step; those with nothing new stay."""

    def kept(new, old):
        return np.where(known.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(kept, _update(family, history, *of), history)


@jit("family")
def _update(family: Custom, history, y, x, params, effect):
    assert family.update is not None
    of_state = jax.vmap(family.update, in_axes=(0, None, None, 0, 0))
    return jax.vmap(of_state)(history, y, x, params, effect)


class _Row(NamedTuple):
    """What a user's emission sees of one step."""

    y: Array
    x: Array
    seen: Array


@dataclass(frozen=True)
class CustomBlock(EmissionBlock):
    """A user's own density, to compiled code; it may depend on what happened before."""

    key: str
    family: Custom
    n_states: int
    terms: tuple[str, ...]
    x_cols: tuple[int, ...]
    effects: tuple[tuple[int, ...], ...]
    """For every state, the place in f of each of the family's effects."""
    y_col: int
    seen_col: int

    @property
    def concave(self) -> bool:
        return False

    @property
    def newton_keys(self) -> tuple[str, ...]:
        return (self.key + "coef",)

    @property
    def has_effects(self) -> bool:
        return bool(self.family.effects)

    @cached_property
    def _places(self) -> tuple[int, ...]:
        return tuple(sorted({place for of_state in self.effects for place in of_state}))

    def _term(self, chunk: Chunk, weight: Array) -> auto.Term:
        def term(coef: Array, f: Array) -> Array:
            return (weight * self._table(coef, f, chunk)).sum(0)

        return term

    def _table(self, coef: Array, f: Array, chunk: Chunk) -> Array:
        """(time, state, lane) log densities at the effects f of every lane."""
        return self._run(coef, f, chunk, self._series)

    def histories(self, theta: Theta, f: Array, chunk: Chunk) -> Any:
        """What is remembered before each step, (time, state, ..., lane) for each of its parts."""
        on_lanes = q_on_lanes(f, None, chunk)[0]
        return self._run(theta[self.key + "coef"], on_lanes, chunk, self._memory)

    def _run(self, coef: Array, f: Array, chunk: Chunk, series: Callable[..., Any]) -> Any:
        seen, y = chunk.seen[:, self.seen_col], chunk.y[:, self.y_col]
        # Where nothing is seen, something that is possible: of the same lane, or of any.
        own = jnp.take_along_axis(y, seen.argmax(0)[None], axis=0)
        possible = jnp.where(seen.any(0), own, y.ravel()[seen.ravel().argmax()])
        rows = _Row(jnp.where(seen, y, possible), chunk.a[:, np.array(self.x_cols, int)], seen)
        own = f[np.array(self.effects, int).reshape(self.n_states, -1)]  # (state, effect, lane)
        of_lane = jax.vmap(series, in_axes=(None, -1, -1), out_axes=-1)
        return jax.vmap(of_lane, in_axes=(0, 0, None), out_axes=1)(coef, own, rows)

    def _series(self, coef: Array, effect: Array, rows: _Row) -> Array:
        """(time,) log densities of one sequence in one state."""
        return self._scan(coef, effect, rows, lambda history, density: density)

    def _memory(self, coef: Array, effect: Array, rows: _Row) -> Any:
        """(time, ...) what is remembered before each step of one sequence in one state."""
        return self._scan(coef, effect, rows, lambda history, density: history)

    def _scan(self, coef: Array, effect: Array, rows: _Row, wanted: Callable[..., Any]) -> Any:
        names = [name for name, _ in self.family.params]
        effects = dict(zip(self.family.effects, effect, strict=True))
        params = {name: b + effects.get(name, 0.0) for name, b in zip(names, coef, strict=True)}

        def step(history, row):
            x = dict(zip(self.terms, row.x, strict=True))
            there = self.family.log_prob(row.y, x, history, params, effects)
            moved = history
            if self.family.update is not None:
                moved = self.family.update(history, row.y, x, params, effects)
            kept = jax.tree.map(
                lambda new, old: jnp.where(row.seen, new, old).astype(jnp.result_type(old)),
                moved,
                history,
            )
            return kept, wanted(history, jnp.where(row.seen, there, 0.0))

        start = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, effect.dtype), self.family.start_history()
        )
        return lax.scan(step, start, rows)[1]

    def table(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None) -> Array:
        coef, q = theta[self.key + "coef"], q_on_lanes(f, cov, chunk)
        return auto.average(lambda g: self._table(coef, g, chunk), *q, self._places)

    def collect(self, state: Array, chunk: Chunk) -> Array:
        return jnp.where(chunk.seen[:, self.seen_col][:, None], state, 0.0)

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * to_lanes(share, chunk)

    def value(self, theta: Theta, mean, cov, collected: Array, chunk: Chunk) -> Array:
        q = q_on_lanes(mean, cov, chunk)
        term, coef = self._term(chunk, collected), theta[self.key + "coef"]
        return by_subject(auto.expected_value(term, coef, *q, self._places), chunk)

    def effect_terms(self, theta: Theta, mean, cov, collected: Array, chunk: Chunk) -> EffectTerms:
        q = q_on_lanes(mean, cov, chunk)
        term, coef = self._term(chunk, collected), theta[self.key + "coef"]
        return sum_lanes(auto.effect_terms(term, coef, *q, self._places), chunk)

    def coef_terms(self, key, coef: Array, mean, cov, collected: Array, chunk) -> CoefTerms:
        q = q_on_lanes(mean, cov, chunk)
        return auto.coef_terms(self._term(chunk, collected), coef, *q, self._places)
