"""One local pass per subject, at its anchor, and the update of its q_i.

This is AVEM's E-step (the paper's Algorithm 1), and with expected log densities that of mean field.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from avem.components.lanes import Theta
from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.effects.posterior import GaussianQ, update_by_newton, update_from_quadratic
from avem.inference.passes import Glance, Pass, Totals, counted, counts, first_terms
from avem.models.kernel import Kernel, Local
from avem.numerics.jit import jit

TO_THE_END = 60
"""Newton steps that always suffice."""


class KeptAnchored(NamedTuple):
    """q, and what the blocks without a closed form collected; None for the others."""

    mean: Array
    covariance: Array
    local: Local

    def coef_terms(self, kernel: Kernel, key: str, coef: Array, chunk: Chunk) -> CoefTerms:
        return kernel.coef_terms(key, coef, self.mean, self.covariance, self.local, chunk)


@jit("kernel", "form", "q_update")
def anchored_pass(
    kernel: Kernel,
    theta: Theta,
    anchor: Array,
    cov: Array | None,
    chunk: Chunk,
    form: str,
    q_update: str = "laplace",
    newton_steps: int = TO_THE_END,
) -> Pass:
    """E-step of the subjects of one chunk; with `cov`, the local pass is that of mean field."""
    at_once = kernel.summed() if chunk.weight is None else kernel
    local = at_once.local(theta, anchor, chunk, form, cov)
    q, gain = update_q(kernel, theta, anchor, cov, local, chunk, q_update, newton_steps)
    in_sums, counting = counted(kernel, local, chunk), counts(chunk)
    totals = Totals(
        model=kernel.sums(in_sums, q.mean, q.covariance, chunk),
        effect_mean=(jnp.where(chunk.real, q.mean, 0.0) * counting).sum(-1),
        effect_second=q.total_second_moment(counting),
    )
    kept = KeptAnchored(q.mean, q.covariance, kernel.needed_by_newton(in_sums))
    return Pass(
        mean=q.mean,
        covariance=q.covariance,
        loglik=local.loglik,
        bound=jnp.where(chunk.real, local.loglik + gain - q.divergence, 0.0),
        around=None,
        quality=None,
        totals=totals,
        kept=kept,
        terms=first_terms(kernel, theta, kept, chunk),
    )


@jit("kernel", "form", "q_update")
def anchored_glance(
    kernel: Kernel,
    theta: Theta,
    anchor: Array,
    chunk: Chunk,
    form: str,
    q_update: str,
    newton_steps: int,
) -> Glance:
    """The q_i of an anchored E-step, without the sums and the bound."""
    local = kernel.local(theta, anchor, chunk, form)
    q, _ = update_q(kernel, theta, anchor, None, local, chunk, q_update, newton_steps)
    return Glance(q.mean, q.covariance, local.loglik)


def update_q(
    kernel: Kernel,
    theta: Theta,
    anchor: Array,
    cov: Array | None,
    local: Local,
    chunk: Chunk,
    q_update: str,
    newton_steps: int,
) -> tuple[GaussianQ, Array]:
    """The new q_i, and E_q Q_i(f; anchor) - Q_i(anchor; anchor).

    With `cov`, the second term is the expectation under the old q_i too.
    """
    if kernel.n_effects == 0:
        zero = jnp.zeros_like(local.loglik)
        return GaussianQ(anchor, jnp.zeros((0, 0, anchor.shape[1])), zero), zero
    sigma = theta["effect_covariance"]
    quadratic = kernel.quadratic(theta, local)
    if kernel.closed_form and cov is None:
        return update_from_quadratic(sigma, quadratic, anchor)
    if kernel.closed_form:
        q, _ = update_from_quadratic(sigma, quadratic, anchor)
    else:
        q = update_by_newton(
            sigma,
            lambda mean, cov: kernel.effect_terms(theta, mean, cov, local, quadratic, chunk),
            anchor,
            concave=kernel.concave,
            quadrature=q_update == "quadrature",
            max_steps=newton_steps,
        )
    there = kernel.value(theta, q.mean, q.covariance, local, quadratic, chunk)
    return q, there - kernel.value(theta, anchor, cov, local, quadratic, chunk)


@jit("kernel", "form")
def bound_at(
    kernel: Kernel, theta: Theta, anchor: Array, mean: Array, cov: Array, chunk: Chunk, form: str
) -> Array:
    """The part of the anchored ELBO that depends on the anchor, at a given q_i (Lemma 2)."""
    local = kernel.local(theta, anchor, chunk, form)
    quadratic = kernel.quadratic(theta, local)
    there = kernel.value(theta, mean, cov, local, quadratic, chunk)
    return local.loglik + there - kernel.value(theta, anchor, None, local, quadratic, chunk)
