"""The M-step under constraints and priors: safeguarded Newton steps among what is allowed.

What has a closed form without them is found by Fisher scoring here, from the same sums; what takes
Newton steps keeps its terms. Either way the equations are kept exactly, and inequalities by steps
that end where they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from avem.components.linear import CoefTerms
from avem.components.param_info import Params as Theta
from avem.models.restriction import Restriction, Together

_MOST_STEPS = 50
"""Of scoring where there are sums alone."""
_LONGEST = 4.0
"""No coefficient moves further in one step: e^4 on the scale of a log link."""
_NO_MATTER = 1e-6
"""Curvature below which moving by 1 changes the log likelihood by nothing."""
_TOL, _HALVINGS = 1e-10, 30


class ClosedForms(Protocol):
    """The part of a kernel that sums are enough for."""

    @property
    def newton_keys(self) -> tuple[str, ...]: ...

    def expected(self, theta: Theta, sums: Any) -> float: ...

    def slopes(self, theta: Theta, sums: Any) -> Theta: ...

    def information(self, theta: Theta, sums: Any) -> Theta: ...


@dataclass
class ByNewton:
    """Terms of the entries of theta without closed forms, which take a pass over the data."""

    first: dict[str, tuple[np.ndarray, CoefTerms]]
    """Where they are known: by key, coefficients and terms."""
    terms_at: Callable[[str, np.ndarray], CoefTerms]
    value_at: Callable[[str, np.ndarray], Any]
    sharpness: Theta = field(default_factory=dict)
    """How much moves of the coefficients matter."""

    def terms(self, key: str, coef: np.ndarray) -> CoefTerms:
        """Value, gradient and curvature at coefficients."""
        if key in self.first and (self.first[key][0] == coef).all():
            found = self.first[key][1]
        else:
            found = self.terms_at(key, coef)
        self.first[key] = (coef, found)
        diagonal = np.diagonal(np.asarray(found.curvature), axis1=1, axis2=2)
        self.sharpness[key] = np.sqrt(np.abs(diagonal)).reshape(coef.shape)
        return found

    def value(self, key: str, coef: np.ndarray) -> float:
        """The value at coefficients."""
        if key in self.first and (self.first[key][0] == coef).all():
            return float(np.sum(self.first[key][1].value))
        return float(np.sum(self.value_at(key, coef)))


@dataclass(frozen=True)
class Objective:
    """What the M-step maximises: the expected complete log likelihood, and the priors."""

    rule: Restriction
    kernel: ClosedForms
    sums: Any
    newton: ByNewton
    second: np.ndarray
    """(d, d) mean second moment of the effects."""
    n_subjects: float

    def value(self, theta: Theta, keys: tuple[str, ...]) -> float:
        """As far as these entries of theta say something."""
        total = self.rule.log_prior(theta)
        by_newton = [key for key in keys if key in self.kernel.newton_keys]
        total += sum(self.newton.value(key, theta[key]) for key in by_newton)
        if "effect_covariance" in keys:
            sigma = theta["effect_covariance"]
            sign, logdet = np.linalg.slogdet(sigma)
            if sign <= 0 or np.linalg.eigvalsh(sigma).min() <= 0:
                return -np.inf
            total -= (
                0.5 * self.n_subjects * (logdet + np.trace(np.linalg.solve(sigma, self.second)))
            )
        if len(by_newton) + ("effect_covariance" in keys) < len(keys):
            total += self._closed_value(theta, keys)
        return float(total)

    def _closed_value(self, theta: Theta, keys: tuple[str, ...]) -> float:
        for key in keys:
            if key.endswith("covariance") and np.linalg.eigvalsh(theta[key]).min() <= 0:
                return -np.inf
        return self.kernel.expected(theta, self.sums)

    def terms(self, theta: Theta, keys: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Slope and curvature in the numbers of the restriction."""
        slope, curvature = self.rule.prior_terms(theta)
        slopes = information = None
        for key in keys:
            places = self.rule.places(key)
            if key in self.kernel.newton_keys:
                found = self.newton.terms(key, theta[key])
                first, second = np.ravel(found.gradient), _one_block(np.asarray(found.curvature))
            elif key == "effect_covariance":
                inverse = np.linalg.inv(theta[key])
                half = 0.5 * self.n_subjects
                first = half * (inverse @ self.second @ inverse - inverse).ravel()
                second = half * np.kron(inverse, inverse)
            else:
                if slopes is None or information is None:
                    slopes = self.kernel.slopes(theta, self.sums)
                    information = self.kernel.information(theta, self.sums)
                first, second = slopes[key].ravel(), information[key]
            slope = slope + places.T @ first
            curvature = curvature + places.T @ second @ places
        return slope, curvature


def _one_block(curvature: np.ndarray) -> np.ndarray:
    """Separate problems as one."""
    n, size = curvature.shape[:2]
    out = np.zeros((n, size, n, size))
    out[np.arange(n), :, np.arange(n)] = curvature
    return out.reshape(n * size, n * size)


def improved(objective: Objective, theta: Theta, group: Together, newton_steps: int) -> Theta:
    """Theta with the entries of a group where the objective is higher, if not at its maximum."""
    rule, keys, own = objective.rule, group.keys, group.numbers
    by_newton = any(key in objective.kernel.newton_keys for key in keys)
    value = objective.value(theta, keys) if not by_newton else None
    for _ in range(newton_steps if by_newton else _MOST_STEPS):
        slope, curvature = objective.terms(theta, keys)
        slope, curvature = slope[own], curvature[np.ix_(own, own)]
        if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
            break
        x = rule.read(theta)
        basis = group.sides.free
        weight = np.abs(np.einsum("nz,nm,mz->z", basis, curvature, basis))
        step = group.sides.step(x[own], slope, curvature, stay=weight <= _NO_MATTER)
        if step is None:
            break
        longest = np.abs(step).max(initial=0.0)
        step = step * min(1.0, _LONGEST / max(longest, 1e-300))
        if not longest * min(1.0, np.sqrt(weight.max(initial=0.0))) > _TOL:
            break
        value = objective.value(theta, keys) if value is None else value
        for halving in range(_HALVINGS):
            tried = x.copy()
            tried[own] = group.sides.clipped(tried[own] + step * 0.5**halving)
            new = rule.write(tried, theta)
            height = objective.value(new, keys)
            if height >= value - 1e-12 * (1.0 + abs(value)):
                break
        else:
            break
        if height - value <= 1e-14 * (1.0 + abs(value)) and not by_newton:
            return new
        theta, value = new, height
    return theta
