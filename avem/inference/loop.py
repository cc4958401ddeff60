"""The EM loop: the only one. Acceleration, safeguards, convergence, interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from avem.components.param_info import Params
from avem.inference.accelerate import Anderson
from avem.inference.e_steps import State
from avem.inference.em import EM, Step
from avem.inference.methods.adaptive.begin import renew
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.prior_nodes import PriorNodes
from avem.inference.mode_search import Search, search_modes
from avem.inference.stop import Stop

_NEGLIGIBLE = 1e-7
"""Rise of log p(D, f) by better modes, relative to the bound, that changes no parameter."""
_ANCHOR_SHARE = 0.01
"""How much the anchors' moves (root mean square) count beside the largest move of a parameter."""
_LOOSE = 1e-3
"""Convergence that is good enough to look for better modes."""
_CATCH_UP = 0.1
"""How far the anchors may lag behind, as a share of the last move of the parameters."""
_NOISY_BLOCK = 10
_PLATEAU = 8
_PATIENCE = 25
"""Iterations in a row that may be further below the best bound before the fit gives up."""


@dataclass(frozen=True)
class Run:
    """A finished iteration."""

    state: State
    """Where it ended: converged, or the best seen."""
    last: Step
    """The iteration that led there."""
    bounds: np.ndarray
    """The anchored ELBO at each iteration."""
    logliks: np.ndarray
    """sum_i log p(D_i | anchor) at each iteration: what the paper's scripts monitor."""
    stop: Stop
    moved: int
    """How many times a subject was moved to a better mode of its effect."""


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

    def slack(self, change: float, fallen: float) -> float:
        """How much a leap may lower the bound, when the last step changed theta by `change`.

        `fallen` is how much leaps have lowered it before.
        """
        return 0.02 if fallen < self.lenient and change < 3e-3 else 1e-6


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
) -> Run:
    """Iterate from `start` until converged, out of steps, interrupted, or `enough` says so."""
    if isinstance(em.method, PriorNodes) and em.method.redraw is not None:
        return _noisy(em, em.method, start, rules, watch)
    if rules.plain:
        return _plain(em, start, rules, watch)
    return _fast(em, start, rules, rng, watch, enough)


def _plain(em: EM, start: State, rules: Rules, watch: Watcher) -> Run:
    record, stop = _Record(), Stop.OUT_OF_STEPS
    step = em.step(start)
    for number in range(1, rules.max_iter + 1):
        step = em.step(step.state) if number > 1 else step
        change = record.add(step)
        interrupted = watch(number, step.bound, change, step.state.theta)
        if number > 1 and change < rules.tol:
            stop = Stop.CONVERGED
            break
        if interrupted:
            stop = Stop.INTERRUPTED
            break
    return Run(step.state, step, record.bounds(), record.logliks(), stop, moved=0)


def _fast(
    em: EM,
    start: State,
    rules: Rules,
    rng: np.random.Generator,
    watch: Watcher,
    enough: Callable[[Step], bool],
) -> Run:
    # Anchors that do not follow by themselves are extrapolated with the parameters.
    anderson = Anderson(em.data, anchors=not rules.settle)
    record, moved, searches = _Record(), 0, 0
    best, level, since_best, change, fallen = None, -np.inf, 0, np.inf, 0.0
    trial, fallback = start, start
    # While subjects still change modes, there is no point in following every one to the end.
    tol = max(rules.tol, _LOOSE) if rules.max_searches else rules.tol

    def ended(stop: Stop, step: Step, state: State) -> Run:
        return Run(state, step, record.bounds(), record.logliks(), stop, moved)

    for number in range(1, rules.max_iter + 1):
        # Anchors follow the parameters as closely as the parameters move.
        still = max(_CATCH_UP * change, rules.tol) if rules.settle else np.inf
        step = em.step(trial, still) if trial is fallback else em.leap(trial, still)
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
        change = max(step.change, _ANCHOR_SHARE * step.anchor_change)
        if watch(number, step.bound, change, step.state.theta):
            return ended(Stop.INTERRUPTED, best, best.state)
        if enough(step):
            return ended(Stop.CONVERGED, step, step.state)
        if record.flat(rules.flat):
            return ended(Stop.CONVERGED, step, step.state)
        if since_best > _PATIENCE:
            return ended(Stop.BOUND_FELL, best, best.state)
        if change < tol:
            state = step.state
            if searches < rules.max_searches:
                searches += 1
                found = _search(em, state, rng)
                state, moved = found.state, moved + found.moved
                if found.rise > _NEGLIGIBLE * abs(step.bound):
                    anderson.forget()
                    trial = fallback = state
                    level = -np.inf
                    continue
            if tol == rules.tol:
                return ended(Stop.CONVERGED, step, state)
            tol = rules.tol
        fallback = step.state
        trial = anderson.propose(step.before, step.state) or fallback
    assert best is not None  # the first step is never taken back
    return ended(Stop.OUT_OF_STEPS, best, best.state)


def _search(em: EM, state: State, rng: np.random.Generator) -> Search:
    """Better places to look at every subject from."""
    look = renew if isinstance(em.method, Adaptive) else search_modes
    return look(em.e, state, rng)


def _noisy(em: EM, method: PriorNodes, start: State, rules: Rules, watch: Watcher) -> Run:
    """Fresh draws in every iteration: it ends when the noise hides any further rise.

    The last iterations are compared with those before them, as many again.
    """
    assert method.redraw is not None
    record, stop, state, step = _Record(), Stop.OUT_OF_STEPS, start, None
    for number in range(1, rules.max_iter + 1):
        step = em.by(replace(method, points=method.redraw())).step(state)
        state = step.state
        change = record.add(step)
        if watch(number, step.bound, change, step.state.theta):
            stop = Stop.INTERRUPTED
            break
        if rules.tol and number >= 2 * _NOISY_BLOCK and _hidden_by_noise(record.bounds()):
            stop = Stop.CONVERGED
            break
    assert step is not None
    return Run(state, step, record.bounds(), record.logliks(), stop, moved=0)


def _hidden_by_noise(bounds: np.ndarray) -> bool:
    """The last iterations are no higher than those before them by more than chance."""
    recent = bounds[-2 * _NOISY_BLOCK :].reshape(2, -1)
    rise = recent[1].mean() - recent[0].mean()
    return bool(rise < np.sqrt(recent.var(axis=1, ddof=1).sum() / _NOISY_BLOCK))


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
        if not width or len(self._steps) < _PLATEAU:
            return False
        last = self.bounds()[-_PLATEAU:]
        if last.max() - last.min() < width:
            return True
        return len(self._steps) >= 2 * _NOISY_BLOCK and _hidden_by_noise(self.bounds())

    def bounds(self) -> np.ndarray:
        return np.array([bound for bound, _ in self._steps])

    def logliks(self) -> np.ndarray:
        return np.array([loglik for _, loglik in self._steps])
