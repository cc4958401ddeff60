"""From an encoded data set to fitted parameters: the driver of all models.

Starts, the stages of the method, a last E-step, the canonical form. What differs between kinds of
models is a `Task`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from avem.components.param_info import Params
from avem.inference.e_steps import State
from avem.inference.em import EM
from avem.inference.gate import Gate
from avem.inference.loop import Rules, Run, Tried
from avem.inference.methods.base import Method
from avem.inference.options import Options
from avem.inference.progress import Watch
from avem.inference.stages import Guess, Stages
from avem.inference.tuning import STILL
from avem.numerics.covariance import factorable
from avem.numerics.precision import in_float64


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
    quality: np.ndarray | None
    """(subjects,) effective number of nodes; 0 where the Laplace form stood in."""
    collapsed: np.ndarray
    """([states,] outcome columns) whose variance was kept from collapsing."""
    run: Run
    method: Method
    """With the choices that were left to the fit."""
    gate: Gate | None
    """What anchoring would change, where that was asked."""
    gate_at_end: bool
    """That was asked at these very parameters, not on the way to them."""
    refined: bool
    """The adaptive tier went on from the method's solution."""
    starts: tuple[Tried, ...]
    """The run of each start as far as they were compared; empty where none had to be chosen."""
    held_back: int
    """Subjects whose effects were kept where the model allows them."""
    seconds: float


class Task(ABC):
    """A model and the data it is fitted to: what the driver asks of a kind of models."""

    model: Any
    data: Any
    settled: ClassVar[bool] = False
    """Its starts are near solutions of the model."""

    @abstractmethod
    def make_em(self, options: Options) -> EM:
        """AVEM's iteration on the data."""

    def rules(self, rules: Rules) -> Rules:
        """The rules with what is peculiar to this kind of models."""
        return rules

    @abstractmethod
    def start(
        self, em: EM, guess: Guess, options: Options, rng: np.random.Generator, watch: Watch
    ) -> tuple[State, tuple[Tried, ...]]:
        """Where to begin, and the runs of the starts that were compared."""

    def history(self, starts: tuple[Tried, ...], run: Run) -> Run:
        """The run with what its start did in front, where that was the same iteration."""
        return run

    @abstractmethod
    def canonical(
        self, theta: Params, mean: np.ndarray, cov: np.ndarray
    ) -> tuple[Params, np.ndarray, np.ndarray]:
        """Theta, the effects' means (d, subjects) and covariances with the states put in order."""

    @abstractmethod
    def collapsed(self, theta: Params) -> np.ndarray:
        """([states,] outcome columns) whose variance was kept from collapsing."""

    def held_back(self, theta: Params, effects: np.ndarray) -> int:
        """Subjects whose effects (d, subjects) were kept where the model allows them."""
        return 0


@in_float64
def fit(task: Task, guess: Guess, options: Options, rules: Rules, watch: Watch) -> Fitted:
    """Fit: starts, the stages of the method, a last E-step, the canonical form."""
    began = time.perf_counter()
    rng = np.random.default_rng(options.seed)
    em, rules = task.make_em(options), task.rules(rules)
    state, starts = task.start(em, guess, options, rng, watch)
    stages = Stages(options, rules, task.model.effect_names, rng, watch)
    done = stages.run(em, state, guess.refined, task.settled)
    run = task.history(starts, done.run) if done.em.method.anchored else done.run
    e = done.em.e
    # A last E-step, so that the effects returned belong to the parameters returned.
    last = run.last.before if rules.plain else e.e_step(run.state, STILL).state
    mean, cov, bound, quality = e.of_subjects(last, "mean", "covariance", "bound", "quality")
    theta, mean, cov = task.canonical(run.state.theta, mean, factorable(cov))
    return Fitted(
        theta=theta,
        effects_mean=mean,
        effects_cov=cov,
        subject_bound=bound,
        quality=quality,
        collapsed=task.collapsed(theta),
        run=run,
        method=done.method,
        gate=None if done.gate is None else done.gate._replace(begun=None),
        gate_at_end=done.gate_at_end,
        refined=done.refined,
        starts=starts,
        held_back=task.held_back(theta, mean),
        seconds=time.perf_counter() - began,
    )
