"""Sums over time of the smoothed moments of every lane: what a state-space local pass is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from avem.kernels.dispatch import engine
from avem.kernels.kalman import Smoothed, SmoothedStep, visit_smoothed
from avem.kernels.kalman_filter import Problem
from avem.kernels.matrices import Matrix, pack


class Shape(Protocol):
    """The sizes of a state-space model that are known before its data."""

    @property
    def n_latent(self) -> int: ...

    @property
    def n_outcomes(self) -> int: ...

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Outcomes that are always seen together."""
        ...

    @property
    def group_of(self) -> np.ndarray: ...

    @property
    def w_cols(self) -> tuple[int, ...]: ...

    @property
    def drive_cols(self) -> tuple[int, ...]: ...


class Moments(NamedTuple):
    """Of the residuals e at the effects of the local pass, the states x and the known columns.

    Of the step into t, s_t are the columns that drive the states; w_t those of the outcomes.
    """

    loglik: Float[Array, " lane"]
    first: Float[Array, "q lane"]
    """The mean of the first state."""
    first_cov: Float[Array, "q q lane"]
    xx: Float[Array, "q q lane"]
    """Of the states that are left for a next step."""
    ex: Float[Array, "q q lane"]
    xs: Float[Array, "q s lane"]
    es: Float[Array, "q s lane"]
    seen_xx: Float[Array, "group q q lane"]
    """Over the times when the group's outcomes were seen."""
    seen_xw: Float[Array, "group q w lane"]
    seen_ex: Float[Array, "p q lane"]
    seen_ew: Float[Array, "p w lane"]
    seen_ee: Float[Array, "p lane"]


def moments(
    shape: Shape,
    problem: Problem,
    w: Float[Array, "time w lane"],
    s: Float[Array, "time s lane"],
    seen: Bool[Array, "time group lane"],
) -> Moments:
    """Filter and smoother of every lane, and the sums; `seen` is the problem's, by group."""
    times, groups, lanes = seen.shape
    sizes = {"states": shape.n_latent, "outcomes": shape.n_outcomes, "groups": groups}
    run = None
    if problem.more is None and problem.moves is None:
        run = engine("kalman_moments", w.dtype, **sizes, times=times, lanes=lanes)
    arguments = shape, problem, w, s, seen
    return definition(*arguments) if run is None else Moments(*run(*arguments))


def definition(
    shape: Shape,
    problem: Problem,
    w: Float[Array, "time w lane"],
    s: Float[Array, "time s lane"],
    seen: Bool[Array, "time group lane"],
) -> Moments:
    """What `moments` computes, by the scans of `kalman.visit_smoothed`."""
    alike = pack(problem.system.loading)

    def zeros(rows: int, columns: int) -> Matrix:
        return pack(jnp.zeros((rows, columns, w.shape[-1])), alike)

    sums = MomentSums.start(shape, zeros)
    also = sums.also(problem, w, s, seen)
    visit = sums.visit(alike, pack(problem.system.transition, alike))
    loglik, sums, _ = visit_smoothed(problem, visit, sums, also)

    def array(part: Matrix | None, rows: int) -> Array:
        return jnp.zeros((rows, 0, w.shape[-1])) if part is None else part.unpack()

    q, p = shape.n_latent, shape.n_outcomes
    return Moments(
        loglik,
        sums.mean.unpack()[:, 0],
        sums.cov.unpack(),
        sums.xx.unpack(),
        sums.ex.unpack(),
        array(sums.xs, q),
        array(sums.es, q),
        jnp.stack([part.unpack() for part in sums.seen_xx]),
        jnp.stack([array(part, q) for part in sums.seen_xw]),
        sums.seen_ex.unpack(),
        array(sums.seen_ew, p),
        sums.seen_ee.unpack()[:, 0],
    )


def outcome_moments(
    problem: Problem, found: Smoothed, w: Float[Array, "time w lane"], seen: Array
) -> tuple[Array, Array, Array]:
    """From smoothed states: by group E v v' of v = (x, w), and by outcome E e v' and E e e."""
    v = jnp.concatenate([found.mean, w], axis=1)
    known = [(0, 0), (0, w.shape[1])]
    second = v[:, :, None] * v[:, None] + jnp.pad(found.cov, [*known, known[1], (0, 0)])
    by_group = [jnp.where(seen[:, g, None, None], second, 0.0).sum(0) for g in range(seen.shape[1])]
    loading = problem.system.loading
    miss = problem.y - (loading * found.mean[:, None]).sum(2)
    shrunk = (loading[None, :, :, None] * found.cov[:, None]).sum(2)
    ev = miss[:, :, None] * v[:, None] - jnp.pad(shrunk, [*known[:1], (0, 0), known[1], (0, 0)])
    ee = miss**2 + (shrunk * loading).sum(2)
    there = problem.seen
    return (
        jnp.stack(by_group),
        jnp.where(there[:, :, None], ev, 0.0).sum(0),
        jnp.where(there, ee, 0.0).sum(0),
    )


class MomentSums(NamedTuple):
    """The sums of the steps that the backward pass has visited."""

    mean: Matrix
    """Of the step visited last, which at the end is the first."""
    cov: Matrix
    xx: Matrix
    """Of the states that are left for a next step."""
    ex: Matrix
    xs: Matrix | None
    es: Matrix | None
    seen_xx: tuple[Matrix, ...]
    """By group of outcomes."""
    seen_xw: tuple[Matrix | None, ...]
    seen_ex: Matrix
    seen_ew: Matrix | None
    seen_ee: Matrix

    @classmethod
    def start(cls, shape: Shape, zeros: Callable[[int, int], Matrix]) -> MomentSums:
        """Nothing yet; `zeros` makes a matrix of so many rows and columns."""
        q, p, n_groups = shape.n_latent, shape.n_outcomes, len(shape.groups)

        def some(rows: int, columns: int) -> Any:
            return zeros(rows, columns) if columns else None

        s, w = len(shape.drive_cols), len(shape.w_cols)
        return cls(
            zeros(q, 1),
            zeros(q, q),
            zeros(q, q),
            zeros(q, q),
            some(q, s),
            some(q, s),
            (zeros(q, q),) * n_groups,
            (some(q, w),) * n_groups,
            zeros(p, q),
            some(p, w),
            zeros(p, 1),
        )

    def also(self, problem: Problem, w: Array, s: Array, seen: Array) -> tuple[Any, ...]:
        """What `visit` reads at every step besides the states."""

        def column(array: Array) -> Any:
            return pack(array[..., None, :], self.seen_ee) if array.shape[1] else None

        weight = problem.seen.astype(problem.y.dtype)
        drive = None if problem.drive is None else column(jnp.roll(problem.drive, -1, axis=0))
        masks = tuple(seen[:, group] for group in range(seen.shape[1]))
        known = (problem.y, weight, w, jnp.roll(s, -1, 0))
        return *map(column, known), drive, masks

    @staticmethod
    def visit(loading: Matrix, transition: Matrix) -> Callable[[MomentSums, SmoothedStep], Any]:
        """Adds a step to the sums."""

        def add(total: MomentSums, step: SmoothedStep) -> tuple[MomentSums, None]:
            y, seen, w, s, drive, masks = step.also
            mean, cov, on = step.mean, step.cov, step.goes_on
            xx = mean @ mean.T + cov
            left = step.ahead - transition @ mean
            left = (left if drive is None else left - drive).where(on)
            shrunk = (transition @ cov).where(on)
            miss = (y - loading @ mean).scaled(seen)
            known = (loading @ cov).scaled(seen)

            def more(old: Any, new: Callable[[], Any]) -> Any:
                return None if old is None else old + new()

            return MomentSums(
                mean=mean,
                cov=cov,
                xx=total.xx + xx.where(on),
                ex=total.ex + left @ mean.T + step.cross - shrunk,
                xs=more(total.xs, lambda: (mean @ s.T).where(on)),
                es=more(total.es, lambda: left @ s.T),
                seen_xx=tuple(
                    old + xx.where(mask) for old, mask in zip(total.seen_xx, masks, strict=True)
                ),
                seen_xw=tuple(
                    more(old, lambda mask=mask: (mean @ w.T).where(mask))
                    for old, mask in zip(total.seen_xw, masks, strict=True)
                ),
                seen_ex=total.seen_ex + miss @ mean.T - known,
                seen_ew=more(total.seen_ew, lambda: miss @ w.T),
                seen_ee=total.seen_ee + miss.row_dots(miss) + known.row_dots(loading),
            ), None

        return add
