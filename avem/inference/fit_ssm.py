"""State-space models for the driver: the iteration, starts, signs of the states, guards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from avem.components.param_info import Params
from avem.execution.dataset import Dataset
from avem.inference.e_steps import ESteps, State, state_at
from avem.inference.em import EM
from avem.inference.fit import Task
from avem.inference.loop import Rules, Tried, iterate
from avem.inference.m_step import NOISE_FLOOR, MStep
from avem.inference.methods.adaptive.begin import variance_hint
from avem.inference.methods.avem import Anchored
from avem.inference.options import Options
from avem.inference.progress import Watch
from avem.inference.ssm_starts import make_ssm_start
from avem.inference.stages import Guess
from avem.inference.tuning import HARMLESS_PER_CELL, LARGE_EFFECT, SMALL_EFFECT, WILD
from avem.models.encoded import Encoded
from avem.models.ssm import SSMModel
from avem.models.ssm_subjects import stable_effects

_START_RULES = Rules(max_iter=40, tol=3e-3, max_searches=0)
_REDUCED_RULES = Rules(max_iter=300, tol=1e-3, max_searches=0)


@dataclass(frozen=True, eq=False)
class SSMTask(Task):
    """A state-space model and its data."""

    model: SSMModel
    data: Encoded
    keep_signs: bool
    """The states have the signs of the user's parameters, and keep them."""
    fixed: frozenset[str] = frozenset()
    """The user's names of parameters that are held."""
    max_radius: float | None = None
    """Largest spectral radius of a subject's dynamics."""

    def make_em(self, options: Options) -> EM:
        """AVEM's iteration, with what the method says of its start."""
        return make_ssm_em(
            self.model,
            self.data,
            options.method.anchor_of_start,
            self.fixed,
            options.plain,
            self.max_radius,
        )

    def rules(self, rules: Rules) -> Rules:
        """The anchored solution may lie the further below the highest bound, the more data."""
        cells = int(self.data.n_seen.sum())
        return replace(rules, harmless=max(rules.harmless, HARMLESS_PER_CELL * cells))

    def start(
        self, em: EM, guess: Guess, options: Options, rng: np.random.Generator, watch: Watch
    ) -> tuple[State, tuple[Tried, ...]]:
        """A model without effects first, unless the user's parameters say where to begin."""
        model, data = self.model, self.data
        starts: tuple[Tried, ...] = ()
        if set(guess.params) >= model.population:
            theta = model.override(_with_effects(model, _blank(model)), guess.params)
            if not options.plain and not _knows_covariances(model, guess):
                theta = _hinted(model, em.e, data, theta, guess)
        else:
            tame = _without_wild(data)
            own = self.fixed & model.population
            theta, starts = _reduced(model, tame, guess, own, options.n_starts, rng, watch)
            e = replace(em.e, data=Dataset.of(tame))
            theta = _hinted(model, e, data, theta, guess)
        no_effects = np.zeros((model.n_effects, data.layout.n_subjects))
        effects = no_effects if guess.effects is None else guess.effects
        return state_at(em.data, theta, effects), starts

    def canonical(
        self, theta: Params, mean: np.ndarray, cov: np.ndarray
    ) -> tuple[Params, np.ndarray, np.ndarray]:
        """The first loading of each state positive."""
        if self.keep_signs:
            return theta, mean, cov
        sign = np.where(np.diagonal(theta["loading"]) < 0, -1.0, 1.0)
        theta, turn = self.model.turned(theta, sign)
        return theta, turn[:, None] * mean, np.outer(turn, turn)[:, :, None] * cov

    def collapsed(self, theta: Params) -> np.ndarray:
        """(outcomes,) whose noise was kept from vanishing."""
        return theta["noise_covariance"][:, 0, 0] <= 1.01 * NOISE_FLOOR * self.data.spread

    def held_back(self, theta: Params, effects: np.ndarray) -> int:
        """Subjects whose dynamics were kept stable."""
        limit = self.max_radius
        if limit is None:
            return 0
        return int((_stable(self.model, limit - 1e-6, theta, effects) != effects).any(0).sum())


def make_ssm_em(
    model: SSMModel,
    data: Encoded,
    anchor: str = "mean",
    fixed: frozenset[str] = frozenset(),
    plain: bool = False,
    max_radius: float | None = None,
) -> EM:
    """AVEM's iteration for a model and a data set; `fixed`: the user's names of what is held."""
    e = make_ssm_e_steps(model, data, anchor, fixed, max_radius)
    m_step = MStep(
        kernel=data.kernel,
        structure="block",
        blocks=model.effect_blocks,
        matches=e.matches,
        spread=data.spread,
        effect_scale=model.effect_scale(data.spread),
        free=model.free_entries(fixed, centred=plain),
        fixed=model.held(fixed),
        recentre=anchor != "fixed",
    )
    return EM(e, m_step)


def make_ssm_e_steps(
    model: SSMModel,
    data: Encoded,
    anchor: str = "mean",
    fixed: frozenset[str] = frozenset(),
    max_radius: float | None = None,
) -> ESteps:
    """Anchored E-steps of a model on a data set."""
    return ESteps(
        kernel=data.kernel,
        data=Dataset.of(data),
        matches=model.matches(fixed),
        method=Anchored(),
        anchor=anchor,
        guard=None if max_radius is None else partial(_stable, model, max_radius),
    )


# --- starts -------------------------------------------------------------------------------------


def _reduced(
    model: SSMModel,
    data: Encoded,
    guess: Guess,
    fixed: frozenset[str],
    n_starts: int,
    rng: np.random.Generator,
    watch: Watch,
) -> tuple[Params, tuple[Tried, ...]]:
    """The best fit of the model whose subjects are all alike."""
    alike = model.without_effects()
    same = replace(data, kernel=alike.kernel(data.kernel.groups, data.kernel.n_cells))
    own = {name: value for name, value in guess.params.items() if name in alike.population}
    em = make_ssm_em(alike, same, fixed=fixed)
    nobody = np.zeros((0, data.layout.n_subjects))
    runs = []
    for number in range(n_starts):
        watch.stage(f"start {number + 1}/{n_starts}", at_start=True)
        theta = alike.override(make_ssm_start(alike, same.sample, number, rng), own)
        runs.append(iterate(em, state_at(em.data, theta, nobody), _START_RULES, rng, watch))
        if watch.interrupted:
            break
    best = max(runs, key=lambda run: run.last.bound)
    watch.stage("subjects alike", at_start=True)
    best = iterate(em, best.state, _REDUCED_RULES, rng, watch)
    return _with_effects(model, best.state.theta), tuple(Tried(run, run.last.bound) for run in runs)


def _without_wild(data: Encoded) -> Encoded:
    """The data without the rows of subjects whose states grow without bound.

    No dynamics that are the same for all can follow these.
    """
    wild = data.largest > WILD
    return data if not wild.any() or wild.mean() > 0.5 else data.without(wild)


def _blank(model: SSMModel) -> Params:
    q, p = model.n_latent, len(model.outcomes)
    return {
        "start_mean": np.zeros(q),
        "start_covariance": np.eye(q),
        "dynamics": np.eye(q) * (np.log(0.5) if model.continuous else 0.5),
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


def _hinted(model: SSMModel, e: ESteps, data: Encoded, theta: Params, guess: Guess) -> Params:
    """Theta with the effects' variances that the subjects' slopes point to."""
    if not model.n_effects:
        return theta
    nobody = np.zeros((model.n_effects, data.layout.n_subjects))
    hint = variance_hint(e, state_at(e.data, theta, nobody))
    kinds = np.array(model.effect_kinds)
    unit = np.where(kinds == "loading", float(np.mean(theta["loading"] ** 2)), 1.0)
    hint = np.where(np.isfinite(hint), hint, 0.0)
    hint = np.clip(hint, SMALL_EFFECT * unit, LARGE_EFFECT * unit)
    theta = {**theta, "effect_covariance": np.diag(hint)}
    covariances = {n: v for n, v in guess.params.items() if n not in model.population}
    return model.override(theta, covariances)


# --- signs and stability ------------------------------------------------------------------------


def _stable(model: SSMModel, limit: float, theta: Params, f: np.ndarray) -> np.ndarray:
    """Effects whose dynamics have a spectral radius of at most `limit`."""
    return stable_effects(model, theta["dynamics"], f.T, limit).T
