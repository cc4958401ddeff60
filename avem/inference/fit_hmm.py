"""Hidden Markov models for the driver: the iteration, starts, order of states, guards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from avem.components.param_info import Params
from avem.errors import ModelError
from avem.execution.dataset import Dataset
from avem.inference.e_steps import ESteps, State, state_at
from avem.inference.em import EM
from avem.inference.fit import Task
from avem.inference.hmm_starts import Rows, make_start
from avem.inference.loop import Rules, Run, Tried
from avem.inference.m_step import EFFECT_FLOOR, NOISE_FLOOR, Copies, MStep
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.anchored import TO_THE_END
from avem.inference.methods.avem import Anchored
from avem.inference.mode_search import search_modes
from avem.inference.options import Options
from avem.inference.progress import Watch
from avem.inference.stages import Guess
from avem.inference.starts import after, best_start
from avem.inference.tuning import HMM_E_STEPS, HMM_M_STEPS
from avem.models.encoded import Encoded
from avem.models.hmm import HMMModel
from avem.models.restriction import Restriction

LEAST_CHANCE = 1e-3
"""Of a move that is possible, at a start among constraints."""
_START_RULES = Rules(max_iter=60, tol=1e-3, settle=False, lenient=0.0)


@dataclass(frozen=True, eq=False)
class HMMTask(Task):
    """A hidden Markov model and its data."""

    model: HMMModel
    data: Encoded
    keep_order: bool
    """The states are in the order of the user's parameters, and stay so."""
    held: Params = field(default_factory=dict)
    """Parameters that are held, by the user's names."""

    settled = True

    @property
    def fixed(self) -> frozenset[str]:
        """Names of the parameters that are held."""
        return frozenset(self.held)

    def make_em(self, options: Options) -> EM:
        """AVEM's iteration, with what the method says of its start."""
        method, plain = options.method, options.plain
        return make_em(
            self.model,
            self.data,
            method.q_of_start,
            method.anchor_of_start,
            self.fixed,
            plain,
            self._rule(),
        )

    def _rule(self) -> Restriction | None:
        """Constraints and priors on the scale of the fit."""
        model, spread = self.model, self.data.spread
        held = {n: value for n, value in self.held.items() if value.size}
        rule = model.restriction(frozenset(held), model.override(model.middle(), held))
        if rule is None:
            return None
        floors = {key: NOISE_FLOOR * own for key, own in model.floors(spread).items()}
        floors["effect_covariance"] = EFFECT_FLOOR * model.effect_scale(spread)
        return rule.with_floors(floors, model.limits())

    def start(
        self, em: EM, guess: Guess, options: Options, rng: np.random.Generator, watch: Watch
    ) -> tuple[State, tuple[Tried, ...]]:
        """The best of several starts, unless the user's parameters say where to begin."""
        model, data = self.model, self.data
        rows, rule = Rows(model, data), em.m_step.rule
        knows_states = any(name.endswith("coef") for name in guess.params)

        def start(number: int) -> State:
            theta, effects = make_start(rows, number, rng, options.integrates)
            if rule is not None:  # what is given may have zeros of its own
                theta = rule.within(theta, LEAST_CHANCE) or theta
            theta = model.override(theta, guess.params)
            if rule is not None:
                theta = _allowed(rule, theta)
            if guess.effects is not None:
                effects = guess.effects
            elif knows_states:
                effects = np.zeros_like(effects)  # the paper's start: all anchors at the prior mean
            return state_at(em.data, theta, effects)

        emissions = model.emission_params
        if options.plain:
            return start(0), ()
        if options.n_starts > 1 and not set(guess.params) >= emissions:
            rules = replace(_START_RULES, max_iter=min(_START_RULES.max_iter, options.max_iter))
            names, plain = model.effect_names, options.plain
            exact = Adaptive().bind(em, names, plain, rng) if options.integrates else None
            return best_start(model, em, start, options.n_starts, rules, rng, watch, exact)
        # Given parameters may be right while the anchors are not: these first.
        return search_modes(em.e, start(0), rng).state, ()

    def history(self, starts: tuple[Tried, ...], run: Run) -> Run:
        """With its own start's in front."""
        return after(starts, run)

    def canonical(
        self, theta: Params, mean: np.ndarray, cov: np.ndarray
    ) -> tuple[Params, np.ndarray, np.ndarray]:
        """The states by their level, lowest first."""
        if self.keep_order:
            return theta, mean, cov
        if self.model.n_clusters > 1:
            theta = self.model.with_clusters(theta, self.model.cluster_order(theta))
        order = self.model.state_order(theta, self.data)
        theta, turn = self.model.relabelled(theta, order)
        return theta, turn @ mean, np.einsum("de,efn,gf->dgn", turn, cov, turn)

    def collapsed(self, theta: Params) -> np.ndarray:
        """(states, outcome columns) which densities are held from closing in on a single value."""
        return self.model.collapsed(theta, self.data.spread, NOISE_FLOOR)


def _allowed(rule: Restriction, theta: Params) -> Params:
    found = rule.reached_from(theta)
    if found is None:
        raise ModelError(
            "No parameters near the start keep to the constraints: a covariance would not be "
            "positive definite. Give init= values that do, or take a constraint out."
        )
    return found


def _copies(model: HMMModel) -> Copies | None:
    """Of states that no row with an outcome can be in; as long as there are others."""
    speaking = [k for k in range(model.n_states) if k not in model.silent]
    if not model.silent or not speaking:
        return None
    keys = tuple(key for emission in model.emissions for key in emission.middle())
    return Copies(model.silent, speaking[0], keys)


def make_em(
    model: HMMModel,
    data: Encoded,
    q_update: str = "laplace",
    anchor: str = "mean",
    fixed: frozenset[str] = frozenset(),
    plain: bool = False,
    rule: Restriction | None = None,
) -> EM:
    """AVEM's iteration for a model and a data set; `fixed`: the user's names of what is held."""
    e = make_e_steps(model, data, q_update, anchor, fixed, plain)
    if rule is not None:
        e = replace(e, matches=tuple(map(rule.moves_with, e.matches)))
    m_step = MStep(
        kernel=data.kernel,
        structure=model.effect_covariance,
        blocks=model.effect_blocks,
        matches=e.matches,
        spread=data.spread,
        effect_scale=model.effect_scale(data.spread),
        free=model.free_entries(fixed),
        limits=model.limits(),
        fixed=model.held(fixed),
        coef_steps=TO_THE_END if plain else HMM_M_STEPS,
        recentre=not plain and anchor != "fixed",
        copies=_copies(model),
        rule=rule,
    )
    return EM(e, m_step)


def make_e_steps(
    model: HMMModel,
    data: Encoded,
    q_update: str = "laplace",
    anchor: str = "mean",
    fixed: frozenset[str] = frozenset(),
    plain: bool = False,
) -> ESteps:
    """Anchored E-steps of a model on a data set."""
    return ESteps(
        kernel=data.kernel,
        data=Dataset.of(data),
        matches=model.matches(fixed),
        method=Anchored(q_update, TO_THE_END if plain else HMM_E_STEPS),
        anchor=anchor,
        log_prior=model.log_prior if model.spec.priors else None,
    )
