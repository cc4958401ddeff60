"""State-space models for the driver: the iteration, starts, signs of the states, guards."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from avem.components.param_info import Params
from avem.inference.em import EM, NOISE_FLOOR, State
from avem.inference.fit import Task
from avem.inference.loop import Rules, Run, iterate
from avem.inference.methods.adaptive.begin import variance_hint
from avem.inference.methods.avem import Anchored
from avem.inference.options import Options
from avem.inference.progress import Watch
from avem.inference.ssm_starts import make_ssm_start
from avem.inference.stages import Guess
from avem.inference.theta import Match
from avem.inference.tuning import HARMLESS_PER_CELL, LARGE_EFFECT, SMALL_EFFECT, WILD
from avem.models.ssm import SSMEncoded, SSMModel
from avem.models.ssm_params import OF_THETA, free_matrices, ssm_override
from avem.models.ssm_subjects import stable_effects

_START_RULES = Rules(max_iter=40, tol=3e-3, max_searches=0)
_REDUCED_RULES = Rules(max_iter=300, tol=1e-3, max_searches=0)


@dataclass(frozen=True, eq=False)
class SSMTask(Task):
    """A state-space model and its data."""

    model: SSMModel
    data: SSMEncoded
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
        cells = (~np.isnan(self.data.y)).sum()
        return replace(rules, harmless=max(rules.harmless, HARMLESS_PER_CELL * cells))

    def start(
        self, em: EM, guess: Guess, options: Options, rng: np.random.Generator, watch: Watch
    ) -> tuple[State, tuple[Run, ...]]:
        """A model without effects first, unless the user's parameters say where to begin."""
        model, data = self.model, self.data
        starts: tuple[Run, ...] = ()
        needed = set(OF_THETA) - ({"coef"} if not model.x_cols else set())
        needed -= {"state_coef"} if not model.drive_cols else set()
        if set(guess.params) >= needed:
            theta = ssm_override(model, _with_effects(model, _blank(model)), guess.params)
            if not options.plain and not _knows_covariances(model, guess):
                theta = _hinted(model, em, data, theta, guess)
        else:
            tame = _without_wild(data)
            own = self.fixed & frozenset(OF_THETA)
            theta, starts = _reduced(model, tame, guess, own, options.n_starts, rng, watch)
            theta = _hinted(model, replace(em, chunks=tame.chunks), data, theta, guess)
        no_effects = np.zeros((model.n_effects, data.layout.n_subjects))
        effects = no_effects if guess.effects is None else guess.effects
        return State(theta, tuple(data.layout.split(effects))), starts

    def canonical(
        self, theta: Params, mean: np.ndarray, cov: np.ndarray
    ) -> tuple[Params, np.ndarray, np.ndarray]:
        """The first loading of each state positive."""
        if self.keep_signs:
            return theta, mean, cov
        theta, turn = _with_positive_diagonal(self.model, theta)
        return theta, turn[:, None] * mean, np.outer(turn, turn)[:, :, None] * cov

    def collapsed(self, theta: Params) -> np.ndarray:
        """(outcomes,) whose noise was kept from vanishing."""
        return theta["noise_covariance"][:, 0, 0] <= 1.01 * NOISE_FLOOR * self.data.spread

    def held_back(self, theta: Params, effects: np.ndarray) -> int:
        """Subjects whose dynamics were kept stable."""
        limit = self.max_radius
        if limit is None:
            return 0
        return int((_stable(self.model, theta, effects, limit - 1e-6) != effects).any(0).sum())


def make_ssm_em(
    model: SSMModel,
    data: SSMEncoded,
    anchor: str = "mean",
    fixed: frozenset[str] = frozenset(),
    plain: bool = False,
    max_radius: float | None = None,
) -> EM:
    """AVEM's iteration for a model and a data set; `fixed`: the user's names of what is held."""
    held = {OF_THETA[name] for name in fixed if name in OF_THETA}
    covariances = {name for name in fixed if name.endswith("_covariance")} - {"initial_covariance"}
    return EM(
        kernel=data.kernel,
        chunks=data.chunks,
        structure="block",
        blocks=model.effect_blocks,
        matches=_matches(model, fixed),
        spread=data.spread,
        effect_scale=ssm_effect_scale(model, data),
        free=free_matrices(model, tuple(fixed), centred=plain),
        fixed=frozenset(held | ({"effect_covariance"} if covariances else set())),
        method=Anchored(),
        anchor=anchor,
        recentre=anchor != "fixed",
        guard=None if max_radius is None else lambda theta, f: _stable(model, theta, f, max_radius),
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
    fixed: frozenset[str],
    n_starts: int,
    rng: np.random.Generator,
    watch: Watch,
) -> tuple[Params, tuple[Run, ...]]:
    """The best fit of the model whose subjects are all alike."""
    alike = model.without_effects()
    same = replace(data, kernel=alike.kernel(data.kernel.groups))
    own = {name: value for name, value in guess.params.items() if name in OF_THETA}
    em = make_ssm_em(alike, same, fixed=fixed)
    nobody = tuple(data.layout.split(np.zeros((0, data.layout.n_subjects))))
    runs = []
    for number in range(n_starts):
        watch.stage(f"start {number + 1}/{n_starts}", at_start=True)
        theta = ssm_override(alike, make_ssm_start(alike, same, number, rng), own)
        runs.append(iterate(em, State(theta, nobody), _START_RULES, rng, watch))
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
    wild = largest > WILD
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


def _hinted(model: SSMModel, em: EM, data: SSMEncoded, theta: Params, guess: Guess) -> Params:
    """Theta with the effects' variances that the subjects' slopes point to."""
    if not model.n_effects:
        return theta
    nobody = tuple(data.layout.split(np.zeros((model.n_effects, data.layout.n_subjects))))
    hint = variance_hint(em, State(theta, nobody))
    kinds = np.array(model.effect_kinds)
    scale = {
        "transition": 1.0,
        "loading": float(np.mean(theta["loading"] ** 2)),
        "coef": 1.0,
    }
    unit = np.array([scale[kind] for kind in kinds])
    hint = np.where(np.isfinite(hint), hint, 0.0)
    hint = np.clip(hint, SMALL_EFFECT * unit, LARGE_EFFECT * unit)
    theta = {**theta, "effect_covariance": np.diag(hint)}
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


def _stable(model: SSMModel, theta: Params, f: np.ndarray, limit: float) -> np.ndarray:
    """Effects whose dynamics have a spectral radius of at most `limit`."""
    return stable_effects(model, theta["dynamics"], f.T, limit).T
