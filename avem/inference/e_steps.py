"""E-steps of a model on a data set, by any method.

AVEM runs the local pass once per subject at its anchor, the mean of its q_i, and updates every q_i.
Other methods differ in where the local passes are run and in how they are weighed, which is the
business of an `EStep`. Anchors and nodes stay with their shards; what comes back is a handful of
sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from avem.components.base import Match
from avem.components.param_info import Params as Theta
from avem.data.layout import Chunk
from avem.errors import AvemError
from avem.execution.dataset import Dataset, PerShard
from avem.inference.catch_up import MOST_PASSES, e_step, end_walk, q_step, seen, start_walk
from avem.inference.on_shard import Setting, ShardSums, Subjects
from avem.models.kernel import Kernel

if TYPE_CHECKING:
    from avem.inference.methods.base import EStep

IMPOSSIBLE = (
    "The likelihood is not finite: some sequence is impossible under the parameters. Look for "
    "values far outside those of the fit, and for zero probabilities or tiny variances in init= "
    "and fixed=."
)
Guard = Callable[[Theta, np.ndarray], np.ndarray]


class Impossible(AvemError):
    """Parameters that leave nothing that could be computed with."""

    def __init__(self, message: str = IMPOSSIBLE) -> None:
        super().__init__(message)


@dataclass(frozen=True)
class State:
    """What the next iteration needs."""

    theta: Theta
    subjects: PerShard
    """The `Subjects` of each shard: anchors, and what the method keeps beside them."""
    placed: Theta | None = None
    """The parameters for which the nodes were found, where these may stay as they are."""
    form: str = "scaled"
    """Of the recursion: "log", for good, once the scaled one has underflowed."""
    searched: Theta | None = None
    """The parameters at which no subject had a better mode of its effects, when that was asked."""


def state_at(data: Dataset, theta: Theta, effects: np.ndarray) -> State:
    """Every subject's anchor at its effects (d, subjects)."""
    return State(theta, data.place([Subjects(part) for part in data.layout.split(effects)]))


@dataclass(frozen=True)
class Expectation:
    """An E-step of all shards."""

    state: State
    """With settled anchors, and the form of the recursion that did not underflow."""
    sums: ShardSums
    """Over all shards."""
    log_prior: float = 0.0
    """Of the parameters, where they have priors."""

    @property
    def bound(self) -> float:
        """The method's objective, and what priors add to it."""
        return float(self.sums.bound) + self.log_prior

    @property
    def loglik(self) -> float:
        """sum_i log p(D_i | anchor); of p(D_i) where effects are integrated."""
        return float(self.sums.loglik)

    @property
    def possible(self) -> bool:
        """The first pass was finite for everyone, and so is what the M-step reads."""
        if self.sums.n_impossible:
            return False
        parts = jax.tree.leaves(self.sums.totals)  # whose sums are quicker to look at
        with np.errstate(all="ignore"):
            return math.isfinite(sum(np.add.reduce(part, axis=None) for part in parts))


@dataclass(frozen=True)
class ESteps:
    """What an E-step takes: a model, a data set, a method."""

    kernel: Kernel
    data: Dataset
    matches: tuple[Match | None, ...]
    """(d,) the fixed coefficients that each effect is added to."""
    method: EStep
    """Where the local passes are run, and what becomes of them."""
    anchor: str = "mean"
    guard: Guard | None = None
    """Keeps anchors (d, subjects) where the model allows them."""
    log_prior: Callable[[Theta], float] | None = None
    """Of the parameters; None: they have no priors."""

    def on(self, shards: Sequence[int]) -> ESteps:
        """E-steps on some of the shards."""
        return replace(self, data=self.data.on(shards))

    def setting(self, state: State) -> Setting:
        """What the shards need to know for an E-step."""
        # What is compiled for some of the shards serves all of them later.
        price = self.data.speed / len(self.data.layout.slots)
        return Setting(self.kernel, self.method, state.theta, state.form, self.matches, price)

    def e_step(self, state: State, still: float = np.inf) -> Expectation:
        """Local passes and the new q_i, once anchors are within `still` of where these put them."""
        found = self.try_e_step(state, still)
        if not found.possible and state.form == "scaled":
            found = self.try_e_step(replace(state, form="log"), still)
        if not found.possible:
            raise Impossible
        return found

    def try_e_step(self, state: State, still: float = np.inf) -> Expectation:
        """An E-step whose result may not be finite."""
        if self.anchor != "mean" or not self.kernel.n_effects:
            still = np.inf
        settle = still if self.method.anchored else np.inf
        setting = self.setting(state)
        subjects, sums = self.data.run_sum(e_step, (state.subjects,), setting, settle)
        prior = 0.0 if self.log_prior is None else self.log_prior(state.theta)
        found = Expectation(replace(state, subjects=subjects), sums, prior)
        if still < np.inf and self.method.has_q and found.possible:
            return self._settled_q(found, still)
        return found

    def _settled_q(self, found: Expectation, still: float) -> Expectation:
        """The q_i whose next step moves the means by at most `still`, and the E-step at them."""
        if self.distance(found.sums) <= still:
            return found
        setting, sums = self.setting(found.state), found.sums
        walk = self.data.keep(start_walk, (found.state.subjects,), setting)
        for _ in range(MOST_PASSES):
            if self.distance(sums) <= still:
                break
            walk, sums = self.data.run_sum(q_step, (walk,), setting)
        subjects = self.data.keep(end_walk, (walk,))
        return Expectation(replace(found.state, subjects=subjects), sums, found.log_prior)

    def distance(self, sums: ShardSums) -> float:
        """From the anchors to where the E-step would put them, root mean square."""
        n_values = max(1, self.kernel.n_effects * self.data.n_subjects)
        return float(np.sqrt(sums.moved / n_values))

    def without_nodes(self, state: State) -> State:
        """The anchors alone."""
        return replace(state, subjects=self.data.keep(_anchors_alone, (state.subjects,)))

    def of_subjects(self, state: State, *names: str) -> Any:
        """Fields of `Pass` after an E-step at a state, (..., subjects) in the panel's order."""
        return self.data.gather(_fields, (state.subjects,), self.setting(state), names)


# --- on a shard ---------------------------------------------------------------------------------


def _anchors_alone(chunk: Chunk, subjects: Subjects | None) -> Subjects | None:
    return None if subjects is None else Subjects(subjects.anchor)


def _fields(
    chunk: Chunk, subjects: Subjects | None, setting: Setting, names: Sequence[str]
) -> tuple[Any, ...]:
    fields = seen(chunk, subjects, setting)._asdict()
    return tuple(fields[name] for name in names)
