"""The mixed hidden Markov model as pure functions of (theta, f, data), for the subjects of a chunk.

`theta` is a flat dict. The chain has ``initial`` (K,) and ``transition`` (K, K), or, with
covariates or effects, ``start.coef`` (1, coefficients) and ``moves.coef`` (K, coefficients);
durations have ``duration.coef`` (K, coefficients) or ``duration`` (K, lengths). Every emission
block has its own entries under its key, and ``effect_covariance`` is (d, d).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, nn
from jaxtyping import Float, Int

from avem.components.base import Block, EmissionBlock
from avem.components.lanes import Theta, all_by_subject, by_subject
from avem.components.linear import CoefTerms, joined
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms, Quadratic
from avem.kernels import forward_backward as hmm
from avem.kernels import gaussian_chain
from avem.models.process import Process
from avem.models.relabelling import Move, label_shifts


class HMMLocal(NamedTuple):
    """What one local pass leaves behind."""

    loglik: Float[Array, " subject"]
    """log p(D_i | f_i)."""
    parts: tuple[Any, ...]
    """What each block collected."""


@dataclass(frozen=True)
class HMMKernel:
    """One shape of mixed HMM; hashable, so that jit can key on it."""

    n_states: int
    n_effects: int
    emissions: tuple[EmissionBlock, ...]
    process: Process
    ruled_out: tuple[int, ...] = ()
    """For each state, the chunk's mask of the rows that cannot be in it; none: any can."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All of them: emissions, and those of the process."""
        return (*self.emissions, *self.process.blocks)

    @property
    def closed_form(self) -> bool:
        """The expected log likelihood is quadratic in the effects."""
        return all(block.closed_form for block in self.blocks)

    @property
    def concave(self) -> bool:
        """The expected log likelihood is concave in the effects."""
        return all(block.concave for block in self.blocks if block.has_effects)

    def summed(self) -> HMMKernel:
        """The same for a local pass of which only sums over subjects are read."""
        return replace(self, process=self.process.summed())

    # --- the local pass -------------------------------------------------------------------------

    def table(
        self, theta: Theta, f: Float[Array, "d subject"], chunk: Chunk, cov: Array | None = None
    ) -> Array:
        """Log density table (time, state, lane) with every lane at its subject's effect.

        With `cov`, its expectation under q, here and in the local pass: blocked mean field.
        """
        table = self._densities(theta, f, chunk, cov)
        if self.ruled_out:
            table = jnp.where(chunk.seen[:, np.array(self.ruled_out)], -jnp.inf, table)
        return table

    def _densities(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None) -> Array:
        """The table of the outcomes alone."""
        parts = [block.table(theta, f, chunk, cov) for block in self.emissions]
        return sum(parts[1:], parts[0])

    def tables(
        self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None
    ) -> tuple[Any, Array]:
        """The process's own tables, and log densities."""
        return self.process.tables(theta, f, chunk, cov), self.table(theta, f, chunk, cov)

    def local(
        self, theta: Theta, f: Array, chunk: Chunk, form: str, cov: Array | None = None
    ) -> HMMLocal:
        """Forward-backward of every subject at its effect `f`, reduced to what is needed later."""
        found = [block.squares(theta, f, chunk) for block in self.emissions]
        squares = [one for one in found if one is not None]
        tables = self.process.tables(theta, f, chunk, cov)
        if cov is None and not self.ruled_out and len(squares) == len(found):
            together = gaussian_chain.together(squares)
            sums = self.process.from_squares(tables, together, chunk, form)
            if sums is not None:
                return self._from_sums(sums, squares, chunk)
        table = self.table(theta, f, chunk, cov)
        posterior = self.process.smooth(tables, table, chunk, form)
        collected = [block.collect(posterior.state, chunk) for block in self.emissions]
        chain = self.process.collect(posterior, chunk)
        return HMMLocal(by_subject(posterior.loglik, chunk), (*collected, *chain))

    def _from_sums(self, found: gaussian_chain.ChainSums, squares, chunk: Chunk) -> HMMLocal:
        """The same where all outcomes are Gaussian, without a table."""
        loglik, sums = all_by_subject((found.loglik, found.sums), chunk)
        ends = np.cumsum([len(one.lists.features) for one in squares])
        collected = jnp.split(sums, ends[:-1], axis=1)
        posterior = hmm.Posterior(loglik, found.first[None], found.pair)
        return HMMLocal(loglik, (*collected, *self.process.collect(posterior, chunk)))

    def weigh(self, local: HMMLocal, share: Float[Array, " subject"], chunk: Chunk) -> HMMLocal:
        """A local pass that counts only with a share of each subject."""
        parts = tuple(block.weigh(part, share, chunk) for block, part in self._each(local))
        return HMMLocal(local.loglik, parts)

    def _each(self, local: HMMLocal) -> Iterator[tuple[Block, Any]]:
        """Every block with what it collected."""
        return zip(self.blocks, local.parts, strict=True)

    def posterior(
        self, theta: Theta, f: Array, chunk: Chunk, form: str, cov: Array | None = None
    ) -> Any:
        """State probabilities of every lane at its subject's effect, as the process gives them."""
        return self.process.smooth(*self.tables(theta, f, chunk, cov), chunk, form)

    def tilted(self, theta: Theta, f: Array, chunk: Chunk, tilt: Array, form: str) -> Any:
        """`posterior` with `tilt` (time, state, lane) added to the log densities."""
        tables, table = self.tables(theta, f, chunk)
        return self.process.smooth(tables, table + tilt, chunk, form)

    def states_given(
        self, theta: Theta, f: Array, chunk: Chunk, kind: str
    ) -> tuple[Float[Array, "time state lane"], Float[Array, " lane"]]:
        """State probabilities given the steps before, or all others; and the log likelihood."""
        return self.process.states_given(*self.tables(theta, f, chunk), chunk, kind)

    def filtered(
        self, theta: Theta, f: Array, chunk: Chunk
    ) -> tuple[Float[Array, "time state lane"], Float[Array, "time lane"]]:
        """State probabilities given the steps up to each, and log p(step | steps before it)."""
        tables, table = self.tables(theta, f, chunk)
        before = self.process.states_so_far(tables, table, chunk)
        joint = jnp.log(before) + table
        total = nn.logsumexp(joint, axis=1)
        return nn.softmax(joint, axis=1), total

    def next_row(
        self, theta: Theta, f: Array, chunk: Chunk, now: Array | None
    ) -> tuple[Float[Array, "... state lane"], Float[Array, "state lane"]]:
        """Of a chunk of one step: where the chain may be before it is seen, and its table.

        ``now`` is where it may have been at the step before; None: this is the first.
        """
        tables, table = self.tables(theta, f, chunk)
        return self.process.onward(tables, table, now), table[0]

    def viterbi(
        self, theta: Theta, f: Array, chunk: Chunk
    ) -> tuple[Int[Array, "time lane"], Float[Array, " lane"]]:
        """Most probable state path of every lane, and its log p(D, U)."""
        return self.process.best_path(*self.tables(theta, f, chunk), chunk)

    # --- the expected log likelihood, as far as the effects act on it ---------------------------

    def quadratic(self, theta: Theta, local: HMMLocal) -> Quadratic:
        """The part of Q(f) that is quadratic."""
        shape = (self.n_effects, self.n_effects, local.loglik.shape[0])
        total = (jnp.zeros(shape), jnp.zeros(shape[1:]))
        for block, collected in self._each(local):
            more = block.quadratic(theta, collected)
            if more is not None:
                total = (total[0] + more[0], total[1] + more[1])
        return Quadratic(*total)

    def value(
        self, theta: Theta, mean: Array, cov, local: HMMLocal, quadratic, chunk: Chunk
    ) -> Array:
        """E_q Q(f) of every subject up to a constant; at the point `mean` when `cov` is None."""
        total = quadratic.value(mean, cov)
        for block, collected in self._each(local):
            if not block.closed_form:
                total += block.value(theta, mean, cov, collected, chunk)
        return total

    def effect_terms(
        self, theta: Theta, mean: Array, cov, local: HMMLocal, quadratic, chunk: Chunk
    ) -> EffectTerms:
        """E_q Q(f) with its gradient (d, subject) and curvature (d, d, subject) in f."""
        total = quadratic.terms(mean, cov)
        for block, collected in self._each(local):
            if not block.closed_form:
                more = block.effect_terms(theta, mean, cov, collected, chunk)
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

    # --- the M-step -----------------------------------------------------------------------------

    def sums(
        self, local: HMMLocal, mean: Array, cov: Array | None, chunk: Chunk
    ) -> tuple[Any, ...]:
        """What the closed forms need, summed over subjects, when the effects are N(mean, cov)."""
        second = mean[:, None] * mean[None]
        second = second if cov is None else cov + second
        return tuple(block.sums(part, mean, second) for block, part in self._each(local))

    def read(self, sums: tuple[Any, ...]) -> tuple[Any, ...]:
        """The sums as closed forms read them."""
        return tuple(block.read(own) for block, own in zip(self.blocks, sums, strict=True))

    def maximise(self, theta, sums, fixed, free, noise_floor) -> dict[str, np.ndarray]:
        """The entries of theta with closed forms."""
        new = {}
        for block, own in zip(self.blocks, sums, strict=True):
            new.update(block.maximise(theta, own, fixed, noise_floor))
        return new

    def slopes(self, theta, sums) -> dict[str, np.ndarray]:
        """Derivatives of the expected complete log likelihood in them."""
        new = {}
        for block, own in zip(self.blocks, sums, strict=True):
            new.update(block.slopes(theta, own))
        return new

    def expected(self, theta, sums) -> float:
        """The expected complete log likelihood in them, up to a constant."""
        return sum(b.expected(theta, own) for b, own in zip(self.blocks, sums, strict=True))

    def information(self, theta, sums) -> dict[str, np.ndarray]:
        """Minus its second derivative in each of them, flat, on average."""
        new = {}
        for block, own in zip(self.blocks, sums, strict=True):
            new.update(block.information(theta, own))
        return new

    def shifted(self, sums, moves) -> tuple[Any, ...]:
        """The sums as if coefficients had gained ``moves(key)``, and their effects lost it."""
        pairs = zip(self.blocks, sums, strict=True)
        return tuple(block.shifted(own, moves) for block, own in pairs)

    @property
    def newton_keys(self) -> tuple[str, ...]:
        """The entries of theta whose M-step has no closed form."""
        return tuple(dict.fromkeys(key for block in self.blocks for key in block.newton_keys))

    def effects_act_on(self, key: str) -> bool:
        """Whether what one of `newton_keys` describes differs between subjects by their effects."""
        return any(block.has_effects for block in self.blocks if key in block.newton_keys)

    def needed_by_newton(self, local: HMMLocal) -> Any:
        """The part of a local pass that `coef_terms` reads."""
        parts = tuple(block.needed_by_newton(part) for block, part in self._each(local))
        return HMMLocal(None, parts)  # type: ignore[arg-type]

    def coef_terms(
        self, key: str, coef: Array, mean: Array, cov, local: HMMLocal, chunk: Chunk
    ) -> CoefTerms:
        """E_q of Q in one of `newton_keys`, with derivatives, summed over the chunk's subjects."""
        found = [
            block.coef_terms(key, coef, mean, cov, collected, chunk)
            for block, collected in self._each(local)
            if key in block.newton_keys
        ]
        return reduce(joined, found)

    # --- the definition -------------------------------------------------------------------------

    def path_posterior(self, theta: Theta, f: Array, chunk: Chunk, form: str) -> Any:
        """The posterior with all that `expected_complete` needs."""
        return self.process.path_posterior(*self.tables(theta, f, chunk), chunk, form)

    def expected_complete(
        self, theta: Theta, f: Array, posterior: Any, chunk: Chunk
    ) -> Float[Array, " subject"]:
        """E over p(U | D, f0) of log p(D, U | f; theta): what an M-step maximises.

        ``posterior`` is a `path_posterior`. Closed forms and Newton steps agree with this.
        """
        # What is ruled out has a posterior of 0, and a log density of minus infinity.
        emission = (posterior.state * self._densities(theta, f, chunk, None)).sum((0, 1))
        return by_subject(emission, chunk) + self.process.expected(theta, f, posterior, chunk)
