"""What the compiled code does with one chunk of subjects: E-step, and terms of the M-step."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from avem.data._layout import Chunk
from avem.effects.posterior import (
    GaussianQ,
    expected_quadratic_gain,
    update_by_newton,
    update_from_quadratic,
)
from avem.models.emissions import GaussianBlock, Theta
from avem.models.general import CoefTerms
from avem.models.hmm_kernel import HMMKernel, Local

TO_THE_END = 60
"""Newton steps that always suffice."""


class Totals(NamedTuple):
    """What the closed forms of the M-step need: sums over subjects. JAX arrays, then NumPy."""

    first: Any
    pair: Any
    emissions: tuple[Any, ...]
    """Sums of each Gaussian block, None for the others."""
    effect_mean: Any
    effect_second: Any


class Kept(Protocol):
    """What an E-step keeps on the device for the M-step by Newton."""

    def coef_terms(self, kernel: HMMKernel, key: str, coef: Array, chunk: Chunk) -> CoefTerms:
        """A chunk's part of the M-step of theta[key]: value and derivatives, over the effects."""
        ...


class KeptAnchored(NamedTuple):
    """q, and what the blocks without a closed form collected; None for the others."""

    mean: Array
    covariance: Array
    local: Local

    def coef_terms(self, kernel: HMMKernel, key: str, coef: Array, chunk: Chunk) -> CoefTerms:
        return kernel.coef_terms(key, coef, self.mean, self.covariance, self.local, chunk)


class Pass(NamedTuple):
    """One chunk after the E-step."""

    mean: Array
    covariance: Array
    loglik: Array
    """log p(D_i | anchor) of each subject."""
    bound: Array
    """The anchored ELBO of each subject at (anchor, new q_i, theta)."""
    totals: Totals
    kept: Kept
    terms: tuple[CoefTerms, ...]
    """The first Newton step's, for each of the kernel's `newton_keys`."""


@partial(jax.jit, static_argnames=("kernel", "form", "q_update"))
def anchored_pass(
    kernel: HMMKernel,
    theta: Theta,
    anchor: Array,
    chunk: Chunk,
    form: str,
    q_update: str = "laplace",
    newton_steps: int = TO_THE_END,
) -> Pass:
    """E-step of the subjects of one chunk."""
    local = kernel.local(theta, anchor, chunk, form)
    q, gain = update_q(kernel, theta, anchor, local, chunk, q_update, newton_steps)
    second = q.second_moment()
    emissions = list(zip(kernel.blocks, local.emissions, strict=True))
    totals = Totals(
        first=local.chain[0].sum(-1),
        pair=local.chain[1].sum((0, -1)),
        emissions=tuple(
            block.totals(part, q.mean, second) if isinstance(block, GaussianBlock) else None
            for block, part in emissions
        ),
        effect_mean=jnp.where(chunk.real, q.mean, 0.0).sum(-1),
        effect_second=jnp.where(chunk.real, second, 0.0).sum(-1),
    )
    closed_chain = kernel.chain.moves is None and kernel.chain.start is None
    needed: Any = Local(
        loglik=None,  # type: ignore[arg-type]
        emissions=tuple(None if block.closed_form else part for block, part in emissions),
        chain=None if closed_chain else local.chain,  # type: ignore[arg-type]
    )
    kept = KeptAnchored(q.mean, q.covariance, needed)
    bound = jnp.where(chunk.real, local.loglik + gain - q.divergence, 0.0)
    terms = first_terms(kernel, theta, kept, chunk)
    return Pass(q.mean, q.covariance, local.loglik, bound, totals, kept, terms)


def first_terms(kernel: HMMKernel, theta: Theta, kept: Kept, chunk: Chunk) -> tuple[CoefTerms, ...]:
    """The terms of the first Newton step, for each of the kernel's `newton_keys`."""
    return tuple(kept.coef_terms(kernel, key, theta[key], chunk) for key in kernel.newton_keys)


def update_q(
    kernel: HMMKernel,
    theta: Theta,
    anchor: Array,
    local: Local,
    chunk: Chunk,
    q_update: str,
    newton_steps: int,
) -> tuple[GaussianQ, Array]:
    """The new q_i, and E_q Q_i(f; anchor) - Q_i(anchor; anchor)."""
    if kernel.n_effects == 0:
        zero = jnp.zeros_like(local.loglik)
        return GaussianQ(anchor, jnp.zeros((0, 0, anchor.shape[1])), zero), zero
    sigma = theta["effect_covariance"]
    quadratic = kernel.quadratic(theta, local)
    if kernel.closed_form:
        q = update_from_quadratic(sigma, *quadratic)
        return q, expected_quadratic_gain(*quadratic, q, anchor)
    q = update_by_newton(
        sigma,
        lambda mean, cov: kernel.effect_terms(theta, mean, cov, local, quadratic, chunk),
        anchor,
        concave=kernel.concave,
        quadrature=q_update == "quadrature",
        max_steps=newton_steps,
    )
    there = kernel.value(theta, q.mean, q.covariance, local, quadratic, chunk)
    return q, there - kernel.value(theta, anchor, None, local, quadratic, chunk)


@partial(jax.jit, static_argnames=("kernel", "key"))
def coef_pass(kernel: HMMKernel, key: str, coef: Array, kept: Kept, chunk: Chunk) -> CoefTerms:
    """The terms of a further Newton step."""
    return kept.coef_terms(kernel, key, coef, chunk)


@partial(jax.jit, static_argnames=("kernel", "key"))
def coef_height(kernel: HMMKernel, key: str, coef: Array, kept: Kept, chunk: Chunk) -> Array:
    """The value alone of `coef_pass`."""
    return kept.coef_terms(kernel, key, coef, chunk).value


@partial(jax.jit, static_argnames=("kernel", "form"))
def bound_at(
    kernel: HMMKernel, theta: Theta, anchor: Array, mean: Array, cov: Array, chunk: Chunk, form: str
) -> Array:
    """The part of the anchored ELBO that depends on the anchor, at a given q_i (Lemma 2)."""
    local = kernel.local(theta, anchor, chunk, form)
    quadratic = kernel.quadratic(theta, local)
    there = kernel.value(theta, mean, cov, local, quadratic, chunk)
    return local.loglik + there - kernel.value(theta, anchor, None, local, quadratic, chunk)
