"""A user's own density as a component: plain JAX functions of one step, perhaps with a history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from avem.components.base import Match, Row
from avem.components.custom_block import CustomBlock
from avem.components.emission import BlockMaker, Clusters, Emission
from avem.components.far_out import FarOut, of_own
from avem.components.glm import standardised
from avem.components.lines import Line
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling
from avem.errors import ModelError
from avem.numerics.jit import jit
from avem.numerics.precision import in_float64

if TYPE_CHECKING:
    from avem.families.custom import Custom


@dataclass(frozen=True)
class CustomEmission(Emission):
    """An outcome with a user's own density, or several with a joint one."""

    family: Custom

    @classmethod
    def split(cls, outcomes, families):
        return [(outcomes, families[0])]

    @classmethod
    def make_lines(cls, place, outcomes, family, spec, builder):
        """One line: the covariates and effects that the user's function sees."""
        label, design = "+".join(outcomes), builder.designs.parts[place.part]
        what = {"outcome": label, "parameter": "", "state": None, "to_state": None}
        places = tuple(builder.effect(place.part, 0, term=e, **what) for e in family.effects)
        kept = [i for i, term in enumerate(design.terms) if term != "Intercept"]
        columns = builder.designs.x_cols(place.part)
        terms, x_cols = tuple(design.terms[i] for i in kept), tuple(columns[i] for i in kept)
        by_state = (places,) * builder.n_states
        yield Line(outcomes[0], "", label, place.part, terms, x_cols, (), by_state)

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
            yield Row({"state": k, "outcome": self.lines[0].label}, value[k])

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
        return standardised(y, lambda seen: seen)

    def half_seen(self, y: np.ndarray) -> np.ndarray:
        missing = np.isnan(y)
        return np.asarray(missing.any(1) & ~missing.all(1))

    def start(self, clusters: Clusters, rng: np.random.Generator) -> Params:
        base = np.array([[value for _, value in self.family.params]] * self.n_states)
        jitter = 0.5 * rng.standard_normal(base.shape) if self.n_states > 1 else 0.0
        return {self.coef_key: base + jitter}

    def block(self, maker: BlockMaker) -> CustomBlock:
        line = self.lines[0]
        self.family.check(line.terms, len(self.outcomes))
        (column,) = maker.mask(~np.isnan(maker.y[:, self.y_cols[:1]]))
        return CustomBlock(
            self.key,
            self.family,
            self.n_states,
            line.terms,
            line.x_cols,
            line.effects,
            self.y_cols,
            column,
        )

    def far_out(self, theta: Params) -> Iterator[FarOut]:
        return of_own(theta[self.coef_key], self.family.params, self.prefix)

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
        update, line = self.family.update, self.lines[0]
        if why := self.why_not_drawn("simulate"):
            raise ModelError(why)
        coef, names = theta[self.coef_key], self._names
        out = np.zeros((panel.n_rows, len(self.outcomes)))
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
                out[row] = self.one_draw(rng, x, histories[k], params[k], effect)
                if update is not None:
                    y = out[row] if len(self.outcomes) > 1 else out[row, 0]
                    pairs = zip(histories, params, strict=True)
                    histories = [update(h, y, x, p, effect) for h, p in pairs]
        return dict(zip(self.outcomes, out.T, strict=True))

    def one_draw(self, *of: Any) -> np.ndarray:
        """(outcomes,) drawn by the user's function."""
        draw = self.family.draw
        assert draw is not None
        found = np.asarray(draw(*of), float)
        if found.size != len(self.outcomes):
            raise ModelError(
                f"draw of {self.family!r} gives an array of shape {found.shape}; "
                f"{len(self.outcomes)} number(s) are wanted: {', '.join(self.outcomes)}."
            )
        return found.ravel()

    def paths(self, theta: Params, begin: Any) -> CustomPaths:
        return CustomPaths(self, theta, begin)


class CustomPaths:
    """A custom emission along many paths, with what it remembers of each."""

    def __init__(self, emission: CustomEmission, theta: Params, begin: Any) -> None:
        self.emission, self.family, self.line = emission, emission.family, emission.lines[0]
        places = np.array(self.line.effects, int).reshape(emission.n_states, -1)
        own = begin.effects[:, places]  # (paths, states, effects)
        self.effect = {name: own[..., e] for e, name in enumerate(self.family.effects)}
        coef = theta[emission.coef_key]
        self.params = {
            name: coef[:, p] + self.effect.get(name, np.zeros(own.shape[:2]))
            for p, (name, _) in enumerate(self.family.params)
        }
        self.history = jax.tree.map(lambda leaf: leaf[begin.place], begin.histories[emission.key])

    def step(self, rng, A: np.ndarray, state: np.ndarray, known: np.ndarray) -> Params:
        """The outcomes of one step, (paths,) each, which are then remembered."""
        paths, x = np.arange(len(state)), A[:, list(self.line.x_cols)]
        leaves, tree = jax.tree.flatten(self.history)
        leaves = [leaf[paths, state] for leaf in leaves]
        params = {name: values[paths, state] for name, values in self.params.items()}
        effect = {name: values[paths, state] for name, values in self.effect.items()}
        terms, names = self.line.terms, self.emission.outcomes
        out = np.full((len(state), len(names)), np.nan)
        for p in paths[known]:
            out[p] = self.emission.one_draw(
                rng,
                dict(zip(terms, x[p], strict=True)),
                tree.unflatten([leaf[p] for leaf in leaves]),
                {name: values[p] for name, values in params.items()},
                {name: values[p] for name, values in effect.items()},
            )
        if self.family.update is not None:
            y = out if len(names) > 1 else out[:, 0]
            of = (self.history, y, dict(zip(terms, x.T, strict=True)), self.params, self.effect)
            self.history = _remember(self.family, known, *of)
        return dict(zip(names, out.T, strict=True))


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
