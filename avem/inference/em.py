"""One iteration of EM, whatever the method: E-step, M-step, and the subjects for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.linear import CoefTerms
from avem.components.param_info import Params as Theta
from avem.data.layout import Chunk
from avem.execution.dataset import Dataset, PerShard
from avem.inference.catch_up import best_anchors, known, seen, whole
from avem.inference.e_steps import ESteps, Expectation, Guard, Impossible, State
from avem.inference.m_step import MStep
from avem.inference.on_shard import Setting, Subjects, squares, totals_of
from avem.inference.passes import coef_height, coef_pass
from avem.inference.restricted import ByNewton
from avem.inference.theta import pack_theta, theta_moves
from avem.models.kernel import Kernel
from avem.numerics.arrays import less, per_subject

if TYPE_CHECKING:
    from avem.inference.methods.base import EStep

_TRAVELS, _SHRINKS = 0.05, 1.25
"""Nodes are put in new places once theta has changed by so much, on the scale of the fit, or the
effects' variance in some direction by this factor, since they were put where they are."""
Q_UPDATES = ("laplace", "quadrature")
ANCHORS = ("mean", "optimal", "fixed")


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
    """sum_i log p(D_i | anchor) before it; of p(D_i) where effects are integrated."""
    sharpness: Theta
    """How much moves of the coefficients matter, where that may be little."""
    anchor_change: float
    """How far the iteration moved the anchors, root mean square."""

    @property
    def change(self) -> float:
        """The largest move of a parameter that matters, on the scale of the fit."""
        before, after = self.before.theta, self.state.theta
        sharp = [
            np.minimum(1.0, self.sharpness[key]) if key in self.sharpness else np.ones(value.shape)
            for key, value in sorted(before.items())
        ]
        weights = np.concatenate([np.ravel(part) for part in sharp])
        return float((theta_moves(before, after) * weights).max(initial=0.0))


@dataclass(frozen=True)
class EM:
    """The iteration on one data set."""

    e: ESteps
    m_step: MStep

    @property
    def kernel(self) -> Kernel:
        """The model's functions."""
        return self.e.kernel

    @property
    def data(self) -> Dataset:
        """The subjects."""
        return self.e.data

    @property
    def method(self) -> EStep:
        """Of the E-steps."""
        return self.e.method

    def by(self, method: EStep) -> EM:
        """The iteration by another method."""
        return replace(self, e=replace(self.e, method=method))

    def on(self, shards: Sequence[int]) -> EM:
        """The iteration on some of the shards."""
        return replace(self, e=self.e.on(shards))

    def step(self, state: State, still: float = np.inf) -> Step:
        """One iteration, the anchors first settled to within `still`; or `Impossible`."""
        return self._finish(self.e.e_step(state, still))

    def leap(self, state: State, still: float = np.inf) -> Step | None:
        """One iteration from a state that may be out of bounds; None if it is."""
        found = self.e.try_e_step(state, still)
        if not (found.possible and np.isfinite(found.bound)):
            return None
        try:
            return self._finish(found)
        except Impossible:
            return None

    def _finish(self, found: Expectation) -> Step:
        before = found.state
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                theta, shift, sharpness = self.maximised(found)
        except (FloatingPointError, np.linalg.LinAlgError) as error:
            raise Impossible from error
        # Nodes that may stay make the objective one and the same function to the end.
        stay = before.placed is not None and _near(before.placed, theta)
        placed = theta if self.method.nodes_stay else None
        subjects, moved = self._moved(found, theta, shift, stay)
        return Step(
            before=before,
            state=replace(
                before, theta=theta, subjects=subjects, placed=before.placed if stay else placed
            ),
            bound=found.bound,
            loglik=found.loglik,
            sharpness=sharpness,
            anchor_change=moved,
        )

    def maximised(self, found: Expectation) -> tuple[Theta, np.ndarray, Theta]:
        """New parameters, the shift of every effect's mean into them, and their sharpness."""
        theta, moved, sharpness = found.state.theta, {}, {}
        own, setting = (found.state.subjects,), self.e.setting(found.state)
        newton = ByNewton(
            {},
            lambda key, coef: self.data.sum(_coef_terms, own, setting, key, coef),
            lambda key, coef: self.data.sum(_coef_value, own, setting, key, coef),
        )
        for key, terms in zip(self.kernel.newton_keys, found.sums.terms, strict=True):
            if key in self.m_step.restricted:
                newton.first[key] = (theta[key], terms)
                continue
            moved[key], sharpness[key] = self.m_step.newton(
                key,
                theta[key],
                terms,
                lambda coef, key=key: self.data.sum(_coef_terms, own, setting, key, coef),
                lambda coef, key=key: self.data.sum(_coef_value, own, setting, key, coef),
            )
        total = totals_of(self.kernel, found.sums)
        new, shift = self.m_step.update(theta, total, moved, self.data.weight, newton)
        return new, shift, {**sharpness, **newton.sharpness}

    def _moved(
        self, found: Expectation, theta: Theta, shift: np.ndarray, stay: bool
    ) -> tuple[PerShard, float]:
        """The subjects for the next iteration, and how far the anchors went, root mean square.

        That is to the mean of q before recentring: settled anchors stay there, whatever is
        recentred.
        """
        before = self.e.setting(found.state)
        after = replace(before, theta=theta)
        follows = self.method.anchored or self.method.has_q
        rule = (self.e.anchor, self.e.guard, shift, stay)
        own, told = (found.state.subjects,), (before, after, *rule)
        if self.e.anchor == "optimal":
            subjects, moves = self.data.run_sum(_next, own, *told)
            n_values = max(1, self.kernel.n_effects * self.data.n_subjects)
            return subjects, float(np.sqrt(moves / n_values)) if follows else 0.0
        subjects = self.data.keep(_next_alone, own, *told)
        if self.e.anchor == "fixed" or not follows:
            return subjects, 0.0
        return subjects, self.e.distance(found.sums)


# --- on a shard ---------------------------------------------------------------------------------


def _next(
    chunk: Chunk,
    subjects: Subjects | None,
    before: Setting,
    after: Setting,
    rule: str,
    guard: Guard | None,
    shift: np.ndarray,
    stay: bool,
) -> tuple[Subjects, Any]:
    """Subjects for the next E-step, and the sum of squares of the moves of optimal anchors."""
    subjects = known(chunk, subjects, before)
    p = seen(chunk, subjects, before)
    shift = after.sent("shift", shift)
    anchor = subjects.anchor if rule == "fixed" else less(p.mean, shift)
    if guard is not None:
        anchor = guard(after.theta, anchor)
    if rule == "optimal":
        anchor = best_anchors(chunk, anchor, p, after)
    around = subjects.around
    if not stay:
        around = None if p.around is None else p.around.shifted(shift)
    moves = _moves(anchor, subjects.anchor, chunk.real) if rule == "optimal" else None
    return Subjects(anchor, around), moves


def _next_alone(chunk: Chunk, subjects: Subjects | None, *told: Any) -> Subjects:
    return _next(chunk, subjects, *told)[0]


@per_subject
def _moves(xp: Any, to: Any, anchor: Any, real: Any) -> Any:
    return squares(xp, to - anchor, real)


def _coef_terms(
    chunk: Chunk, subjects: Subjects | None, setting: Setting, key: str, coef: np.ndarray
) -> CoefTerms:
    return coef_pass(setting.kernel, key, coef, whole(chunk, subjects, setting).kept, chunk)


def _coef_value(
    chunk: Chunk, subjects: Subjects | None, setting: Setting, key: str, coef: np.ndarray
) -> Any:
    return coef_height(setting.kernel, key, coef, whole(chunk, subjects, setting).kept, chunk)


def _near(placed: Theta, theta: Theta) -> bool:
    """Nodes that were placed for the first parameters serve for the second.

    Where nodes stand much wider apart than the posterior is wide, one of them may count for far
    more than there is: the likelihood seems to rise as a variance shrinks between the nodes.
    """
    if np.abs(pack_theta(theta) - pack_theta(placed)).max(initial=0.0) > _TRAVELS:
        return False
    half = np.linalg.inv(np.linalg.cholesky(placed["effect_covariance"]))
    ratios = np.linalg.eigvalsh(half @ theta["effect_covariance"] @ half.T)
    return bool(np.all((ratios < _SHRINKS) & (ratios > 1 / _SHRINKS)))
