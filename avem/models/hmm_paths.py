"""Paths beyond the end of every sequence: states and outcomes drawn step by step.

Needed where what comes next depends on outcomes that are not known yet, through `lag` in a formula
or the history of a custom emission.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from avem.components.param_info import Params
from avem.components.structure import Piece
from avem.data import Panel
from avem.errors import ModelError
from avem.families import Custom
from avem.models.hmm import HMMModel
from avem.models.hmm_simulate import Draw
from avem.numerics.precision import in_float64

_PATH = "path of this draw"
"""The column that tells paths apart: a name that no table has."""


class Begin(NamedTuple):
    """Where the paths are when the first step ahead is taken."""

    table: Any
    """The rows of all paths, one path after another: the last ones seen, then those ahead."""
    length: np.ndarray
    """(paths,) rows of each."""
    effects: np.ndarray
    """(paths, d), in the user's units."""
    state: np.ndarray
    """(paths,) at the first step ahead."""
    histories: Mapping[str, Any]
    """What custom emissions remember then, (places, nodes, states, ...), by their keys."""
    place: tuple[np.ndarray, np.ndarray]
    """(paths,) twice: the place and the node of each path in them."""


class Step(NamedTuple):
    """One step of all paths."""

    at: np.ndarray
    """(paths,) its rows in the table."""
    A: np.ndarray
    """(paths, design columns)."""
    state: np.ndarray
    """(paths,)."""
    chance: np.ndarray | None
    """(paths, states) of the states, given the step before; None at the first."""
    drawn: Mapping[str, np.ndarray]
    """(paths,) the outcomes."""
    known: Mapping[str, np.ndarray]
    """(paths,) whether the model says anything of the outcome there, by the key of its piece."""


def draw_ahead(
    model: HMMModel, theta: Params, begin: Begin, horizon: int, rng: np.random.Generator
) -> Iterator[Step]:
    """The steps ahead, one by one; the model and theta are in the user's units."""
    names, parts = set(model.outcomes), model.parts_ahead
    back, table = look_back(model), begin.table.copy()
    table[_PATH] = np.repeat(np.arange(len(begin.length)), begin.length)
    panel = Panel.from_frame(table, _PATH)
    draw = Draw(model, theta, panel, begin.effects, rng)
    customs = {
        piece.key: _CustomPaths(piece, theta, begin, model.n_states)
        for piece in model.structure.pieces
        if isinstance(piece.family, Custom)
    }
    ends, here, chance = np.cumsum(begin.length), begin.state, None
    to_end = np.repeat(ends, begin.length) - np.arange(len(table))  # 1 in the last row
    for step in range(horizon):
        at = ends - horizon + step
        unknown = {number: np.zeros(len(at), bool) for number in range(len(parts))}
        if back:
            left = horizon - step
            window = np.flatnonzero((to_end >= left) & (to_end <= left + back))
            seen, inside = panel.part(table, window), np.searchsorted(window, at)
            draw.A[at] = draw.columns(seen)[inside]
            unknown = {n: part.unknown(seen)[inside] for n, part in enumerate(parts)}
        if step:
            moves = model.structure.moves
            if moves and unknown[moves[0].part].any():
                raise ModelError(
                    "The transitions look back at an outcome of which the model says nothing, "
                    "because its own lag looks back to nothing."
                )
            chance = draw.move(at, here)
            here = _choose(chance, rng)
        states = np.zeros(len(table), int)
        states[at] = here
        drawn, known = {}, {}
        for piece in model.structure.pieces:
            own = {line.part for line in piece.lines if line.part >= 0}
            lost = np.any([unknown[number] for number in own], axis=0) if own else here < 0
            known[piece.key] = ~lost
            if piece.key in customs:
                found = {piece.outcomes[0]: customs[piece.key].step(rng, draw.A[at], here, ~lost)}
            else:
                found = draw.draw(piece, at, draw.A[at], states)
            for name, values in found.items():
                if lost.any():
                    values = np.where(lost, np.nan, values.astype(object))
                drawn[name] = values
        if back:
            for name in names & set(table.columns):
                column = table[name].to_numpy(copy=True)
                column[at] = drawn[name]
                table[name] = column
        yield Step(at, draw.A[at], here, chance, drawn, known)


def check_draws(model: HMMModel) -> None:
    """Raise unless every outcome can be drawn."""
    for piece in model.structure.pieces:
        if isinstance(piece.family, Custom) and piece.family.draw is None:
            raise ModelError(
                f"{piece.family!r} cannot be predicted: give Custom(draw=...), a function of (rng, "
                "x, history, params, effect). predict(of='states') is possible without."
            )


def look_back(model: HMMModel) -> int:
    """How many rows the formulas of coming rows look back at outcomes; 0 when they do not."""
    return max(part.lags(set(model.outcomes)) for part in model.parts_ahead)


def _choose(chance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(paths,) a state for each, with these chances (paths, states)."""
    passed = np.cumsum(chance, axis=1)
    return np.minimum((rng.random((len(chance), 1)) > passed).sum(1), chance.shape[1] - 1)


# --- emissions of the user's own ------------------------------------------------------------------


class _CustomPaths:
    """A custom emission along all paths, with what it remembers."""

    def __init__(self, piece: Piece, theta: Params, begin: Begin, n_states: int) -> None:
        assert isinstance(piece.family, Custom)
        self.family, self.line = piece.family, piece.lines[0]
        places = np.array(self.line.effects, int).reshape(n_states, -1)
        own = begin.effects[:, places]  # (paths, states, effects)
        self.effect = {name: own[..., e] for e, name in enumerate(self.family.effects)}
        coef = theta[piece.key + "coef"]
        self.params = {
            name: coef[:, p] + self.effect.get(name, np.zeros(own.shape[:2]))
            for p, (name, _) in enumerate(self.family.params)
        }
        self.history = jax.tree.map(lambda leaf: leaf[begin.place], begin.histories[piece.key])

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


@partial(jax.jit, static_argnames=("family",))
def _update(family: Custom, history, y, x, params, effect):
    assert family.update is not None
    of_state = jax.vmap(family.update, in_axes=(0, None, None, 0, 0))
    return jax.vmap(of_state)(history, y, x, params, effect)
