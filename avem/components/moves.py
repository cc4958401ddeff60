"""Which moves between states a user says there are: a word, or pairs of states."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from typing import Any, Literal, get_args

import numpy as np

from avem.data.frames import shown
from avem.errors import ModelError, did_you_mean

MovesWord = Literal["all", "progressive", "left_to_right", "banded", "absorbing"]
WORDS: tuple[str, ...] = get_args(MovesWord)
"""Between all states; from each to the next (two words); to neighbours; all but from the last."""
MOVES_IN_WORDS = {
    "all": "between all states",
    "progressive": "from each state to the next",
    "left_to_right": "from each state to the next",
    "banded": "to neighbouring states",
    "absorbing": "the last state never left",
}
_MANY_STATES = 7
"""With more, nobody looks which renumberings leave the moves as they are."""


def checked_moves(moves: Any) -> Any:
    """A word, or pairs as tuples, each once, by state that is left."""
    if isinstance(moves, str):
        if moves not in WORDS:
            raise ModelError(
                f"moves is {moves!r}; it is one of {', '.join(map(repr, WORDS))}, or a list of "
                f"pairs of states.{did_you_mean(moves, WORDS)}"
            )
        return moves
    if not isinstance(moves, list | tuple) or not moves:
        raise ModelError(
            f"moves is {shown(moves)}; a list of pairs of states, [(0, 1), ...], is wanted."
        )
    pairs = [_pair(pair) for pair in moves]
    if len(set(pairs)) < len(pairs):
        twice = next(pair for pair in pairs if pairs.count(pair) > 1)
        raise ModelError(f"moves has {twice!r} twice; once is enough.")
    return tuple(sorted(pairs, key=str))


def _pair(pair: Any) -> tuple[Any, Any]:
    whole = isinstance(pair, list | tuple) and len(pair) == 2
    if not (whole and all(_is_state(state) for state in pair) and pair[0] != pair[1]):
        raise ModelError(
            f"moves has {shown(pair)}; a pair of two different states is wanted: (0, 1), or "
            "('well', 'ill')."
        )
    first, second = (state if isinstance(state, str) else int(state) for state in pair)
    return first, second


def _is_state(state: Any) -> bool:
    whole = isinstance(state, int | np.integer) and not isinstance(state, bool)
    return isinstance(state, str) or (whole and int(state) >= 0)


def pairs_of(moves: Any, n_states: int) -> tuple[tuple[int, int], ...]:
    """(from, to) of every move between different states that there is."""
    every = [(i, j) for i, j in product(range(n_states), repeat=2) if i != j]
    if moves == "all":
        return tuple(every)
    if moves in ("progressive", "left_to_right"):
        return tuple((i, j) for i, j in every if j == i + 1)
    if moves == "banded":
        return tuple((i, j) for i, j in every if abs(i - j) == 1)
    if moves == "absorbing":
        return tuple((i, j) for i, j in every if i < n_states - 1)
    wrong = [p for p in moves if not all(isinstance(i, int) and i < n_states for i in p)]
    if wrong:
        raise ModelError(
            f"moves has {wrong[0]!r}; the model has the states 0 to {n_states - 1}, by number, or "
            "by their names where state_names= (or the labels of known=) gives them some."
        )
    return moves


def by_number(moves: Any, names: Sequence[str]) -> Any:
    """The moves with states by number, where they are given by name."""
    if isinstance(moves, str) or not names:
        return moves
    number = {name: k for k, name in enumerate(names)}
    unknown = [i for p in moves for i in p if isinstance(i, str) and i not in number]
    if unknown:
        raise ModelError(
            f"moves has {unknown[0]!r}, which is no state; the states are {', '.join(names)}."
            f"{did_you_mean(unknown[0], names)}"
        )
    return tuple((number.get(i, i), number.get(j, j)) for i, j in moves)


def renumberings(pairs: Sequence[tuple[int, int]], n_states: int) -> list[tuple[int, ...]]:
    """Those of the states that leave the moves as they are; where there are many, none but one."""
    if n_states > _MANY_STATES:
        return [tuple(range(n_states))]
    own, every = set(pairs), permutations(range(n_states))
    return [order for order in every if {(order[k], order[m]) for k, m in own} == own]


def as_json(moves: Any) -> Any:
    """The moves as JSON keeps them."""
    return moves if isinstance(moves, str) else [list(pair) for pair in moves]
