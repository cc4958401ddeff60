"""Families that a file cannot hold: the user gives them again, and what was kept is compared.

Nothing that a file says is imported or run. It has the names of functions, for messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from avem.data import parse_formula
from avem.errors import FileError, ModelError, did_you_mean
from avem.families import Custom
from avem.fits.io.checked_json import typed


@dataclass(frozen=True)
class _Kept:
    """What a file has of a custom family: `Custom.evidence`."""

    name: str
    functions: tuple[str, ...]
    params: tuple[str, ...]
    effects: tuple[str, ...]
    values: tuple[str, ...]


class Given:
    """What `load` was given as `custom`: one family, or a dict from outcomes to families."""

    def __init__(self, custom: Any) -> None:
        found = custom if isinstance(custom, Mapping) else {}
        for name, family in found.items():
            _check(family, f"custom[{name!r}]")
        if custom is not None and not isinstance(custom, Mapping):
            _check(custom, "custom")
        self._named = dict(found)
        self._one = None if isinstance(custom, Mapping) else custom
        self._met: list[str] = []

    def take(self, formula: str, saved: Mapping[str, Any]) -> Custom:
        """The family of these outcomes, which must be the one that was fitted."""
        outcomes = parse_formula(formula).outcomes
        name, kept = "+".join(outcomes), typed(_Kept, saved, "family")
        _check_numbers(kept.values)
        family = self._named.get(name, self._one)
        self._met.append(name)
        if family is None:
            made_of = ", ".join(kept.functions)
            raise FileError(
                f"its outcome {name!r} has a custom family, made of your functions {made_of}, "
                "which no file holds. Give the same avem.Custom again: avem.load(path, "
                f"custom={{{name!r}: family}}).{did_you_mean(name, self._named)}"
            )
        if differs := family.differs(asdict(kept), len(outcomes)):
            raise FileError(f"custom has another family than was fitted for {name!r}: {differs}.")
        return family

    def check_used(self) -> None:
        """Raise where a family was given for nothing, or one for several outcomes."""
        others = [name for name in self._named if name not in self._met]
        words = f"custom families have {', '.join(self._met) or 'none of its outcomes'}"
        if others or (self._one is not None and not self._met):
            raise FileError(f"custom is for {', '.join(map(repr, others)) or 'a family'}; {words}.")
        if self._one is not None and len(self._met) > 1:
            raise FileError(f"{words}: give a dict with one for each.")


def _check(family: Any, where: str) -> None:
    if not isinstance(family, Custom):  # from the user
        raise ModelError(
            f"{where} is {family!r}; the avem.Custom that was fitted is wanted, as in "
            "avem.load(path, custom={'y': avem.Custom(log_prob, params=...)})."
        )


def _check_numbers(values: tuple[str, ...]) -> None:
    try:
        list(map(float, values))
    except ValueError:
        raise FileError("its family is damaged: a log probability is no number.") from None
