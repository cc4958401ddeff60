"""The M-step: new parameters from sums over subjects.

What has a closed form follows from a handful of sums, in NumPy; the rest takes a few Newton steps
whose terms are again sums over subjects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from avem.components.base import Match
from avem.components.linear import CoefTerms
from avem.components.param_info import Params as Theta
from avem.effects.prior import project_covariance
from avem.inference.methods.anchored import TO_THE_END
from avem.inference.newton import climb
from avem.inference.passes import Totals
from avem.inference.restricted import ByNewton, Objective, improved
from avem.inference.theta import absorb
from avem.models.kernel import Kernel
from avem.models.restriction import Restriction
from avem.numerics.covariance import floor_eigenvalues

NOISE_FLOOR, EFFECT_FLOOR = 1e-6, 1e-8
"""Smallest variance of a state and of an effect, in units of the outcome's overall variance."""


class Copies(NamedTuple):
    """States whose parameters of outcomes say nothing, and are those of another."""

    silent: tuple[int, ...]
    like: int
    keys: tuple[str, ...]
    """The entries of theta, states first."""


@dataclass(frozen=True, eq=False)
class MStep:
    """What is free in theta, and within which limits."""

    kernel: Kernel
    structure: str
    """Of the effect covariance."""
    blocks: np.ndarray
    """(d,) which effects may be correlated."""
    matches: tuple[Match | None, ...]
    """(d,) the fixed coefficients that each effect is added to."""
    spread: np.ndarray
    """(outcome columns,) overall variance of each outcome."""
    effect_scale: np.ndarray
    """(d,) variance by which an effect is judged to be nothing."""
    free: Mapping[str, np.ndarray] = field(default_factory=dict)
    """For each coefficient array of theta, which of its columns are free."""
    limits: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    """For each, the lowest and highest value of its columns, where a density would collapse."""
    fixed: frozenset[str] = frozenset()
    """Names of entries of theta that are held."""
    coef_steps: int = TO_THE_END
    recentre: bool = True
    copies: Copies | None = None
    """States without outcomes: otherwise their parameters would drift."""
    rule: Restriction | None = None
    """Constraints and priors."""

    @property
    def restricted(self) -> tuple[str, ...]:
        """The entries of theta that constraints or priors concern."""
        return () if self.rule is None else self.rule.keys

    def update(
        self,
        theta: Theta,
        total: Totals,
        moved: Theta,
        n_subjects: float,
        newton: ByNewton | None = None,
    ) -> tuple[Theta, np.ndarray]:
        """All parameters, given those moved by Newton, and the shift of every effect's mean.

        `newton` has the terms of those that are restricted.
        """
        floor = NOISE_FLOOR * self.spread
        held = self.fixed | frozenset(self.restricted)
        closed = self.kernel.maximise(theta, total.model, held, self.free, floor)
        new = {**theta, **closed, **moved}
        objective = None
        if self.rule is not None and newton is not None:
            kernel: Any = self.kernel
            own = total.effect_second / n_subjects
            objective = Objective(self.rule, kernel, total.model, newton, own, n_subjects)
            new = self._restricted(objective, new, of_effects=False)
            # What has a closed form beside what is restricted: noise beside coefficients.
            new |= self.kernel.maximise(new, total.model, held, self.free, floor)
        mean = total.effect_mean / n_subjects
        second = total.effect_second / n_subjects
        shift = np.zeros_like(mean)
        if self.recentre and len(mean):
            # Parameter-expanded EM: what the fixed part can express of the effects' mean belongs
            # to it. Effects without a fixed term keep theirs, and the prior ties the others to it.
            matched = np.array([match is not None for match in self.matches])
            shift = _expressible(mean, theta["effect_covariance"], matched)
            new = absorb(new, self.matches, shift)
            second = shifted_second(second, mean, shift)
        if objective is not None and "effect_covariance" in self.restricted:
            second = (second + second.T) / 2
            new = self._restricted(replace(objective, second=second), new, of_effects=True)
        elif "effect_covariance" not in self.fixed and len(mean):
            sigma = project_covariance((second + second.T) / 2, self.structure, self.blocks)
            floor = EFFECT_FLOOR * self.effect_scale
            new["effect_covariance"], _ = floor_eigenvalues(sigma, floor)
        return (new if self.copies is None else self._copied(new, self.copies)), shift

    def _restricted(self, objective: Objective, theta: Theta, of_effects: bool) -> Theta:
        """With the effects' covariance, or all else that is restricted, raised."""
        for group in objective.rule.groups:
            if ("effect_covariance" in group.keys) == of_effects:
                theta = improved(objective, theta, group, self.coef_steps)
        return theta

    def _copied(self, theta: Theta, copies: Copies) -> Theta:
        free = [key for key in copies.keys if key not in self.fixed]
        if self.rule is not None:
            silent, tied = list(copies.silent), self.rule.tied
            free = [k for k in free if k not in self.restricted or not tied(k)[silent].any()]
        free = [key for key in free if self.free.get(key, np.ones(1, bool)).any()]
        new = dict(theta)
        for key in free:
            new[key] = np.array(theta[key])
            new[key][list(copies.silent)] = new[key][copies.like]
        return new

    def newton(
        self,
        key: str,
        coef: np.ndarray,
        terms: CoefTerms,
        terms_at: Callable[[np.ndarray], CoefTerms],
        value_at: Callable[[np.ndarray], Any],
    ) -> tuple[np.ndarray, np.ndarray]:
        """A few Newton steps on the array `coef`, theta[key], and its sharpness.

        The first step's terms are given; those of others, and their values alone, are asked for.
        """
        problems = coef.reshape(terms.gradient.shape)
        found = climb(
            lambda x: terms_at(x.reshape(coef.shape)),
            lambda x: value_at(x.reshape(coef.shape)),
            problems,
            terms,
            self.free_of(key, problems),
            self.coef_steps,
        )
        return self.within(key, found.coef, coef), found.sharpness.reshape(coef.shape)

    def as_coef(self, key: str, coef: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """The change of the array `coef`, theta[key], that a shift of the effects amounts to."""
        own = tuple(match if match and match.key == key else None for match in self.matches)
        return absorb({key: np.zeros_like(coef)}, own, shift)[key]

    def free_of(self, key: str, problems: np.ndarray) -> np.ndarray:
        """Which coefficients of a problem are free; a problem may hold those of all states."""
        free = self.free[key]
        return np.tile(free, problems.shape[1] // len(free))

    def within(self, key: str, coef: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Coefficients kept from where a density would collapse."""
        low, high = self.limits.get(key, (-np.inf, np.inf))
        return np.clip(coef.reshape(like.shape), low, high)


def _expressible(mean: np.ndarray, sigma: np.ndarray, matched: np.ndarray) -> np.ndarray:
    """The shift of the matched effects after which the prior fits the effects' mean best."""
    precision = np.linalg.inv(sigma)
    rest = precision[np.ix_(matched, ~matched)] @ mean[~matched]
    shift = np.zeros_like(mean)
    shift[matched] = mean[matched] + np.linalg.solve(precision[np.ix_(matched, matched)], rest)
    return shift


def shifted_second(
    second: np.ndarray, mean: np.ndarray, shift: np.ndarray, n_subjects: float = 1
) -> np.ndarray:
    """Second moments of effects that lose `shift`, from their means; or sums over subjects."""
    cross = np.outer(shift, mean)
    return second - cross - cross.T + n_subjects * np.outer(shift, shift)
