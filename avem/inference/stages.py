"""A method from its start to its end, refined where that is wanted; for any model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from avem.components.param_info import Params
from avem.inference.after.diagnose import anchoring_fails, diffuse_effects, lost_information
from avem.inference.e_steps import ESteps, State
from avem.inference.em import EM
from avem.inference.loop import Rules, Run, iterate, joined
from avem.inference.methods.adaptive.begin import begin, lifted
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.names import Integration, make_method
from avem.inference.minibatch import iterate_batches
from avem.inference.progress import Watch
from avem.inference.stop import Stop

_NEAR = 1e-3
"""How near its solution AVEM comes before another method takes over."""
_LENIENT = 0.05  # in log units, over the whole run
_TOL_OF_DRAWS, _FLAT_WITH_DRAWS = 2e-4, 0.03


@dataclass(frozen=True, eq=False)
class Guess:
    """Where to begin: (some of) the user's parameters, and internal effects (d, subjects)."""

    params: Params
    effects: np.ndarray | None = None


@dataclass(frozen=True)
class Options:
    """How the iteration goes about it."""

    anchor: str = "mean"
    integration: Integration = field(default_factory=Integration)
    refine: str | None = None
    """"adaptive"; "auto": where anchoring does not hold; None: never."""
    resume: bool = False
    """The start is a refined solution: go on from there without anchoring first."""
    batches: bool = False
    """Update the parameters after each chunk instead of after all of them."""
    fixed: frozenset[str] = frozenset()
    """The user's names of parameters that are held."""


def run_method(
    em: EM, state: State, options: Options, rules: Rules, rng: np.random.Generator, watch: Watch
) -> tuple[EM, Run, Integration]:
    """The method from its start to its end, refined where that is wanted; and what was done."""
    how, n_effects = options.integration, em.kernel.n_effects
    if how.method in ("adaptive", "partial") and not rules.plain and n_effects:
        # These need good anchors to begin with, and no more.
        state = iterate(em, state, replace(rules, tol=_NEAR), rng, watch).state
    if how.method == "partial" and how.unanchored is None:
        how = replace(how, unanchored=diffuse_effects(em.e, state))
    watch.stage(how.method)
    chosen = em if how.method == "avem" else em.by(make_method(how, n_effects, rng))
    if isinstance(chosen.method, Adaptive):
        return chosen, _adapted(chosen, state, rules, rng, watch), how
    if not chosen.method.anchored and not rules.plain:
        # Near a variance of 0, where the anchored start may be, EM would creep.
        state = lifted(em, state) or state
    if options.resume and options.refine is not None:
        return *_refined(em, how, state, rules, rng, watch), replace(how, refined=True)
    go = iterate_batches if options.batches else iterate
    anchored = chosen.method.anchored and em.e.anchor == "mean" and not rules.plain and n_effects
    # Where refinement takes over, anchoring need not be followed to its end.
    early = bool(anchored) and options.refine is not None and rules.tol < _NEAR
    run = go(chosen, state, replace(rules, tol=_NEAR) if early else rules, rng, watch)
    if not n_effects or run.stop is Stop.INTERRUPTED:
        return chosen, run, how
    if anchored:
        how = replace(how, lost=tuple(lost_information(em.e, run.state, rng).tolist()))
    if options.refine == "adaptive" or (options.refine == "auto" and anchoring_fails(how.lost)):
        chosen, finer = _refined(em, how, run.state, rules, rng, watch)
        return chosen, replace(finer, moved=run.moved), replace(how, refined=True)
    if early and run.stop is Stop.CONVERGED:
        run = joined(run, iterate(chosen, run.state, rules, rng, watch))
    return chosen, run, how


def _refined(
    em: EM,
    how: Integration,
    state: State,
    rules: Rules,
    rng: np.random.Generator,
    watch: Watch,
) -> tuple[EM, Run]:
    """The adaptive tier in the place of another method."""
    watch.stage("refine")
    finer = make_method(replace(how, method="adaptive"), em.kernel.n_effects, rng)
    em = em.by(finer)
    return em, _adapted(em, state, rules, rng, watch)


def _adapted(em: EM, state: State, rules: Rules, rng: np.random.Generator, watch: Watch) -> Run:
    """The adaptive tier from an anchored solution."""
    assert isinstance(em.method, Adaptive)
    # EM climbs this likelihood: leaps that lower it again and again lead away.
    rules = replace(rules, max_searches=1, lenient=_LENIENT)
    if em.method.by_draws:
        # Other draws would be another objective, neither better nor worse, and no digit beyond the
        # error of the draws is worth an iteration.
        tol = max(rules.tol, _TOL_OF_DRAWS)
        flat = {"flat": _FLAT_WITH_DRAWS, "harmless": np.inf}  # levels are not quite comparable
        rules = replace(rules, max_searches=0, tol=tol, **flat)
    return iterate(em, begin(em, em.e.without_nodes(state), rng), rules, rng, watch)


def of_subjects(e: ESteps, state: State) -> dict[str, Any]:
    """What an E-step at a state says of every subject, in the panel's order."""
    mean, cov, bound, quality = e.of_subjects(state, "mean", "covariance", "bound", "quality")
    return {"effects_mean": mean, "effects_cov": cov, "subject_bound": bound, "quality": quality}
