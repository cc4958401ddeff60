"""How long states last in a model: the interface, and moves where no state follows itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from avem.components.base import Component
from avem.components.duration import Duration
from avem.components.emission import BlockMaker
from avem.components.lines import Line
from avem.components.logit_transitions import LogitTransitions
from avem.components.param_info import Params
from avem.components.transitions import FreeTransitions, Transitions, register
from avem.errors import ModelError
from avem.numerics.markov import choose


@register
@dataclass(frozen=True)
class Departures(FreeTransitions):
    """Where a stay leads to when it ends: never to the state itself."""

    word = "departures"

    def describe(self) -> str:
        return ""

    def code(self) -> str:
        return ""

    def possible(self) -> np.ndarray:
        return ~np.eye(self.n_states, dtype=bool)

    def start(self, constant: int) -> Params:
        return self.middle()

    def check_params(self, params: Params, where: str) -> None:
        given = params.get("transition")
        if given is not None and np.diagonal(given).any():
            raise ModelError(
                f"{where}['transition'] has chances of staying; with duration= it says where a "
                "stay leads to when it ends, and has 0 on its diagonal."
            )


def departures(given: Transitions) -> Departures:
    """Moves of a model with durations, where a user gave transitions."""
    if given != Departures() and given != LogitTransitions():
        raise ModelError(
            "With duration=, transitions have no formula and are no object of their own: they say "
            "where a stay leads to when it ends. Give covariates and effects to the duration: "
            "duration=avem.Duration('negative_binomial', '~ x + (1 | subject)')."
        )
    return Departures()


class Stay(NamedTuple):
    """Stays at some rows; (rows, states, durations) each, but `mean`."""

    leave: np.ndarray
    """The chance that a stay which has lasted u rows ends; from the last u on, that of all."""
    reach: np.ndarray
    """The chance that a stay lasts u rows or more."""
    phase: np.ndarray
    """The chance that a row is the u-th of its stay (or, of the last u, a later one)."""
    mean: np.ndarray
    """(rows, states) how many rows a stay lasts."""

    def lengths(self, n: int) -> np.ndarray:
        """(rows, states, n) the chance that a stay lasts 1, 2, ... n rows."""
        longest = self.leave.shape[-1]
        at = np.minimum(np.arange(n), longest - 1)
        later = np.maximum(np.arange(n) - longest + 1, 0)
        stay = 1 - self.leave[..., -1:]
        return (self.reach * self.leave)[..., at] * stay**later


@dataclass(frozen=True)
class Durations(Component, ABC):
    """The interface of durations."""

    n_states: int
    duration: Duration
    """As the user gave it, with a maximum."""

    @property
    def longest(self) -> int:
        """D."""
        assert self.duration.max is not None  # a model that has met data has one
        return self.duration.max

    @property
    def lines(self) -> tuple[Line, ...]:
        """Its linear predictors, the location first; none, where it has no formula."""
        return ()

    @property
    def ratio(self) -> str:
        """What exp of a coefficient is; empty where there are none, or states differ in it."""
        return ""

    @property
    def keeps_order(self) -> bool:
        """The states have an order of their own: they are not renumbered."""
        return False

    @property
    def is_markov(self) -> bool:
        """It is a Markov chain, whatever the parameters are."""
        return False

    @property
    def has_markov(self) -> bool:
        """A Markov chain is a special case, inside the range of its parameters."""
        return False

    def within(self, other: Durations) -> bool:
        """Whether it is a special case of another, its lines apart."""
        return self == other

    @property
    def columns(self) -> set[int]:
        """The design columns that it reads."""
        return {c for line in self.lines for c in (*line.x_cols, *line.z_cols)}

    @property
    def tails(self) -> np.ndarray:
        """(states,) bool: beyond the maximum the distribution is not what it says it is."""
        return np.zeros(self.n_states, bool)

    @abstractmethod
    def at(self, theta: Params, a: np.ndarray, effects: np.ndarray) -> Stay:
        """Stays in every state, at design columns (rows, columns) and effects (rows, d)."""

    @abstractmethod
    def start(self, constant: int, mean: np.ndarray | float) -> Params:
        """Its entries of theta where stays last about so many rows."""

    @abstractmethod
    def block(self, maker: BlockMaker, by_lane: bool) -> Any:
        """Its compiled half; `by_lane`: what it reads does not change within a sequence."""

    def draw_step(
        self,
        stay: Stay,
        entered: np.ndarray,
        before: tuple[np.ndarray, np.ndarray] | None,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(rows,) states and how many rows more than one their stays have lasted.

        `entered` are the states that follow where stays end; `before` are states and rows of the
        step before, None at the first one.
        """
        rows = np.arange(len(entered))
        if before is None:
            if not self.duration.cuts[0]:
                return entered, np.zeros_like(entered)
            return entered, choose(stay.phase[rows, entered], rng)
        state, lasted = before
        ends = rng.random(len(rows)) < stay.leave[rows, state, lasted]
        longer = np.minimum(lasted + 1, self.longest - 1)
        return np.where(ends, entered, state), np.where(ends, 0, longer)
