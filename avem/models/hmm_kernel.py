"""The mixed hidden Markov model as pure functions of (theta, f, data), for the subjects of a chunk.

`theta` is a dict: ``initial`` (K,), ``transition`` (K, K), ``coef`` (K, outcomes, terms),
``covariance`` (K, outcomes, outcomes), ``effect_covariance`` (d, d). Effect ``f[j * e + a]`` is the
effect of term ``a`` on outcome ``j``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from avem.data._layout import Chunk
from avem.families.gaussian import GaussianKernel
from avem.local import hmm

Theta = dict[str, Array]


class Local(NamedTuple):
    """What one local pass leaves behind: per subject where q needs it, summed where theta does."""

    loglik: Float[Array, " subject"]
    """log p(D_i | f_i)."""
    moments: Float[Array, "state feature subject"]
    first: Float[Array, " state"]
    """Expected number of sequences that start in each state."""
    pair: Float[Array, "state state"]
    """Expected number of moves between states."""


@dataclass(frozen=True)
class HMMKernel:
    """One shape of mixed HMM; hashable, so that jit can key on it."""

    n_states: int
    emission: GaussianKernel

    @property
    def n_effects(self) -> int:
        """Number of effects of a subject, d."""
        return self.emission.n_outcomes * len(self.emission.z_cols)

    def table(self, theta: Theta, f: Float[Array, "d subject"], chunk: Chunk) -> Array:
        """Log density table (time, state, lane) with every lane at its subject's effect."""
        shape = (self.emission.n_outcomes, len(self.emission.z_cols), chunk.owner.shape[0])
        of_lane = f[:, chunk.owner].reshape(shape)
        return self.emission.table(theta["coef"], theta["covariance"], of_lane, chunk)

    def local(self, theta: Theta, f: Array, chunk: Chunk, form: str) -> Local:
        """Forward-backward of every subject at its effect `f`, reduced to what is needed later."""
        posterior = self.posterior(theta, f, chunk, form)
        moments = self.emission.moments(posterior.state, chunk)
        return Local(
            loglik=by_subject(posterior.loglik, chunk),
            moments=by_subject(moments, chunk),
            first=posterior.state[0].sum(-1),
            pair=posterior.pair.sum(-1),
        )

    def posterior(self, theta: Theta, f: Array, chunk: Chunk, form: str) -> hmm.Posterior:
        """State probabilities of every lane at its subject's effect."""
        table = self.table(theta, f, chunk)
        return hmm.smooth(theta["initial"], theta["transition"], table, chunk.valid, form)

    def viterbi(
        self, theta: Theta, f: Array, chunk: Chunk
    ) -> tuple[Int[Array, "time lane"], Float[Array, " lane"]]:
        """Most probable state path of every lane, and its log p(D, U)."""
        table = self.table(theta, f, chunk)
        return hmm.viterbi(theta["initial"], theta["transition"], table, chunk.valid)

    def expected_complete(
        self, theta: Theta, f: Array, posterior: hmm.Posterior, chunk: Chunk
    ) -> Float[Array, " subject"]:
        """E over p(U | D, f0) of log p(D, U | f; theta): the function that AVEM maximises.

        The general path differentiates this; the Gaussian closed forms must agree with it.
        """
        emission = (posterior.state * self.table(theta, f, chunk)).sum((0, 1))
        start = jnp.where(posterior.state[0] > 0, jnp.log(theta["initial"])[:, None], 0.0)
        move = jnp.where(posterior.pair > 0, jnp.log(theta["transition"])[:, :, None], 0.0)
        chain = (posterior.state[0] * start).sum(0) + (posterior.pair * move).sum((0, 1))
        return by_subject(emission + chain, chunk)


def by_subject(values: Float[Array, "... lane"], chunk: Chunk) -> Float[Array, "... subject"]:
    """Sums over the lanes of each subject."""
    total = jnp.zeros((*values.shape[:-1], chunk.real.shape[0]), values.dtype)
    return total.at[..., chunk.owner].add(values)
