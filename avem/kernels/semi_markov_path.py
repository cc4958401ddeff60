"""The most probable paths of hidden semi-Markov chains, on tables as in `semi_markov`.

No state follows itself, so that a path of states says when each stay began. How long the first one
had lasted before the first row is not part of a path: it is summed over, all else maximised.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax, nn
from jaxtyping import Bool, Float, Int

from avem.kernels.semi_markov import StayChain, Stays, StayStep


def best_path(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "state state *lane"],
    stays: Stays,
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
) -> tuple[Int[Array, "time lane"], Float[Array, " lane"]]:
    """Most probable path of each lane and its log p(D, U); padded steps repeat a state."""
    chain = StayChain("log", initial, transition, stays, jnp.asarray(table))
    steps = chain.steps(valid)
    number = jnp.arange(len(table))

    def forward(carry, now):
        here, t = now
        found = _Candidates(*carry)
        new, entered = found.moved(chain, here, t)
        carry = tuple(jnp.where(here.valid, own, old) for own, old in zip(new, carry, strict=True))
        return carry, entered

    none = jnp.full(chain.start.shape, -jnp.inf, chain.start.dtype)
    begun = jnp.zeros(chain.start.shape[1:], int)
    carry, entered = lax.scan(forward, (chain.start, none, begun), (steps, number))
    last = jnp.maximum(valid.sum(0) - 1, 0)
    leave = _last_chances(chain, steps, last)
    height, begin = _Candidates(*carry).finished(leave, last)

    def backward(carry, now):
        state, begin = carry
        (source, began), t = now
        previous = jnp.take_along_axis(source, state[None], axis=0)[0]
        before = jnp.take_along_axis(began, state[None], axis=0)[0]
        at_start = begin == t
        following = jnp.where(at_start, previous, state), jnp.where(at_start, before, begin)
        return following, state

    best = height.argmax(0)
    start = best, jnp.take_along_axis(begin, best[None], axis=0)[0]
    _, path = lax.scan(backward, start, (entered, number), reverse=True)
    return path, height.max(0) + jnp.where(valid, steps.scale, 0.0).sum(0)


class _Candidates:
    """Stays that may be part of the best path, the rows so far included."""

    def __init__(self, first: Array, later: Array, begun: Array) -> None:
        self.first = first
        """(duration, state, lane) log probability that the first stay still goes on."""
        self.later = later
        """The same of the best path to each row of a later stay."""
        self.begun = begun
        """(state, lane) the row in which the longest of these began, of which u counts up to D."""

    def ended(self, leave: Array | float, last: Array | int) -> tuple[Array, Array]:
        """(state, lane) the best stay that ends after row `last`, and the row that it began in."""
        first = nn.logsumexp(self.first + leave, axis=0)
        later = self.later + leave
        lasted = later.argmax(0)
        begun = jnp.where(lasted == len(later) - 1, self.begun, last - lasted)
        height = later.max(0)
        return jnp.maximum(first, height), jnp.where(first >= height, 0, begun)

    def finished(self, leave: Array | float, last: Array) -> tuple[Array, Array]:
        """(state, lane) the best stay that reaches the end of the sequence."""
        return self.ended(leave, last)

    def moved(
        self, chain: StayChain, step: StayStep, t: Any
    ) -> tuple[tuple[Array, Array, Array], Any]:
        """The candidates at row t, and where the stays that begin there came from."""
        leave, stay = chain.pick(step.into)
        height, began = self.ended(leave, t - 1)
        through = height[:, None] + chain.moves  # (from, to, lane)
        source = through.argmax(0)
        enter = through.max(0)[None]
        first, later = self.first + stay, self.later + stay
        if len(first) == 1:
            begun = jnp.where(enter[0] > later[0], t, self.begun)
            later = jnp.maximum(enter, later)
        else:
            begun = jnp.where(later[-2] > later[-1], t + 1 - len(first), self.begun)
            merged = jnp.maximum(later[-2], later[-1])[None]
            later = jnp.concatenate([enter, later[:-2], merged])
            joined = jnp.logaddexp(first[-2], first[-1])[None]
            nothing = jnp.full_like(first[:1], -jnp.inf)
            first = jnp.concatenate([nothing, first[:-2], joined])
        begins = step.first
        first = jnp.where(begins, chain.start, first) + step.emission
        later = jnp.where(begins, -jnp.inf, later + step.emission)
        begun = jnp.where(begins, 0, begun)
        before = jnp.take_along_axis(began, source, axis=0)
        return (first, later, begun), (source, before)


def _last_chances(chain: StayChain, steps: StayStep, last: Array) -> Array | float:
    """Log chance that a stay ends after the last row; 0 where it need not."""
    if chain.stays.cut:
        return 0.0
    if steps.out_of is None:
        return chain.pick(None)[0]
    if chain.each:
        at = jnp.broadcast_to(last, (1, 1, 1, len(last)))
        return jnp.take_along_axis(steps.out_of[0], at, axis=0)[0]
    return chain.pick(jnp.take_along_axis(steps.out_of, last[None], axis=0)[0])[0]
