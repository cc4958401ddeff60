"""Hidden Markov models for the driver: the iteration, starts, order of states, guards."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from avem.components.param_info import Params
from avem.families import Custom, Gaussian
from avem.inference.em import EM, NOISE_FLOOR, State
from avem.inference.fit import Task
from avem.inference.hmm_starts import Rows, make_start
from avem.inference.loop import Rules, Run
from avem.inference.methods.anchored import TO_THE_END
from avem.inference.methods.avem import Anchored
from avem.inference.mode_search import search_modes
from avem.inference.options import Options
from avem.inference.progress import Watch
from avem.inference.stages import Guess
from avem.inference.starts import after, best_start
from avem.inference.theta import find_matches, reorder
from avem.inference.tuning import HMM_E_STEPS, HMM_M_STEPS
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

_START_RULES = Rules(max_iter=60, tol=1e-3, settle=False, lenient=0.0)


@dataclass(frozen=True, eq=False)
class HMMTask(Task):
    """A hidden Markov model and its data."""

    model: HMMModel
    data: Encoded
    keep_order: bool
    """The states are in the order of the user's parameters, and stay so."""
    fixed: frozenset[str] = frozenset()
    """The user's names of parameters that are held."""

    def make_em(self, options: Options) -> EM:
        """AVEM's iteration, with what the method says of its start."""
        method, plain = options.method, options.plain
        return make_em(
            self.model, self.data, method.q_of_start, method.anchor_of_start, self.fixed, plain
        )

    def start(
        self, em: EM, guess: Guess, options: Options, rng: np.random.Generator, watch: Watch
    ) -> tuple[State, tuple[Run, ...]]:
        """The best of several starts, unless the user's parameters say where to begin."""
        model, data = self.model, self.data
        rows = Rows(model, data)
        knows_states = any(name.endswith("coef") for name in guess.params)

        def start(number: int) -> State:
            theta, effects = make_start(rows, number, rng)
            theta = override(model, theta, guess.params)
            if guess.effects is not None:
                effects = guess.effects
            elif knows_states:
                effects = np.zeros_like(effects)  # the paper's start: all anchors at the prior mean
            return State(theta, tuple(data.layout.split(effects)))

        emissions = set(param_info(model)) - set(CHAIN_PARAMS)
        if options.plain:
            return start(0), ()
        if options.n_starts > 1 and not set(guess.params) >= emissions:
            rules = replace(_START_RULES, max_iter=min(_START_RULES.max_iter, options.max_iter))
            return best_start(model, em, start, options.n_starts, rules, rng, watch)
        # Given parameters may be right while the anchors are not: these first.
        return search_modes(em, start(0), rng).state, ()

    def history(self, starts: tuple[Run, ...], run: Run) -> Run:
        """With its own start's in front."""
        return after(starts, run)

    def canonical(
        self, theta: Params, mean: np.ndarray, cov: np.ndarray
    ) -> tuple[Params, np.ndarray, np.ndarray]:
        """The states by their level, lowest first."""
        if self.keep_order:
            return theta, mean, cov
        theta, source = reorder(self.model, theta, state_order(self.model, self.data, theta))
        return theta, mean[source], cov[np.ix_(source, source)]

    def collapsed(self, theta: Params) -> np.ndarray:
        """(states, outcome columns) which densities are held from closing in on a single value."""
        return _collapsed(self.model, self.data, theta)


def make_em(
    model: HMMModel,
    data: Encoded,
    q_update: str = "laplace",
    anchor: str = "mean",
    fixed: frozenset[str] = frozenset(),
    plain: bool = False,
) -> EM:
    """AVEM's iteration for a model and a data set; `fixed`: the user's names of what is held."""
    held = set(fixed & {"initial", "transition", "effect_covariance"})
    for piece in model.structure.pieces:
        if isinstance(piece.family, Gaussian):
            names = {"coef": "coef", piece.family.noise_name: "covariance"}
            held |= {piece.key + names[n] for n in names if piece.prefix + n in fixed}
    made = EM(
        kernel=data.kernel,
        chunks=data.chunks,
        structure=model.effect_covariance,
        blocks=model.effect_blocks,
        matches=find_matches(model, fixed),
        spread=data.spread,
        effect_scale=effect_scale(model, data),
        free=free_coefs(model, fixed),
        limits=coef_limits(model),
        fixed=frozenset(held),
        method=Anchored(q_update, TO_THE_END if plain else HMM_E_STEPS),
        anchor=anchor,
        recentre=not plain and anchor != "fixed",
    )
    return made if plain else replace(made, coef_steps=HMM_M_STEPS)


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
