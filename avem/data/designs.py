"""The designs of all formulas of a model, over one shared set of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from avem.data.clock import Clock
from avem.data.columns import refuse_beyond
from avem.data.design import Design
from avem.data.panel import Panel
from avem.errors import DataError
from avem.numerics.rows import filled


class Columns(NamedTuple):
    """Design columns of a panel, and which rows each part cannot use for want of a past."""

    A: np.ndarray
    """(rows, columns)."""
    incomplete: tuple[np.ndarray, ...]
    """For each part, (rows,) bool."""


@dataclass(frozen=True, eq=False)
class Designs:
    """Several designs whose common columns are kept once."""

    parts: tuple[Design, ...]
    clock: Clock | None = None
    """Reads intervals of time, into columns of their own at the end; None: time goes in steps."""

    @cached_property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """(term, name) of each shared column."""
        own = () if self.clock is None else self.clock.keys
        return (*dict.fromkeys(key for part in self.parts for key in part.keys), *own)

    @property
    def clock_cols(self) -> tuple[int, ...]:
        """The columns of the interval and of the event, where there is a clock."""
        return () if self.clock is None else tuple(self._place[key] for key in self.clock.keys)

    @cached_property
    def _place(self) -> dict[tuple[str, str], int]:
        return {key: place for place, key in enumerate(self.keys)}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the shared columns."""
        return tuple(name for _, name in self.keys)

    def x_cols(self, part: int) -> tuple[int, ...]:
        """The shared columns of a part's fixed terms."""
        design = self.parts[part]
        return tuple(self._place[design.keys[c]] for c in design.x_cols)

    def z_cols(self, part: int) -> tuple[int, ...]:
        """The shared columns of a part's effects."""
        design = self.parts[part]
        return tuple(self._place[design.keys[c]] for c in design.z_cols)

    def offset_col(self, part: int) -> int:
        """The shared column that a part adds as it is; -1 where there is none."""
        design = self.parts[part]
        return self._place[design.keys[design.offset_col]] if design.offset_col >= 0 else -1

    def columns(self, panel: Panel) -> np.ndarray:
        """(rows, columns), 0 where a covariate is missing or there is nothing to look back to."""
        nowhere = [np.zeros(panel.n_rows, bool)] * len(self.parts)
        return self.apply(panel, nowhere, [False] * len(self.parts)).A

    def apply(self, panel: Panel, needed: Sequence[np.ndarray], must: Sequence[bool]) -> Columns:
        """All columns in panel row order.

        ``needed[i]`` are the rows where part i is used and a missing covariate is an error;
        ``must[i]`` says that a lag without a past is one too.
        """
        A = np.empty((panel.n_rows, len(self.keys)))
        incomplete, known = [], set()
        for part, rows, strict in zip(self.parts, needed, must, strict=True):
            bad = np.zeros(panel.n_rows, bool)
            pairs = zip(part.keys, part.each_column(panel, rows), strict=True)
            for key, (values, no_past) in pairs:
                column = self._place[key]
                if no_past is not False:
                    bad |= no_past
                if not isinstance(values, np.ndarray):
                    filled(A[:, column], lambda at, value=values: value)
                    continue
                refuse_beyond(values, f"The covariate {key[1]!r}")
                # Where one part has no use for a missing value, another part may know better.
                before = A[:, column] if key in known else 0.0
                A[:, column] = np.where(values != 0, values, before)
                known.add(key)
            bad &= rows
            if strict and bad.any():
                raise DataError(
                    f"lag() in {part.formula.text!r} looks back to nothing at "
                    f"{panel.source.name_rows(bad)}, where it is needed. Fill the gap, or leave "
                    "these rows out."
                )
            incomplete.append(bad)
        if self.clock is not None:
            A[:, list(self.clock_cols)] = self.clock.columns(panel)
        return Columns(A, tuple(incomplete))
