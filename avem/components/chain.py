"""The hidden chain of a mixed HMM: how it starts and moves, given covariates and effects.

The move from state k is one of "stay" and "go j states on, counted round": a categorical outcome
whose log odds against staying are linear. So transitions use the same machinery as any emission,
with the state that is left in the place of the state that emits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.components import autodiff as auto
from avem.components.emissions import from_cells
from avem.components.lanes import Theta, by_subject, q_on_lanes, sum_lanes, to_lanes
from avem.components.linear import Cells, CoefTerms, GeneralKernel
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.kernels import forward_backward as hmm


@dataclass(frozen=True)
class Chain:
    """Initial distribution and transitions; None stands for free probabilities, one set for all."""

    n_states: int
    start: GeneralKernel | None
    stationary: bool
    """The chain starts in the stationary distribution of its first step's transitions."""
    moves: GeneralKernel | None
    pattern: int
    """Which of the chunk's patterns gathers the rows by what the transitions read, or -1."""
    n_cells: int
    """Of that pattern; 0 when every row is a cell."""

    @cached_property
    def move_effects(self) -> tuple[int, ...]:
        """The effects that act on the transitions."""
        if self.moves is None:
            return ()
        return tuple(
            sorted({e for p in self.moves.predictors for state in p.effects for e in state})
        )

    # --- tables for the local pass --------------------------------------------------------------

    def tables(self, theta: Theta, f: Array, chunk: Chunk, cov=None) -> tuple[Array, Array]:
        """Initial and transition probabilities as `local.hmm` takes them.

        With `cov`, the exponentials of the expected log probabilities under q.
        """
        transition = self._transition(theta, f, cov, chunk)
        if self.stationary:
            if cov is None or not self.move_effects:
                first = transition[0] if transition.ndim == 4 else transition
                return stationary(first), transition
            coef, a = theta["moves.coef"], chunk.a[:1]
            log_start = auto.average(
                lambda g: jnp.log(stationary(self._probabilities(coef, g, None, a)[0])),
                *q_on_lanes(f, cov, chunk),
                self.move_effects,
            )
            return jnp.exp(log_start), transition
        if self.start is None:
            return theta["initial"], transition
        on_lanes = to_lanes(f, chunk)
        start = self.start.log_chances(theta["start.coef"], on_lanes, None, chunk.a[:1])
        return jnp.exp(start[0, 0]), transition

    def _transition(self, theta: Theta, f: Array, cov: Array | None, chunk: Chunk) -> Array:
        if self.moves is None:
            return theta["transition"]
        coef = theta["moves.coef"]
        if self.n_cells == 0:
            return self._probabilities(coef, *q_on_lanes(f, cov, chunk), chunk.a)
        a = chunk.patterns[self.pattern].a[:, :, None]
        cells = to_lanes(self._probabilities(coef, f, cov, a), chunk)
        if self.n_cells == 1:
            return cells[0]
        # Rows without a step into them have no cell of their own; any will do.
        index = jnp.minimum(chunk.patterns[self.pattern].index, self.n_cells - 1)
        return from_cells(cells, index)

    def _probabilities(self, coef: Array, f: Array, cov: Array | None, a: Array) -> Array:
        """(cell, from, to, lane)."""
        assert self.moves is not None
        return self._unturn(jnp.exp(self.moves.log_chances(coef, f, cov, a)))

    def _unturn(self, by_distance: Array) -> Array:
        """From (..., from, how many states on, lane) to (..., from, to, lane)."""
        here = np.arange(self.n_states)
        return by_distance[..., here[:, None], (here[None] - here[:, None]) % self.n_states, :]

    # --- what the local posterior leaves behind -------------------------------------------------

    def steps(self, chunk: Chunk) -> hmm.Steps:
        """How the local pass sums the pair probabilities."""
        if self.moves is None or self.n_cells == 1:
            return hmm.Steps()
        if self.n_cells == 0:
            return hmm.Steps(None, 0)
        return hmm.Steps(chunk.patterns[self.pattern].index, self.n_cells)

    def collect(self, posterior: hmm.Posterior, chunk: Chunk) -> tuple[Array, Array]:
        """Expected starts (state, lane), and moves (cell, from, to, subject or lane)."""
        by_lane = self.moves is not None and self.n_cells == 0
        pair = posterior.pair if by_lane else by_subject(posterior.pair, chunk)
        return posterior.state[0], pair

    def weigh(self, collected: tuple[Array, Array], share: Array, chunk: Chunk):
        """The same times a share of each subject."""
        first, pair = collected
        by_lane = self.moves is not None and self.n_cells == 0
        return first * to_lanes(share, chunk), pair * (to_lanes(share, chunk) if by_lane else share)

    # --- the expected log likelihood ------------------------------------------------------------

    def _move_cells(self, pair: Array, chunk: Chunk) -> Cells:
        here = np.arange(self.n_states)
        counts = tuple(pair[:, here, (here + j) % self.n_states] for j in range(self.n_states))
        a = chunk.a if self.n_cells == 0 else chunk.patterns[self.pattern].a[:, :, None]
        return Cells(counts, a, None)

    def _stationary_term(self, first: Array, chunk: Chunk) -> auto.Term:
        """The log probability of the first states as a function of all transitions."""
        a = chunk.a[:1]

        def term(coef: Array, f: Array) -> Array:
            by_state = coef.reshape(self.n_states, -1)
            chance = stationary(self._probabilities(by_state, f, None, a)[0])
            return (first * jnp.log(chance)).sum(0)[None]

        return term

    def value(self, theta: Theta, mean, cov, collected, chunk: Chunk) -> Array:
        """E_q of the chain's part of Q(f), as far as f acts on it."""
        assert self.moves is not None
        return self._expected(
            self.moves.value, auto.expected_value, theta, mean, cov, collected, chunk
        )

    def effect_terms(self, theta: Theta, mean, cov, collected, chunk: Chunk) -> EffectTerms:
        """The same with derivatives in f."""
        assert self.moves is not None
        return self._expected(
            self.moves.effect_terms, auto.effect_terms, theta, mean, cov, collected, chunk
        )

    def _expected(self, of_moves, of_term, theta: Theta, mean, cov, collected, chunk: Chunk):
        """What the moves say, per subject, and a stationary start on top."""
        first, pair = collected
        coef, cells = theta["moves.coef"], self._move_cells(pair, chunk)
        on_lanes = q_on_lanes(mean, cov, chunk)
        if self.n_cells == 0:
            total = sum_lanes(of_moves(coef, *on_lanes, cells), chunk)
        else:
            total = of_moves(coef, mean, cov, cells)
        if self.stationary:
            term, flat = self._stationary_term(first, chunk), coef.reshape(1, -1)
            more = sum_lanes(of_term(term, flat, *on_lanes, self.move_effects), chunk)
            total = jax.tree.map(jnp.add, total, more)
        return total

    def move_terms(self, coef: Array, mean, cov, collected, chunk: Chunk) -> CoefTerms:
        """For the M-step of the transitions; one problem, as a stationary start ties the states."""
        first, pair = collected
        assert self.moves is not None
        cells = self._move_cells(pair, chunk)
        on_lanes = q_on_lanes(mean, cov, chunk)
        q = on_lanes if self.n_cells == 0 else (mean, cov)
        terms = self.moves.coef_terms(coef, *q, cells)
        if not self.stationary:
            return terms
        term = self._stationary_term(first, chunk)
        more = auto.coef_terms(term, coef.reshape(1, -1), *on_lanes, self.move_effects)
        diagonal = jnp.einsum("kpq,kl->kplq", terms.curvature, jnp.eye(self.n_states))
        return CoefTerms(
            terms.value.sum(keepdims=True) + more.value,
            terms.gradient.reshape(1, -1) + more.gradient,
            diagonal.reshape(1, coef.size, coef.size) + more.curvature,
        )

    def start_terms(self, coef: Array, mean, cov, collected, chunk: Chunk) -> CoefTerms:
        """For the M-step of the initial distribution."""
        first, _ = collected
        assert self.start is not None
        counts = tuple(first[k][None, None] for k in range(self.n_states))
        return self.start.coef_terms(
            coef, to_lanes(mean, chunk), None, Cells(counts, chunk.a[:1], None)
        )


def stationary(transition: Array) -> Array:
    """(state, lane) distributions that the transitions (from, to, lane) leave as they are."""
    n_states = transition.shape[0]
    by_lane = jnp.moveaxis(transition, -1, 0)
    # pi (I - P + 1) = 1, with 1 the matrix of ones
    system = jnp.eye(n_states) - jnp.swapaxes(by_lane, 1, 2) + 1.0
    right = jnp.ones((len(by_lane), n_states, 1))
    return jnp.linalg.solve(system, right)[..., 0].T
