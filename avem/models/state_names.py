"""What states are called: names that a user gave them, or "state 0", "state 1", ..."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from avem.errors import ModelError

_NUMBER = re.compile(r"(?:state[ _-]?)?(\d+)", re.IGNORECASE)
_STATE = re.compile(r"\b[Ss]tate (\d+)\b")


def state_labels(names: Sequence[str], n_states: int) -> tuple[str, ...]:
    """What each state is called in a sentence: its name, or "state 0"."""
    return tuple(names) or tuple(f"state {k}" for k in range(n_states))


def check_state_names(names: Any, n_states: int, where: str = "state_names") -> tuple[str, ...]:
    """The names of all states, or an error that says what is wrong with them; None: no names."""
    if names is None:
        return ()
    if isinstance(names, str | Mapping) or not hasattr(names, "__iter__"):
        raise ModelError(
            f"{where} is {names!r}; a list with a name for each of {n_states} states is wanted."
        )
    given = list(names)
    if len(given) != n_states:
        raise ModelError(
            f"{where} has {len(given)} names, {given!r}, and the model has {n_states} "
            f"state{'s' if n_states != 1 else ''}: give each state one name."
        )
    return tuple(_checked(name, k, given, where) for k, name in enumerate(given))


def _checked(name: Any, k: int, given: list, where: str) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ModelError(
            f"{where} has {name!r} for state {k}; text is wanted, in one line and not empty."
        )
    same = [j for j, other in enumerate(given) if isinstance(other, str) and _same(other, name)]
    if len(same) > 1:
        raise ModelError(f"{where} has {name!r} twice; every state needs a name of its own.")
    number = _NUMBER.fullmatch(name.strip())
    if number and int(number[1]) != k and int(number[1]) < len(given):
        raise ModelError(
            f"{where} has {name!r} for state {k}, which reads like the number of state "
            f"{int(number[1])}: states are counted from 0. Choose another name."
        )
    return name.strip()


def _same(one: str, other: str) -> bool:
    return one.strip() == other.strip()


def renamed(names: Any, now: Sequence[str], n_states: int) -> tuple[str, ...]:
    """All names, from a list, or from a dict of states (numbers, or names of now) to new names."""
    where = "rename_states"
    if not isinstance(names, Mapping):
        return check_state_names(names, n_states, where)
    new: dict[int, Any] = {}
    for state, name in names.items():
        k = find_state(state, now, n_states, where)
        if k in new:
            raise ModelError(f"{where} names state {k} twice: {new[k]!r} and {name!r}.")
        new[k] = name
    labels = state_labels(now, n_states)
    every = [new.get(k, labels[k]) for k in range(n_states)]
    return check_state_names(every, n_states, where) if new else tuple(now)


def find_state(state: Any, names: Sequence[str], n_states: int, where: str) -> int:
    """The number of a state that a user gave by number or by name."""
    labels = state_labels(names, n_states)
    if isinstance(state, str) and state in labels:
        return labels.index(state)
    whole = isinstance(state, int | np.integer) and not isinstance(state, bool)
    if whole and 0 <= int(state) < n_states:
        return int(state)
    known = f" or {', '.join(map(repr, names))}" if names else ""
    wanted = f"0 to {n_states - 1}" if n_states > 1 else "0"
    raise ModelError(f"{where}: there is no state {state!r}; the states are {wanted}{known}.")


def name_states(states: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """An array of states as their names; as it is, where they have none."""
    return np.array(names, dtype=object)[states] if names else states


# --- names in words -----------------------------------------------------------------------------


def with_names(text: str, names: Sequence[str]) -> str:
    """A sentence that speaks of "state 0", with its name in place; without names as it is."""
    return _STATE.sub(lambda found: _name(found[1], names, found[0]), text) if names else text


def _name(number: str, names: Sequence[str], otherwise: str) -> str:
    return names[int(number)] if int(number) < len(names) else otherwise
