"""From an encoded data set to a fitted state-space model: starts, iteration, signs."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from avem.components.param_info import Params
from avem.execution.dataset import Dataset
from avem.inference.e_steps import ESteps, state_at
from avem.inference.em import EM
from avem.inference.loop import Rules, Run, iterate
from avem.inference.m_step import NOISE_FLOOR, MStep
from avem.inference.methods.adaptive.begin import variance_hint
from avem.inference.methods.anchored import Anchored
from avem.inference.methods.names import Integration
from avem.inference.progress import Watch
from avem.inference.ssm_starts import make_ssm_start
from avem.inference.stages import Guess, Options, of_subjects, run_method
from avem.inference.theta import Match
from avem.models.ssm import SSMEncoded, SSMModel
from avem.models.ssm_params import OF_THETA, free_matrices, ssm_override
from avem.models.ssm_subjects import stable_effects
from avem.numerics.precision import in_float64

_START_RULES = Rules(max_iter=40, tol=3e-3, max_searches=0)
_REDUCED_RULES = Rules(max_iter=300, tol=1e-3, max_searches=0)
_HARMLESS = 1e-3
"""How far, per observed cell, the anchored solution may lie below the highest bound."""
_WILD = 30.0
"""Values this many standard deviations from the middle are those of states that grow."""
_SMALL, _LARGE = 0.02, 0.25
"""Least and largest variance of an effect at the start, relative to the mean square of its kind."""


@dataclass(frozen=True, eq=False)
class FittedSSM:
    """The outcome of a fit, in internal units."""

    theta: Params
    effects_mean: np.ndarray
    """(d, subjects)."""
    effects_cov: np.ndarray
    """(d, d, subjects)."""
    subject_bound: np.ndarray
    """(subjects,) the method's objective."""
    collapsed: np.ndarray
    """(outcomes,) whose noise was kept from vanishing."""
    run: Run
    how: Integration
    quality: np.ndarray | None
    starts: tuple[Run, ...]
    held_back: int
    """Subjects whose dynamics were kept stable."""
    seconds: float


@in_float64
def fit_ssm(
    model: SSMModel,
    data: SSMEncoded,
    *,
    guess: Guess,
    options: Options,
    n_starts: int,
    rules: Rules,
    seed: int,
    max_radius: float | None,
    watch: Watch,
) -> FittedSSM:
    """Fit by AVEM or another method: a model without effects first, then with them."""
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    em = make_ssm_em(model, data, options, plain=rules.plain, max_radius=max_radius)
    rules = replace(rules, harmless=max(rules.harmless, _HARMLESS * (~np.isnan(data.y)).sum()))
    no_effects = np.zeros((model.n_effects, data.layout.n_subjects))
    starts: tuple[Run, ...] = ()
    needed = set(OF_THETA) - ({"coef"} if not model.x_cols else set())
    needed -= {"state_coef"} if not model.drive_cols else set()
    if set(guess.params) >= needed:
        theta = ssm_override(model, _with_effects(model, _blank(model)), guess.params)
        if not rules.plain and not _knows_covariances(model, guess):
            theta = _hinted(model, em.e, data, theta, guess)
    else:
        tame = _without_wild(data)
        theta, starts = _reduced(model, tame, guess, options, n_starts, rng, watch)
        theta = _hinted(model, replace(em.e, data=Dataset.of(tame)), data, theta, guess)
    effects = no_effects if guess.effects is None else guess.effects
    state = state_at(em.data, theta, effects)
    em, run, how = run_method(em, state, options, rules, rng, watch)
    theta = run.state.theta
    # A last E-step, so that the effects returned belong to the parameters returned.
    last = run.last.before if rules.plain else em.e.e_step(run.state).state
    found = of_subjects(em.e, last)
    if not guess.params:
        theta, turn = _with_positive_diagonal(model, theta)
        found["effects_mean"] = turn[:, None] * found["effects_mean"]
        found["effects_cov"] = np.outer(turn, turn)[:, :, None] * found["effects_cov"]
    floor = 1.01 * NOISE_FLOOR * data.spread
    return FittedSSM(
        theta=theta,
        **found,
        collapsed=theta["noise_covariance"][:, 0, 0] <= floor,
        run=run,
        how=how,
        starts=starts,
        held_back=_held_back(model, theta, found["effects_mean"], max_radius),
        seconds=time.perf_counter() - began,
    )


def make_ssm_em(
    model: SSMModel,
    data: SSMEncoded,
    options: Options | None = None,
    plain: bool = False,
    max_radius: float | None = None,
) -> EM:
    """The iteration for a model and a data set."""
    options = Options() if options is None else options
    fixed = options.fixed
    held = {OF_THETA[name] for name in fixed if name in OF_THETA}
    covariances = {name for name in fixed if name.endswith("_covariance")} - {"initial_covariance"}
    e = make_ssm_e_steps(model, data, options, max_radius)
    m_step = MStep(
        kernel=data.kernel,
        structure="block",
        blocks=model.effect_blocks,
        matches=e.matches,
        spread=data.spread,
        effect_scale=ssm_effect_scale(model, data),
        free=free_matrices(model, tuple(fixed), centred=plain),
        fixed=frozenset(held | ({"effect_covariance"} if covariances else set())),
        recentre=options.anchor != "fixed",
    )
    return EM(e, m_step)


def make_ssm_e_steps(
    model: SSMModel,
    data: SSMEncoded,
    options: Options | None = None,
    max_radius: float | None = None,
) -> ESteps:
    """Anchored E-steps of a model on a data set."""
    options = Options() if options is None else options
    return ESteps(
        kernel=data.kernel,
        data=Dataset.of(data),
        matches=_matches(model, options.fixed),
        method=Anchored(),
        anchor=options.anchor,
        guard=None if max_radius is None else partial(_stable, model, max_radius),
    )


def _matches(model: SSMModel, fixed: frozenset[str]) -> tuple[Match | None, ...]:
    """The population's entry that each effect is added to, unless it is held."""
    shape = model.shape
    out: list[Match | None] = []
    for key, name, entries in (
        ("dynamics", "transition_mean", shape.transition_effects),
        ("loading", "loading_mean", shape.loading_effects),
    ):
        out += [None if name in fixed else Match(key, i, (j,)) for i, j in entries]
    for j, place in shape.coef_effects:
        column = shape.w_cols[place]
        known = column in model.x_cols and "coef" not in fixed
        out.append(Match("coef", j, (model.x_cols.index(column),)) if known else None)
    return tuple(out)


def ssm_effect_scale(model: SSMModel, data: SSMEncoded) -> np.ndarray:
    """(d,) the variance beside which an effect's is judged."""
    shape = model.shape
    rows = [j for j, _ in (*shape.loading_effects, *shape.coef_effects)]
    return np.concatenate([np.ones(len(shape.transition_effects)), data.spread[rows]])


# --- starts -------------------------------------------------------------------------------------


def _reduced(
    model: SSMModel,
    data: SSMEncoded,
    guess: Guess,
    options: Options,
    n_starts: int,
    rng: np.random.Generator,
    watch: Watch,
) -> tuple[Params, tuple[Run, ...]]:
    """The best fit of the model whose subjects are all alike."""
    alike = model.without_effects()
    same = replace(data, kernel=alike.kernel(data.kernel.groups))
    own = {name: value for name, value in guess.params.items() if name in OF_THETA}
    em = make_ssm_em(alike, same, Options(fixed=options.fixed & frozenset(OF_THETA)))
    nobody = np.zeros((0, data.layout.n_subjects))
    runs = []
    for number in range(n_starts):
        watch.stage(f"start {number + 1}/{n_starts}", at_start=True)
        theta = ssm_override(alike, make_ssm_start(alike, same, number, rng), own)
        runs.append(iterate(em, state_at(em.data, theta, nobody), _START_RULES, rng, watch))
        if watch.interrupted:
            break
    best = max(runs, key=lambda run: run.last.bound)
    watch.stage("subjects alike", at_start=True)
    best = iterate(em, best.state, _REDUCED_RULES, rng, watch)
    return _with_effects(model, best.state.theta), tuple(runs)


def _without_wild(data: SSMEncoded) -> SSMEncoded:
    """The data without the rows of subjects whose states grow without bound.

    No dynamics that are the same for all can follow these.
    """
    size = np.nanmax(np.abs(data.y) / np.sqrt(data.spread), axis=1, initial=0.0)
    largest = np.zeros(data.panel.n_subjects)
    np.maximum.at(largest, data.panel.row_subject, np.nan_to_num(size))
    wild = largest > _WILD
    if not wild.any() or wild.mean() > 0.5:
        return data
    rows = wild[data.panel.row_subject]
    parts = zip(data.chunks, data.layout.scatter(rows[:, None]), strict=True)
    chunks = tuple(c._replace(valid=c.valid & ~part[:, 0]) for c, part in parts)
    return replace(data, chunks=chunks, y=np.where(rows[:, None], np.nan, data.y))


def _blank(model: SSMModel) -> Params:
    q, p = model.n_latent, len(model.outcomes)
    return {
        "start_mean": np.zeros(q),
        "start_covariance": np.eye(q),
        "dynamics": 0.5 * np.eye(q),
        "drive": np.zeros((q, len(model.drive_cols))),
        "loading": np.eye(p, q),
        "coef": np.zeros((p, len(model.x_cols))),
        "noise_covariance": np.ones((p, 1, 1)),
    }


def _with_effects(model: SSMModel, theta: Params) -> Params:
    """Theta with effects of a plausible size."""
    shape = model.shape
    size = [
        *([0.05] * len(shape.transition_effects)),
        *([0.1 * max(np.mean(theta["loading"] ** 2), 1e-4)] * len(shape.loading_effects)),
        *([0.1] * len(shape.coef_effects)),
    ]
    return {**theta, "effect_covariance": np.diag(np.array(size, float).reshape(-1))}


def _knows_covariances(model: SSMModel, guess: Guess) -> bool:
    wanted = {f"{kind}_covariance" for kind in model.effect_kinds}
    return wanted <= set(guess.params)


def _hinted(model: SSMModel, e: ESteps, data: SSMEncoded, theta: Params, guess: Guess) -> Params:
    """Theta with the effects' variances that the subjects' slopes point to."""
    if not model.n_effects:
        return theta
    nobody = np.zeros((model.n_effects, data.layout.n_subjects))
    hint = variance_hint(e, state_at(e.data, theta, nobody))
    kinds = np.array(model.effect_kinds)
    scale = {
        "transition": 1.0,
        "loading": float(np.mean(theta["loading"] ** 2)),
        "coef": 1.0,
    }
    unit = np.array([scale[kind] for kind in kinds])
    hint = np.where(np.isfinite(hint), hint, 0.0)
    theta = {**theta, "effect_covariance": np.diag(np.clip(hint, _SMALL * unit, _LARGE * unit))}
    covariances = {n: v for n, v in guess.params.items() if n not in OF_THETA}
    return ssm_override(model, theta, covariances)


# --- signs and stability ------------------------------------------------------------------------


def _with_positive_diagonal(model: SSMModel, theta: Params) -> tuple[Params, np.ndarray]:
    """The states' signs turned so that the first loading of each is positive; and the effects'."""
    sign = np.where(np.diagonal(theta["loading"]) < 0, -1.0, 1.0)
    shape = model.shape
    turned = {
        **theta,
        "start_mean": sign * theta["start_mean"],
        "start_covariance": np.outer(sign, sign) * theta["start_covariance"],
        "dynamics": np.outer(sign, sign) * theta["dynamics"],
        "drive": sign[:, None] * theta["drive"],
        "loading": theta["loading"] * sign,
    }
    turn = np.array(
        [
            *(sign[a] * sign[b] for a, b in shape.transition_effects),
            *(sign[k] for _, k in shape.loading_effects),
            *(1.0 for _ in shape.coef_effects),
        ]
    ).reshape(-1)
    turned["effect_covariance"] = np.outer(turn, turn) * theta["effect_covariance"]
    return turned, turn


def _stable(model: SSMModel, limit: float, theta: Params, f: np.ndarray) -> np.ndarray:
    """Effects whose dynamics have a spectral radius of at most `limit`."""
    return stable_effects(model, theta["dynamics"], f.T, limit).T


def _held_back(model: SSMModel, theta: Params, f: np.ndarray, limit: float | None) -> int:
    if limit is None:
        return 0
    return int((_stable(model, limit - 1e-6, theta, f) != f).any(0).sum())
