"""A data set in shards of whole subjects: functions go to the shards, small sums come back.

A shard function is a function of a module (so that it can be sent elsewhere by name). It is called
with the shard's chunk, then with what that shard keeps, then with what all shards get alike, and
gives a pair: what stays with the shard, and what travels to the driver. What stays is opaque to
the driver, which holds a `PerShard` of handles: values that never change, so that an earlier one
can be gone back to. An executor may lose what stays: its function is then called with None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from avem.data.layout import Chunk, Layout, Slots
from avem.execution.sums import add_up


class Shard(NamedTuple):
    """Some subjects of a data set."""

    slots: Slots
    """Which subjects and rows they are."""
    source: Any
    """What the executor finds the shard's chunk by; in memory, the chunk itself."""

    @property
    def n_cells(self) -> int:
        """Steps times lanes, padding included."""
        return self.slots.shape[0] * self.slots.shape[1]


@dataclass(frozen=True, eq=False)
class PerShard:
    """A handle of one value per shard, each kept where its shard is."""

    handles: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.handles)

    def on(self, which: Sequence[int]) -> PerShard:
        """Those of some shards."""
        return PerShard(tuple(self.handles[number] for number in which))

    def put(self, which: Sequence[int], others: PerShard) -> PerShard:
        """All of them, with others in the places of some."""
        new = dict(zip(which, others.handles, strict=True))
        return PerShard(tuple(new.get(c, old) for c, old in enumerate(self.handles)))


class Wanted(Enum):
    """Of what travels, what the driver asks for."""

    NOTHING = "nothing"
    EACH = "each"
    SUM = "sum"


class Executor(Protocol):
    """Where shards are, and what runs functions there."""

    def run(
        self,
        function: Callable[..., tuple[Any, Any]],
        shards: Sequence[Shard],
        own: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
        wanted: Wanted,
    ) -> tuple[Sequence[Any], Any]:
        """A handle of what stays with each shard, in their order, and what is wanted, as NumPy.

        `own` are handles of each shard in turn. What travels is `answer` of the shards' parts;
        where nothing is wanted, the work may be done later.
        """
        ...

    def place(self, shards: Sequence[Shard], values: Sequence[Any]) -> Iterable[Any]:
        """Handles of values of the driver, one for each shard, which may not be lost."""
        ...


class InProcess(Executor, Protocol):
    """An executor of this process."""

    @property
    def speed(self) -> float: ...


class InChunks(Protocol):
    """An encoded panel: all chunks in memory."""

    @property
    def layout(self) -> Layout: ...

    @property
    def chunks(self) -> tuple[Chunk, ...]: ...

    @property
    def executor(self) -> InProcess: ...


@dataclass(frozen=True, eq=False)
class Dataset:
    """Shards of subjects, and what runs functions on them."""

    shards: tuple[Shard, ...]
    layout: Layout
    """Of the whole data set, however few of its shards are here."""
    executor: Executor
    speed: float = 1.0
    """Of computing, beside a processor's: what is too little work to compile for grows with it."""

    @classmethod
    def of(cls, encoded: InChunks) -> Dataset:
        """The chunks of a panel that is in memory."""
        pairs = zip(encoded.layout.slots, encoded.chunks, strict=True)
        shards = tuple(Shard(*pair) for pair in pairs)
        return cls(shards, encoded.layout, encoded.executor, encoded.executor.speed)

    @property
    def n_subjects(self) -> int:
        """Number of subjects in these shards."""
        return sum(len(shard.slots.subjects) for shard in self.shards)

    @property
    def weight(self) -> float:
        """How much the subjects in these shards count together: their number, without weights."""
        weight = self.layout.weight
        if weight is None:
            return self.n_subjects
        return float(sum(weight[shard.slots.subjects].sum() for shard in self.shards))

    def on(self, which: Sequence[int]) -> Dataset:
        """Some of the shards."""
        return replace(self, shards=tuple(self.shards[number] for number in which))

    # --- functions on shards --------------------------------------------------------------------

    def run(
        self, function: Callable[..., tuple[Any, Any]], own: Sequence[PerShard], *shared: Any
    ) -> tuple[PerShard, list[Any]]:
        """``function(chunk, *own, *shared)`` on every shard: what stays there, and what travels."""
        return self._run(function, own, shared, Wanted.EACH)

    def run_sum(
        self, function: Callable[..., tuple[Any, Any]], own: Sequence[PerShard], *shared: Any
    ) -> tuple[PerShard, Any]:
        """`run` with what travels added up."""
        return self._run(function, own, shared, Wanted.SUM)

    def _run(
        self,
        function: Callable[..., tuple[Any, Any]],
        own: Sequence[PerShard],
        shared: tuple[Any, ...],
        wanted: Wanted,
    ) -> tuple[PerShard, Any]:
        handles = [part.handles for part in own]
        stays, found = self.executor.run(function, self.shards, handles, shared, wanted)
        return PerShard(tuple(stays)), found

    def keep(self, function: Callable[..., Any], own: Sequence[PerShard], *shared: Any) -> PerShard:
        """`run` of a function all of whose result stays."""
        return self._run(partial(_stays, function), own, shared, Wanted.NOTHING)[0]

    def map(self, function: Callable[..., Any], own: Sequence[PerShard], *shared: Any) -> list[Any]:
        """`run` of a function all of whose result travels: one result per shard."""
        return self.run(partial(_travels, function), own, *shared)[1]

    def sum(self, function: Callable[..., Any], own: Sequence[PerShard], *shared: Any) -> Any:
        """What `map` gives, added up."""
        return self.run_sum(partial(_travels, function), own, *shared)[1]

    # --- values of subjects and rows ------------------------------------------------------------

    def place(self, values: Sequence[Any]) -> PerShard:
        """One value for each shard."""
        return PerShard(tuple(self.executor.place(self.shards, values)))

    def split(self, values: np.ndarray) -> PerShard:
        """Values (..., subjects) in the panel's order, cut into shards and padded with 0."""
        return self.place(list(self.layout.split(values)))

    def gather(self, function: Callable[..., Any], own: Sequence[PerShard], *shared: Any) -> Any:
        """What `map` gives of every subject, as arrays (..., subjects) in the panel's order."""
        return self.join(self.map(function, own, *shared))

    def join(self, parts: Sequence[Any]) -> Any:
        """One result per shard, of its subjects, as arrays (..., subjects) in the panel's order."""
        return jax.tree.map(lambda *each: self.layout.join(each), *parts)

    def rows(self, function: Callable[..., Any], own: Sequence[PerShard], *shared: Any) -> Any:
        """What `map` gives of every cell, (times, ..., lanes), as (rows, ...) of the panel."""
        found = self.map(function, own, *shared)
        return jax.tree.map(lambda *parts: self.layout.gather(parts), *found)


def answer(parts: Sequence[Any], wanted: Wanted) -> Any:
    """What is wanted of what all shards sent."""
    if wanted is Wanted.NOTHING:
        return None
    return add_up(parts) if wanted is Wanted.SUM else list(parts)


def _stays(function: Callable[..., Any], chunk: Chunk, *values: Any) -> tuple[Any, None]:
    return function(chunk, *values), None


def _travels(function: Callable[..., Any], chunk: Chunk, *values: Any) -> tuple[None, Any]:
    return None, function(chunk, *values)
