"""The local process where subjects are of several types: the chain of each type, side by side.

A subject's type is the same in all of its sequences. Given the effects, the sequences are
independent for each type, so that log p(D_i | f) = log sum_c share_c prod_l p(sequence l | f, c).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, nn

from avem.components.base import Block
from avem.components.clusters import SHARES, ClusteredBlock, SharesBlock, Stack
from avem.components.lanes import Theta, by_subject, to_lanes
from avem.data.layout import Chunk
from avem.kernels.logs import safe_log
from avem.models.process import Process


class ClusterTables(NamedTuple):
    """Of every type."""

    log_share: Array
    """(type,)."""
    chains: tuple[Any, ...]


class ClusterPosterior(NamedTuple):
    """What is known of types and states."""

    loglik: Array
    """(lane,) whose sum over the lanes of a subject is its log likelihood."""
    state: Array
    """(time, state, lane), whatever the type."""
    share: Array
    """(type, subject) probabilities of the types; 0 where there is no subject."""
    chains: tuple[Any, ...]
    """The posteriors of the chain, given each type."""


@dataclass(frozen=True)
class ClusterProcess:
    """Every type of subject has a chain of its own."""

    inner: Process
    stack: Stack
    """Of all entries of theta that the chain has."""
    clustered: tuple[ClusteredBlock, ...]
    """The blocks of the chain, for all types."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The shares, and the blocks of the chain."""
        return (SharesBlock(), *self.clustered)

    def summed(self) -> ClusterProcess:
        return self

    def tables(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None) -> ClusterTables:
        each = [self.stack.own(theta, c) for c in self.stack.types]
        chains = tuple(self.inner.tables(own, f, chunk, cov) for own in each)
        return ClusterTables(jnp.log(jnp.asarray(theta[SHARES])), chains)

    def smooth(self, tables: ClusterTables, table, chunk, form) -> ClusterPosterior:
        chains = [self.inner.smooth(own, table, chunk, form) for own in tables.chains]
        return self._posterior(tables, chains, chunk, form)

    def path_posterior(self, tables: ClusterTables, table, chunk, form) -> ClusterPosterior:
        chains = [self.inner.path_posterior(own, table, chunk, form) for own in tables.chains]
        return self._posterior(tables, chains, chunk, form)

    def _posterior(
        self, tables: ClusterTables, chains: list[Any], chunk: Chunk, form: str
    ) -> ClusterPosterior:
        logliks = jnp.stack([chain.loglik for chain in chains])
        whole = by_subject(logliks, chunk)
        if form == "log":
            whole = jnp.where(jnp.isnan(whole), -jnp.inf, whole)
        joint = tables.log_share[:, None] + whole
        total = nn.logsumexp(joint, axis=0)
        if form == "scaled":  # where a chain underflowed, nobody knows what it is worth
            total = jnp.where(jnp.isfinite(whole).all(0), total, jnp.nan)
        share = jnp.where(chunk.real, _normalised(joint, total), 0.0)
        on_lanes = to_lanes(share, chunk)
        # Of a type of which a subject cannot be, nothing is known.
        known = tuple(jax.tree.map(_finite, chain) for chain in chains)
        state = sum(w * chain.state for w, chain in zip(on_lanes, known, strict=True))
        return ClusterPosterior(_on_lanes(total, chunk), state, share, known)  # type: ignore[arg-type]

    def collect(self, posterior: ClusterPosterior, chunk) -> tuple[Any, ...]:
        found = [self.inner.collect(chain, chunk) for chain in posterior.chains]
        pairs = zip(self.inner.blocks, zip(*found, strict=True), strict=True)
        own = [
            tuple(
                block.weigh(part, w, chunk) for part, w in zip(parts, posterior.share, strict=True)
            )
            for block, parts in pairs
        ]
        return (posterior.share, *own)

    def from_squares(self, tables, squares, chunk, form) -> None:
        return None

    def states_given(self, tables: ClusterTables, table, chunk, kind) -> tuple[Array, Array]:
        """Of the types, all other sequences of the subject tell, too."""
        found = [self.inner.states_given(own, table, chunk, kind) for own in tables.chains]
        whole = jnp.stack([loglik for _, loglik in found])
        joint = tables.log_share[:, None] + by_subject(whole, chunk)
        steps = jnp.stack([_of_steps(states, table) for states, _ in found])
        on_lanes = to_lanes(joint, chunk)[:, None]
        if kind == "others":
            height = on_lanes - steps
        else:
            height = on_lanes - whole[:, None] + _so_far(steps)
        total = _on_lanes(nn.logsumexp(joint, axis=0), chunk)
        return _mixed(height, [states for states, _ in found]), total

    def states_so_far(self, tables: ClusterTables, table, chunk) -> Array:
        """Of the types, this and the earlier sequences of the subject tell, up to the step."""
        found = [self.inner.states_given(own, table, chunk, "before") for own in tables.chains]
        whole = jnp.stack([loglik for _, loglik in found])
        steps = jnp.stack([_of_steps(states, table) for states, _ in found])
        height = tables.log_share[:, None, None] + _earlier(whole, chunk)[:, None]
        return _mixed(height + _so_far(steps), [states for states, _ in found])

    def onward(self, tables: ClusterTables, table: Array, now: Array | None) -> Array:
        """(type, ..., state, lane) chances."""
        if now is None:
            share = jnp.exp(tables.log_share)
            starts = [self.inner.onward(own, table, None) for own in tables.chains]
            return jnp.stack([w * own for w, own in zip(share, starts, strict=True)])
        pairs = zip(tables.chains, now, strict=True)
        return jnp.stack([self.inner.onward(own, table, there) for own, there in pairs])

    def best_path(self, tables: ClusterTables, table, chunk) -> tuple[Array, Array]:
        """Of all types and paths, the most probable ones together."""
        found = [self.inner.best_path(own, table, chunk) for own in tables.chains]
        height = jnp.stack([own for _, own in found])
        joint = tables.log_share[:, None] + by_subject(height, chunk)
        best = to_lanes(joint.argmax(0), chunk)
        paths = jnp.stack([path for path, _ in found])
        path = jnp.take_along_axis(paths, best[None, None], axis=0)[0]
        return path, _on_lanes(joint.max(0), chunk)

    def expected(self, theta, f, posterior: ClusterPosterior, chunk) -> Array:
        total = jnp.zeros(f.shape[1])
        for c, (share, chain) in enumerate(zip(posterior.share, posterior.chains, strict=True)):
            own = self.stack.own(theta, c)
            log_chance = safe_log(theta[SHARES][c])
            total = total + share * (log_chance + self.inner.expected(own, f, chain, chunk))
        return total


def _on_lanes(values: Array, chunk: Chunk) -> Array:
    """(lane,) numbers that add up to the subjects'."""
    n_lanes = by_subject(jnp.ones(chunk.valid.shape[-1]), chunk)
    return to_lanes(values / jnp.maximum(n_lanes, 1.0), chunk)


def _normalised(height: Array, total: Array) -> Array:
    """Probabilities from logarithms, types first."""
    possible = jnp.isfinite(height)
    return jnp.where(possible, jnp.exp(jnp.where(possible, height - total, 0.0)), 0.0)


def _finite(values: Array) -> Array:
    return jnp.where(jnp.isfinite(values), values, 0.0)


def _mixed(height: Array, states: list[Array]) -> Array:
    """(time, state, lane) over types of these log probabilities (type, time, lane)."""
    height = jnp.where(jnp.isnan(height), -jnp.inf, height)
    share = _normalised(height, nn.logsumexp(height, axis=0))
    return sum(w[:, None] * own for w, own in zip(share, map(_finite, states), strict=True))  # type: ignore[return-value]


def _of_steps(states: Array, table: Array) -> Array:
    """(time, lane) log p(step | what gave these states); 0 at padded steps."""
    exists = states.sum(1) > 0
    return jnp.where(exists, nn.logsumexp(jnp.log(states) + table, axis=1), 0.0)


def _so_far(steps: Array) -> Array:
    """(type, time, lane) log p(the steps before each in its sequence)."""
    before = jnp.cumsum(steps, axis=1)
    return jnp.concatenate([jnp.zeros_like(before[:, :1]), before[:, :-1]], axis=1)


def _earlier(whole: Array, chunk: Chunk) -> Array:
    """(type, lane) log p(the earlier sequences of the same subject)."""
    if chunk.owner.shape == chunk.real.shape:
        return jnp.zeros_like(whole)
    first = jnp.concatenate([jnp.ones(1, bool), chunk.owner[1:] != chunk.owner[:-1]])

    def add(before: Any, here: Any) -> Any:
        (one, starts), (two, again) = before, here
        return jnp.where(again, two, one + two), starts | again

    shifted = jnp.concatenate([jnp.zeros_like(whole[:, :1]), whole[:, :-1]], axis=1)
    shifted = jnp.where(first, 0.0, shifted)
    return lax.associative_scan(add, (shifted, jnp.broadcast_to(first, whole.shape)), axis=1)[0]
