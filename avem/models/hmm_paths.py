"""Paths beyond the end of every sequence: states and outcomes drawn step by step.

Needed where what comes next depends on outcomes that are not known yet, through `lag` in a formula
or the history of a custom emission.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from avem.components.param_info import Params
from avem.data import Panel
from avem.errors import ModelError
from avem.models.hmm import HMMModel
from avem.models.hmm_simulate import HMMDraw
from avem.numerics.markov import choose

_PATH = "path of this draw"
"""The column that tells paths apart: a name that no table has."""


class Begin(NamedTuple):
    """Where the paths are when the first step ahead is taken."""

    table: Any
    """The rows of all paths, one path after another: the last ones seen, then those ahead."""
    time: str | None
    """Its column of times."""
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


class PathStep(NamedTuple):
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
) -> Iterator[PathStep]:
    """The steps ahead, one by one; the model and theta are in the user's units."""
    names, parts = set(model.outcomes), model.parts_ahead
    back, table = look_back(model), begin.table.copy()
    table[_PATH] = np.repeat(np.arange(len(begin.length)), begin.length)
    panel = Panel.from_frame(table, _PATH, begin.time if model.continuous else None)
    draw = HMMDraw(model, theta, panel, begin.effects, rng)
    found = {e.key: e.paths(theta, begin) for e in model.emissions}
    remembering = {key: paths for key, paths in found.items() if paths is not None}
    ends, here, chance = np.cumsum(begin.length), begin.state, None
    to_end = np.repeat(ends, begin.length) - np.arange(len(table))  # 1 in the last row
    for step in range(horizon):
        at = ends - horizon + step
        unknown = {number: np.zeros(len(at), bool) for number in range(len(parts))}
        if back:
            left = horizon - step
            window = np.flatnonzero((to_end >= left) & (to_end <= left + back))
            seen, inside = panel.part(table, window), np.searchsorted(window, at)
            draw.A[at] = model.designs.columns(seen)[inside]
            unknown = {n: part.unknown(seen)[inside] for n, part in enumerate(parts)}
        if step:
            moves = model.transition.lines
            if moves and unknown[moves[0].part].any():
                raise ModelError(
                    "The transitions look back at an outcome of which the model says nothing, "
                    "because its own lag looks back to nothing."
                )
            chance = draw.move(at, here)
            here = choose(chance, rng)
        states = np.zeros(len(table), int)
        states[at] = here
        drawn, known = {}, {}
        for piece in model.emissions:
            own = piece.parts
            lost = np.any([unknown[number] for number in own], axis=0) if own else here < 0
            known[piece.key] = ~lost
            if piece.key in remembering:
                found = remembering[piece.key].step(rng, draw.A[at], here, ~lost)
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
        yield PathStep(at, draw.A[at], here, chance, drawn, known)


def check_draws(model: HMMModel) -> None:
    """Raise unless every outcome can be drawn."""
    if model.duration is not None:
        raise ModelError(
            "A model with durations predicts one step at most where outcomes depend on earlier "
            "outcomes, and nothing of custom outcomes: its paths ahead are not simulated. Use "
            "horizon=1, or leave lag() out."
        )
    for emission in model.emissions:
        if why := emission.why_not_drawn("be predicted"):
            raise ModelError(f"{why} predict(of='states') is possible without.")


def look_back(model: HMMModel) -> int:
    """How many rows the formulas of coming rows look back at outcomes; 0 when they do not."""
    return max(part.lags(set(model.outcomes)) for part in model.parts_ahead)
