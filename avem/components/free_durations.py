"""Durations that are free up to a maximum, and the durations that a user's choice becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.components.base import Block, Row
from avem.components.duration import Duration
from avem.components.durations import Durations, Stay
from avem.components.emission import BlockMaker
from avem.components.free import odds_part
from avem.components.lanes import Theta, by_subject
from avem.components.lines import Builder
from avem.components.located_durations import LocatedDurations
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling
from avem.data.layout import Chunk
from avem.kernels.logs import safe_log
from avem.kernels.semi_markov import StayPosterior, Stays

LENGTHS = "duration"
"""The probabilities of lengths (states, lengths), for the user and in theta."""
_ROUNDS = 50
_LEAST = 1e-300


@dataclass(frozen=True)
class FreeDurations(Durations):
    """Every length 1 ... D has a probability of its own in each state."""

    key = ""

    def param_info(self) -> dict[str, ParamInfo]:
        shape = (self.n_states, self.longest)
        return {LENGTHS: ParamInfo(shape, "simplex", "states x lengths of stays, 1 ... max")}

    def params_out(self, theta: Params, units: Scaling) -> Params:
        return {LENGTHS: np.array(theta[LENGTHS])}

    def params_in(self, params: Params, units: Scaling) -> Params:
        return {LENGTHS: np.array(params[LENGTHS], float)}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for k, u in product(range(self.n_states), range(self.longest)):
            yield Row({"state": k, "other": f"length {u + 1}"}, value[k, u], self.longest == 1)

    def middle(self) -> Params:
        return {LENGTHS: np.full((self.n_states, self.longest), 1 / self.longest)}

    def held(self, fixed) -> set[str]:
        return {LENGTHS} & set(fixed)

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        if LENGTHS in fixed:
            return []
        return [odds_part(LENGTHS, (k,), chances) for k, chances in enumerate(theta[LENGTHS])]

    def at(self, theta: Params, a: np.ndarray, effects: np.ndarray) -> Stay:
        chance = np.asarray(theta[LENGTHS])
        reach = _reach(chance)
        mean = reach.sum(1)
        parts = (chance / np.maximum(reach, _LEAST), reach, reach / mean[:, None], mean)
        return Stay(*(np.broadcast_to(part, (len(a), *part.shape)) for part in parts))

    def start(self, constant: int, mean: np.ndarray | float) -> Params:
        stay = 1 - 1 / np.maximum(np.broadcast_to(mean, self.n_states), 1.05)
        chance = stay[:, None] ** np.arange(self.longest)
        return {LENGTHS: chance / chance.sum(1, keepdims=True)}

    def block(self, maker: BlockMaker, by_lane: bool) -> FreeLengths:
        return FreeLengths(*self.duration.cuts)


def _reach(chance: Any, xp: Any = np) -> Any:
    """(states, lengths) that a stay lasts so long or longer."""
    return xp.flip(xp.cumsum(xp.flip(chance, 1), 1), 1)


class LengthCounts(NamedTuple):
    """What stays did, (length, state, subject) each; of sums, (length, state)."""

    phase: Any
    ended: Any
    stayed: Any


@dataclass(frozen=True)
class FreeLengths(Block):
    """Free durations to compiled code: an M-step in a few rounds of closed forms."""

    phased: bool
    """The first stay may have begun before the first row."""
    cut: bool
    """The last stay may go on after the last row."""

    def table(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None) -> Stays:
        """Chances of stays as `kernels.semi_markov` takes them."""
        chance = theta[LENGTHS]
        reach = _reach(chance, jnp)
        leave = (chance / jnp.maximum(reach, _LEAST)).at[:, -1].set(1.0)
        begins = jnp.zeros_like(reach).at[:, 0].set(1.0)
        phase = reach / reach.sum(1, keepdims=True) if self.phased else begins
        ends = leave.T[None, :, :, None]
        return Stays(phase.T[:, :, None], ends, 1.0 - ends, None, self.cut)

    def collect(self, posterior: StayPosterior, chunk: Chunk) -> LengthCounts:
        """Expected counts of every subject."""
        parts = (posterior.phase, posterior.ended[0], posterior.stayed[0])
        return LengthCounts(*(by_subject(part, chunk) for part in parts))

    def weigh(self, collected: LengthCounts, share: Array, chunk: Chunk) -> LengthCounts:
        return LengthCounts(*(part * share for part in collected))

    def value(self, theta, mean, cov, collected: LengthCounts, chunk) -> Array:
        """Expected log probability of the stays."""
        stays = self.table(theta, mean, chunk)
        logs = (safe_log(part) for part in (stays.phase, stays.leave[0], stays.stay[0]))
        pairs = zip(collected, logs, strict=True)
        phase, ended, stayed = ((count * log).sum((0, 1)) for count, log in pairs)
        return phase * self.phased + ended + stayed

    def sums(self, collected: LengthCounts, mean, second) -> LengthCounts:
        return LengthCounts(*(part.sum(-1) for part in collected))

    def maximise(self, theta, sums: LengthCounts, fixed, noise_floor):
        if LENGTHS in fixed:
            return {}
        states = range(len(theta[LENGTHS]))
        counts = [LengthCounts(*(np.asarray(part)[:, k] for part in sums)) for k in states]
        ways = (self.phased, self.cut)
        best = [_best(theta[LENGTHS][k], own, *ways) for k, own in enumerate(counts)]
        return {LENGTHS: np.stack(best)}

    def slopes(self, theta, sums: LengthCounts):
        chance = theta[LENGTHS]
        reach = np.maximum(_reach(chance), _LEAST)
        phase, ended, stayed = (np.asarray(part).T for part in sums)
        phase = phase * self.phased
        # A term log reach(u) has slope 1 / reach(u) in all chances from u on.
        of_reach = (phase - ended - stayed) / reach
        of_reach[:, 1:] += stayed[:, :-1] / reach[:, 1:]
        slope = np.cumsum(of_reach, axis=1)
        slope += np.where(ended > 0, ended / np.maximum(chance, _LEAST), 0.0)
        lengths = np.arange(1, chance.shape[1] + 1)
        slope -= phase.sum(1, keepdims=True) * lengths / reach.sum(1, keepdims=True)
        return {LENGTHS: slope}


def _best(chance: np.ndarray, counts: LengthCounts, phased: bool, cut: bool) -> np.ndarray:
    """Probabilities of lengths that raise the expected log likelihood.

    It is a sum over whole stays of log p and over cut ones of log reach, less log mean for each
    first stay that may have begun before. Cut stays are filled up, and log mean has a tangent.
    """
    n_first = counts.phase.sum() if phased else 0.0
    if counts.ended.sum() + counts.stayed.sum() + counts.phase.sum() < 1e-12:
        return chance
    lengths = np.arange(1, len(chance) + 1)
    cut_off = np.zeros_like(chance)
    if cut:  # what reached row u, less what went on or ended there
        reached = counts.phase + np.concatenate([[counts.ended.sum()], counts.stayed[:-1]])
        cut_off = np.maximum(reached - counts.ended - counts.stayed, 0.0)
    for _ in range(_ROUNDS):
        reach = np.maximum(_reach(chance[None])[0], _LEAST)
        whole = counts.ended + chance * np.cumsum(cut_off / reach)
        new = _scaled(whole, n_first, lengths, float(reach.sum()))
        if np.abs(new - chance).max() < 1e-12:
            return new
        chance = new
    return chance


def _scaled(whole: np.ndarray, n_first: float, lengths: np.ndarray, mean: float) -> np.ndarray:
    """Maximum of sum whole log p - n_first (p'lengths) / mean, the p adding up to 1.

    Its p are whole / (rate + n_first lengths / mean), where `rate` makes them add up.
    """
    weight = n_first * lengths / mean
    seen = whole > 0
    low = -weight[seen].min()  # there the first of them is infinite
    high = whole.sum()
    for _ in range(200):
        rate = 0.5 * (low + high)
        if (whole[seen] / (rate + weight[seen])).sum() > 1:
            low = rate
        else:
            high = rate
    found = np.where(seen, whole / np.where(seen, high + weight, 1.0), 0.0)
    return found / found.sum()


def make_durations(duration: Duration, n_states: int, part: int, builder: Builder) -> Durations:
    """The durations of a model; `part` is the number of their formula's design."""
    if duration.is_free:
        return FreeDurations(n_states, duration)
    return LocatedDurations.of(duration, n_states, part, builder)
