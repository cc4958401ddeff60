"""Several starting points, run for a while on some of the data; the best one goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from avem.components.param_info import Params
from avem.errors import AvemError
from avem.inference.e_steps import State, state_at
from avem.inference.em import EM, Step
from avem.inference.gate import some_shards
from avem.inference.loop import Rules, Run, Tried, iterate, joined
from avem.inference.methods.adaptive.centres import find_centres
from avem.inference.methods.base import EStep
from avem.inference.progress import Watch
from avem.inference.stop import Stop
from avem.inference.theta import pack_theta
from avem.inference.tuning import (
    AFTER_ANCHORS,
    AGREE,
    BETTER,
    CONVINCED,
    FINALISTS,
    FINALS,
    LATER_ITER,
    SAME_PLACE,
)
from avem.models.hmm import HMMModel


def best_start(
    model: HMMModel,
    em: EM,
    start: Callable[[int], State],
    n_starts: int,
    rules: Rules,
    rng: np.random.Generator,
    watch: Watch,
    exact: EStep | None = None,
) -> tuple[State, tuple[Tried, ...]]:
    """Run starts for a while on some of the data; the best one's state, and all runs.

    With `exact`, an E-step that integrates the effects, every other start is run by it: anchored
    iterations may lose states that overlap before they are seen. All are then ranked by it.
    """
    chosen = some_shards(em, rng)
    part = em.on(chosen)
    race = _Race(model, part, None if exact is None else part.by(exact), rules, rng, watch)
    zero = np.zeros((em.kernel.n_effects, em.data.layout.n_subjects))
    tried: list[tuple[State, Tried]] = []
    failure: AvemError | None = None
    for number in range(n_starts):
        watch.stage(f"start {number + 1}/{n_starts}", at_start=True)
        whole = start(number)
        cut = replace(whole, subjects=whole.subjects.on(chosen))
        try:
            tried.append((whole, race.run(cut, number)))
        except AvemError as error:  # one bad start is no reason to give up
            failure = error
        if watch.interrupted and tried:
            break
        one_place = exact is None or len({id(one.run.state) for _, one in tried}) == 1
        agreeing = starts_agreeing([one for _, one in tried])
        if one_place and agreeing == number + 1 == CONVINCED:
            break
    if not tried:
        assert failure is not None
        raise failure
    if exact is not None and not watch.interrupted:
        tried = race.final(tried)
    whole, best = max(tried, key=lambda pair: pair[1].level)
    if exact is None and em.kernel.n_effects and not watch.interrupted:
        blank = state_at(em.data, best.run.state.theta, zero)
        second = race.from_zero(best, replace(blank, subjects=blank.subjects.on(chosen)))
        if second is not None:
            best = second
            tried.append((whole, best))
    subjects = whole.subjects.put(chosen, best.run.state.subjects)
    # Those that were given up on the way say nothing of where they would have ended.
    ended = tuple(one for _, one in tried if one.run.stop is not Stop.OUT_OF_STEPS or one is best)
    end = best.run.state
    searched = end.searched if len(chosen) == len(em.data.shards) else None
    return State(end.theta, subjects, searched=searched), ended


class _Reached(NamedTuple):
    """Where a start got before it looked for better modes, and after."""

    place: np.ndarray
    tried: Tried


class _Race:
    """Starts that are run until they can be compared."""

    def __init__(
        self,
        model: HMMModel,
        em: EM,
        exact: EM | None,
        rules: Rules,
        rng: np.random.Generator,
        watch: Watch,
    ) -> None:
        self._model, self._em, self._exact = model, em, exact
        self._rules, self._rng, self._watch = rules, rng, watch
        self._reached: list[_Reached] = []

    def run(self, start: State, number: int) -> Tried:
        """One start to where it can be compared; one that comes to where another was stops."""
        integrated = self._exact is not None and number % 2 == 0
        em = self._exact if integrated and self._exact is not None else self._em
        rules = em.method.rules(self._rules)
        if self._exact is not None and number >= 2:  # to see whether it comes close
            rules = replace(rules, max_iter=min(LATER_ITER, rules.max_iter))
        quick = replace(rules, max_searches=0)
        run = iterate(em, start, quick, self._rng, self._watch, enough=self._known_place)
        before = self._known(run.last)
        if before:
            same = before[0].run
            return before[0]._replace(run=replace(same, bounds=run.bounds, logliks=run.logliks))
        searched = run
        if not (integrated or self._watch.interrupted):
            searched = joined(run, iterate(em, run.state, rules, self._rng, self._watch))
        if self._exact is not None and not (integrated or self._watch.interrupted):
            searched = self._brought_nearer(searched)
            before = self._known(searched.last)
            if before:
                return before[0]
        tried = Tried(searched, searched.last.bound)
        self._reached.append(_Reached(self._place(run.state.theta), tried))
        return tried

    def _brought_nearer(self, run: Run) -> Run:
        """An anchored start on its way to where the likelihood is highest."""
        rules = replace(self._rules, max_iter=AFTER_ANCHORS)
        return self._integrated(run, rules, enough=self._known_place)

    def final(self, tried: list[tuple[State, Tried]]) -> list[tuple[State, Tried]]:
        """The same starts, those that may yet win followed further."""
        ends = {id(one.run.state): one.run for _, one in tried}
        if len(ends) > 1:
            # One centre each is enough on the way, but misses what lies in other modes.
            levels = {key: self._level(run) for key, run in ends.items()}
            tried = [(s, one._replace(level=levels[id(one.run.state)])) for s, one in tried]
        for margin, tol, max_iter in FINALS:
            top = max(one.level for _, one in tried)
            close = {id(one.run.state): one for _, one in tried if one.level > top - margin}
            if len(close) == 1:
                break
            first = sorted(close, key=lambda key: -close[key].level)[:FINALISTS]
            rules = replace(self._rules, tol=tol, max_iter=max_iter)
            done = {key: self._followed(close[key], rules) for key in first}
            tried = [(whole, done.get(id(one.run.state), one)) for whole, one in tried]
        return tried

    def _followed(self, one: Tried, rules: Rules) -> Tried:
        run = self._integrated(one.run, rules)
        return Tried(run, max(one.level, run.last.bound))

    def _integrated(
        self, run: Run, rules: Rules, enough: Callable[[Step], bool] = lambda step: False
    ) -> Run:
        """A run that goes on with the effects integrated around new centres."""
        em = self._exact
        assert em is not None
        state = find_centres(em.e, run.state, self._rng)
        rules = em.method.rules(rules)
        return joined(run, iterate(em, state, rules, self._rng, self._watch, enough=enough))

    def from_zero(self, best: Tried, blank: State) -> Tried | None:
        """The same parameters with every anchor at 0 sometimes lead to a better solution."""
        em, run = self._em, best.run
        found = em.e.e_step(blank, self._rules.tol)
        if abs(found.bound - best.level) <= BETTER:  # they led to where the anchors are
            return None
        rules = replace(self._rules, max_searches=0)
        second = iterate(em, found.state, rules, self._rng, self._watch)
        if second.last.bound <= best.level + BETTER:
            return None
        return Tried(joined(run, second), second.last.bound)

    def _level(self, run: Run) -> float:
        assert self._exact is not None
        e = self._exact.e
        found = e.try_e_step(find_centres(e, run.state, self._rng)).bound
        return max(found, run.last.bound) if np.isfinite(found) else run.last.bound

    def _known_place(self, step: Step) -> bool:
        return bool(self._known(step))

    def _known(self, step: Step) -> list[Tried]:
        here = self._place(step.state.theta)
        near = (other for other in self._reached if _same(other.place, here))
        return [other.tried for other in near]

    def _place(self, theta: Params) -> np.ndarray:
        model = self._model
        if model.n_clusters > 1:
            theta = model.with_clusters(theta, model.cluster_order(theta))
        if model.keeps_order:
            return pack_theta(theta)
        level = theta[model.emissions[0].coef_key].reshape(model.n_states, -1)[:, 0]
        return pack_theta(model.relabelled(theta, np.argsort(level, kind="stable"))[0])


def _same(place: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.abs(place - other).max() < SAME_PLACE)


def after(starts: tuple[Tried, ...], run: Run) -> Run:
    """The run with its own start's history in front, where that is on the same data."""
    if not starts:
        return run
    first = max(starts, key=lambda start: start.level).run
    if len(first.state.subjects) < len(run.state.subjects):
        return run
    return joined(first, run)


def start_gaps(starts: Sequence[Tried]) -> tuple[float, ...]:
    """How far below the best start each one ended."""
    levels = [start.level for start in starts]
    return tuple(max(levels) - level for level in levels)


def starts_agreeing(starts: Sequence[Tried]) -> int:
    """How many starts found the best one's solution."""
    return sum(gap < AGREE for gap in start_gaps(starts))
