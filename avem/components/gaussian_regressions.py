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
        count = sums.weight @ masks  # (state, outcome)
        unseen = count < 1e-8
        b = coef
        if not hold_coef and coef.shape[-1]:
            found = self._regress(covariance, sums.xx, sums.xr, masks)
            b = np.where(unseen[:, :, None], coef, found)
        if hold_noise:
            return b, covariance
        cross = b[:, None] @ np.swapaxes(sums.xr, 2, 3)
        fitted = b[:, None] @ sums.xx @ np.swapaxes(b, 1, 2)[:, None]
        residual = sums.rr - cross - np.swapaxes(cross, 2, 3) + fitted
        residual = np.where(masks[:, :, None] & masks[:, None], residual, 0.0)
        if self.kind == "full":
            return b, self._full(covariance, residual, sums.weight, masks, floor, unseen)
        total = np.diagonal(residual.sum(1), axis1=1, axis2=2)  # (state, outcome)
        if self.kind == "spherical":
            total, count = (np.broadcast_to(x.sum(1)[:, None], x.shape) for x in (total, count))
        variance = np.maximum(total / np.maximum(count, 1e-300), floor)
        found = variance[:, None] * np.eye(self.n_outcomes)
        return b, np.where(unseen[:, :, None] | unseen[:, None], covariance, found)

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
        if len(self.groups) == 1:
            # Of all solutions, where there are many, the shortest.
            return xr[:, 0] @ np.linalg.pinv(xx[:, 0], 1e-13, hermitian=True)
        p, m = self.n_outcomes, xx.shape[-1]
        found = np.zeros((len(xx), p, m))
        for k in range(len(xx)):
            normal, right = np.zeros((p, m, p, m)), np.zeros((p, m))
            for g, mask in enumerate(masks):
                precision = _embedded_inverse(covariance[k], mask)
                normal += np.einsum("ij,mn->imjn", precision, xx[k, g])
                right += precision @ np.where(mask[:, None], xr[k, g], 0.0)
            normal = normal.reshape(p * m, p * m)
            found[k] = np.linalg.lstsq(normal, right.ravel(), rcond=1e-13)[0].reshape(p, m)
        return found

    def _full(self, covariance, residual, weight, masks, floor, unseen) -> np.ndarray:
        """Covariances without a structure; EM completes what was not seen."""
        found = covariance.copy()
        for k in np.flatnonzero(~unseen.all(1)):
            if masks.all():
                found[k] = residual[k].sum(0) / max(weight[k].sum(), 1e-300)
            else:
                for _ in range(_FULL_MISSING_STEPS):
                    found[k] = _complete(found[k], residual[k], weight[k], masks)
                    found[k], _ = floor_eigenvalues(found[k], floor)
            found[k], _ = floor_eigenvalues(found[k], floor)
        return found


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
