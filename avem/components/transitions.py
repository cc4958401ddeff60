"""How the chain moves between states: the interface, and one matrix of probabilities for all.

A subclass of `FreeTransitions` that says which moves are possible is a new kind of transitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, ClassVar, TypeVar

import numpy as np
from jax import Array

from avem.components.base import Block, Component, Row
from avem.components.emission import BlockMaker
from avem.components.free import odds_part
from avem.components.lanes import Theta, by_subject
from avem.components.lines import Builder, Line
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling
from avem.data import parse_formula
from avem.data.clock import Clock
from avem.data.formula import Formula
from avem.data.layout import Chunk
from avem.errors import ModelError
from avem.kernels import forward_backward as hmm
from avem.kernels.forward import ByCell

STICKINESS = 0.9
"""Probability of staying, at the start."""
_SMALLEST = 1e-12
Kind = TypeVar("Kind", bound="Transitions")
KINDS: dict[str, type[Transitions]] = {}
"""The kinds of transitions that a file may name, by their words."""


def register(kind: type[Kind]) -> type[Kind]:
    """Make a kind of transitions known by its word, so that fits with it can be loaded."""
    KINDS[kind.word] = kind
    return kind


@dataclass(frozen=True)
class Transitions(Component, ABC):
    """The interface of transitions; what a user gives is `bound` to a model."""

    word: ClassVar[str]
    """Under which files know it."""
    keeps_order: ClassVar[bool] = False
    """The states have an order of their own: they are not renumbered."""
    may_be_stationary: ClassVar[bool] = False
    """The first state may follow their stationary distribution."""
    any_chances: ClassVar[bool] = False
    """Without covariates, its possible moves may have any probabilities."""
    n_states: int = 0

    @property
    def formula(self) -> Formula:
        """What it reads from the table."""
        return parse_formula("~ 1")

    @property
    def clock(self) -> Clock | None:
        """What reads intervals of time; None where time goes in steps."""
        return None

    @property
    def lines(self) -> tuple[Line, ...]:
        """Its linear predictors; none, where one matrix serves all."""
        return ()

    def named(self, names: Sequence[str]) -> Transitions:
        """The same where a user may have spoken of states by these names."""
        return self

    def bound(self, n_states: int, part: int, builder: Builder) -> Transitions:
        """The transitions of a model; `part` is the number of their formula's design."""
        return replace(self, n_states=n_states)

    def in_closed_form(self, n_states: int, stationary: bool) -> Transitions:
        """The same transitions with an M-step in closed form, where there are such."""
        return self

    @property
    def absorbing(self) -> tuple[int, ...]:
        """The states that are never left, whatever the parameters are."""
        return ()

    def orders(self) -> Iterable[tuple[int, ...]] | None:
        """The renumberings of the states that leave its structure as it is; None: all of them."""
        return [tuple(range(self.n_states))] if self.keeps_order else None

    def possible(self) -> np.ndarray:
        """(from, to) bool: which moves there are between one row and the next."""
        return np.ones((self.n_states, self.n_states), bool)

    def entered(self) -> np.ndarray:
        """(from, to) bool: the same to a row at whose time an absorbing state is entered."""
        return self.possible()

    def lacking(self, other: Transitions) -> np.ndarray:
        """(from, to) bool: its moves between different states that the other one has not."""
        away = ~np.eye(self.n_states, dtype=bool)
        return self.possible() & ~other.possible() & away

    def within(self, other: Transitions) -> bool:
        """Whether it is a special case of another, its lines apart."""
        return self == other or (other.any_chances and not self.lacking(other).any())

    def generators(self, theta: Params, a: np.ndarray, effects: np.ndarray) -> np.ndarray | None:
        """(rows, from, to) rates of moves; None where time goes in steps."""
        return None

    def intervals(self, a: np.ndarray) -> np.ndarray:
        """(rows,) the time that leads to rows with these design columns; in steps, 1."""
        return np.ones(len(a))

    def over(self, moves: np.ndarray, time: np.ndarray) -> np.ndarray:
        """(rows, from, to) probabilities over times (rows,), from `generators` or `matrices`."""
        pairs = zip(moves, time, strict=True)
        return np.stack([np.linalg.matrix_power(move, int(steps)) for move, steps in pairs])

    @abstractmethod
    def chances(
        self, theta: Params, a: np.ndarray, effects: np.ndarray, state: np.ndarray
    ) -> np.ndarray:
        """(rows, to) probabilities of moves from `state` (rows,) at design columns and effects."""

    def matrices(self, theta: Params, a: np.ndarray, effects: np.ndarray) -> np.ndarray:
        """(rows, from, to) probabilities of all moves."""
        every = range(self.n_states)
        rows = [self.chances(theta, a, effects, np.full(len(a), k)) for k in every]
        return np.stack(rows, axis=1)

    @abstractmethod
    def start(self, constant: int) -> Params:
        """Its entries of theta before anything is known; `constant` is the column of ones."""

    @abstractmethod
    def block(self, maker: BlockMaker, rows: np.ndarray) -> TransitionBlock:
        """Its compiled half; `rows` are those that a step leads into."""

    def describe(self) -> str:
        """It in words, for summaries; empty where there is nothing to say."""
        return f"transitions {self.word.replace('_', ' ')}"

    def code(self) -> str:
        """Python for what a user gives; empty for what a model has without being told."""
        return repr(self)

    def to_json(self) -> dict[str, Any]:
        """Its word and the fields that a user gives."""
        own = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {"kind": self.word, **own}


def as_transitions(given: Any) -> Transitions:
    """The transitions that a user gives as an object."""
    if not isinstance(given, Transitions):
        raise ModelError(
            f"transition is {given!r}; a one-sided formula such as '~ x', or an object of a class "
            "derived from avem.components.transitions.Transitions, is wanted."
        )
    return given


def from_json(found: dict[str, Any]) -> Transitions:
    """The transitions that `to_json` described; of a kind that is known here."""
    own = dict(found)
    kind = KINDS.get(own.pop("kind", ""))
    if kind is None:
        raise ModelError(
            f"its transitions are of the kind {found.get('kind')!r}, which is not known here. "
            "Import the file that defines and registers it."
        )
    unknown = own.keys() - {field.name for field in fields(kind)[1:]}
    if unknown:
        raise ModelError(f"its transitions {kind.word!r} have {min(unknown)[:40]!r}, unknown here.")
    return kind(**own)


class TransitionBlock(Block):
    """Transitions to compiled code."""

    @abstractmethod
    def table(
        self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None
    ) -> Array | ByCell:
        """Probabilities as `kernels.forward_backward` takes them; exp E_q[log] with `cov`."""

    def summed(self) -> TransitionBlock:
        """The same, which may collect sums over subjects where effects do not act on it."""
        return self

    def steps(self, chunk: Chunk) -> hmm.Steps:
        """How the local pass sums the pair probabilities."""
        return hmm.Steps()

    def collect(self, pair: Array, chunk: Chunk) -> Array:
        """Expected moves (cell, from, to, subject or lane)."""
        return by_subject(pair, chunk)

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * share


# --- one matrix -----------------------------------------------------------------------------------


@register
@dataclass(frozen=True)
class FreeTransitions(Transitions):
    """One matrix of probabilities for all subjects and times."""

    word = "free"
    key = ""
    any_chances = True

    @property
    def absorbing(self) -> tuple[int, ...]:
        alone = self.possible().sum(1) == 1
        return tuple(np.flatnonzero(alone & np.diagonal(self.possible())).tolist())

    def describe(self) -> str:
        return "" if self.word == FreeTransitions.word else super().describe()

    def param_info(self) -> dict[str, ParamInfo]:
        shape = (self.n_states, self.n_states)
        return {"transition": ParamInfo(shape, "simplex", "from state x to state")}

    def params_out(self, theta: Params, units: Scaling) -> Params:
        return {"transition": np.array(theta["transition"])}

    def params_in(self, params: Params, units: Scaling) -> Params:
        return {"transition": np.array(params["transition"], float)}

    def check_params(self, params: Params, where: str) -> None:
        given = params.get("transition")
        if given is not None and (given[~self.possible()] > 0).any():
            k, m = np.argwhere(~self.possible() & (given > 0))[0]
            raise ModelError(
                f"{where}['transition'] has a move from state {k} to state {m}, which "
                f"{self!r} does not have."
            )

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        possible = self.possible()
        for k, m in product(range(self.n_states), repeat=2):
            constant = not possible[k, m] or possible[k].sum() == 1
            yield Row({"state": k, "to_state": m}, value[k, m], constant)

    def middle(self) -> Params:
        possible = self.possible()
        return {"transition": possible / possible.sum(1, keepdims=True)}

    def held(self, fixed) -> set[str]:
        return {"transition"} & set(fixed)

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        if "transition" in fixed:
            return []
        rows = enumerate(theta["transition"])
        return [odds_part("transition", (k,), chances) for k, chances in rows]

    def relabelled(self, theta: Params, order: np.ndarray) -> Params:
        return {"transition": theta["transition"][np.ix_(order, order)]}

    def chances(self, theta, a, effects, state) -> np.ndarray:
        return theta["transition"][state]

    def matrices(self, theta, a, effects) -> np.ndarray:
        return np.broadcast_to(theta["transition"], (len(a), self.n_states, self.n_states))

    def start(self, constant: int) -> Params:
        stay = STICKINESS * np.eye(self.n_states)
        away = self.possible() & ~np.eye(self.n_states, dtype=bool)
        n_away = away.sum(1, keepdims=True)
        away = away * (1 - STICKINESS) / np.maximum(n_away, 1)
        return {"transition": np.where(n_away > 0, stay + away, np.eye(self.n_states))}

    def block(self, maker: BlockMaker, rows: np.ndarray) -> FreeMoves:
        return FreeMoves()


@dataclass(frozen=True)
class FreeMoves(TransitionBlock):
    """One matrix to compiled code."""

    def table(self, theta, f, chunk, cov=None) -> Array:
        return theta["transition"]

    def sums(self, collected: Array, mean, second) -> Array:
        return collected.sum((0, -1))

    def maximise(self, theta, sums, fixed, noise_floor):
        if "transition" in fixed:
            return {}
        leaving = sums.sum(1, keepdims=True)
        stays = np.broadcast_to(leaving < 1e-12, sums.shape)
        moves = sums / np.where(leaving < 1e-12, 1.0, leaving)
        return {"transition": np.where(stays, theta["transition"], moves)}

    def slopes(self, theta, sums):
        return {"transition": slope_of_chances(sums, theta["transition"])}

    def expected(self, theta, sums):
        return expected_of_chances(sums, theta["transition"])

    def information(self, theta, sums):
        return {"transition": information_of_chances(sums, theta["transition"])}


def slope_of_chances(count: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Derivative of sum(count log chance); 0 where nothing was counted."""
    return np.where(count > 0, count / np.where(chance > 0, chance, 1.0), 0.0)


def expected_of_chances(count: np.ndarray, chance: np.ndarray) -> float:
    """sum(count log chance); minus infinity where what was counted has no chance."""
    counted = count > 0
    if (chance[counted] <= 0).any():
        return -np.inf
    return float((count[counted] * np.log(chance[counted])).sum())


def information_of_chances(count: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """(entries, entries) expected information on chances, each row's sum being what it is."""
    leaving = np.broadcast_to(count.sum(-1, keepdims=True), count.shape)
    return np.diag((leaving / np.maximum(chance, _SMALLEST)).ravel())
