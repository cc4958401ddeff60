"""From an encoded data set to fitted parameters: starts, iteration, final E-step, label order."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from avem.errors import AvemError
from avem.inference.avem import NOISE_FLOOR, AnchoredEM, Pass, State
from avem.inference.initialise import Rows, make_start
from avem.inference.loop import Rules, Run, iterate
from avem.inference.modes import search_modes
from avem.inference.watch import Watch
from avem.models.hmm_model import Encoded, HMMModel
from avem.models.params import Params
from avem.numerics.covariance import floor_eigenvalues
from avem.numerics.precision import in_float64

_START_CELLS = 100_000
"""Starts are compared on about this many cells; more would not change which one wins."""
_START_RULES = Rules(max_iter=60, tol=1e-3, lenient=False)
_AGREE = 1.0
"""Starts whose bounds are this close (in log likelihood units) found the same solution."""


@dataclass(frozen=True, eq=False)
class Guess:
    """Where to begin, in internal units: (some) parameters, and effects (d, subjects) if known."""

    theta: Params
    effects: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """The outcome of a fit, in internal units."""

    theta: Params
    effects_mean: np.ndarray
    """(d, subjects)."""
    effects_cov: np.ndarray
    """(d, d, subjects)."""
    subject_bound: np.ndarray
    """(subjects,) anchored ELBO."""
    collapsed: np.ndarray
    """(states, outcomes) whose variance was kept from collapsing."""
    run: Run
    starts: tuple[Run, ...]
    """The run of each start on the cells used to compare them; empty when init was given."""
    seconds: float


@in_float64
def fit_hmm(
    model: HMMModel,
    data: Encoded,
    *,
    guess: Guess,
    fixed: frozenset[str],
    n_starts: int,
    rules: Rules,
    seed: int,
    keep_order: bool,
    watch: Watch,
) -> Fitted:
    """Fit by anchored variational EM."""
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    em = make_em(model, data, fixed, recentre=not rules.plain)
    panel = data.panel
    constant = model.scaling.constant
    rows = Rows(data.y, data.a, data.spread, panel.row_subject, panel.n_subjects, constant)

    def start(number: int) -> State:
        theta, effects = make_start(em, rows, number, rng)
        if guess.effects is not None:
            effects = guess.effects
        elif "coef" in guess.theta:
            effects = np.zeros_like(effects)  # the paper's start: every anchor at the prior mean
        return State({**theta, **guess.theta}, tuple(data.layout.split(effects)))

    if rules.plain or n_starts == 1 or set(guess.theta) >= {"coef", "covariance"}:
        state, starts = start(0), ()
    else:
        first = replace(_START_RULES, max_iter=min(_START_RULES.max_iter, rules.max_iter))
        states = [start(s) for s in range(n_starts)]
        state, starts = _best_start(em, states, first, rng, watch)
    if not rules.plain and not watch.interrupted:
        state = search_modes(em, state, rng).state
    watch.stage("AVEM")
    run = _after(starts, iterate(em, state, rules, rng, watch))
    theta, passes = run.state.theta, run.last.passes
    if not rules.plain:
        # A last E-step, so that the effects returned belong to the parameters returned.
        passes = tuple(em.e_step(run.state))
    if not keep_order:
        theta = reorder(theta, state_order(model, data, theta))
    return Fitted(
        theta=theta,
        **_subjects(data, passes),
        collapsed=_collapsed(theta["covariance"], NOISE_FLOOR * data.spread),
        run=run,
        starts=starts,
        seconds=time.perf_counter() - began,
    )


def make_em(
    model: HMMModel, data: Encoded, fixed: frozenset[str] = frozenset(), recentre: bool = True
) -> AnchoredEM:
    """The iteration for a model and a data set."""
    return AnchoredEM(
        kernel=data.kernel,
        chunks=data.chunks,
        structure=model.effect_covariance,
        blocks=model.effect_blocks,
        matched=model.matched_terms,
        spread=data.spread,
        fixed=fixed,
        recentre=recentre,
    )


def _best_start(
    em: AnchoredEM,
    starts: list[State],
    rules: Rules,
    rng: np.random.Generator,
    watch: Watch,
) -> tuple[State, tuple[Run, ...]]:
    """Run all starts for a while on some of the data; the best one's state, and all runs."""
    cells = np.array([chunk.valid.size for chunk in em.chunks])
    order = rng.permutation(len(cells))
    enough = np.searchsorted(np.cumsum(cells[order]), _START_CELLS) + 1
    chosen = np.sort(order[:enough]).tolist()
    part = em.on(chosen)
    runs: list[tuple[State, Run]] = []
    failure: AvemError | None = None
    for number, start in enumerate(starts):
        watch.stage(f"start {number + 1}/{len(starts)}")
        cut = replace(start, anchors=tuple(start.anchors[c] for c in chosen))
        try:
            runs.append((start, iterate(part, cut, rules, rng, watch)))
        except AvemError as error:  # one bad start is no reason to give up
            failure = error
        if watch.interrupted and runs:
            break
    if not runs:
        assert failure is not None
        raise failure
    start, run = max(runs, key=lambda pair: pair[1].last.bound)
    anchors = list(start.anchors)
    for c, anchor in zip(chosen, run.state.anchors, strict=True):
        anchors[c] = anchor
    return State(run.state.theta, tuple(anchors)), tuple(run for _, run in runs)


def _after(starts: tuple[Run, ...], run: Run) -> Run:
    """The run with its own start's history in front, where that is on the same data."""
    if not starts:
        return run
    first = max(starts, key=lambda start: start.last.bound)
    if len(first.state.anchors) < len(run.state.anchors):
        return run
    return replace(
        run,
        bounds=np.concatenate([first.bounds, run.bounds]),
        logliks=np.concatenate([first.logliks, run.logliks]),
        moved=first.moved + run.moved,
    )


def start_gaps(starts: tuple[Run, ...]) -> tuple[float, ...]:
    """How far below the best start's bound each one ended."""
    bounds = [run.last.bound for run in starts]
    return tuple(max(bounds) - bound for bound in bounds)


def starts_agreeing(starts: tuple[Run, ...]) -> int:
    """How many starts found the best one's solution."""
    return sum(gap < _AGREE for gap in start_gaps(starts))


def _subjects(data: Encoded, passes: tuple[Pass, ...]) -> dict[str, np.ndarray]:
    join = data.layout.join
    return {
        "effects_mean": join([np.asarray(p.mean) for p in passes]),
        "effects_cov": join([np.asarray(p.covariance) for p in passes]),
        "subject_bound": join([np.asarray(p.bound) for p in passes]),
    }


def _collapsed(covariance: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """(states, outcomes) which variances are at their floor."""
    return np.array([floor_eigenvalues(state, 1.01 * floor)[1] for state in covariance])


def state_order(model: HMMModel, data: Encoded, theta: Params) -> np.ndarray:
    """States by the first outcome's mean at the average covariates, lowest first."""
    seen = ~np.isnan(data.y).all(1)
    average = data.a[seen][:, list(model.design.x_cols)].mean(0)
    return np.argsort(theta["coef"][:, 0] @ average, kind="stable")


def reorder(theta: Params, order: np.ndarray) -> Params:
    """The same parameters with the states renumbered."""
    return {
        **theta,
        "initial": theta["initial"][order],
        "transition": theta["transition"][np.ix_(order, order)],
        "coef": theta["coef"][order],
        "covariance": theta["covariance"][order],
    }
