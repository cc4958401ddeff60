"""From an encoded data set to fitted parameters: starts, iteration, final E-step, label order."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from avem.components.param_info import Params
from avem.execution.dataset import Dataset
from avem.families import Custom, Gaussian
from avem.inference.e_steps import ESteps, State, state_at
from avem.inference.em import EM
from avem.inference.hmm_starts import Rows, make_start
from avem.inference.loop import Rules, Run
from avem.inference.m_step import NOISE_FLOOR, MStep
from avem.inference.methods.anchored import TO_THE_END, Anchored
from avem.inference.methods.names import Integration
from avem.inference.mode_search import search_modes
from avem.inference.progress import Watch
from avem.inference.stages import Guess, Options, of_subjects, run_method
from avem.inference.starts import after, best_start
from avem.inference.theta import find_matches, reorder
from avem.models.hmm import Encoded, HMMModel
from avem.models.hmm_params import (
    CHAIN_PARAMS,
    coef_limits,
    free_coefs,
    line_etas,
    override,
    param_info,
)
from avem.numerics.covariance import floor_eigenvalues
from avem.numerics.precision import in_float64

_START_RULES = Rules(max_iter=60, tol=1e-3, settle=False, lenient=0.0)
_E_STEPS, _M_STEPS = 4, 1
"""Newton steps within an iteration: the next iteration goes on from there anyway."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The outcome of a fit, in internal units."""

    theta: Params
    effects_mean: np.ndarray
    """(d, subjects)."""
    effects_cov: np.ndarray
    """(d, d, subjects)."""
    subject_bound: np.ndarray
    """(subjects,) the method's objective."""
    collapsed: np.ndarray
    """(states, outcome columns) whose variance was kept from collapsing."""
    run: Run
    how: Integration
    """What was done, with the choices that were left to the fit."""
    quality: np.ndarray | None
    """(subjects,) effective number of nodes; 0 where the Laplace form stood in."""
    starts: tuple[Run, ...]
    """The run of each start on the cells used to compare them; empty when init was given."""
    seconds: float


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
    """Fit by AVEM or another method: starts, iteration, refinement, a last E-step, label order."""
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
        return state_at(em.data, theta, effects)

    emissions = set(param_info(model)) - set(CHAIN_PARAMS)
    if rules.plain or n_starts == 1 or set(guess.params) >= emissions:
        state, starts = start(0), ()
    else:
        first = replace(_START_RULES, max_iter=min(_START_RULES.max_iter, rules.max_iter))
        state, starts = best_start(model, em, start, n_starts, first, rng, watch)
    if not starts and not rules.plain:
        # Given parameters may be right while the anchors are not: these first.
        state = search_modes(em.e, state, rng).state
    em, run, how = run_method(em, state, options, rules, rng, watch)
    run = after(starts, run) if em.method.anchored else run
    theta = run.state.theta
    # A last E-step, so that the effects returned belong to the parameters returned.
    last = run.last.before if rules.plain else em.e.e_step(run.state).state
    of_each = of_subjects(em.e, last)
    if not keep_order:
        theta, source = reorder(model, theta, state_order(model, data, theta))
        of_each["effects_mean"] = of_each["effects_mean"][source]
        of_each["effects_cov"] = of_each["effects_cov"][np.ix_(source, source)]
    return Fitted(
        theta=theta,
        **of_each,
        collapsed=_collapsed(model, data, theta),
        run=run,
        how=how,
        starts=starts,
        seconds=time.perf_counter() - began,
    )


def make_em(
    model: HMMModel, data: Encoded, options: Options | None = None, plain: bool = False
) -> EM:
    """The iteration for a model and a data set."""
    options = Options() if options is None else options
    held = set(options.fixed & {"initial", "transition", "effect_covariance"})
    for piece in model.structure.pieces:
        if isinstance(piece.family, Gaussian):
            names = {"coef": "coef", piece.family.noise_name: "covariance"}
            held |= {piece.key + names[n] for n in names if piece.prefix + n in options.fixed}
    e = make_e_steps(model, data, options, plain)
    m_step = MStep(
        kernel=data.kernel,
        structure=model.effect_covariance,
        blocks=model.effect_blocks,
        matches=e.matches,
        spread=data.spread,
        effect_scale=effect_scale(model, data),
        free=free_coefs(model, options.fixed),
        limits=coef_limits(model),
        fixed=frozenset(held),
        coef_steps=TO_THE_END if plain else _M_STEPS,
        recentre=not plain and options.anchor != "fixed",
    )
    return EM(e, m_step)


def make_e_steps(
    model: HMMModel, data: Encoded, options: Options | None = None, plain: bool = False
) -> ESteps:
    """Anchored E-steps of a model on a data set."""
    options = Options() if options is None else options
    return ESteps(
        kernel=data.kernel,
        data=Dataset.of(data),
        matches=find_matches(model, options.fixed),
        method=Anchored(options.integration.q_update, TO_THE_END if plain else _E_STEPS),
        anchor=options.anchor,
    )


def effect_scale(model: HMMModel, data: Encoded) -> np.ndarray:
    """(d,) the variance beside which an effect's is judged: the outcome's, or 1 on a link scale."""
    scale = np.ones(model.n_effects)
    for piece, at in model.each_piece():
        if isinstance(piece.family, Gaussian):
            for line, column in zip(piece.lines, at, strict=True):
                scale[[e for state in line.effects for e in state]] = data.spread[column]
    return scale


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
