"""The state-space model's M-step: sums over subjects, closed forms on them, and slopes.

Sums are about the matrices of the local pass. With D what q moves them by, a residual becomes
e - D v, and that of new population matrices, moved by M, e - (D + M) v.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.components.lanes import by_subject
from avem.data.layout import Chunk
from avem.numerics.covariance import floor_eigenvalues

if TYPE_CHECKING:
    from avem.models.ssm_kernel import SSMKernel, SSMLocal

START_FLOOR = 1e-3
"""Smallest variance of the first state; that of a step's noise is 1."""


class SSMSums(NamedTuple):
    """Sums over subjects; JAX's arrays, then NumPy's."""

    step_rr: Any
    step_er: Any
    """Of the residuals with the effects at the means of q."""
    seen_vv: Any
    seen_ev: Any
    seen_ee: Any
    """Expected under q."""
    n_seen: Any
    """(p,)."""
    first: Any
    first_second: Any
    n_first: Any


def collect(
    kernel: SSMKernel, local: SSMLocal, mean: Array, cov: Array | None, chunk: Chunk
) -> SSMSums:
    """The sums when the effects have moved on from the local pass's to N(mean, cov)."""
    q = kernel.n_latent
    moved = mean - local.at
    step = jnp.zeros((q, q, moved.shape[1]))
    if kernel.random_transition:
        step = jnp.swapaxes(moved[: q * q].reshape(q, q, -1), 0, 1)
    step_er = local.step_er - _times(step, local.step_rr[:q])
    rows = kernel.outcome_deviation(moved)
    vv = local.seen_vv[kernel.group_of]
    shift = (rows[:, :, None] * vv).sum(1)
    seen_ee = local.seen_ee + (rows * (shift - 2.0 * local.seen_ev)).sum(1)
    if cov is not None:
        seen_ee = seen_ee + _spread(kernel, vv, cov)
    lanes = chunk.valid[0][None]
    counts = jnp.concatenate([kernel.seen(chunk).sum(0), lanes])
    counts = (_on_subjects(counts, chunk, local.weight.shape[0]) * local.weight).sum(-1)
    return SSMSums(
        step_rr=local.step_rr.sum(-1),
        step_er=step_er.sum(-1),
        seen_vv=local.seen_vv.sum(-1),
        seen_ev=(local.seen_ev - shift).sum(-1),
        seen_ee=seen_ee.sum(-1),
        n_seen=counts[:-1],
        first=local.first.sum(-1),
        first_second=local.first_second.sum(-1),
        n_first=counts[-1],
    )


def _times(a: Array, b: Array) -> Array:
    """Matrix products, subjects on the last axis; faster than `einsum` for small matrices."""
    return (a[:, :, None] * b[None]).sum(1)


def _spread(kernel: SSMKernel, vv: Array, cov: Array) -> Array:
    """(p, n) what the effects' covariance adds to each outcome's squares."""
    added = []
    for j, (effects, entries) in enumerate(kernel.outcome_effects):
        pairs = [(a, b) for a in range(len(effects)) for b in range(len(effects))]
        total = jnp.zeros(cov.shape[-1])
        for a, b in pairs:
            total += vv[j, entries[a], entries[b]] * cov[effects[a], effects[b]]
        added.append(total)
    return jnp.stack(added)


def _on_subjects(counts: Array, chunk: Chunk, n: int) -> Array:
    """Counts of the lanes added up by subject, as often as there are nodes."""
    own = by_subject(counts, chunk)
    return jnp.tile(own, (1, n // own.shape[1]))


def maximise(
    kernel: SSMKernel,
    theta: dict[str, np.ndarray],
    sums: SSMSums,
    fixed: frozenset[str],
    free: Mapping[str, np.ndarray],
    noise_floor: np.ndarray,
) -> dict[str, np.ndarray]:
    """New population matrices where they are `free`, noise, and distribution of the first state."""
    q, new = kernel.n_latent, {}
    step = np.zeros_like(sums.step_er)
    open_step = np.concatenate([free["dynamics"], free["drive"]], axis=1)
    for a in range(q):
        step[a] = _solve(sums.step_rr, sums.step_er[a], open_step[a])
    new["dynamics"] = theta["dynamics"] + step[:, :q]
    new["drive"] = theta["drive"] + step[:, q:]

    places = q + np.array([kernel.w_cols.index(c) for c in kernel.x_cols], int)
    rows = np.zeros_like(sums.seen_ev)
    open_rows = np.zeros(rows.shape, bool)
    open_rows[:, :q], open_rows[:, places] = free["loading"], free["coef"]
    square = np.array(sums.seen_ee)
    for j, group in enumerate(kernel.group_of):
        vv, ev = sums.seen_vv[group], sums.seen_ev[j]
        rows[j] = _solve(vv, ev, open_rows[j])
        square[j] += rows[j] @ (vv @ rows[j] - 2.0 * ev)
    new["loading"] = theta["loading"] + rows[:, :q]
    new["coef"] = theta["coef"] + rows[:, places]
    if "noise_covariance" not in fixed:
        noise = square / np.maximum(sums.n_seen, 1.0)
        new["noise_covariance"] = np.maximum(noise, noise_floor)[:, None, None]
    shift = sums.first / sums.n_first
    if "start_mean" not in fixed:
        new["start_mean"] = theta["start_mean"] + shift
    if "start_covariance" not in fixed:
        second = sums.first_second / sums.n_first
        if "start_mean" not in fixed:
            second = second - np.outer(shift, shift)
        new["start_covariance"], _ = floor_eigenvalues(second, np.full(q, START_FLOOR))
    return new


def _solve(square: np.ndarray, cross: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The least-squares move of the free coefficients."""
    out = np.zeros_like(cross)
    at = np.flatnonzero(free)
    if len(at):
        own = square[np.ix_(at, at)]
        # Columns of any unit; those that are nothing but 0 stay.
        unit = np.sqrt(np.maximum(np.diagonal(own), 1e-300))
        found = np.linalg.lstsq(own / np.outer(unit, unit), cross[at] / unit, rcond=1e-12)[0]
        out[at] = found / unit
    return out


def slopes(kernel: SSMKernel, theta: dict[str, np.ndarray], sums: SSMSums) -> dict[str, np.ndarray]:
    """Derivatives of the expected complete log likelihood in every entry of theta but Sigma."""
    q = kernel.n_latent
    noise = theta["noise_covariance"][:, 0, 0]
    places = q + np.array([kernel.w_cols.index(c) for c in kernel.x_cols], int)
    rows = sums.seen_ev / noise[:, None]
    precision = np.linalg.inv(theta["start_covariance"])
    second = precision @ sums.first_second @ precision
    return {
        "dynamics": sums.step_er[:, :q],
        "drive": sums.step_er[:, q:],
        "loading": rows[:, :q],
        "coef": rows[:, places],
        "noise_covariance": (0.5 * (sums.seen_ee / noise - sums.n_seen) / noise)[:, None, None],
        "start_mean": precision @ sums.first,
        "start_covariance": 0.5 * (second - sums.n_first * precision),
    }
