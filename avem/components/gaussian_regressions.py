"""The M-step of Gaussian emissions, in NumPy: weighted regressions, and covariances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from avem.numerics.covariance import floor_eigenvalues

_FULL_MISSING_STEPS = 5
"""Inner EM steps for a full covariance with missing cells; each raises the M-step's objective."""


class Sums(NamedTuple):
    """What the M-step needs, per state and group, summed over subjects."""

    weight: Any
    """(state, group) expected number of observations."""
    xx: Any
    """(state, group, term, term)."""
    xr: Any
    """(state, group, outcome, term): products of x with y minus the subject's part F z."""
    rr: Any
    """(state, group, outcome, outcome): E_q of products of y - F z with itself."""


@dataclass(frozen=True)
class Regressions:
    """For outcomes in groups that are seen or missing together."""

    kind: str
    """Of covariances: "spherical", "diagonal" or "full"."""
    groups: tuple[tuple[int, ...], ...]
    n_outcomes: int

    def maximise(
        self,
        coef: np.ndarray,
        covariance: np.ndarray,
        sums: Sums,
        floor: np.ndarray,
        hold_coef: bool = False,
        hold_noise: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """New coefficients and covariances.

        Coefficients first, at the current covariances, then covariances: each raises the bound.
        An outcome that was not observed in a state keeps its parameters there. ``floor`` (outcomes)
        is the smallest variance allowed.
        """
        masks = np.zeros((len(self.groups), self.n_outcomes), bool)
        for g, members in enumerate(self.groups):
            masks[g, list(members)] = True
        new_coef, new_covariance = coef.copy(), covariance.copy()
        for k in range(len(coef)):
            count = np.where(masks, sums.weight[k][:, None], 0.0).sum(0)  # per outcome
            unseen = count < 1e-8
            if unseen.all():
                continue
            if not hold_coef and coef.shape[-1]:
                found = self._regress(covariance[k], sums.xx[k], sums.xr[k], masks)
                new_coef[k] = np.where(unseen[:, None], coef[k], found)
            b = new_coef[k]
            cross = np.einsum("jm,gim->gji", b, sums.xr[k])
            fitted = np.einsum("im,gmn,jn->gij", b, sums.xx[k], b)
            residual = sums.rr[k] - cross - np.swapaxes(cross, 1, 2) + fitted
            residual = np.where(masks[:, :, None] & masks[:, None], residual, 0.0)
            if not hold_noise:
                found = self._noise(covariance[k], residual, sums.weight[k], masks, floor)
                if self.kind != "full":  # there, EM completes what was not seen
                    found = np.where(unseen[:, None] | unseen, covariance[k], found)
                new_covariance[k] = found
        return new_coef, new_covariance

    def slopes(
        self, coef: np.ndarray, covariance: np.ndarray, sums: Sums
    ) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the expected log likelihood in coefficients and covariances.

        `maximise` goes to where both are 0. Covariances are taken as symmetric: both of a pair of
        entries have the same slope.
        """
        of_coef, of_covariance = np.zeros_like(coef), np.zeros_like(covariance)
        for k, b in enumerate(coef):
            for g, members in enumerate(self.groups):
                mask = np.isin(np.arange(self.n_outcomes), members)
                precision = _embedded_inverse(covariance[k], mask)
                xr, xx = sums.xr[k][g], sums.xx[k][g]
                of_coef[k] += precision @ (xr - b @ xx)
                cross = b @ xr.T
                residual = sums.rr[k][g] - cross - cross.T + b @ xx @ b.T
                square = precision @ residual @ precision
                of_covariance[k] += 0.5 * (square - sums.weight[k][g] * precision)
        return of_coef, of_covariance

    def expected(self, coef: np.ndarray, covariance: np.ndarray, sums: Sums) -> float:
        """The expected log likelihood, up to a constant."""
        total = 0.0
        for k, b in enumerate(coef):
            for g, members in enumerate(self.groups):
                at, xr = np.ix_(members, members), sums.xr[k][g]
                sign, logdet = np.linalg.slogdet(covariance[k][at])
                if sign <= 0:
                    return -np.inf
                cross = b @ xr.T
                residual = sums.rr[k][g] - cross - cross.T + b @ sums.xx[k][g] @ b.T
                square = np.trace(np.linalg.solve(covariance[k][at], residual[at]))
                total -= 0.5 * (sums.weight[k][g] * logdet + square)
        return float(total)

    def information(
        self, coef: np.ndarray, covariance: np.ndarray, sums: Sums
    ) -> tuple[np.ndarray, np.ndarray]:
        """Minus its second derivative in coefficients, and on average in covariances, flat."""
        n, (p, m) = len(coef), coef.shape[1:]
        of_coef, of_noise = np.zeros((n, p * m, n, p * m)), np.zeros((n, p * p, n, p * p))
        for k in range(n):
            for g, members in enumerate(self.groups):
                mask = np.isin(np.arange(p), members)
                precision = _embedded_inverse(covariance[k], mask)
                of_coef[k, :, k] += np.kron(precision, sums.xx[k][g])
                of_noise[k, :, k] += 0.5 * sums.weight[k][g] * np.kron(precision, precision)
        return of_coef.reshape(n * p * m, -1), of_noise.reshape(n * p * p, -1)

    def _regress(self, covariance, xx, xr, masks) -> np.ndarray:
        """Generalised least squares over the groups; ordinary when there is one group."""
        p, m = self.n_outcomes, xx.shape[-1]
        if len(self.groups) == 1:
            return np.linalg.lstsq(xx[0], xr[0].T, rcond=1e-13)[0].T
        normal = np.zeros((p, m, p, m))
        right = np.zeros((p, m))
        for g, mask in enumerate(masks):
            precision = _embedded_inverse(covariance, mask)
            normal += np.einsum("ij,mn->imjn", precision, xx[g])
            right += precision @ np.where(mask[:, None], xr[g], 0.0)
        solution = np.linalg.lstsq(normal.reshape(p * m, p * m), right.ravel(), rcond=1e-13)[0]
        return solution.reshape(p, m)

    def _noise(self, covariance, residual, count, masks, floor) -> np.ndarray:
        seen = np.maximum(masks.T @ count, 1e-300)
        if self.kind == "full":
            if masks.all():
                covariance = residual.sum(0) / seen[0]
            else:
                for _ in range(_FULL_MISSING_STEPS):
                    covariance = _complete(covariance, residual, count, masks)
                    covariance, _ = floor_eigenvalues(covariance, floor)
            return floor_eigenvalues(covariance, floor)[0]
        variance = np.diagonal(residual.sum(0)) / seen
        if self.kind == "spherical":
            variance = np.full(self.n_outcomes, residual.sum(0).trace() / seen.sum())
        return np.diag(np.maximum(variance, floor))


def _embedded_inverse(covariance: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Inverse of the masked part of a covariance, 0 elsewhere."""
    out = np.zeros_like(covariance)
    out[np.ix_(mask, mask)] = np.linalg.inv(covariance[np.ix_(mask, mask)])
    return out


def _complete(covariance, residual, count, masks) -> np.ndarray:
    """One EM step for a covariance when each group shows only some outcomes.

    Missing residuals are replaced by their regression on the seen ones, plus its error.
    """
    total = np.zeros_like(covariance)
    for g, mask in enumerate(masks):
        predict = covariance @ _embedded_inverse(covariance, mask)
        error = covariance - predict @ covariance
        total += predict @ residual[g] @ predict.T + count[g] * error
    return total / count.sum()
