"""Single rows of a subject as a model reads them, with the few before that it looks back to."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import isinf
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.data.frames import examples, shown, to_pandas
from avem.errors import DataError
from avem.models.hmm import HMMModel

Row = dict[str, Any]


class Numbers(NamedTuple):
    """One row, in the user's units."""

    Y: np.ndarray
    """(1, outcome columns), NaN where missing."""
    A: np.ndarray
    """(1, design columns)."""
    possible: np.ndarray | None
    """(states,) bool: where it may be, if something of that is known."""


class RowReader:
    """What a model reads of rows, by the columns of its fit."""

    def __init__(
        self, model: HMMModel, columns: Mapping[str, str | None], carried: Sequence[str]
    ) -> None:
        self.model, self.carried = model, carried
        self.subject, self.sequence = str(columns["subject"]), columns["sequence"]
        self.time = columns["time"]
        parts = model.designs.parts
        read = dict.fromkeys(name for part in parts for name in part.covariates)
        self.covariates = tuple(name for name in read if name not in model.outcomes)
        ahead = [name for part in model.parts_ahead for name in part.covariates]
        wanted = dict.fromkeys([*ahead, *model.extras])
        self.ahead = tuple(name for name in wanted if name not in model.outcomes)
        clock = self.time if model.continuous else None
        always = (*model.outcomes, *self.covariates, *model.extras, *model.extras_behind)
        more = (self.sequence, clock)
        self.needed = tuple(dict.fromkeys([*always, *(name for name in more if name is not None)]))
        least = int(model.continuous or bool(carried))
        self.n_back = max([least, *(part.lags(set(read)) for part in parts)])
        """How many rows are looked back to."""

    def row(self, given: Any) -> Row:
        """A user's row, with missing values as NaN: a dict, a series, or a frame of one row."""
        if isinstance(given, pd.Series):
            given = given.to_dict()
        if not isinstance(given, Mapping):
            table, _ = to_pandas(given)
            if len(table) != 1:
                raise DataError(f"The frame has {len(table)} rows; update() takes one at a time.")
            given = {name: table[name].iloc[0] for name in table}
        lacking = [name for name in self.needed if name not in given]
        if lacking:
            raise DataError(
                f"The row lacks {examples(lacking)}; {', '.join(self.needed)} are wanted, None "
                "where one is missing."
            )
        names = (*self.needed, *self.model.marks, self.subject, self.time)
        row = {name: _plain(given[name]) for name in names if name is not None and name in given}
        for name in (self.subject, self.sequence, self.time):
            value = row.get(name) if name is not None else None
            if not isinstance(value, Hashable) or (isinstance(value, float) and isinf(value)):
                raise DataError(
                    f"The row's {name!r} is {shown(value)}; one finite value is wanted."
                )
        return row

    def filled(self, before: tuple[Row, ...], row: Row) -> Row:
        """The row with gaps of covariates filled from the one before it in its sequence."""
        last = before[-1] if before else {}
        gaps = [name for name in self.carried if _is_missing(row.get(name)) and name in last]
        return row | {name: last[name] for name in gaps}

    def coming(self, future: Mapping[str, Any] | None, sequence: Any) -> Row:
        """The row to come, of which only what `future` has is known."""
        future = {} if future is None else future
        if not isinstance(future, Mapping):
            raise DataError(
                f"future is {future!r}; a dict with the covariates of the next row is wanted."
            )
        timed = [self.time] if self.model.continuous and self.time is not None else []
        wanted = [*self.ahead, *timed]
        may = {*wanted, *self.covariates, self.sequence, self.time}
        unknown = [name for name in future if name not in may]
        if unknown:
            raise DataError(
                f"future has {examples(unknown)}; what this model needs ahead is "
                f"{', '.join(map(repr, wanted)) or 'nothing'}."
            )
        absent = [n for n in wanted if n not in future or _is_missing(future[n])]
        if absent:
            raise DataError(
                f"A forecast needs {', '.join(map(repr, absent))} of the next row. Pass future=, a "
                f"dict such as {{{absent[0]!r}: ...}}."
            )
        blank: Row = dict.fromkeys(self.needed, np.nan)
        if self.sequence is not None:
            blank[self.sequence] = sequence
        return blank | {name: _plain(value) for name, value in future.items()}

    def read(self, tail: tuple[Row, ...], row: Row, label: Any, number: int) -> Numbers:
        """The row's numbers, given the rows before it in its sequence; `number` is its own."""
        panel = self.panel(tail, row, label, number)
        data = self.model.read(panel, only=np.arange(panel.n_rows) == len(tail))
        possible = None if data.possible is None else data.possible[-1]
        return Numbers(data.Y[-1:], data.A[-1:], possible)

    def panel(self, tail: tuple[Row, ...], row: Row, label: Any, number: int) -> Panel:
        """The rows before, and the row."""
        rows = [*tail, row]
        names = [*self.needed, *(name for name in self.model.marks if name in row)]
        columns = {name: [one.get(name, np.nan) for one in rows] for name in names}
        try:
            table: Any = pd.DataFrame(columns)
        except UnicodeError as error:
            raise DataError(f"The row has text with what is no character: {error}.") from error
        table[self.subject] = [label] * len(rows)
        table.index = range(number - len(tail), number + 1)
        time = self.time if self.model.continuous else None
        return Panel.from_frame(table, self.subject, time, self.sequence)

    def tail(self, before: tuple[Row, ...], row: Row) -> tuple[Row, ...]:
        """The rows that the next one looks back to; what is known of their states is in these."""
        if not self.n_back:
            return ()
        kept = {name: value for name, value in row.items() if name not in self.model.marks}
        return (*before, kept)[-self.n_back :]


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) and value.dtype.kind in "biufU" else value
    return np.nan if value is None or value is pd.NA or value is pd.NaT else value


def _is_missing(value: Any) -> bool:
    return value is None or (np.isscalar(value) and bool(pd.isna(value)))
