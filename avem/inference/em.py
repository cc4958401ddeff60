"""One iteration of EM, whatever the method: E-step shard by shard, then the M-step.

AVEM (the paper's Algorithm 1) runs forward-backward once per subject at its anchor, the mean of its
q_i; updates every q_i; updates theta. Other methods differ in where the local passes are run and in
how they are weighed, which is the business of a `Method`. Anchors and nodes stay with their shards;
what comes back from an E-step is a handful of sums, from which the M-step follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.errors import AvemError
from avem.execution.dataset import Dataset, PerShard, add_up
from avem.inference.catch_up import (
    MOST_PASSES,
    best_anchors,
    e_step,
    end_walk,
    known,
    q_step,
    seen,
    start_walk,
)
from avem.inference.m_step import MStep
from avem.inference.methods.anchored import Anchored
from avem.inference.on_shard import Problem, Subjects, Summary
from avem.inference.passes import Pass, coef_height, coef_pass
from avem.inference.theta import pack_theta, theta_moves
from avem.models.kernel import Kernel

IMPOSSIBLE = (
    "The likelihood is not finite: some sequence is impossible under the parameters. Look for "
    "values far outside those of the fit, and for zero probabilities or tiny variances in init= "
    "and fixed=."
)
_TRAVELS, _SHRINKS = 0.05, 1.25
"""Nodes are put in new places once theta has changed by so much, on the scale of the fit, or the
effects' variance in some direction by this factor, since they were put where they are."""
Q_UPDATES = ("laplace", "quadrature")
ANCHORS = ("mean", "optimal", "fixed")

Theta = dict[str, np.ndarray]
Guard = Callable[[Theta, np.ndarray], np.ndarray]


class Method(Protocol):
    """Where the local passes are run, and what becomes of them."""

    anchored: bool
    """One anchor per subject: it climbs to a mode, and better modes are searched for."""
    has_q: bool
    """A Gaussian q_i that takes several E-steps to settle."""

    @property
    def nodes_stay(self) -> bool:
        """What it keeps beside the anchors stays where it is once the parameters hardly move."""
        ...

    def e_step(
        self, kernel: Kernel, theta: Any, anchor: Any, around: Any, chunk: Chunk, form: str
    ) -> Pass:
        """The E-step of a chunk; `around` is what the last one left in `Pass.around`, or None."""
        ...


@dataclass(frozen=True)
class State:
    """What the next iteration needs."""

    theta: Theta
    subjects: PerShard
    """The `Subjects` of each shard: anchors, and what the method keeps beside them."""
    placed: Theta | None = None
    """The parameters for which the nodes were found, where these may stay as they are."""
    form: str = "scaled"
    """Of the recursion: "log", for good, once the scaled one has underflowed."""


def state_at(data: Dataset, theta: Theta, effects: np.ndarray) -> State:
    """Every subject's anchor at its effects (d, subjects)."""
    return State(theta, data.place([Subjects(part) for part in data.layout.split(effects)]))


@dataclass(frozen=True)
class EStep:
    """An E-step of all shards."""

    state: State
    """With settled anchors, and the form of the recursion that did not underflow."""
    parts: Sequence[Summary]

    @property
    def bound(self) -> float:
        """The method's objective."""
        return float(sum(part.bound for part in self.parts))

    @property
    def loglik(self) -> float:
        """sum_i log p(D_i | anchor)."""
        return float(sum(part.loglik for part in self.parts))

    @property
    def possible(self) -> bool:
        """It was finite where it began."""
        return all(part.possible for part in self.parts)


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

    kernel: Kernel
    data: Dataset
    m_step: MStep
    method: Method = field(default_factory=Anchored)
    anchor: str = "mean"
    guard: Guard | None = None
    """Keeps anchors (d, subjects) where the model allows them."""

    def on(self, shards: Sequence[int]) -> EM:
        """The same on some of the shards."""
        return replace(self, data=self.data.on(shards))

    def problem(self, state: State) -> Problem:
        """What the shards need to know for an E-step."""
        return Problem(self.kernel, self.method, state.theta, state.form)

    def step(self, state: State, still: float = np.inf) -> Step:
        """One iteration, the anchors first settled to within `still`."""
        return self._finish(self.e_step(state, still))

    def leap(self, state: State, still: float = np.inf) -> Step | None:
        """One iteration from a state that may be out of bounds; None if it is."""
        found = self.try_e_step(state, still)
        if not (found.possible and np.isfinite(found.bound)):
            return None
        return self._finish(found)

    # --- E-step ---------------------------------------------------------------------------------

    def e_step(self, state: State, still: float = np.inf) -> EStep:
        """Local passes and the new q_i, once anchors are within `still` of where these put them."""
        found = self.try_e_step(state, still)
        if not found.possible and state.form == "scaled":
            found = self.try_e_step(replace(state, form="log"), still)
        if not found.possible:
            raise AvemError(IMPOSSIBLE)
        return found

    def try_e_step(self, state: State, still: float = np.inf) -> EStep:
        """The same, whether or not the result is finite."""
        if self.anchor != "mean" or not self.kernel.n_effects:
            still = np.inf
        settle = still if self.method.anchored else np.inf
        problem = self.problem(state)
        subjects, parts = self.data.run(e_step, (state.subjects,), problem, settle)
        found = EStep(replace(state, subjects=subjects), parts)
        if still < np.inf and self.method.has_q and found.possible:
            return self._settled_q(found, still)
        return found

    def _settled_q(self, found: EStep, still: float) -> EStep:
        """The q_i whose next step moves the means by at most `still`, and the E-step at them."""
        if self._distance(found.parts) <= still:
            return found
        problem, parts = self.problem(found.state), found.parts
        walk = self.data.keep(start_walk, (found.state.subjects,), problem)
        for _ in range(MOST_PASSES):
            if self._distance(parts) <= still:
                break
            walk, parts = self.data.run(q_step, (walk,), problem)
        subjects = self.data.keep(end_walk, (walk,))
        return EStep(replace(found.state, subjects=subjects), parts)

    def _distance(self, parts: Sequence[Summary]) -> float:
        """From the anchors to where the E-step would put them, root mean square."""
        n_values = max(1, self.kernel.n_effects * self.data.n_subjects)
        return float(np.sqrt(sum(part.moved for part in parts) / n_values))

    def without_nodes(self, state: State) -> State:
        """The anchors alone."""
        return replace(state, subjects=self.data.keep(_anchors_alone, (state.subjects,)))

    def of_subjects(self, state: State, *names: str) -> Any:
        """Fields of `Pass` after an E-step at a state, (..., subjects) in the panel's order."""
        return self.data.gather(_fields, (state.subjects,), self.problem(state), names)

    # --- M-step ---------------------------------------------------------------------------------

    def _finish(self, found: EStep) -> Step:
        before = found.state
        theta, shift, sharpness = self._maximised(found)
        # Nodes that may stay make the objective one and the same function to the end.
        stay = before.placed is not None and _near(before.placed, theta)
        placed = theta if self.method.nodes_stay else None
        subjects, moved = self._moved(found, theta, shift, stay)
        return Step(
            before=before,
            state=State(theta, subjects, before.placed if stay else placed, before.form),
            bound=found.bound,
            loglik=found.loglik,
            sharpness=sharpness,
            anchor_change=moved,
        )

    def _maximised(self, found: EStep) -> tuple[Theta, np.ndarray, Theta]:
        """New parameters, the shift of every effect's mean into them, and their sharpness."""
        theta, moved, sharpness = found.state.theta, {}, {}
        own, problem = (found.state.subjects,), self.problem(found.state)
        for number, key in enumerate(self.kernel.newton_keys):
            moved[key], sharpness[key] = self.m_step.newton(
                key,
                theta[key],
                add_up([part.terms[number] for part in found.parts]),
                lambda coef, key=key: self.data.sum(_coef_terms, own, problem, key, coef),
                lambda coef, key=key: self.data.sum(_coef_value, own, problem, key, coef),
            )
        total = add_up([part.totals for part in found.parts])
        new, shift = self.m_step.update(theta, total, moved, self.data.n_subjects)
        return new, shift, sharpness

    def _moved(
        self, found: EStep, theta: Theta, shift: np.ndarray, stay: bool
    ) -> tuple[PerShard, float]:
        """The subjects for the next iteration, and how far the anchors went, root mean square.

        That is to the mean of q before recentring: settled anchors stay there, whatever is
        recentred.
        """
        before, after = self.problem(found.state), replace(self.problem(found.state), theta=theta)
        follows = self.method.anchored or self.method.has_q
        rule = (self.anchor, self.guard, shift, stay)
        subjects, moves = self.data.run(_next, (found.state.subjects,), before, after, *rule)
        if self.anchor == "fixed" or not follows:
            return subjects, 0.0
        if self.anchor == "optimal":
            n_values = max(1, self.kernel.n_effects * self.data.n_subjects)
            return subjects, float(np.sqrt(sum(moves) / n_values))
        return subjects, self._distance(found.parts)


# --- on a shard ---------------------------------------------------------------------------------


def _next(
    chunk: Chunk,
    subjects: Subjects | None,
    before: Problem,
    after: Problem,
    rule: str,
    guard: Guard | None,
    shift: np.ndarray,
    stay: bool,
) -> tuple[Subjects, Any]:
    """Subjects for the next E-step, and the sum of squares of the anchors' moves."""
    subjects = known(chunk, subjects, before)
    p = seen(chunk, subjects, before)
    anchor = subjects.anchor if rule == "fixed" else p.mean - shift[:, None]
    if guard is not None:
        anchor = guard(after.theta, anchor)
    if rule == "optimal":
        anchor = best_anchors(chunk, anchor, p, after)
    around = subjects.around
    if not stay:
        around = None if p.around is None else p.around.shifted(shift)
    away = (anchor - subjects.anchor)[:, np.asarray(chunk.real)]
    return Subjects(anchor, around), np.sum(away**2)


def _anchors_alone(chunk: Chunk, subjects: Subjects | None) -> Subjects | None:
    return None if subjects is None else Subjects(subjects.anchor)


def _coef_terms(
    chunk: Chunk, subjects: Subjects | None, problem: Problem, key: str, coef: np.ndarray
) -> CoefTerms:
    return coef_pass(problem.kernel, key, coef, seen(chunk, subjects, problem).kept, chunk)


def _coef_value(
    chunk: Chunk, subjects: Subjects | None, problem: Problem, key: str, coef: np.ndarray
) -> Any:
    return coef_height(problem.kernel, key, coef, seen(chunk, subjects, problem).kept, chunk)


def _fields(
    chunk: Chunk, subjects: Subjects | None, problem: Problem, names: Sequence[str]
) -> tuple[Any, ...]:
    fields = seen(chunk, subjects, problem)._asdict()
    return tuple(fields[name] for name in names)


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
