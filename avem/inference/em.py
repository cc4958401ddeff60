"""One iteration of EM, whatever the method: E-step chunk by chunk, then the M-step.

AVEM (the paper's Algorithm 1) runs forward-backward once per subject at its anchor, the mean of its
q_i; updates every q_i; updates theta. Other methods differ in where the local passes are run and in
how they are weighed, which is the business of an `EStep`. The E-step is compiled code. What has a
closed form comes back from it as a handful of sums, and the M-step on them is plain NumPy; the rest
is a few Newton steps whose terms are again sums over chunks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from os import cpu_count
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from avem.components.base import Match
from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.effects.prior import project_covariance
from avem.errors import AvemError
from avem.inference.catch_up import best_anchors, settle, settle_q
from avem.inference.methods.anchored import TO_THE_END
from avem.inference.newton import climb
from avem.inference.passes import Pass, Totals, coef_height, coef_pass
from avem.inference.theta import absorb, pack_theta, theta_moves, unpack_theta
from avem.models.kernel import Kernel
from avem.numerics.covariance import floor_eigenvalues
from avem.numerics.precision import in_float64

if TYPE_CHECKING:
    from avem.inference.methods.base import EStep


@cache
def _threads() -> ThreadPoolExecutor:
    """One thread per core, kept: to start them takes longer than a small chunk."""
    return ThreadPoolExecutor(cpu_count() or 1, thread_name_prefix="avem")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # the child has none of them

IMPOSSIBLE = (
    "The likelihood is not finite: some sequence is impossible under the parameters. Look for "
    "values far outside those of the fit, and for zero probabilities or tiny variances in init= "
    "and fixed=."
)
NOISE_FLOOR, EFFECT_FLOOR = 1e-6, 1e-8
"""Smallest variance of a state and of an effect, in units of the outcome's overall variance."""
_TRAVELS, _SHRINKS = 0.05, 1.25
"""Nodes are put in new places once theta has changed by so much, on the scale of the fit, or the
effects' variance in some direction by this factor, since they were put where they are."""
Q_UPDATES = ("laplace", "quadrature")
ANCHORS = ("mean", "optimal", "fixed")


@dataclass(frozen=True)
class State:
    """What the next iteration needs: parameters, and the anchor of every subject, by chunk."""

    theta: dict[str, np.ndarray]
    anchors: tuple[np.ndarray, ...]
    around: tuple[Any, ...] = ()
    """What the method keeps of each chunk beside the anchors; empty: nothing yet."""
    placed: dict[str, np.ndarray] | None = None
    """The parameters for which `around` was found, where it may stay as it is."""


@dataclass(frozen=True)
class Step:
    """One iteration: where it went, and what it saw on the way."""

    before: State
    """Where it started, with settled anchors."""
    state: State
    """The state after the iteration."""
    bound: float
    """The method's objective at the state before it: for AVEM the ELBO after the q-update."""
    loglik: float
    """sum_i log p(D_i | anchor) at the state before it."""
    passes: tuple[Pass, ...]
    sharpness: dict[str, np.ndarray]
    """How much moves of the coefficients matter, where that may be little."""


@dataclass(frozen=True)
class EM:
    """The iteration on the chunks of one data set."""

    kernel: Kernel
    chunks: tuple[Chunk, ...]
    """Arrays already on the device."""
    structure: str
    """Of the effect covariance."""
    blocks: np.ndarray
    """(d,) which effects may be correlated."""
    matches: tuple[Match | None, ...]
    """(d,) the fixed coefficients that each effect is added to."""
    spread: np.ndarray
    """(outcome columns,) overall variance of each outcome."""
    effect_scale: np.ndarray
    """(d,) variance by which an effect is judged to be nothing."""
    method: EStep
    """Where the local passes are run, and what becomes of them."""
    free: dict[str, np.ndarray] = field(default_factory=dict)
    """For each coefficient array of theta, which of its columns are free."""
    limits: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    """For each, the lowest and highest value of its columns, where a density would collapse."""
    fixed: frozenset[str] = frozenset()
    """Names of entries of theta that are held."""
    anchor: str = "mean"
    guard: Callable[[dict[str, np.ndarray], np.ndarray], np.ndarray] | None = None
    """Keeps anchors (d, subjects) where the model allows them."""
    coef_steps: int = TO_THE_END
    recentre: bool = True
    form: list[str] = field(default_factory=lambda: ["scaled"])
    """Mutable: switched to "log" for good when the scaled recursion underflows."""

    @cached_property
    def n_subjects(self) -> int:
        """Number of real subjects."""
        return sum(int(real.sum()) for real in self.real)

    @cached_property
    def real(self) -> tuple[np.ndarray, ...]:
        """Per chunk (subjects,) bool: not padding."""
        return tuple(np.asarray(chunk.real) for chunk in self.chunks)

    def everyone(self, parts: Sequence[Any]) -> np.ndarray:
        """Arrays of all chunks, subjects on the last axis, as one without padding."""
        pairs = zip(parts, self.real, strict=True)
        return np.concatenate([np.asarray(part)[..., real] for part, real in pairs], axis=-1)

    def on(self, chunks: Sequence[int]) -> EM:
        """The same on some of the chunks."""
        return replace(self, chunks=tuple(self.chunks[c] for c in chunks))

    # --- one iteration --------------------------------------------------------------------------

    def step(self, state: State, still: float = np.inf) -> Step:
        """One iteration of AVEM, the anchors first settled to within `still`."""
        return self._finish(*self.settled_e_step(state, still))

    def settled_e_step(self, state: State, still: float) -> tuple[State, list[Pass]]:
        """The E-step, once the anchors are within `still` of where it would put them."""
        return self._settled(state, self.e_step(state), still)

    def leap(self, state: State, still: float = np.inf) -> Step | None:
        """One iteration from a state that may be out of bounds; None if it is."""
        passes = self.try_e_step(state)
        if not _finite(passes):
            return None
        state, passes = self._settled(state, passes, still)
        return self._finish(state, passes) if _finite(passes) else None

    def _settled(self, state: State, passes: list[Pass], still: float) -> tuple[State, list[Pass]]:
        if still == np.inf or self.anchor != "mean" or not self.kernel.n_effects:
            return state, passes
        if self.method.anchored:
            return settle(self, state, passes, still)
        return settle_q(self, state, passes, still) if self.method.has_q else (state, passes)

    def _finish(self, state: State, passes: Sequence[Pass]) -> Step:
        theta, shift, sharpness = self.m_step(state.theta, passes)
        if self.anchor == "fixed":
            anchors = state.anchors
        else:
            anchors = tuple(np.asarray(p.mean) - shift[:, None] for p in passes)
        if self.guard is not None:
            anchors = tuple(self.guard(theta, anchor) for anchor in anchors)
        if self.anchor == "optimal":
            anchors = best_anchors(self, theta, anchors, passes)
        around, placed = self._around(state, theta, passes, shift)
        return Step(
            before=state,
            state=State(theta, anchors, around, placed),
            bound=float(sum(np.sum(p.bound) for p in passes)),
            loglik=float(sum(np.sum(p.loglik) for p in passes)),
            passes=tuple(passes),
            sharpness=sharpness,
        )

    def _around(
        self,
        state: State,
        theta: dict[str, np.ndarray],
        passes: Sequence[Pass],
        shift: np.ndarray,
    ) -> tuple[tuple[Any, ...], dict[str, np.ndarray] | None]:
        """What the method keeps beside the anchors for the next iteration, and since when."""
        if state.placed is not None and _near(state.placed, theta):
            # The objective is one and the same function to the end.
            return state.around, state.placed
        found = tuple(p.around.shifted(shift) for p in passes if p.around is not None)
        return found, theta if self.method.nodes_stay else None

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
        passes = self.each_chunk(
            lambda chunk, anchor, around: self.method.e_step(
                self.kernel, state.theta, anchor, around, chunk, self.form[0]
            ),
            state.anchors,
            state.around or [None] * len(self.chunks),
        )
        # All that Python looks at leaves the device here, once.
        return [
            Pass(*jax.tree.map(np.asarray, p._replace(kept=None)))._replace(kept=p.kept)
            for p in passes
        ]

    # --- M-step ---------------------------------------------------------------------------------

    def m_step(
        self, theta: dict[str, np.ndarray], passes: Sequence[Pass]
    ) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
        """New parameters, the shift of every effect's mean into them, and their sharpness."""
        moved: dict[str, np.ndarray] = {}
        sharpness: dict[str, np.ndarray] = {}
        for number, key in enumerate(self.kernel.newton_keys):
            terms = add_up([p.terms[number] for p in passes])
            moved[key], sharpness[key] = self._newton(key, theta[key], terms, passes)
        total = add_up([p.totals for p in passes])
        return (*self.update_theta(theta, total, moved, self.n_subjects), sharpness)

    def update_theta(
        self,
        theta: dict[str, np.ndarray],
        total: Totals,
        moved: dict[str, np.ndarray],
        n_subjects: int,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """All parameters, given those moved by Newton, and the shift of every effect's mean."""
        floor = NOISE_FLOOR * self.spread
        closed = self.kernel.maximise(theta, total.model, self.fixed, self.free, floor)
        new = {**theta, **closed, **moved}
        mean = total.effect_mean / n_subjects
        second = total.effect_second / n_subjects
        shift = np.zeros_like(mean)
        if self.recentre and len(mean):
            # Parameter-expanded EM: what the fixed part can express of the effects' mean belongs
            # to it. Effects without a fixed term keep theirs, and the prior ties the others to it.
            matched = np.array([match is not None for match in self.matches])
            shift = _expressible(mean, theta["effect_covariance"], matched)
            new = absorb(new, self.matches, shift)
            second = shifted_second(second, mean, shift)
        if "effect_covariance" not in self.fixed and len(mean):
            sigma = project_covariance((second + second.T) / 2, self.structure, self.blocks)
            floor = EFFECT_FLOOR * self.effect_scale
            new["effect_covariance"], _ = floor_eigenvalues(sigma, floor)
        return new, shift

    def as_coef(self, key: str, coef: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """The change of the array `coef`, theta[key], that a shift of the effects amounts to."""
        own = tuple(match if match and match.key == key else None for match in self.matches)
        return absorb({key: np.zeros_like(coef)}, own, shift)[key]

    def _newton(
        self, key: str, coef: np.ndarray, terms: CoefTerms, passes: Sequence[Pass]
    ) -> tuple[np.ndarray, np.ndarray]:
        """A few Newton steps on one coefficient array."""
        problems = coef.reshape(terms.gradient.shape)

        def total(x: np.ndarray, part: Callable[..., Any]) -> Any:
            x = x.reshape(coef.shape)
            return add_up(
                self.each_chunk(lambda chunk, p: part(self.kernel, key, x, p.kept, chunk), passes)
            )

        found = climb(
            lambda x: total(x, coef_pass),
            lambda x: total(x, coef_height),
            problems,
            terms,
            self.free_of(key, problems),
            self.coef_steps,
        )
        return self.within(key, found.coef, coef), found.sharpness.reshape(coef.shape)

    def free_of(self, key: str, problems: np.ndarray) -> np.ndarray:
        """Which coefficients of a problem are free; a problem may hold those of all states."""
        free = self.free[key]
        return np.tile(free, problems.shape[1] // len(free))

    def within(self, key: str, coef: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Coefficients kept from where a density would collapse."""
        low, high = self.limits.get(key, (-np.inf, np.inf))
        return np.clip(coef.reshape(like.shape), low, high)

    def each_chunk(self, work: Callable[..., Any], *per_chunk: Sequence[Any]) -> list[Any]:
        """`work` on every chunk; on several threads when there are several chunks."""
        work = in_float64(work)
        if len(self.chunks) == 1:
            return [work(self.chunks[0], *(values[0] for values in per_chunk))]
        done = _threads().map(lambda *a: jax.block_until_ready(work(*a)), self.chunks, *per_chunk)
        return list(done)

    # --- the state as a vector, and how far it went ---------------------------------------------

    def pack(self, state: State, anchors: bool) -> np.ndarray:
        """Theta, and the anchors if wanted; a parameter weighs like an effect of everyone."""
        theta = np.sqrt(self.n_subjects) * pack_theta(state.theta)
        return np.concatenate([theta, *map(np.ravel, state.anchors)]) if anchors else theta

    def unpack(self, vector: np.ndarray, like: State) -> State:
        """The inverse of `pack`; anchors that are not in the vector are those of `like`."""
        size = sum(value.size for value in like.theta.values())
        theta = unpack_theta(vector[:size] / np.sqrt(self.n_subjects), like.theta)
        if len(vector) == size:
            return replace(like, theta=theta)
        cuts = np.cumsum([anchor.size for anchor in like.anchors])[:-1]
        pairs = zip(np.split(vector[size:], cuts), like.anchors, strict=True)
        anchors = tuple(part.reshape(anchor.shape) for part, anchor in pairs)
        return replace(like, theta=theta, anchors=anchors)

    def change(self, step: Step) -> float:
        """The largest move of a parameter that matters, on the scale of the fit."""
        before, after = step.before.theta, step.state.theta
        sharp = [
            np.minimum(1.0, step.sharpness[key]) if key in step.sharpness else np.ones(value.shape)
            for key, value in sorted(before.items())
        ]
        weights = np.concatenate([np.ravel(part) for part in sharp])
        return float((theta_moves(before, after) * weights).max(initial=0.0))

    def anchor_change(self, step: Step) -> float:
        """How far the iteration moved the anchors, root mean square."""
        follows = self.method.anchored or self.method.has_q
        if not self.kernel.n_effects or self.anchor == "fixed" or not follows:
            return 0.0
        # The mean of q before recentring: settled anchors stay there, whatever is recentred.
        there = step.state.anchors if self.anchor == "optimal" else [p.mean for p in step.passes]
        pairs = zip(step.before.anchors, there, strict=True)
        return float(np.sqrt(np.mean(self.everyone([new - old for old, new in pairs]) ** 2)))


def _near(placed: dict[str, np.ndarray], theta: dict[str, np.ndarray]) -> bool:
    """Nodes that were placed for the first parameters serve for the second.

    Where nodes stand much wider apart than the posterior is wide, one of them may count for far
    more than there is: the likelihood seems to rise as a variance shrinks between the nodes.
    """
    if np.abs(pack_theta(theta) - pack_theta(placed)).max(initial=0.0) > _TRAVELS:
        return False
    half = np.linalg.inv(np.linalg.cholesky(placed["effect_covariance"]))
    ratios = np.linalg.eigvalsh(half @ theta["effect_covariance"] @ half.T)
    return bool(np.all((ratios < _SHRINKS) & (ratios > 1 / _SHRINKS)))


def _expressible(mean: np.ndarray, sigma: np.ndarray, matched: np.ndarray) -> np.ndarray:
    """The shift of the matched effects after which the prior fits the effects' mean best."""
    precision = np.linalg.inv(sigma)
    rest = precision[np.ix_(matched, ~matched)] @ mean[~matched]
    shift = np.zeros_like(mean)
    shift[matched] = mean[matched] + np.linalg.solve(precision[np.ix_(matched, matched)], rest)
    return shift


def shifted_second(
    second: np.ndarray, mean: np.ndarray, shift: np.ndarray, n_subjects: int = 1
) -> np.ndarray:
    """Second moments of effects that lose `shift`, from their means; or sums over subjects."""
    cross = np.outer(shift, mean)
    return second - cross - cross.T + n_subjects * np.outer(shift, shift)


def add_up(parts: Sequence[Any]) -> Any:
    """The chunks' arrays added up, as NumPy."""
    if len(parts) == 1:
        return jax.tree.map(np.asarray, parts[0])
    return jax.tree.map(lambda *each: np.sum(each, axis=0), *parts)


def _finite(passes: Sequence[Pass]) -> bool:
    return all(np.isfinite(p.bound).all() for p in passes)
