"""The adaptive tier: EM on the marginal likelihood with nodes where each subject's posterior is.

Every subject has one or a few Gaussian *centres* c with shares s_c, whose mixture resembles its
posterior p(f | D_i): several, where the posterior has several modes. The nodes are those of each
centre, f_cj = mean_c + L_c x_j, and with the mixture's density m(f) the marginal likelihood is

    p(D_i) = sum over c, j of  s_c v_j p(D_i, f_cj) / m(f_cj),

for Gauss-Hermite nodes x_j and weights v_j. While the parameters travel, the centres take the
moments of what each E-step found, so they follow the posterior. Then they stay, but for one thing:
what a centre says of the likelihood is kept, and joined with the prior of the moment. So nodes
never stand wide apart in a prior that has become narrow, and an iteration is one smooth function of
the parameters, which acceleration needs. With many effects the x_j are quasi-random draws from a
Student t: importance sampling, which has a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from avem.components.param_info import Params, check_count
from avem.data.layout import Chunk
from avem.errors import ModelError
from avem.execution.dataset import Dataset
from avem.inference.e_steps import State
from avem.inference.em import EM
from avem.inference.loop import Rules, Run, Watcher, iterate, joined
from avem.inference.methods.adaptive.begin import begin, renew
from avem.inference.methods.adaptive.grade import grade
from avem.inference.methods.adaptive.importance import importance_pass
from avem.inference.methods.adaptive.mixture import prior_centres
from avem.inference.methods.adaptive.node_pass import node_pass
from avem.inference.methods.adaptive.parts import Portion, everyone, merged
from avem.inference.methods.adaptive.rules import Rule, draws, grid, ladder
from avem.inference.methods.base import EStep, Method
from avem.inference.methods.prior_nodes import check_grid
from avem.inference.mode_search import Search
from avem.inference.passes import Pass
from avem.inference.stop import Stop
from avem.inference.theta import pack_theta
from avem.inference.tuning import (
    FEW_CELLS,
    FINE,
    FLAT_WITH_DRAWS,
    LADDER,
    LENIENT,
    TOL_OF_DRAWS,
)

MOST_BY_QUADRATURE = max(LADDER)
_MOST_GRADES = 3
_FEW_TOL = 1e-5
_FALLEN = 0.1
"""How far below where it began the log likelihood is, once it is known better, to begin again."""
_SAME_RULES = 0.01
"""A change of the parameters, on the scale of the fit, that changes no subject's rule."""


@dataclass(frozen=True)
class Adaptive(Method):
    """Maximum likelihood, the effects integrated where each subject's posterior is.

    Parameters
    ----------
    n_nodes : int, optional
        Gauss-Hermite nodes per effect, the same for everyone; by default each subject has those
        that it needs.
    n_draws : int, optional
        Quasi-random draws, a power of 2, instead of nodes, at least two for each effect; by default
        256 for more than six effects, and with four to six for subjects whose posteriors need them.

    Examples
    --------
    >>> avem.Adaptive(n_nodes=9)  # as in model.fit(data, method=avem.Adaptive(n_nodes=9))
    Adaptive(n_nodes=9, n_draws=None)
    """

    n_nodes: int | None = None
    n_draws: int | None = None

    word = "adaptive"
    likelihood = True

    def __post_init__(self) -> None:
        for name in ("n_nodes", "n_draws"):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value)
                object.__setattr__(self, name, int(value))
        if self.n_draws is not None:
            _check_draws(self.n_draws)
            if self.n_nodes is not None:
                raise ModelError(
                    f"Adaptive has n_nodes={self.n_nodes} and n_draws={self.n_draws}; the effects "
                    "are integrated over nodes or over draws. Give one of them."
                )

    def check(self, effect_names: Sequence[str], plain: bool) -> None:
        """Not more nodes than anyone can wait for, nor fewer draws than there are directions."""
        if self.n_nodes is not None:
            check_grid(len(effect_names), self.n_nodes, "draws (n_draws=)")
        if self.n_draws is not None:
            _check_draws(self.n_draws, len(effect_names))

    def bind(
        self, em: EM, effect_names: Sequence[str], plain: bool, rng: np.random.Generator
    ) -> EStep:
        """Nodes or draws of a standard distribution."""
        made = AdaptiveNodes.make(len(effect_names), self.n_nodes, self.n_draws)
        return made.for_few(em.data)

    def iterate(
        self, em: EM, state: State, rules: Rules, rng: np.random.Generator, watch: Watcher
    ) -> Run:
        """With few nodes while the parameters travel; then each subject with those it needs."""
        method: Any = em.method
        if not method.graded:
            return iterate(em, state, rules, rng, watch)
        # With few nodes an iteration is cheap, and what it learns of the way serves the others.
        run = iterate(em, state, replace(rules, tol=max(_FEW_TOL, rules.tol)), rng, watch)
        for again in range(_MOST_GRADES):
            if run.stop is Stop.INTERRUPTED:
                break
            found = grade(em.e, run.state, rng, run.last.bound, search=not again)
            led_away = not again and found.loglik.sum() < run.bounds[0] - _FALLEN
            if led_away:  # the few nodes did: from where they began, with those it takes
                begun = grade(em.e, state, rng)
                led_away = begun.loglik.sum() > found.loglik.sum()
                found = begun if led_away else found
            if again and not found.better:
                break
            left = rules.max_iter - len(run.bounds)
            if left <= 0:  # near it, but not there
                return replace(run, stop=Stop.OUT_OF_STEPS)
            finer = replace(with_draws(rules) if found.drawn else rules, max_iter=left)
            learned = None if found.drawn or led_away else run.changes
            run = joined(run, iterate(em, found.state, finer, rng, watch, changes=learned))
            if not found.drawn and _stayed(found.state.theta, run.state.theta):
                break
        return run


@dataclass(frozen=True, eq=False)
class AdaptiveNodes(EStep):
    """Nodes around every subject's centres."""

    ladder: tuple[Rule, ...]
    """From few nodes to many; every subject has the first one that a finer one confirms."""

    creeps = False  # `begin` compares both

    @property
    def by_draws(self) -> bool:
        """Importance sampling, not quadrature, for everyone."""
        return self.ladder[0].by_draws

    @property
    def nodes_stay(self) -> bool:
        """Draws follow the posterior to the end."""
        return not self.by_draws

    @property
    def graded(self) -> bool:
        """Subjects have rules of their own."""
        return len(self.ladder) > 1

    @property
    def n_nodes(self) -> int:
        """Local passes per subject and centre, at least."""
        return len(self.ladder[0].points)

    @classmethod
    def make(
        cls, n_effects: int, n_nodes: int | None = None, n_draws: int | None = None
    ) -> AdaptiveNodes:
        """The ladder of rules, or the one rule that was asked for."""
        if n_draws is not None:
            _check_draws(n_draws, n_effects)
            return cls((draws(n_effects, n_draws),))
        if n_nodes is not None:
            return cls((grid(n_effects, n_nodes),))
        return cls(ladder(n_effects))

    def for_few(self, data: Dataset) -> AdaptiveNodes:
        """Without the first rules, where more nodes for everyone cost less than compiling twice."""
        rules, n_cells = self.ladder, sum(shard.n_cells for shard in data.shards)
        while len(rules) > 1 and n_cells * len(rules[1].points) <= FEW_CELLS * data.speed:
            if rules[min(2, len(rules) - 1)].by_draws:  # which two rules of nodes may spare us
                break
            rules = rules[1:]
        return replace(self, ladder=rules)

    def finer(self) -> AdaptiveNodes:
        """With more nodes for everyone: to stand for a posterior takes more than to integrate."""
        wanted = FINE.get(self.ladder[0].points.shape[1], np.inf)
        enough = [rule for rule in self.ladder if len(rule.points) >= wanted] or [self.ladder[-1]]
        steps = (rule if len(rule.points) >= wanted else enough[0] for rule in self.ladder)
        return replace(self, ladder=tuple(steps))

    def begin(self, em: EM, state: State, rng: np.random.Generator) -> State:
        """Centres at the modes of every subject's posterior."""
        return begin(em, em.e.without_nodes(state), rng)

    def search(self, em: EM, state: State, rng: np.random.Generator) -> Search:
        """New centres."""
        return renew(em.e, state, rng)

    def rules(self, rules: Rules) -> Rules:
        """One search; EM climbs this likelihood, and leaps that lower it often lead away."""
        rules = replace(rules, max_searches=1 - self.graded, lenient=LENIENT)
        return with_draws(rules) if self.by_draws else rules

    def e_step(self, kernel, theta, anchor, around, chunk, form) -> Pass:
        """Local passes at all nodes, weighed by the posterior."""
        if around is None:
            around = everyone(prior_centres(theta, anchor))
        found = [self._of_part(kernel, theta, part, chunk, form) for part in around.parts]
        return merged(around, found)

    def _of_part(self, kernel, theta, part: Portion, chunk: Chunk, form: str) -> Pass:
        rule, centres = self.ladder[min(part.level, len(self.ladder) - 1)], part.centres
        own = chunk if part.chunk is None else part.chunk
        if rule.by_draws:  # these look for their places themselves
            at = (rule.points, rule.log_weights)
            return importance_pass(kernel, theta, centres, *at, own, form)
        centres = centres.under(np.asarray(theta["effect_covariance"]))
        return node_pass(kernel, theta, centres, rule, own, form)


def _stayed(graded: Params, theta: Params) -> bool:
    """Rules that were found for the first parameters are the right ones for the second."""
    return bool(np.abs(pack_theta(theta) - pack_theta(graded)).max(initial=0.0) < _SAME_RULES)


def with_draws(rules: Rules) -> Rules:
    """When to stop where some subjects are integrated by draws.

    Other draws would be another objective, neither better nor worse, and no digit beyond the error
    of the draws is worth an iteration. Their levels are not quite comparable.
    """
    tol = max(rules.tol, TOL_OF_DRAWS)
    return replace(rules, max_searches=0, tol=tol, flat=FLAT_WITH_DRAWS, harmless=np.inf)


def _check_draws(n_draws: int, n_effects: int = 1) -> None:
    """Raise unless they are a power of 2, and can lie in all directions: they come in pairs."""
    if n_draws < 2 or n_draws & (n_draws - 1):
        raise ModelError(f"n_draws is {n_draws}; quasi-random draws come in powers of 2.")
    if n_draws < 2 * n_effects:
        least = 1 << (2 * n_effects - 1).bit_length()
        raise ModelError(
            f"n_draws is {n_draws}, too few for {n_effects} effects, of which each needs two. Use "
            f"n_draws={least} or more, or leave it out."
        )
