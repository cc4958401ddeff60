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
from avem.inference.loop import Rules, Run, iterate, joined
from avem.inference.progress import Watch
from avem.inference.theta import pack_theta
from avem.inference.tuning import AGREE, BETTER, CONVINCED, SAME_PLACE, START_CELLS
from avem.models.hmm import HMMModel


def best_start(
    model: HMMModel,
    em: EM,
    start: Callable[[int], State],
    n_starts: int,
    rules: Rules,
    rng: np.random.Generator,
    watch: Watch,
) -> tuple[State, tuple[Run, ...]]:
    """Run starts for a while on some of the data; the best one's state, and all runs."""
    cells = np.array([shard.n_cells for shard in em.data.shards])
    order = rng.permutation(len(cells))
    enough = np.searchsorted(np.cumsum(cells[order]), START_CELLS) + 1
    chosen = np.sort(order[:enough]).tolist()
    part = em.on(chosen)
    runs: list[tuple[State, Run]] = []
    reached: list[_Reached] = []
    failure: AvemError | None = None
    for number in range(n_starts):
        watch.stage(f"start {number + 1}/{n_starts}", at_start=True)
        whole = start(number)
        cut = replace(whole, subjects=whole.subjects.on(chosen))
        try:
            runs.append((whole, _run_start(model, part, cut, rules, rng, watch, reached)))
        except AvemError as error:  # one bad start is no reason to give up
            failure = error
        if watch.interrupted and runs:
            break
        if starts_agreeing([run for _, run in runs]) == number + 1 == CONVINCED:
            break
    if not runs:
        assert failure is not None
        raise failure
    whole, run = max(runs, key=lambda pair: pair[1].last.bound)
    if em.kernel.n_effects and not watch.interrupted:
        # The same parameters with every anchor at 0 sometimes lead to a better solution.
        zero = np.zeros((em.kernel.n_effects, em.data.layout.n_subjects))
        blank = state_at(em.data, run.state.theta, zero)
        found = part.e.e_step(replace(blank, subjects=blank.subjects.on(chosen)), rules.tol)
        if abs(found.bound - run.last.bound) > BETTER:  # else they led to where the anchors are
            second = iterate(part, found.state, replace(rules, max_searches=0), rng, watch)
            if second.last.bound > run.last.bound + BETTER:
                run = joined(run, second)
                runs.append((whole, run))
    subjects = whole.subjects.put(chosen, run.state.subjects)
    return State(run.state.theta, subjects), tuple(run for _, run in runs)


class _Reached(NamedTuple):
    """Where a start got before it looked for better modes, and after."""

    place: np.ndarray
    run: Run


def _run_start(
    model: HMMModel,
    em: EM,
    start: State,
    rules: Rules,
    rng: np.random.Generator,
    watch: Watch,
    reached: list[_Reached],
) -> Run:
    """One start to where it can be compared; one that comes to where another was stops there."""

    def place(theta: Params) -> np.ndarray:
        if model.keeps_order:
            return pack_theta(theta)
        level = theta[model.emissions[0].coef_key].reshape(model.n_states, -1)[:, 0]
        return pack_theta(model.relabelled(theta, np.argsort(level, kind="stable"))[0])

    def known(step: Step) -> list[Run]:
        here = place(step.state.theta)
        return [other.run for other in reached if np.abs(other.place - here).max() < SAME_PLACE]

    quick = replace(rules, max_searches=0)
    run = iterate(em, start, quick, rng, watch, enough=lambda step: bool(known(step)))
    before = known(run.last)
    if before:
        return replace(before[0], bounds=run.bounds, logliks=run.logliks)
    searched = run
    if not watch.interrupted:
        searched = joined(run, iterate(em, run.state, rules, rng, watch))
    reached.append(_Reached(place(run.state.theta), searched))
    return searched


def after(starts: tuple[Run, ...], run: Run) -> Run:
    """The run with its own start's history in front, where that is on the same data."""
    if not starts:
        return run
    first = max(starts, key=lambda start: start.last.bound)
    if len(first.state.subjects) < len(run.state.subjects):
        return run
    return joined(first, run)


def start_gaps(starts: Sequence[Run]) -> tuple[float, ...]:
    """How far below the best start's bound each one ended."""
    bounds = [run.last.bound for run in starts]
    return tuple(max(bounds) - bound for bound in bounds)


def starts_agreeing(starts: Sequence[Run]) -> int:
    """How many starts found the best one's solution."""
    return sum(gap < AGREE for gap in start_gaps(starts))
