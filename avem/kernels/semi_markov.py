"""Forward-backward over hidden semi-Markov chains: how long a state lasts has its own distribution.

A chain is in a state k and in the u-th row of its stay there, u = 1 ... D. From row to row the stay
ends with probability ``leave``, and then another state is entered with the probabilities of
``transition``, which has no moves from a state to itself; or it goes on (``stay``), and u grows by
one. In row D and later the chance of ending is one number, so that no stay is too long. The first
row is the u-th of its stay with probability ``phase``. This is a hidden Markov chain of K x D
states of which hardly any move is possible: a step costs O(K (D + K)).

Tables, lanes, ``valid`` and the two forms are as in `forward_backward`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, nn
from jaxtyping import Bool, Float, Int

from avem.kernels.dispatch import engine
from avem.kernels.forward import ALGEBRAS, Algebra, of_those_there
from avem.kernels.lanes import following, has_next

_FEW_STEPS = 32
"""Longer chains are walked in blocks, of which only the beginnings are kept."""


class Stays(NamedTuple):
    """How long stays last: probabilities, or exp E[log] of them. One lane may serve all."""

    phase: Float[Array, "duration state lane"]
    """The first row is the u-th of its stay."""
    leave: Float[Array, "cell duration state lane"]
    """The stay ends after u rows, in steps into rows of a cell."""
    stay: Float[Array, "cell duration state lane"]
    """It goes on."""
    cell: Int[Array, "time lane"] | None = None
    """The cell of each row; None: one cell for all, or, where there are several, one per row."""
    cut: bool = True
    """The last stay may go on after the last row; otherwise it ends there."""


class StayPosterior(NamedTuple):
    """What is known of the chains of all lanes."""

    loglik: Float[Array, " lane"]
    """log p(D | f); not finite where the scaled form underflowed."""
    state: Float[Array, "time state lane"]
    """p(U_t = k | D, f); 0 at padded steps."""
    pair: Float[Array, "1 state state lane"]
    """Expected number of moves."""
    phase: Float[Array, "duration state lane"]
    """Posterior of state and row of the stay at the first row."""
    ended: Float[Array, "cell duration state lane"]
    """Expected number of stays that ended after u rows, by the cell of the row after them."""
    stayed: Float[Array, "cell duration state lane"]
    """Expected number of times that a stay went on after u rows."""


class Form(NamedTuple):
    """Probabilities as themselves, or by their logarithms."""

    algebra: Algebra
    total: Callable[..., Array]
    plus: Callable[[Array, Array], Array]


FORMS = {
    "scaled": Form(ALGEBRAS["scaled"], jnp.sum, jnp.add),
    "log": Form(ALGEBRAS["log"], nn.logsumexp, jnp.logaddexp),
}


class StayStep(NamedTuple):
    """One step of all lanes, as the recursions read it."""

    emission: Array
    """(state, lane), the largest of them 1."""
    scale: Array
    valid: Array
    goes_on: Array
    first: Array
    into: Any
    """What picks the chances of the step into this row; see `pick`."""
    out_of: Any
    """Of the step into the next row; in the last row, as `into`."""


def smooth(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "state state *lane"],
    stays: Stays,
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    form: str = "scaled",
) -> StayPosterior:
    """Posterior of states and stays, and the log likelihood, of every lane."""
    table = jnp.asarray(table)
    times, states, lanes = table.shape
    sizes = {"times": times, "lanes": lanes, "durations": stays.phase.shape[0]}
    cells = 0 if stays.cell is None and len(stays.leave) > 1 else len(stays.leave)
    run = None
    if form == "scaled":
        run = engine("semi_markov", table.dtype, states=states, cells=cells, **sizes)
    if run is None:
        return definition(initial, transition, stays, table, valid, form)
    return StayPosterior(*run(initial, transition, stays, table, valid))


def definition(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "state state *lane"],
    stays: Stays,
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    form: str = "scaled",
) -> StayPosterior:
    """What `smooth` computes, by scans over time."""
    chain = StayChain(form, initial, transition, stays, table)
    n_cells, each = len(stays.leave), chain.each
    n_states, n_lanes = table.shape[1:]
    nothing = jnp.zeros((stays.phase.shape[0], n_states, n_lanes), table.dtype)

    def backward(carry, now):
        ahead, pair, ended, stayed, _ = carry
        step, here, _, norm = now
        back = chain.back(step, here, ahead)
        smoothed = jnp.where(step.valid, chain.leave(chain.times(here, back.beta)), 0.0)
        gone = jnp.where(step.goes_on, chain.leave(chain.times(here, back.gone)), 0.0)
        if not stays.cut:
            gone += jnp.where(step.goes_on, 0.0, smoothed)
        on = jnp.where(step.goes_on, chain.leave(chain.times(here, back.on)), 0.0)
        moved = chain.leave(chain.times(back.exits[:, None], back.reach))
        pair = pair + jnp.where(step.goes_on, moved, 0.0)
        if not each:
            cell = step.out_of
            here_in = [1.0] if cell is None else [cell == c for c in range(n_cells)]
            ended = tuple(total + part * gone for total, part in zip(ended, here_in, strict=True))
            stayed = tuple(total + part * on for total, part in zip(stayed, here_in, strict=True))
        ahead = chain.over(chain.times(step.emission, back.beta), norm)
        out = (smoothed.sum(0), (gone, on) if each else None)
        return (ahead, pair, ended, stayed, smoothed), out

    none = () if each else (nothing,) * n_cells
    pairs = jnp.zeros((n_states, n_states, n_lanes), table.dtype)
    loglik, carry, (state, counts) = chain.there_and_back(
        valid, backward, (nothing, pairs, none, none, nothing)
    )
    _, pair, ended, stayed, phase = carry
    if each:
        ended, stayed = (_by_row(part, valid, stays.cut) for part in counts)
    else:
        ended, stayed = jnp.stack(ended), jnp.stack(stayed)
    # The backward pass can overflow where the forward one does not: one flag for both.
    is_finite = jnp.isfinite(state).all((0, 1)) & jnp.isfinite(pair).all((0, 1))
    loglik = jnp.where(is_finite, loglik, jnp.nan)
    return StayPosterior(loglik, state, pair[None], phase, ended, stayed)


def states_given(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "state state *lane"],
    stays: Stays,
    table: Float[Array, "time state lane"],
    valid: Bool[Array, "time lane"],
    kind: str,
) -> tuple[Float[Array, "time state lane"], Float[Array, " lane"]]:
    """State probabilities given the steps ``"before"``, or all ``"others"``; the log likelihood."""
    chain = StayChain("log", initial, transition, stays, table)

    def backward(ahead, now):
        step, here, predicted, norm = now
        back = chain.back(step, here, ahead)
        known = predicted + back.beta if kind == "others" else predicted
        return step.emission + back.beta - norm, nn.logsumexp(known, axis=0)

    start = jnp.zeros((stays.phase.shape[0], *table.shape[1:]), table.dtype)
    loglik, _, weight = chain.there_and_back(valid, backward, start)
    chance = jnp.exp(weight - nn.logsumexp(weight, axis=1, keepdims=True))
    return jnp.where(valid[:, None], chance, 0.0), loglik


class _Back(NamedTuple):
    """What the steps after a row say of it."""

    beta: Array
    """(duration, state, lane)."""
    gone: Array
    """Its part from stays that end here."""
    on: Array
    """Its part from stays that go on."""
    reach: Array
    """(from, to, lane) probability of a move and of all after it."""
    exits: Array
    """(state, lane) filtered probability that a stay ends here."""


class StayChain:
    """The two recursions in one of the forms."""

    def __init__(self, form: str, initial, transition, stays: Stays, table: Array) -> None:
        self.form = FORMS[form]
        algebra = self.form.algebra
        self.times, self.over, self.leave = algebra.times, algebra.over, algebra.leave
        self.stays, self.table, enter = stays, table, algebra.enter
        first, moves = enter(jnp.asarray(initial)), enter(jnp.asarray(transition))
        first = first[:, None] if first.ndim == 1 else first
        self.moves = moves[:, :, None] if moves.ndim == 2 else moves
        shape = (stays.phase.shape[0], *table.shape[1:])
        self.start = jnp.broadcast_to(self.times(first, enter(stays.phase)), shape)
        self.chances = enter(stays.leave), enter(stays.stay)
        self.each = stays.cell is None and len(stays.leave) > 1
        """Every row has chances of its own."""

    def steps(self, valid: Array) -> StayStep:
        """All of them; `into` and `out_of` are cells, or chances where every row has its own."""
        algebra, table, goes_on = self.form.algebra, self.table, has_next(valid)
        scale = table.max(axis=1)
        emission = algebra.exponential(table - scale[:, None])
        into: Any = self.chances if self.each else self.stays.cell

        def next_one(values: Array) -> Array:
            mask = goes_on if values.ndim == 2 else goes_on[:, None, None]
            return jnp.where(mask, following(values), values)

        first = jnp.arange(len(table)) == 0
        return StayStep(emission, scale, valid, goes_on, first, into, jax.tree.map(next_one, into))

    def pick(self, which: Any) -> tuple[Array, Array]:
        """(duration, state, lane) chances to end and to go on."""
        leave, stay = self.chances
        if which is None:
            return leave[0], stay[0]
        if self.each:
            return which
        out = leave[0], stay[0]
        for c in range(1, len(leave)):
            out = tuple(
                jnp.where(which == c, own[c], other)
                for own, other in zip((leave, stay), out, strict=True)
            )
        return out  # type: ignore[return-value]

    def onward(self, here: Array, leave: Array, stay: Array) -> Array:
        """The probabilities of the next row before it is seen."""
        total, plus = self.form.total, self.form.plus
        exits = total(self.times(here, leave), axis=0)
        enters = total(self.times(exits[:, None], self.moves), axis=0)[None]
        on = self.times(here, stay)
        if len(on) == 1:
            return plus(enters, on)
        return jnp.concatenate([enters, on[:-2], plus(on[-2], on[-1])[None]])

    def forward(self, here: Array, step: StayStep) -> tuple[Array, Any]:
        """Filtered probabilities; the step, they before the row is seen, and the normaliser."""
        algebra, total = self.form.algebra, self.form.total
        predicted = jnp.where(step.first, self.start, self.onward(here, *self.pick(step.into)))
        if algebra.exact:
            emission, top = of_those_there(list(predicted.max(0)), list(step.emission))
            step = step._replace(emission=jnp.stack(emission), scale=step.scale + top)
        joint = self.times(predicted, step.emission)
        norm = jnp.where(step.valid, total(joint, axis=(0, 1)), algebra.one)
        new = jnp.where(step.valid, self.over(joint, norm), here)
        return new, (step, new, predicted, norm)

    def back(self, step: StayStep, here: Array, ahead: Array) -> _Back:
        """`ahead` is emission times beta over the normaliser, of the next row."""
        algebra, total = self.form.algebra, self.form.total
        leave, stay = self.pick(step.out_of)
        reach = self.times(self.moves, ahead[0][None])
        gone = self.times(leave, total(reach, axis=1))
        on = self.times(stay, jnp.concatenate([ahead[1:], ahead[-1:]]))
        exits = total(self.times(here, leave), axis=0)
        end: Any = algebra.one
        if not self.stays.cut:
            end = self.over(leave, total(exits, axis=0))
        beta = jnp.where(step.goes_on, self.form.plus(gone, on), end)
        return _Back(beta, gone, on, reach, exits)

    def there_and_back(self, valid: Array, backward, carry) -> tuple[Array, Any, Any]:
        """The log likelihood, and what `backward` leaves of all steps, the last one first.

        It reads (step, filtered, predicted, normaliser). The forward pass keeps the beginning of
        every block of steps alone, and goes through a block once more when its turn comes.
        """
        algebra, n_times = self.form.algebra, len(self.table)
        length = n_times if n_times <= _FEW_STEPS else int(np.ceil(np.sqrt(n_times)))
        blocks = _in_blocks(self.steps(valid), length)

        def tell(carry, step):
            here, loglik = carry
            here, (step, _, _, norm) = self.forward(here, step)
            more = step.scale + algebra.log(norm)
            if not self.stays.cut:
                leave, _ = self.pick(step.out_of)
                last = algebra.log(self.form.total(self.times(here, leave), axis=(0, 1)))
                more = more + jnp.where(step.goes_on, 0.0, last)
            return (here, loglik + jnp.where(step.valid, more, 0.0)), None

        def there(carry, block):
            return lax.scan(tell, carry, block)[0], carry[0]

        def and_back(carry, now):
            block, begin = now
            _, found = lax.scan(self.forward, begin, block)
            return lax.scan(backward, carry, found, reverse=True)

        loglik = jnp.zeros(self.table.shape[2], self.table.dtype)
        (_, loglik), begins = lax.scan(there, (self.start, loglik), blocks)
        carry, out = lax.scan(and_back, carry, (blocks, begins), reverse=True)
        out = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:n_times], out)
        return loglik, carry, out


def _in_blocks(steps: Any, length: int) -> Any:
    """(block, step, ...); what is added at the end is not valid."""

    def cut(leaf: Array) -> Array:
        missing = -len(leaf) % length
        leaf = jnp.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1))
        return leaf.reshape(-1, length, *leaf.shape[1:])

    return jax.tree.map(cut, steps)


def _by_row(counts: Array, valid: Array, cut: bool) -> Array:
    """Counts of the steps out of each row, at the row that they lead into; the last at its own."""
    goes_on = has_next(valid)[:, None, None]
    moved = jnp.roll(jnp.where(goes_on, counts, 0.0), 1, axis=0)
    return moved if cut else moved + jnp.where(goes_on, 0.0, counts)
