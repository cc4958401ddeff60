"""The EM loop, plain or accelerated: safeguards, convergence, interruption.

It knows no method by name: what it must know of one, `em.method` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from avem.components.param_info import Params
from avem.inference.accelerate import Anderson
from avem.inference.e_steps import Impossible, State
from avem.inference.em import EM, Step
from avem.inference.stop import Stop
from avem.inference.tuning import (
    ANCHOR_SHARE,
    CATCH_UP,
    LOOSE,
    NEAR,
    NEAR_END,
    NEGLIGIBLE_RISE,
    NOISY_BLOCK,
    PATIENCE,
    PLATEAU,
    SLACK,
    SLACK_AT_END,
)


@dataclass(frozen=True)
class Run:
    """A finished iteration."""

    state: State
    """Where it ended: converged, or the best seen."""
    last: Step
    """The iteration that led there."""
    bounds: np.ndarray
    """The method's objective at each iteration."""
    logliks: np.ndarray
    """sum_i log p(D_i | anchor), which the paper's scripts monitor; of p(D_i) where effects are
    integrated."""
    stop: Stop
    moved: int
    """How many times a subject was moved to a better mode of its effect."""
    changes: Anderson | None = None
    """How the iteration changes from point to point, where that was learned."""


class Tried(NamedTuple):
    """A start, as far as it was run."""

    run: Run
    level: float
    """What starts are ranked by: the log likelihood by few nodes, or the anchored bound."""


def joined(first: Run, then: Run) -> Run:
    """The second run with the history of the first in front."""
    return replace(
        then,
        bounds=np.concatenate([first.bounds, then.bounds]),
        logliks=np.concatenate([first.logliks, then.logliks]),
        moved=first.moved + then.moved,
    )


@dataclass(frozen=True)
class Rules:
    """When to stop, and what is allowed on the way."""

    max_iter: int
    tol: float
    plain: bool = False
    """The paper's iteration: stop on the relative change of the anchored log likelihood."""
    max_searches: int = 20
    """How often to look for better modes before convergence is declared all the same."""
    settle: bool = True
    """Let the anchors catch up with the parameters in every iteration."""
    harmless: float = 0.5
    """Where states overlap, the solution lies this far below the highest bound on the way to it."""
    flat: float = 0.0
    """Converged, too, when the last iterations changed the bound by no more than this."""
    lenient: float = np.inf
    """How much leaps may lower the bound in all, little by little: the solution may lie there."""

    def near(self) -> Rules:
        """To near the solution: what follows takes over from there."""
        return replace(self, tol=max(NEAR, self.tol))

    def slack(self, change: float, fallen: float) -> float:
        """How much a leap may lower the bound, when the last step changed theta by `change`.

        `fallen` is how much leaps have lowered it before.
        """
        return SLACK_AT_END if fallen < self.lenient and change < NEAR_END else SLACK


Watcher = Callable[[int, float, float, Params], bool]
"""Called after each iteration with its number, the bound, the distance from convergence and the new
theta; returns whether the user wants to stop."""


def iterate(
    em: EM,
    start: State,
    rules: Rules,
    rng: np.random.Generator,
    watch: Watcher,
    enough: Callable[[Step], bool] = lambda step: False,
    changes: Anderson | None = None,
) -> Run:
    """Iterate from `start` until converged, out of steps, interrupted, or `enough` says so.

    `changes` is what an iteration that differs little has learned.
    """
    if rules.plain or em.method.redraws:
        return _plain(em, start, rules, watch)
    return _accelerated(em, start, rules, rng, watch, enough, changes)


def _plain(em: EM, start: State, rules: Rules, watch: Watcher) -> Run:
    """One iteration after the other, as in the paper.

    Where every iteration has draws of its own, it ends when the noise hides any further rise.
    """
    record, stop, state, step = _Record(), Stop.OUT_OF_STEPS, start, None
    for number in range(1, rules.max_iter + 1):
        now = em.by(em.method.redrawn()) if em.method.redraws else em
        step = now.step(state)
        state, change = step.state, record.add(step)
        interrupted = watch(number, step.bound, change, state.theta)
        if em.method.redraws:
            converged = rules.tol > 0 and record.hidden_by_noise()
        else:
            converged = number > 1 and change < rules.tol
        if converged or interrupted:
            stop = Stop.CONVERGED if converged else Stop.INTERRUPTED
            break
    assert step is not None  # max_iter is at least 1
    return Run(state, step, record.bounds(), record.logliks(), stop, moved=0)


def _accelerated(
    em: EM,
    start: State,
    rules: Rules,
    rng: np.random.Generator,
    watch: Watcher,
    enough: Callable[[Step], bool],
    changes: Anderson | None,
) -> Run:
    # Anchors that do not follow by themselves are extrapolated with the parameters.
    fresh = Anderson(em.data, anchors=not rules.settle, rule=em.m_step.rule)
    anderson = changes.elsewhere() if changes else fresh
    record, moved, searches = _Record(), 0, 0
    best, level, since_best, change, fallen = None, -np.inf, 0, np.inf, 0.0
    trial, fallback = start, start
    # While subjects still change modes, there is no point in following every one to the end.
    tol = max(rules.tol, LOOSE) if rules.max_searches else rules.tol

    def ended(stop: Stop, step: Step, state: State) -> Run:
        return Run(state, step, record.bounds(), record.logliks(), stop, moved, anderson)

    for number in range(1, rules.max_iter + 1):
        # Anchors follow the parameters as closely as the parameters move.
        still = max(CATCH_UP * change, rules.tol) if rules.settle else np.inf
        try:
            step = em.step(trial, still) if trial is fallback else em.leap(trial, still)
        except Impossible:
            if best is None:
                raise
            return ended(Stop.BOUND_FELL, best, best.state)
        # A leap that lowers the bound is taken back: the plain step from the last point stands.
        fall = -np.inf if step is None or trial is fallback else level - step.bound
        if step is None or fall > rules.slack(change, fallen):
            anderson.forget()
            trial = fallback
            continue
        fallen += max(fall, 0.0)
        record.add(step)
        level, since_best = step.bound, since_best + 1
        if best is None or step.before.placed is not best.before.placed:
            best, since_best = step, 0  # what other nodes saw is not to be compared
        if step.bound > best.bound - rules.harmless:
            since_best = 0
        if step.bound > best.bound:
            best = step
        change = max(step.change, ANCHOR_SHARE * step.anchor_change)
        if watch(number, step.bound, change, step.state.theta):
            return ended(Stop.INTERRUPTED, best, best.state)
        if enough(step):
            return ended(Stop.CONVERGED, step, step.state)
        if record.flat(rules.flat):
            return ended(Stop.CONVERGED, step, step.state)
        if since_best > PATIENCE:
            return ended(Stop.BOUND_FELL, best, best.state)
        if change < tol:
            state = step.state
            if searches < rules.max_searches:
                searches += 1
                found = em.method.search(em, state, rng)
                state, moved = found.state, moved + found.moved
                if found.rise > NEGLIGIBLE_RISE * abs(step.bound):
                    anderson.forget()
                    trial = fallback = state
                    level = -np.inf
                    continue
            if tol == rules.tol:
                return ended(Stop.CONVERGED, step, state)
            tol = rules.tol
            step = replace(step, state=replace(step.state, searched=state.searched))
        fallback = step.state
        trial = anderson.propose(step.before, step.state) or fallback
    assert best is not None  # the first step is never taken back
    return ended(Stop.OUT_OF_STEPS, best, best.state)


class _Record:
    """The history of a run."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, float]] = []

    def add(self, step: Step) -> float:
        """Remember a step; return the relative change of the anchored log likelihood."""
        before = self._steps[-1][1] if self._steps else np.inf
        self._steps.append((step.bound, step.loglik))
        return abs(step.loglik - before) / (abs(before) + 1e-8)

    def flat(self, width: float) -> bool:
        """The bound rises no more: by less than `width`, or than its own noise would hide."""
        if not width or len(self._steps) < PLATEAU:
            return False
        last = self.bounds()[-PLATEAU:]
        if last.max() - last.min() < width:
            return True
        return self.hidden_by_noise()

    def hidden_by_noise(self) -> bool:
        """The last iterations are no higher than as many before them, by more than chance."""
        if len(self._steps) < 2 * NOISY_BLOCK:
            return False
        recent = self.bounds()[-2 * NOISY_BLOCK :].reshape(2, -1)
        rise = recent[1].mean() - recent[0].mean()
        return bool(rise < np.sqrt(recent.var(axis=1, ddof=1).sum() / NOISY_BLOCK))

    def bounds(self) -> np.ndarray:
        return np.array([bound for bound, _ in self._steps])

    def logliks(self) -> np.ndarray:
        return np.array([loglik for _, loglik in self._steps])
