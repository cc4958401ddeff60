"""Anchored variational EM (the paper's Algorithm 1).

One iteration: run forward-backward once per subject at its anchor, the mean of its q_i; update
every q_i; update theta. The first two happen chunk by chunk in compiled code (`anchored_pass`);
what comes back is a handful of sums, and the M-step on them is plain NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from os import cpu_count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.data._layout import Chunk
from avem.effects.posterior import GaussianQ, expected_quadratic_gain, update_from_quadratic
from avem.effects.prior import project_covariance
from avem.errors import AvemError
from avem.families.gaussian import Sums
from avem.models.hmm_kernel import HMMKernel, Local, Theta
from avem.numerics.covariance import floor_eigenvalues
from avem.numerics.precision import in_float64

IMPOSSIBLE = (
    "The likelihood is not finite: some sequence is impossible under the parameters. Look for "
    "values far outside those of the fit, and for zero probabilities or tiny variances in init= "
    "and fixed=."
)
NOISE_FLOOR, EFFECT_FLOOR = 1e-6, 1e-8
"""Smallest variance of a state and of an effect, in units of the outcome's overall variance."""


class Totals(NamedTuple):
    """All that the M-step needs: sums over subjects. JAX arrays, then NumPy."""

    first: Any
    pair: Any
    emission: Sums
    effect_mean: Any
    effect_second: Any


class Pass(NamedTuple):
    """One chunk after the E-step."""

    mean: Array
    covariance: Array
    loglik: Array
    """log p(D_i | anchor) of each subject."""
    bound: Array
    """The anchored ELBO of each subject at (anchor, new q_i, theta)."""
    totals: Totals


@partial(jax.jit, static_argnames=("kernel", "form"))
def anchored_pass(kernel: HMMKernel, theta: Theta, anchor: Array, chunk: Chunk, form: str) -> Pass:
    """E-step of the subjects of one chunk."""
    local = kernel.local(theta, anchor, chunk, form)
    q, gain = _update_q(kernel, theta, anchor, local)
    second = q.second_moment()
    totals = Totals(
        first=local.first,
        pair=local.pair,
        emission=kernel.emission.accumulate(local.moments, q.mean, second),
        effect_mean=jnp.where(chunk.real, q.mean, 0.0).sum(-1),
        effect_second=jnp.where(chunk.real, second, 0.0).sum(-1),
    )
    bound = jnp.where(chunk.real, local.loglik + gain - q.divergence, 0.0)
    return Pass(q.mean, q.covariance, local.loglik, bound, totals)


def _update_q(
    kernel: HMMKernel, theta: Theta, anchor: Array, local: Local
) -> tuple[GaussianQ, Array]:
    """The new q_i, and E_q Q_i(f; anchor) - Q_i(anchor; anchor)."""
    if kernel.n_effects == 0:
        zero = jnp.zeros_like(local.loglik)
        return GaussianQ(anchor, jnp.zeros((0, 0, anchor.shape[1])), zero), zero
    quadratic = kernel.emission.effect_quadratic(theta["coef"], theta["covariance"], local.moments)
    q = update_from_quadratic(theta["effect_covariance"], *quadratic)
    return q, expected_quadratic_gain(*quadratic, q, anchor)


@dataclass(frozen=True)
class State:
    """What the next iteration needs: parameters, and the anchor of every subject, by chunk."""

    theta: dict[str, np.ndarray]
    anchors: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Step:
    """One iteration: where it went, and what it saw on the way."""

    state: State
    """The state after the iteration."""
    bound: float
    """The anchored ELBO at the state before it, after the q-update."""
    loglik: float
    """sum_i log p(D_i | anchor) at the state before it."""
    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class AnchoredEM:
    """AVEM on the chunks of one data set."""

    kernel: HMMKernel
    chunks: tuple[Chunk, ...]
    """Arrays already on the device."""
    structure: str
    """Of the effect covariance."""
    blocks: np.ndarray
    """(d,) which effects may be correlated."""
    matched: np.ndarray
    """(d,) the fixed term whose column an effect shares, or -1."""
    spread: np.ndarray
    """(outcomes,) overall variance of each outcome."""
    fixed: frozenset[str] = frozenset()
    recentre: bool = True
    form: list[str] = field(default_factory=lambda: ["scaled"])
    """Mutable: switched to "log" for good when the scaled recursion underflows."""

    @property
    def n_subjects(self) -> int:
        """Number of real subjects."""
        return sum(int(np.asarray(chunk.real).sum()) for chunk in self.chunks)

    def on(self, chunks: Sequence[int]) -> AnchoredEM:
        """The same on some of the chunks."""
        return replace(self, chunks=tuple(self.chunks[c] for c in chunks))

    # --- one iteration --------------------------------------------------------------------------

    def step(self, state: State) -> Step:
        """One iteration of AVEM."""
        return self._finish(state, self.e_step(state))

    def leap(self, state: State) -> Step | None:
        """One iteration from a state that may be out of bounds; None if it is."""
        passes = self.try_e_step(state)
        return self._finish(state, passes) if _finite(passes) else None

    def _finish(self, state: State, passes: Sequence[Pass]) -> Step:
        total = jax.tree.map(lambda *parts: np.sum(parts, axis=0), *(p.totals for p in passes))
        theta, shift = self.m_step(state.theta, total)
        anchors = tuple(np.asarray(p.mean) - shift[:, None] for p in passes)
        return Step(
            state=State(theta, anchors),
            bound=float(sum(np.sum(p.bound) for p in passes)),
            loglik=float(sum(np.sum(p.loglik) for p in passes)),
            passes=tuple(passes),
        )

    def e_step(self, state: State) -> list[Pass]:
        """Forward-backward at the anchors and the new q_i, chunk by chunk."""
        passes = self.try_e_step(state)
        if not _finite(passes) and self.form[0] == "scaled":
            self.form[0] = "log"
            passes = self.try_e_step(state)
        if not _finite(passes):
            raise AvemError(IMPOSSIBLE)
        return passes

    def try_e_step(self, state: State) -> list[Pass]:
        """The same, whether or not the result is finite."""
        return self.each_chunk(
            lambda chunk, anchor: anchored_pass(
                self.kernel, state.theta, anchor, chunk, self.form[0]
            ),
            state.anchors,
        )

    def m_step(
        self, theta: dict[str, np.ndarray], total: Totals
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """New parameters, and the shift of every effect's mean into them."""
        new = dict(theta)
        if "initial" not in self.fixed:
            new["initial"] = total.first / total.first.sum()
        if "transition" not in self.fixed:
            leaving = total.pair.sum(1, keepdims=True)
            stays = np.broadcast_to(leaving < 1e-12, total.pair.shape)
            moves = total.pair / np.where(leaving < 1e-12, 1.0, leaving)
            new["transition"] = np.where(stays, theta["transition"], moves)
        new["coef"], new["covariance"] = self.kernel.emission.maximise(
            theta["coef"],
            theta["covariance"],
            total.emission,
            NOISE_FLOOR * self.spread,
            self.fixed,
        )
        mean = total.effect_mean / self.n_subjects
        second = total.effect_second / self.n_subjects
        shift = np.zeros_like(mean)
        if self.recentre and "coef" not in self.fixed and len(mean):
            # Parameter-expanded EM: what the fixed part can express of the effects' mean belongs
            # to it. Effects without a fixed term keep theirs, and the prior ties the others to it.
            shift = _expressible(mean, theta["effect_covariance"], self.matched >= 0)
            new["coef"] = new["coef"] + self.as_coef(shift)
            second = second - np.outer(shift, mean) - np.outer(mean, shift) + np.outer(shift, shift)
        if "effect_covariance" not in self.fixed and len(mean):
            sigma = project_covariance((second + second.T) / 2, self.structure, self.blocks)
            floor = EFFECT_FLOOR * np.repeat(self.spread, len(mean) // len(self.spread))
            new["effect_covariance"], _ = floor_eigenvalues(sigma, floor)
        return new, shift

    def as_coef(self, effect: np.ndarray) -> np.ndarray:
        """An effect (d,) as a change of the coefficients (outcomes, terms) it is matched with."""
        p, m = self.kernel.emission.n_outcomes, len(self.kernel.emission.x_cols)
        out = np.zeros((p, m))
        outcome = np.repeat(np.arange(p), len(self.kernel.emission.z_cols))
        at = self.matched >= 0
        out[outcome[at], self.matched[at]] = effect[at]
        return out

    def each_chunk(self, work: Callable[..., Any], *per_chunk: Sequence[Any]) -> list[Any]:
        """`work` on every chunk; on several threads when there are several chunks."""
        work = in_float64(work)
        if len(self.chunks) == 1:
            return [work(self.chunks[0], *(values[0] for values in per_chunk))]
        with ThreadPoolExecutor(min(len(self.chunks), cpu_count() or 1)) as pool:
            return list(
                pool.map(lambda *a: jax.block_until_ready(work(*a)), self.chunks, *per_chunk)
            )

    # --- for the accelerator: the state as one vector -------------------------------------------

    def pack(self, state: State) -> np.ndarray:
        """The state as a vector; covariances by their Cholesky factors."""
        theta = state.theta
        parts = [theta["initial"], theta["transition"], theta["coef"]]
        parts.append(np.linalg.cholesky(theta["covariance"]))
        if self.kernel.n_effects:
            parts.append(np.linalg.cholesky(theta["effect_covariance"]))
        return np.concatenate([np.ravel(part) for part in (*parts, *state.anchors)])

    def unpack(self, vector: np.ndarray, like: State) -> State:
        """The inverse of `pack`, pulled back where a probability or scale would turn negative."""
        at = 0

        def take(shape: tuple[int, ...]) -> np.ndarray:
            nonlocal at
            size = int(np.prod(shape))
            at += size
            return vector[at - size : at].reshape(shape)

        def probabilities(old: np.ndarray) -> np.ndarray:
            raw = np.maximum(take(old.shape), 0.1 * old)
            return raw / raw.sum(-1, keepdims=True)

        def covariance(old: np.ndarray) -> np.ndarray:
            factor = take(old.shape)
            diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
            smallest = 0.1 * np.diagonal(np.linalg.cholesky(old), axis1=-2, axis2=-1)
            factor = (
                factor
                + np.eye(old.shape[-1]) * (np.maximum(diagonal, smallest) - diagonal)[..., None]
            )
            return factor @ np.swapaxes(factor, -1, -2)

        old = like.theta
        theta = {
            "initial": probabilities(old["initial"]),
            "transition": probabilities(old["transition"]),
            "coef": take(old["coef"].shape),
            "covariance": covariance(old["covariance"]),
            "effect_covariance": old["effect_covariance"],
        }
        if self.kernel.n_effects:
            theta["effect_covariance"] = covariance(old["effect_covariance"])
        return State(theta, tuple(take(anchor.shape) for anchor in like.anchors))

    def weights(self, state: State) -> np.ndarray:
        """Scale of each coordinate of `pack`: a parameter counts like an effect of everyone."""
        n_anchor = sum(anchor.size for anchor in state.anchors)
        n_theta = self.pack(state).size - n_anchor
        return np.concatenate([np.full(n_theta, np.sqrt(self.n_subjects)), np.ones(n_anchor)])


def _expressible(mean: np.ndarray, sigma: np.ndarray, matched: np.ndarray) -> np.ndarray:
    """The shift of the matched effects after which the prior fits the effects' mean best."""
    precision = np.linalg.inv(sigma)
    rest = precision[np.ix_(matched, ~matched)] @ mean[~matched]
    shift = np.zeros_like(mean)
    shift[matched] = mean[matched] + np.linalg.solve(precision[np.ix_(matched, matched)], rest)
    return shift


def _finite(passes: Sequence[Pass]) -> bool:
    return all(np.isfinite(p.bound).all() for p in passes)
