"""What users say of parameters: "coef[0, 'x'] == 0", read without running any of it.

A reference is a parameter's name as in `fit.params`, and in brackets what tells its numbers apart:
states by number or name, moves by two states, outcomes, terms and effects by name, ``:`` for all.
What is left out stands for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from avem.components.base import Row
from avem.errors import ModelError, did_you_mean

_NAME = r"[^\W\d][\w.]*"
_ITEM = r"""\s*(?::|\d+|'[^']*'|"[^"]*")\s*"""
_REFERENCE = rf"({_NAME})\s*(?:\[({_ITEM}(?:,{_ITEM})*)\])?"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_EQUAL = re.compile(rf"\s*{_REFERENCE}\s+equal(?:\s+over\s+states)?\s*")
_VALUE = re.compile(rf"\s*{_REFERENCE}\s*(==|<=|>=)\s*({_NUMBER})\s*")
_TIE = re.compile(rf"\s*{_REFERENCE}\s*==\s*{_REFERENCE}\s*")
_LONGEST, _MOST, _FARTHEST = 500, 1000, 1e75
_AXES = ("cluster", "state", "to_state", "outcome", "term", "effect", "other")
Item = int | str | None
"""A state's number, a name, or all."""


class Mention(NamedTuple):
    """Some numbers of one parameter."""

    name: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Constraint:
    """One sentence about parameters."""

    text: str
    first: Mention
    word: str
    """"==", ">=", "<=" or "equal"."""
    second: Mention | float | None
    """None: over the states (or whatever ":" stands for) of the first."""


def as_constraints(given: Any) -> tuple[Constraint, ...]:
    """What a user gives: a sentence, or a list of them."""
    listed = [given] if isinstance(given, str | Constraint) else given
    if listed is None:
        return ()
    if not isinstance(listed, list | tuple):
        raise ModelError(
            f"constraints is a {type(given).__name__}; a list of sentences such as "
            "\"coef[0, 'x'] == 0\" is wanted."
        )
    if len(listed) > _MOST:
        raise ModelError(f"constraints has {len(listed):,} sentences; {_MOST:,} are the most.")
    return tuple(one if isinstance(one, Constraint) else _parsed(one) for one in listed)


def _parsed(text: Any) -> Constraint:
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ModelError(f"constraints has {str(text)[:60]!r}; a sentence is wanted: 'a[0] == 1'.")
    own = " ".join(text.split())
    if found := _EQUAL.fullmatch(text):
        first = _reference(*found.groups())
        if None not in first.items:
            raise ModelError(
                f"The constraint {own!r} does not say over what; write ':' there, as in "
                f"\"{first.name}[:, 'x'] equal\", or two sides with '=='."
            )
        return Constraint(own, first, "equal", None)
    if found := _VALUE.fullmatch(text):
        value = float(found[4])
        if abs(value) > _FARTHEST:
            raise ModelError(f"The constraint {own!r}: no parameter comes near {found[4]}.")
        return Constraint(own, _reference(found[1], found[2]), found[3], value)
    if found := _TIE.fullmatch(text):
        sides = (_reference(found[1], found[2]), _reference(found[3], found[4]))
        return Constraint(own, sides[0], "==", sides[1])
    raise ModelError(
        f"The constraint {own!r} is not understood. Write \"coef[0, 'x'] == 0\", "
        "\"coef[0, 'x'] == coef[1, 'x']\", \"coef[:, 'x'] equal\", or \"variance[0] >= 0.1\": "
        "names of parameters as in fit.params, states by number or name, terms and outcomes by "
        "name in quotes."
    )


def reference(text: str) -> Mention:
    """Some numbers of a parameter: "coef[:, 'x']"."""
    found = re.fullmatch(rf"\s*{_REFERENCE}\s*", text) if len(text) <= _LONGEST else None
    if found is None:
        raise ModelError(
            f'{text[:60]!r} is no name of a parameter; "coef" or "coef[:, \'x\']" is wanted.'
        )
    return _reference(found[1], found[2])


def _reference(name: str, items: str | None) -> Mention:
    found = re.findall(r"""'[^']*'|"[^"]*"|:|\d+""", items or "")
    return Mention(name, tuple(_item(one) for one in found))


def _item(text: str) -> Item:
    if text == ":":
        return None
    return int(text) if text.isdigit() else text[1:-1]


class Entry(NamedTuple):
    """One number of a parameter."""

    at: int
    """Its place in the array, flat."""
    where: dict[str, Any]
    """By axis, what it belongs to: numbers of states, and names."""
    constant: bool


@dataclass(frozen=True)
class Named:
    """All numbers of a model by the words that users have for them."""

    entries: dict[str, list[Entry]]
    states: tuple[str, ...]
    """Their names, or none."""
    size: int
    """How many states there are."""

    def found(self, of: Mention, text: str, who: str = "The constraint") -> list[Entry]:
        """The numbers that a reference means."""
        if of.name not in self.entries:
            raise ModelError(
                f"{who} {text!r}: {of.name!r} is no parameter of this model, which has "
                f"{', '.join(self.entries)}.{did_you_mean(of.name, self.entries)}"
            )
        left, axes = self.entries[of.name], self._axes(of.name)
        if "other" in axes and len(of.items) >= 2:  # of a pair, the other order is stored
            *rest, one, other = of.items
            turned = self._chosen(left, axes, (*rest, other, one))
            left = self._chosen(left, axes, of.items) or turned or []
        else:
            for item in of.items:
                axis = self._axis(item, left, axes, of, text)
                axes = axes[axes.index(axis) + 1 :]
                if item is not None:
                    left = [one for one in left if self._is(one, axis, item)]
        if not left:
            raise ModelError(
                f"The constraint {text!r}: {of.name!r} has no such number. {self._words(of.name)}"
            )
        return left

    def _chosen(self, left: list[Entry], axes: list[str], items: tuple[Item, ...]) -> list[Entry]:
        """Those that items mean, each standing on the next of the last axes."""
        for item, axis in zip(items, axes[len(axes) - len(items) :], strict=False):
            left = [one for one in left if item is None or self._is(one, axis, item)]
        return left

    def _axes(self, name: str) -> list[str]:
        own = self.entries[name]
        return [axis for axis in _AXES if any(one.where.get(axis) is not None for one in own)]

    def _axis(self, item: Item, left: list[Entry], axes: list[str], of: Mention, text: str) -> str:
        """The next axis on which an item can stand."""
        fits = [
            axis
            for axis in axes
            if (item is None or any(self._is(one, axis, item) for one in left))
        ]
        if not fits:
            raise ModelError(
                f"The constraint {text!r}: {item!r} is nothing that {of.name!r} has"
                f"{' there' if of.items.index(item) else ''}. {self._words(of.name)}"
            )
        return fits[0]

    def _is(self, entry: Entry, axis: str, item: Item) -> bool:
        value = entry.where.get(axis)
        if isinstance(value, int | np.integer):
            named = self.states[value] if self.states else None
            return value == item or (isinstance(item, str) and item == named)
        if axis in ("effect", "other") and isinstance(value, str) and isinstance(item, str):
            return item in (value, value.partition(": ")[2])
        return value == item

    def _words(self, name: str) -> str:
        """What tells the numbers of a parameter apart."""
        said = []
        for axis in self._axes(name):
            values = dict.fromkeys(one.where[axis] for one in self.entries[name])
            names = [self._label(value) for value in values if value is not None]
            said.append(f"{axis.replace('to_state', 'next state')} ({', '.join(names[:12])})")
        return f"Its numbers are told apart by {', then '.join(said)}."

    def _label(self, value: Any) -> str:
        named = isinstance(value, int | np.integer) and self.states
        return self.states[value] if named else str(value)

    def paired(self, first: Mention, second: Mention, text: str) -> list[tuple[Entry, Entry]]:
        """The numbers of two references, one beside the other."""
        one, other = self.found(first, text), self.found(second, text)
        if len(one) != len(other):
            raise ModelError(
                f"The constraint {text!r} has {len(one)} numbers on its left and {len(other)} on "
                "its right; as many are wanted. Say which, with state, outcome and term."
            )
        return list(zip(one, other, strict=True))

    def over(self, of: Mention, text: str) -> list[list[Entry]]:
        """The numbers of a reference in groups that differ in what ``:`` stands for alone."""
        all_of_them = self.found(of, text)
        axes, tied, left = self._axes(of.name), [], self.entries[of.name]
        for item in of.items:
            axis = self._axis(item, left, axes, of, text)
            axes = axes[axes.index(axis) + 1 :]
            tied += [axis] if item is None else []
        if "state" not in tied and text.endswith("states"):
            raise ModelError(
                f"The constraint {text!r}: its ':' stands for {', '.join(tied)}, not for states. "
                f"{self._words(of.name)}"
            )
        groups: dict[tuple, list[Entry]] = {}
        for entry in all_of_them:
            key = tuple(str(v) for axis, v in entry.where.items() if axis not in tied)
            groups.setdefault(key, []).append(entry)
        if "state" not in tied and all(len(group) == 1 for group in groups.values()):
            raise ModelError(
                f"The constraint {text!r} says nothing: its ':' stands for {', '.join(tied)}, of "
                f"which there is one. {self._words(of.name)}"
            )
        return list(groups.values())


def named_rows(rows: Iterable[tuple[str, Row]], effects: Sequence[str]) -> dict[str, list[Entry]]:
    """Every number by its parameter, from rows whose estimates are their places in the array.

    Those of the covariance of `effects` are told apart by the effects.
    """
    found: dict[str, list[Entry]] = {}
    for name, row in rows:
        at, where = int(row.estimate), dict(row.where)
        if name == "effect_covariance":
            i, j = divmod(at, len(effects))
            where = {"effect": effects[i], "other": effects[j]}
        found.setdefault(name, []).append(Entry(at, where, row.constant))
    return found


def with_states(text: str, before: Sequence[str], after: Sequence[str]) -> str:
    """A reference, or a sentence, with the states' new names in place of the old ones.

    Without new names, numbers.
    """

    def new(found: re.Match[str]) -> str:
        item = found[0][1:-1]
        if item not in before:
            return found[0]
        place = before.index(item)
        return repr(after[place]) if after else str(place)

    return re.sub(r"""'[^']*'|"[^"]*\"""", new, text)


def text_of(name: str, entry: Entry, value: float) -> str:
    """The sentence that one number has a value."""
    places = [entry.where[axis] for axis in _AXES if entry.where.get(axis) is not None]
    items = [str(one) if isinstance(one, int | np.integer) else repr(str(one)) for one in places]
    return f"{name}[{', '.join(items)}] == {float(value)!r}"
