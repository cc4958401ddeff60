"""Families whose outcomes are labels: the levels are given, or learned from the data."""

from __future__ import annotations

from typing import Any

from avem.families.univariate import Univariate


class Labelled(Univariate):
    """One of several labels, `levels`; empty where the data have yet to say which there are."""

    levels: tuple[Any, ...]

    def __repr__(self) -> str:
        given = f"levels={self.levels!r}" if self.levels else ""
        return f"{type(self).__name__}({given})"
