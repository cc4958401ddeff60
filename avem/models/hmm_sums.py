"""The mixed HMM's M-step where it has closed forms: sums over subjects, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax import Array

from avem.components.emissions import GaussianBlock
from avem.families.gaussian import Sums

if TYPE_CHECKING:
    from avem.models.hmm_kernel import HMMKernel, Local


class HMMSums(NamedTuple):
    """Sums over subjects; JAX's arrays, then NumPy's."""

    first: Any
    pair: Any
    emissions: tuple[Any, ...]
    """Sums of each Gaussian block, None for the others."""


def collect(kernel: HMMKernel, local: Local, mean: Array, cov: Array | None) -> HMMSums:
    """The sums when the effects are N(mean, cov)."""
    second = mean[:, None] * mean[None]
    second = second if cov is None else cov + second
    return HMMSums(
        first=local.chain[0].sum(-1),
        pair=local.chain[1].sum((0, -1)),
        emissions=tuple(
            block.totals(part, mean, second) if isinstance(block, GaussianBlock) else None
            for block, part in zip(kernel.blocks, local.emissions, strict=True)
        ),
    )


def maximise(
    kernel: HMMKernel,
    theta: dict[str, np.ndarray],
    sums: HMMSums,
    fixed: frozenset[str],
    noise_floor: np.ndarray,
) -> dict[str, np.ndarray]:
    """New chances of the chain, and coefficients and noise of the Gaussian blocks."""
    new = {}
    if "initial" in theta and "initial" not in fixed:
        new["initial"] = sums.first / sums.first.sum()
    if "transition" in theta and "transition" not in fixed:
        leaving = sums.pair.sum(1, keepdims=True)
        stays = np.broadcast_to(leaving < 1e-12, sums.pair.shape)
        moves = sums.pair / np.where(leaving < 1e-12, 1.0, leaving)
        new["transition"] = np.where(stays, theta["transition"], moves)
    for block, own in zip(kernel.blocks, sums.emissions, strict=True):
        if isinstance(block, GaussianBlock):
            coef, covariance = block.key + "coef", block.key + "covariance"
            new[coef], new[covariance] = block.kernel.maximise(
                theta[coef],
                theta[covariance],
                own,
                noise_floor[list(block.y_cols)],
                hold_coef=coef in fixed,
                hold_noise=covariance in fixed,
            )
    return new


def slopes(kernel: HMMKernel, theta: dict[str, np.ndarray], sums: HMMSums) -> dict[str, np.ndarray]:
    """Derivatives of the expected complete log likelihood in the entries with closed forms."""
    slope = {}
    if "initial" in theta:
        slope["initial"] = _share(sums.first, theta["initial"])
    if "transition" in theta:
        slope["transition"] = _share(sums.pair, theta["transition"])
    for block, own in zip(kernel.blocks, sums.emissions, strict=True):
        if isinstance(block, GaussianBlock):
            names = block.key + "coef", block.key + "covariance"
            found = block.kernel.slopes(theta[names[0]], theta[names[1]], own)
            slope.update(zip(names, found, strict=True))
    return slope


def _share(count: np.ndarray, chance: np.ndarray) -> np.ndarray:
    return np.where(count > 0, count / np.where(chance > 0, chance, 1.0), 0.0)


def shifted(kernel: HMMKernel, sums: HMMSums, moves: Callable[[str], np.ndarray]) -> HMMSums:
    """The sums as if coefficients had gained ``moves(key)``, and their effects lost it, before."""
    emissions = tuple(
        _shifted_block(own, moves(block.key + "coef")) if isinstance(block, GaussianBlock) else None
        for block, own in zip(kernel.blocks, sums.emissions, strict=True)
    )
    return sums._replace(emissions=emissions)


def _shifted_block(sums: Any, move: np.ndarray) -> Sums:
    """Residuals grow by what their effects lose: r + move x."""
    xr = sums.xr + np.einsum("kjm,kgmn->kgjn", move, sums.xx)
    cross = np.einsum("kim,kgjm->kgij", move, sums.xr)
    fitted = np.einsum("kim,kgmn,kjn->kgij", move, sums.xx, move)
    rr = sums.rr + cross + np.swapaxes(cross, 2, 3) + fitted
    return Sums(sums.weight, sums.xx, xr, rr)
