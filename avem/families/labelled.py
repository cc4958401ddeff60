"""Families whose outcomes are labels: the levels are given, or learned from the data."""

from __future__ import annotations

from typing import Any

from avem.families.base import Family
from avem.families.univariate import Univariate


class Labelled(Univariate):
    """One of several labels, `levels`; empty where the data have yet to say which there are."""

    levels: tuple[Any, ...]

    def within(self, other: Family, numbers: tuple[int, int] = (1, 1)) -> bool:
        same = isinstance(other, Labelled) and self.name == other.name
        return (
            same
            and (not self.ordered or self.levels == other.levels)
            and set(self.levels) == set(other.levels)
        )

    def __repr__(self) -> str:
        given = f"levels={self.levels!r}" if self.levels else ""
        return f"{type(self).__name__}({given})"
