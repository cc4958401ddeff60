"""One matrix of probabilities in which some moves are impossible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from avem.components.moves import (
    MOVES_IN_WORDS,
    as_json,
    by_number,
    checked_moves,
    pairs_of,
    renumberings,
)
from avem.components.transitions import FreeTransitions, Transitions, register


@register
@dataclass(frozen=True)
class GivenMoves(FreeTransitions):
    """Probabilities of the moves that a user says there are; staying is always possible."""

    word = "moves"
    moves: Any = "all"
    """A word of `moves.py`, or pairs of states, by number or by name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "moves", checked_moves(self.moves))

    @property
    def keeps_order(self) -> bool:  # type: ignore[override]
        """Where not all moves are possible, they tell states apart; see `orders`."""
        return self.moves != "all"

    def bound(self, n_states: int, part: int, builder: Any) -> Transitions:
        pairs_of(self.moves, n_states)  # checks them
        return replace(self, n_states=n_states)

    def named(self, names: Sequence[str]) -> GivenMoves:
        return replace(self, moves=by_number(self.moves, names))

    def possible(self) -> np.ndarray:
        found = np.eye(self.n_states, dtype=bool)
        for k, m in pairs_of(self.moves, self.n_states):
            found[k, m] = True
        return found

    def orders(self) -> Iterable[tuple[int, ...]] | None:
        if self.moves == "all":
            return None
        return renumberings(pairs_of(self.moves, self.n_states), self.n_states)

    def describe(self) -> str:
        said = MOVES_IN_WORDS[self.moves] if isinstance(self.moves, str) else "as listed"
        return f"moves {said}"

    def code(self) -> str:
        return repr(self.moves if isinstance(self.moves, str) else list(self.moves))

    def __repr__(self) -> str:
        return self.code()

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.word, "moves": as_json(self.moves)}
