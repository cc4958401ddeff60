"""Which moves between states a user says there are: a word, or pairs of states."""

from __future__ import annotations

from typing import Any

import numpy as np

from avem.data.frames import shown
from avem.errors import ModelError, did_you_mean

WORDS = ("all", "progressive")


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
