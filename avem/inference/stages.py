"""A method from its start to its end, refined where that is wanted; for any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from avem.components.param_info import Params
from avem.inference.e_steps import State
from avem.inference.em import EM
from avem.inference.gate import Gate, gate
from avem.inference.loop import Rules, Run, iterate, joined
from avem.inference.methods.adaptive.begin import lifted
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.base import Method
from avem.inference.options import Options
from avem.inference.progress import Watch
from avem.inference.stop import Stop


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
    gate: Gate | None = None
    """What anchoring would change, where that was asked."""
    refined: bool = False
    """The adaptive tier went on from the method's solution."""
    gate_at_end: bool = True
    """That was asked at the parameters that are returned, not on the way there."""


@dataclass(frozen=True, eq=False)
class Stages:
    """What follows what, for one fit."""

    options: Options
    rules: Rules
    effect_names: Sequence[str]
    rng: np.random.Generator
    watch: Watch

    def run(self, anchored: EM, state: State, resume: bool, settled: bool) -> Done:
        """The method from its start to its end, refined where that is wanted.

        `anchored` is AVEM's iteration; `resume`: the start is a refined solution; `settled`: it is
        near some solution.
        """
        method, rules = self.options.method, self.rules
        refine, n_effects = self.options.refinement, len(self.effect_names)
        if method.anchors_first and not rules.plain and n_effects:
            state = iterate(anchored, state, rules.near(), self.rng, self.watch).state
        method = method.decided(anchored, state, self.effect_names)
        self.watch.stage(method.word)
        em = self._with(anchored, method)
        if resume and em.method.anchored and refine is not None:
            refined, run = self._refined(anchored, refine, state)
            return Done(refined, run, method, refined=True)
        if em.method.creeps and not rules.plain and n_effects:
            state = lifted(anchored, state) or state
        # Anchoring is asked for, and may give way to the exact tier.
        doubtful = em.method.anchored and em.e.anchor == "mean" and not rules.plain and n_effects
        if doubtful and refine is not None:
            return self._as_needed(em, method, refine, state, settled)
        state = em.method.begin(em, state, self.rng)
        run = method.iterate(em, state, em.method.rules(rules), self.rng, self.watch)
        if not n_effects or run.stop is Stop.INTERRUPTED:
            return Done(em, run, method)
        if refine is not None and not self.options.only_if_needed:
            refined, finer = self._refined(anchored, refine, run.state)
            return Done(refined, replace(finer, moved=run.moved), method, refined=True)
        found = self._gate(em, Adaptive(), run.state) if doubtful else None
        return Done(em, run, method, found)

    def _as_needed(
        self, em: EM, method: Method, refine: Method, state: State, settled: bool
    ) -> Done:
        """The exact tier, from where it is sure to be needed; until then, the anchored method.

        `settled`: the start is near a solution.
        """
        rules, always = em.method.rules(self.rules), not self.options.only_if_needed
        found = self._gate(em, refine, state) if settled and not always else None
        if settled and (found is None or found.fails):
            begun = None if found is None else found.begun
            run = self._refined(em, refine, state, begun)
            return Done(*run, method, found, refined=True, gate_at_end=False)
        state = em.method.begin(em, state, self.rng)
        # Where refinement may take over, anchoring need not be followed to its end.
        near = rules.near()
        run = method.iterate(em, state, near, self.rng, self.watch)
        if run.stop is Stop.INTERRUPTED:
            return Done(em, run, method)
        asked_now = always or found is None or not found.sure
        if asked_now:
            found = None if always else self._gate(em, refine, run.state)
        if found is None or found.fails:
            begun = None if found is None else found.begun
            refined, finer = self._refined(em, refine, run.state, begun)
            finer = replace(finer, moved=run.moved)
            return Done(refined, finer, method, found, refined=True, gate_at_end=False)
        if run.stop is Stop.CONVERGED and near != rules:
            run = joined(run, iterate(em, run.state, rules, self.rng, self.watch))
            asked_now = False
        return Done(em, run, method, found, gate_at_end=asked_now)

    def _gate(self, em: EM, refine: Method, state: State) -> Gate:
        return gate(em, self._with(em, refine).method, state, self.rng)

    def _with(self, anchored: EM, method: Method) -> EM:
        """The iteration of a method; AVEM's where there is nothing to integrate."""
        if not self.effect_names:
            return anchored
        step = method.bind(anchored, self.effect_names, self.rules.plain, self.rng)
        return anchored.by(step)

    def _refined(
        self, anchored: EM, refine: Method, state: State, begun: State | None = None
    ) -> tuple[EM, Run]:
        """The adaptive tier in the place of another method; `begun`: where it is to begin."""
        self.watch.stage("refine")
        em = self._with(anchored, refine)
        state = begun or em.method.begin(em, state, self.rng)
        rules = em.method.rules(self.rules)
        return em, refine.iterate(em, state, rules, self.rng, self.watch)
