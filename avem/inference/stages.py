"""A method from its start to its end, refined where that is wanted; for any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from avem.components.param_info import Params
from avem.inference.after.diagnose import anchoring_fails, lost_information
from avem.inference.e_steps import State
from avem.inference.em import EM
from avem.inference.loop import Rules, Run, iterate, joined
from avem.inference.methods.adaptive.begin import lifted
from avem.inference.methods.base import Method
from avem.inference.options import Options
from avem.inference.progress import Watch
from avem.inference.stop import Stop
from avem.inference.tuning import NEAR


@dataclass(frozen=True, eq=False)
class Guess:
    """Where to begin: (some of) the user's parameters, and internal effects (d, subjects)."""

    params: Params
    effects: np.ndarray | None = None
    refined: bool = False
    """They are a refined solution: go on from there without anchoring first."""


@dataclass(frozen=True, eq=False)
class Done:
    """What was done, and where it led to."""

    em: EM
    """With the E-step that was the last."""
    run: Run
    method: Method
    """With the choices that were left to the fit."""
    lost: tuple[float, ...] = ()
    """Share of the information on each effect that is lost by not seeing the states."""
    refined: bool = False
    """The adaptive tier went on from the method's solution."""


@dataclass(frozen=True, eq=False)
class Stages:
    """What follows what, for one fit."""

    options: Options
    rules: Rules
    effect_names: Sequence[str]
    rng: np.random.Generator
    watch: Watch

    def run(self, anchored: EM, state: State, resume: bool) -> Done:
        """The method from its start to its end, refined where that is wanted.

        `anchored` is AVEM's iteration; `resume`: the start is a refined solution.
        """
        method, rules = self.options.method, self.rules
        refine, n_effects = self.options.refinement, len(self.effect_names)
        if method.anchors_first and not rules.plain and n_effects:
            state = iterate(anchored, state, _near(rules), self.rng, self.watch).state
        method = method.decided(anchored, state, self.effect_names)
        self.watch.stage(method.word)
        em = self._with(anchored, method)
        if resume and em.method.anchored and refine is not None:
            refined, run = self._refined(anchored, refine, state)
            return Done(refined, run, method, refined=True)
        if em.method.creeps and not rules.plain and n_effects:
            state = lifted(anchored, state) or state
        state = em.method.begin(em, state, self.rng)
        rules = em.method.rules(rules)
        # Where refinement may take over, anchoring need not be followed to its end.
        diagnosed = em.method.anchored and em.e.anchor == "mean" and not rules.plain and n_effects
        early = bool(diagnosed) and refine is not None and rules.tol < NEAR
        run = method.iterate(em, state, _near(rules) if early else rules, self.rng, self.watch)
        if not n_effects or run.stop is Stop.INTERRUPTED:
            return Done(em, run, method)
        lost: tuple[float, ...] = ()
        if diagnosed:
            lost = tuple(lost_information(em.e, run.state, self.rng).tolist())
        if refine is not None and (not self.options.only_if_needed or anchoring_fails(lost)):
            refined, finer = self._refined(anchored, refine, run.state)
            return Done(refined, replace(finer, moved=run.moved), method, lost, refined=True)
        if early and run.stop is Stop.CONVERGED:
            run = joined(run, iterate(em, run.state, rules, self.rng, self.watch))
        return Done(em, run, method, lost)

    def _with(self, anchored: EM, method: Method) -> EM:
        """The iteration of a method; AVEM's where there is nothing to integrate."""
        if not self.effect_names:
            return anchored
        step = method.bind(anchored, self.effect_names, self.rules.plain, self.rng)
        return anchored.by(step)

    def _refined(self, anchored: EM, refine: Method, state: State) -> tuple[EM, Run]:
        """The adaptive tier in the place of another method."""
        self.watch.stage("refine")
        em = self._with(anchored, refine)
        state = em.method.begin(em, state, self.rng)
        return em, iterate(em, state, em.method.rules(self.rules), self.rng, self.watch)


def _near(rules: Rules) -> Rules:
    return replace(rules, tol=NEAR)
