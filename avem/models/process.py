"""The local process of a hidden Markov model: how states follow each other, given the effects.

A process has the blocks of the chain, makes its tables, and decides which recursions run on them.
`HMMKernel` adds the emissions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax.numpy as jnp
from jax import Array

from avem.components.base import Block
from avem.components.duration_block import DurationBlock
from avem.components.initial import InitialBlock
from avem.components.lanes import Theta, by_subject
from avem.components.transitions import TransitionBlock
from avem.data.layout import Chunk
from avem.kernels import forward_backward as hmm
from avem.kernels import gaussian_chain, semi_markov, semi_markov_path
from avem.kernels.forward import ByCell, rows_of
from avem.kernels.logs import safe_log
from avem.kernels.viterbi import viterbi

Chances = tuple[Array, Array | ByCell]
"""Of the first state and of moves."""
SemiChances = tuple[Array, Array, semi_markov.Stays]
"""And of stays."""


class Process(Protocol):
    """What a kernel asks of it; `tables` are its own, `table` has (time, state, lane) densities."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Its components' compiled halves."""
        ...

    def summed(self) -> Process:
        """The same, which may collect sums over subjects where no more is read."""
        ...

    def tables(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None) -> Any:
        """Probabilities of states and moves as its recursions take them."""
        ...

    def smooth(self, tables: Any, table: Array, chunk: Chunk, form: str) -> Any:
        """The posterior, with `loglik` of every lane and `state` probabilities among it."""
        ...

    def collect(self, posterior: Any, chunk: Chunk) -> tuple[Any, ...]:
        """What each of its blocks keeps of a posterior."""
        ...

    def from_squares(
        self, tables: Any, squares: Any, chunk: Chunk, form: str
    ) -> gaussian_chain.ChainSums | None:
        """From rows to sums where all outcomes are Gaussian; None: it takes a table."""
        ...

    def states_given(
        self, tables: Any, table: Array, chunk: Chunk, kind: str
    ) -> tuple[Array, Array]:
        """State probabilities given the steps before, or all others; and the log likelihood."""
        ...

    def states_so_far(self, tables: Any, table: Array, chunk: Chunk) -> Array:
        """(time, state, lane) given all rows of the subject before each, in their order."""
        ...

    def onward(self, tables: Any, table: Array, now: Array | None) -> Array:
        """(..., state, lane) chances at a single step, given those `now`, one step before.

        Before the states there may be what else of the past counts. None: it is the first step.
        """
        ...

    def best_path(self, tables: Any, table: Array, chunk: Chunk) -> tuple[Array, Array]:
        """Most probable state path of every lane, and its log p(D, U)."""
        ...

    def path_posterior(self, tables: Any, table: Array, chunk: Chunk, form: str) -> Any:
        """A posterior that `expected` can read."""
        ...

    def expected(self, theta: Theta, f: Array, posterior: Any, chunk: Chunk) -> Array:
        """(subject,) expected log probability of the path."""
        ...


@dataclass(frozen=True)
class MarkovProcess:
    """The next state depends on this one alone."""

    initial: InitialBlock
    transition: TransitionBlock

    @property
    def blocks(self) -> tuple[Block, ...]:
        """First state, transitions."""
        return (self.initial, self.transition)

    def summed(self) -> MarkovProcess:
        return replace(self, transition=self.transition.summed())

    def tables(self, theta, f, chunk, cov) -> Chances:
        moves = self.transition.table(theta, f, chunk, cov)
        return self.initial.table(theta, f, chunk, cov, rows_of(moves)), moves

    def smooth(self, tables: Chances, table, chunk, form) -> hmm.Posterior:
        steps = self.transition.steps(chunk)
        return hmm.smooth(*tables, table, chunk.valid, form, steps)

    def collect(self, posterior, chunk) -> tuple[Any, ...]:
        first = self.initial.collect(posterior.state, chunk)
        return first, self.transition.collect(posterior.pair, chunk)

    def from_squares(
        self, tables: Chances, squares, chunk, form
    ) -> gaussian_chain.ChainSums | None:
        rows, steps = gaussian_chain.Records.of(chunk), self.transition.steps(chunk)
        return gaussian_chain.smooth(*tables, squares, rows, form, steps)

    def states_given(self, tables: Chances, table, chunk, kind) -> tuple[Array, Array]:
        initial, moves = tables
        return hmm.states_given(initial, rows_of(moves), table, chunk.valid, kind)

    def states_so_far(self, tables: Chances, table, chunk) -> Array:
        return self.states_given(tables, table, chunk, "before")[0]

    def onward(self, tables: Chances, table: Array, now: Array | None) -> Array:
        initial, moves = tables
        if now is None:
            return jnp.broadcast_to(_with_lanes(initial, 1), table.shape[1:])
        moves = rows_of(moves)
        moves = moves[0] if moves.ndim == 4 else _with_lanes(moves, 2)
        return (now[:, None] * moves).sum(0)

    def best_path(self, tables: Chances, table, chunk) -> tuple[Array, Array]:
        initial, moves = tables
        return viterbi(initial, rows_of(moves), table, chunk.valid)

    def path_posterior(self, tables: Chances, table, chunk, form) -> hmm.Posterior:
        """With the pairs of every step apart, where the transitions differ."""
        initial, moves = tables
        moves = rows_of(moves)
        steps = hmm.Steps(None, 0) if moves.ndim == 4 else hmm.Steps()
        return hmm.smooth(initial, moves, table, chunk.valid, form, steps)

    def expected(self, theta, f, posterior, chunk) -> Array:
        initial, moves = self.tables(theta, f, chunk, None)
        transition = rows_of(moves)
        pair = posterior.pair if transition.ndim == 4 else posterior.pair.sum(0)
        move = pair * safe_log(_with_lanes(transition, 2))
        chain = _first(initial, posterior) + move.sum(tuple(range(move.ndim - 1)))
        return by_subject(chain, chunk)


@dataclass(frozen=True)
class SemiMarkovProcess:
    """How long a stay lasts has its own distribution; then another state follows."""

    initial: InitialBlock
    transition: TransitionBlock
    """One matrix without moves from a state to itself, whatever the time."""
    duration: DurationBlock

    @property
    def blocks(self) -> tuple[Block, ...]:
        """First state, transitions, durations."""
        return (self.initial, self.transition, self.duration)

    def summed(self) -> SemiMarkovProcess:
        return self

    def tables(self, theta, f, chunk, cov) -> SemiChances:
        transition = rows_of(self.transition.table(theta, f, chunk, cov))
        initial = self.initial.table(theta, f, chunk, cov, transition)
        return initial, transition, self.duration.table(theta, f, chunk, cov)

    def smooth(self, tables: SemiChances, table, chunk, form) -> semi_markov.StayPosterior:
        return semi_markov.smooth(*tables, table, chunk.valid, form)

    def collect(self, posterior, chunk) -> tuple[Any, ...]:
        first = self.initial.collect(posterior.state, chunk)
        moves = self.transition.collect(posterior.pair, chunk)
        return first, moves, self.duration.collect(posterior, chunk)

    def from_squares(
        self, tables: SemiChances, squares, chunk, form
    ) -> gaussian_chain.ChainSums | None:
        return None

    def states_given(self, tables: SemiChances, table, chunk, kind) -> tuple[Array, Array]:
        return semi_markov.states_given(*tables, table, chunk.valid, kind)

    def states_so_far(self, tables: SemiChances, table, chunk) -> Array:
        return self.states_given(tables, table, chunk, "before")[0]

    def onward(self, tables: SemiChances, table: Array, now: Array | None) -> Array:
        """(duration, state, lane): the row of its stay counts, too."""
        chain = semi_markov.StayChain("scaled", *tables, table)
        leave, stay = tables[2].leave[0], tables[2].stay[0]
        return chain.start if now is None else chain.onward(now, leave, stay)

    def best_path(self, tables: SemiChances, table, chunk) -> tuple[Array, Array]:
        return semi_markov_path.best_path(*tables, table, chunk.valid)

    def path_posterior(self, tables: SemiChances, table, chunk, form) -> semi_markov.StayPosterior:
        return self.smooth(tables, table, chunk, form)

    def expected(self, theta, f, posterior, chunk) -> Array:
        """With how long the first stay had lasted, where it may have begun before."""
        transition = rows_of(self.transition.table(theta, f, chunk))
        initial = self.initial.table(theta, f, chunk, None, transition)
        move = (posterior.pair[0] * safe_log(_with_lanes(transition, 2))).sum((0, 1))
        stays = self.duration.value(theta, f, None, self.duration.collect(posterior, chunk), chunk)
        return by_subject(_first(initial, posterior) + move, chunk) + stays


def _first(initial: Array, posterior: Any) -> Array:
    """(lane,) expected log probability of the first state."""
    return (posterior.state[0] * safe_log(_with_lanes(initial, 1))).sum(0)


def _with_lanes(chances: Array, n_axes: int) -> Array:
    return chances[..., None] if chances.ndim == n_axes else chances
