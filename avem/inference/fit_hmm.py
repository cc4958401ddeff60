"""From an encoded data set to fitted parameters: starts, iteration, final E-step, label order."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from avem.errors import AvemError
from avem.families import Custom, Gaussian
from avem.inference.avem import NOISE_FLOOR, AnchoredEM, State, Step
from avem.inference.initialise import Rows, make_start
from avem.inference.loop import Rules, Run, iterate
from avem.inference.methods import Integration, make_nodes
from avem.inference.minibatch import iterate_batches
from avem.inference.modes import search_modes
from avem.inference.passes import Pass
from avem.inference.theta import find_matches, pack_theta, reorder
from avem.inference.watch import Watch
from avem.models.hmm_model import Encoded, HMMModel
from avem.models.params import (
    CHAIN_PARAMS,
    Params,
    coef_limits,
    free_coefs,
    line_etas,
    override,
    param_info,
)
from avem.numerics.covariance import floor_eigenvalues
from avem.numerics.precision import in_float64

_START_CELLS = 100_000
"""Starts are compared on about this many cells; more would not change which one wins."""
_START_RULES = Rules(max_iter=60, tol=1e-3, settle=False, lenient=False)
_E_STEPS, _M_STEPS = 4, 1
"""Newton steps within an iteration: the next iteration goes on from there anyway."""
_SAME = 0.1
"""A start within this distance of where another one ended, in every parameter, ends there too."""
_BETTER = 0.1
"""A rise of the bound that makes another solution worth having."""
_AGREE = 1.0
"""Starts whose bounds are this close (in log likelihood units) found the same solution."""


@dataclass(frozen=True, eq=False)
class Guess:
    """Where to begin: (some of) the user's parameters, and internal effects (d, subjects)."""

    params: Params
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
    """(states, outcome columns) whose variance was kept from collapsing."""
    run: Run
    starts: tuple[Run, ...]
    """The run of each start on the cells used to compare them; empty when init was given."""
    seconds: float


@dataclass(frozen=True)
class Options:
    """How the iteration goes about it."""

    q_update: str = "laplace"
    anchor: str = "mean"
    integration: Integration = field(default_factory=Integration)
    batches: bool = False
    """Update the parameters after each chunk instead of after all of them."""
    fixed: frozenset[str] = frozenset()
    """The user's names of parameters that are held."""


@in_float64
def fit_hmm(
    model: HMMModel,
    data: Encoded,
    *,
    guess: Guess,
    options: Options,
    n_starts: int,
    rules: Rules,
    seed: int,
    keep_order: bool,
    watch: Watch,
) -> Fitted:
    """Fit by anchored variational EM."""
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    em = make_em(model, data, options, plain=rules.plain)
    rows = Rows(model, data)
    knows_states = any(name.endswith("coef") for name in guess.params)

    def start(number: int) -> State:
        theta, effects = make_start(rows, number, rng)
        theta = override(model, theta, guess.params)
        if guess.effects is not None:
            effects = guess.effects
        elif knows_states:
            effects = np.zeros_like(effects)  # the paper's start: every anchor at the prior mean
        return State(theta, tuple(data.layout.split(effects)))

    emissions = set(param_info(model)) - set(CHAIN_PARAMS)
    if rules.plain or n_starts == 1 or set(guess.params) >= emissions:
        state, starts = start(0), ()
    else:
        first = replace(_START_RULES, max_iter=min(_START_RULES.max_iter, rules.max_iter))
        states = [start(s) for s in range(n_starts)]
        state, starts = _best_start(model, em, states, first, rng, watch)
    if not starts and not rules.plain:
        # Given parameters may be right while the anchors are not: these first.
        state = search_modes(em, state, rng).state
    em = replace(em, nodes=make_nodes(options.integration, model.n_effects, rng))
    watch.stage(options.integration.method)
    go = iterate_batches if options.batches else iterate
    run = go(em, state, rules, rng, watch)
    run = _after(starts, run) if em.nodes is None else run
    theta, passes = run.state.theta, run.last.passes
    if not rules.plain:
        # A last E-step, so that the effects returned belong to the parameters returned.
        passes = tuple(em.e_step(run.state))
    of_subjects = _subjects(data, passes)
    if not keep_order:
        theta, source = reorder(model, theta, state_order(model, data, theta))
        of_subjects["effects_mean"] = of_subjects["effects_mean"][source]
        of_subjects["effects_cov"] = of_subjects["effects_cov"][np.ix_(source, source)]
    return Fitted(
        theta=theta,
        **of_subjects,
        collapsed=_collapsed(model, data, theta),
        run=run,
        starts=starts,
        seconds=time.perf_counter() - began,
    )


def make_em(
    model: HMMModel, data: Encoded, options: Options | None = None, plain: bool = False
) -> AnchoredEM:
    """The iteration for a model and a data set."""
    options = Options() if options is None else options
    held = set(options.fixed & {"initial", "transition", "effect_covariance"})
    for piece in model.structure.pieces:
        if isinstance(piece.family, Gaussian):
            names = {"coef": "coef", piece.family.noise_name: "covariance"}
            held |= {piece.key + names[n] for n in names if piece.prefix + n in options.fixed}
    made = AnchoredEM(
        kernel=data.kernel,
        chunks=data.chunks,
        structure=model.effect_covariance,
        blocks=model.effect_blocks,
        matches=find_matches(model, options.fixed),
        spread=data.spread,
        effect_scale=effect_scale(model, data),
        free=free_coefs(model, options.fixed),
        limits=coef_limits(model),
        fixed=frozenset(held),
        q_update=options.q_update,
        anchor=options.anchor,
        recentre=not plain and options.anchor != "fixed",
    )
    return made if plain else replace(made, newton_steps=_E_STEPS, coef_steps=_M_STEPS)


def effect_scale(model: HMMModel, data: Encoded) -> np.ndarray:
    """(d,) the variance beside which an effect's is judged: the outcome's, or 1 on a link scale."""
    scale = np.ones(model.n_effects)
    for piece, at in model.each_piece():
        if isinstance(piece.family, Gaussian):
            for line, column in zip(piece.lines, at, strict=True):
                scale[[e for state in line.effects for e in state]] = data.spread[column]
    return scale


def _best_start(
    model: HMMModel,
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
    reached: list[_Reached] = []
    failure: AvemError | None = None
    for number, start in enumerate(starts):
        watch.stage(f"start {number + 1}/{len(starts)}")
        cut = replace(start, anchors=tuple(start.anchors[c] for c in chosen))
        try:
            runs.append((start, _run_start(model, part, cut, rules, rng, watch, reached)))
        except AvemError as error:  # one bad start is no reason to give up
            failure = error
        if watch.interrupted and runs:
            break
    if not runs:
        assert failure is not None
        raise failure
    start, run = max(runs, key=lambda pair: pair[1].last.bound)
    if em.kernel.n_effects and not watch.interrupted:
        # The same parameters with every anchor at 0 sometimes lead to a better solution.
        blank = State(run.state.theta, tuple(np.zeros_like(a) for a in run.state.anchors))
        second = iterate(part, blank, replace(rules, max_searches=0), rng, watch)
        if second.last.bound > run.last.bound + _BETTER:
            run = _joined(run, second)
            runs.append((start, run))
    anchors = list(start.anchors)
    for c, anchor in zip(chosen, run.state.anchors, strict=True):
        anchors[c] = anchor
    return State(run.state.theta, tuple(anchors)), tuple(run for _, run in runs)


class _Reached(NamedTuple):
    """Where a start got before it looked for better modes, and after."""

    place: np.ndarray
    run: Run


def _run_start(
    model: HMMModel,
    em: AnchoredEM,
    start: State,
    rules: Rules,
    rng: np.random.Generator,
    watch: Watch,
    reached: list[_Reached],
) -> Run:
    """One start to where it can be compared; one that comes to where another was stops there."""

    def place(theta: Params) -> np.ndarray:
        first = model.structure.pieces[0].key + "coef"
        level = theta[first].reshape(model.n_states, -1)[:, 0]
        return pack_theta(reorder(model, theta, np.argsort(level, kind="stable"))[0])

    def known(step: Step) -> list[Run]:
        here = place(step.state.theta)
        return [other.run for other in reached if np.abs(other.place - here).max() < _SAME]

    quick = replace(rules, max_searches=0)
    run = iterate(em, start, quick, rng, watch, enough=lambda step: bool(known(step)))
    before = known(run.last)
    if before:
        return replace(before[0], bounds=run.bounds, logliks=run.logliks)
    searched = run
    if not watch.interrupted:
        searched = _joined(run, iterate(em, run.state, rules, rng, watch))
    reached.append(_Reached(place(run.state.theta), searched))
    return searched


def _after(starts: tuple[Run, ...], run: Run) -> Run:
    """The run with its own start's history in front, where that is on the same data."""
    if not starts:
        return run
    first = max(starts, key=lambda start: start.last.bound)
    if len(first.state.anchors) < len(run.state.anchors):
        return run
    return _joined(first, run)


def _joined(first: Run, then: Run) -> Run:
    """The second run with the history of the first in front."""
    return replace(
        then,
        bounds=np.concatenate([first.bounds, then.bounds]),
        logliks=np.concatenate([first.logliks, then.logliks]),
        moved=first.moved + then.moved,
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


def _collapsed(model: HMMModel, data: Encoded, theta: Params) -> np.ndarray:
    """(states, outcome columns) which densities are held from closing in on a single value."""
    out = np.zeros((model.n_states, data.y.shape[1]), bool)
    limits = coef_limits(model)
    for piece, at in model.each_piece():
        if piece.key + "coef" in limits:
            low, high = limits[piece.key + "coef"]
            coef = theta[piece.key + "coef"]
            out[:, at[0]] = ((coef <= low + 0.01) | (coef >= high - 0.01)).any(1)
        if isinstance(piece.family, Gaussian):
            floor = 1.01 * NOISE_FLOOR * data.spread[list(at)]
            covariance = theta[piece.key + "covariance"]
            out[:, list(at)] = [floor_eigenvalues(state, floor)[1] for state in covariance]
    return out


def state_order(model: HMMModel, data: Encoded, theta: Params) -> np.ndarray:
    """States by the first outcome's mean at the average covariates, lowest first."""
    piece, at = model.structure.pieces[0], model.y_cols[0]
    seen = ~np.isnan(data.y[:, at[0]])
    average = data.a[seen].mean(0)
    coef = theta[piece.key + "coef"]
    if isinstance(piece.family, Custom):
        level = coef[:, 0]
    elif isinstance(piece.family, Gaussian):
        level = coef[:, 0] @ average[list(piece.lines[0].x_cols)]
    else:
        level = piece.family.mean(line_etas(piece, coef, average[None]))[:, 0]
    return np.argsort(level, kind="stable")
