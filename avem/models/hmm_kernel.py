"""The mixed hidden Markov model as pure functions of (theta, f, data), for the subjects of a chunk.

`theta` is a flat dict. The chain has ``initial`` (K,) and ``transition`` (K, K), or, with
covariates or effects, ``start.coef`` (1, coefficients) and ``moves.coef`` (K, coefficients). Every
emission block has its own entries under its key, and ``effect_covariance`` is (d, d).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from avem.components.chain import Chain
from avem.components.emissions import Block, GaussianBlock
from avem.components.lanes import Theta, by_subject
from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms, Quadratic
from avem.kernels import forward_backward as hmm
from avem.models import hmm_sums
from avem.models.relabelling import Move, label_shifts


class Local(NamedTuple):
    """What one local pass leaves behind."""

    loglik: Float[Array, " subject"]
    """log p(D_i | f_i)."""
    emissions: tuple[Any, ...]
    """What each block collected."""
    chain: tuple[Array, Array]
    """Expected starts and moves."""


@dataclass(frozen=True)
class HMMKernel:
    """One shape of mixed HMM; hashable, so that jit can key on it."""

    n_states: int
    n_effects: int
    blocks: tuple[Block, ...]
    chain: Chain

    @property
    def closed_form(self) -> bool:
        """The expected log likelihood is quadratic in the effects."""
        general = [b for b in self.blocks if not b.closed_form and b.has_effects]
        return not general and not self.chain.move_effects

    @property
    def concave(self) -> bool:
        """The expected log likelihood is concave in the effects."""
        stationary = self.chain.stationary and bool(self.chain.move_effects)
        kernels = [getattr(b, "kernel", None) for b in self.blocks if b.has_effects]
        return not stationary and all(k is not None and k.concave for k in kernels)

    # --- the local pass -------------------------------------------------------------------------

    def table(
        self, theta: Theta, f: Float[Array, "d subject"], chunk: Chunk, cov: Array | None = None
    ) -> Array:
        """Log density table (time, state, lane) with every lane at its subject's effect.

        With `cov`, its expectation under q, here and in the local pass: blocked mean field.
        """
        parts = [block.table(theta, f, chunk, cov) for block in self.blocks]
        return sum(parts[1:], parts[0])

    def local(
        self, theta: Theta, f: Array, chunk: Chunk, form: str, cov: Array | None = None
    ) -> Local:
        """Forward-backward of every subject at its effect `f`, reduced to what is needed later."""
        posterior = self.posterior(theta, f, chunk, form, cov)
        return Local(
            loglik=by_subject(posterior.loglik, chunk),
            emissions=tuple(block.collect(posterior.state, chunk) for block in self.blocks),
            chain=self.chain.collect(posterior, chunk),
        )

    def weigh(self, local: Local, share: Float[Array, " subject"], chunk: Chunk) -> Local:
        """A local pass that counts only with a share of each subject."""
        pairs = zip(self.blocks, local.emissions, strict=True)
        return Local(
            loglik=local.loglik,
            emissions=tuple(block.weigh(part, share, chunk) for block, part in pairs),
            chain=self.chain.weigh(local.chain, share, chunk),
        )

    def posterior(
        self, theta: Theta, f: Array, chunk: Chunk, form: str, cov: Array | None = None
    ) -> hmm.Posterior:
        """State probabilities of every lane at its subject's effect."""
        tables = (*self.chain.tables(theta, f, chunk, cov), self.table(theta, f, chunk, cov))
        return hmm.smooth(*tables, chunk.valid, form, self.chain.steps(chunk))

    def states_given(
        self, theta: Theta, f: Array, chunk: Chunk, kind: str
    ) -> tuple[Float[Array, "time state lane"], Float[Array, " lane"]]:
        """State probabilities given the steps before, or all others; and the log likelihood."""
        tables = (*self.chain.tables(theta, f, chunk), self.table(theta, f, chunk))
        return hmm.states_given(*tables, chunk.valid, kind)

    def viterbi(
        self, theta: Theta, f: Array, chunk: Chunk
    ) -> tuple[Int[Array, "time lane"], Float[Array, " lane"]]:
        """Most probable state path of every lane, and its log p(D, U)."""
        tables = (*self.chain.tables(theta, f, chunk), self.table(theta, f, chunk))
        return hmm.viterbi(*tables, chunk.valid)

    # --- the expected log likelihood, as far as the effects act on it ---------------------------

    def quadratic(self, theta: Theta, local: Local) -> Quadratic:
        """The Gaussian blocks' part of Q(f)."""
        shape = (self.n_effects, self.n_effects, local.loglik.shape[0])
        total = (jnp.zeros(shape), jnp.zeros(shape[1:]))
        for block, collected in zip(self.blocks, local.emissions, strict=True):
            if isinstance(block, GaussianBlock) and block.has_effects:
                more = block.quadratic(theta, collected)
                total = (total[0] + more[0], total[1] + more[1])
        return Quadratic(*total)

    def _other_parts(self, local: Local) -> Iterator[tuple[Any, Any]]:
        """The parts of Q(f) that are not quadratic, each with what it collected."""
        for block, collected in zip(self.blocks, local.emissions, strict=True):
            if not block.closed_form and block.has_effects:
                yield block, collected
        if self.chain.move_effects:
            yield self.chain, local.chain

    def value(self, theta: Theta, mean: Array, cov, local: Local, quadratic, chunk: Chunk) -> Array:
        """E_q Q(f) of every subject up to a constant; at the point `mean` when `cov` is None."""
        total = quadratic.value(mean, cov)
        for part, collected in self._other_parts(local):
            total += part.value(theta, mean, cov, collected, chunk)
        return total

    def effect_terms(
        self, theta: Theta, mean: Array, cov, local: Local, quadratic, chunk: Chunk
    ) -> EffectTerms:
        """The same with derivatives in f."""
        total = quadratic.terms(mean, cov)
        for part, collected in self._other_parts(local):
            more = part.effect_terms(theta, mean, cov, collected, chunk)
            total = EffectTerms(*map(jnp.add, total, more))
        return total

    @property
    def has_twins(self) -> bool:
        """Posteriors of the effects may have several modes that matter."""
        return self.n_states > 1

    def twins(self, theta, matches) -> list[Move]:
        """Other effects that a relabelling of the states leads to."""
        shifts = label_shifts(self.n_states, theta, matches)
        return [partial(np.add, shift[:, None]) for shift in shifts]

    # --- the M-step in closed form --------------------------------------------------------------

    def sums(self, local: Local, mean: Array, cov: Array | None, chunk: Chunk) -> hmm_sums.HMMSums:
        """What the closed forms need, summed over subjects, when the effects are N(mean, cov)."""
        return hmm_sums.collect(self, local, mean, cov)

    def maximise(self, theta, sums, fixed, free, noise_floor) -> dict[str, np.ndarray]:
        """The entries of theta with closed forms."""
        return hmm_sums.maximise(self, theta, sums, fixed, noise_floor)

    def slopes(self, theta, sums) -> dict[str, np.ndarray]:
        """Derivatives of the expected complete log likelihood in them."""
        return hmm_sums.slopes(self, theta, sums)

    def shifted(self, sums, moves) -> hmm_sums.HMMSums:
        """The sums as if coefficients had gained ``moves(key)``, and their effects lost it."""
        return hmm_sums.shifted(self, sums, moves)

    def needed_by_newton(self, local: Local) -> Any:
        """The part of a local pass that `coef_terms` reads."""
        closed_chain = self.chain.moves is None and self.chain.start is None
        pairs = zip(self.blocks, local.emissions, strict=True)
        return Local(
            loglik=None,  # type: ignore[arg-type]
            emissions=tuple(None if block.closed_form else part for block, part in pairs),
            chain=None if closed_chain else local.chain,  # type: ignore[arg-type]
        )

    # --- the M-step by Newton -------------------------------------------------------------------

    @property
    def newton_keys(self) -> tuple[str, ...]:
        """The entries of theta whose M-step has no closed form."""
        keys = [block.key + "coef" for block in self.blocks if not block.closed_form]
        keys += ["start.coef"] if self.chain.start is not None else []
        return tuple(keys + (["moves.coef"] if self.chain.moves is not None else []))

    def coef_terms(
        self, key: str, coef: Array, mean: Array, cov, local: Local, chunk: Chunk
    ) -> CoefTerms:
        """E_q of Q in one of `newton_keys`, with derivatives, summed over the chunk's subjects."""
        if key == "start.coef":
            return self.chain.start_terms(coef, mean, cov, local.chain, chunk)
        if key == "moves.coef":
            return self.chain.move_terms(coef, mean, cov, local.chain, chunk)
        number = next(i for i, block in enumerate(self.blocks) if block.key + "coef" == key)
        block = self.blocks[number]
        assert not isinstance(block, GaussianBlock)
        return block.coef_terms(coef, mean, cov, local.emissions[number], chunk)

    # --- the definition -------------------------------------------------------------------------

    def path_posterior(self, theta: Theta, f: Array, chunk: Chunk, form: str) -> hmm.Posterior:
        """The posterior with the pairs of every step apart, where the transitions differ."""
        initial, transition = self.chain.tables(theta, f, chunk)
        steps = hmm.Steps(None, 0) if transition.ndim == 4 else hmm.Steps()
        return hmm.smooth(
            initial, transition, self.table(theta, f, chunk), chunk.valid, form, steps
        )

    def expected_complete(
        self, theta: Theta, f: Array, posterior: hmm.Posterior, chunk: Chunk
    ) -> Float[Array, " subject"]:
        """E over p(U | D, f0) of log p(D, U | f; theta): the function that AVEM maximises.

        ``posterior`` is a `path_posterior`. Closed forms and Newton steps agree with this.
        """
        initial, transition = self.chain.tables(theta, f, chunk)
        emission = (posterior.state * self.table(theta, f, chunk)).sum((0, 1))
        start = posterior.state[0] * _safe_log(_with_lanes(initial, 1))
        pair = posterior.pair if transition.ndim == 4 else posterior.pair.sum(0)
        move = pair * _safe_log(_with_lanes(transition, 2))
        chain = start.sum(0) + move.sum(tuple(range(move.ndim - 1)))
        return by_subject(emission + chain, chunk)


def _with_lanes(chances: Array, n_axes: int) -> Array:
    return chances[..., None] if chances.ndim == n_axes else chances


def _safe_log(chances: Array) -> Array:
    """The logarithm, and 0 for what never happens."""
    possible = chances > 0
    return jnp.where(possible, jnp.log(jnp.where(possible, chances, 1.0)), 0.0)
