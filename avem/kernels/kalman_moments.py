"""Sums over time of the smoothed moments of every lane: what a state-space local pass is for.

There are two ways to the same numbers: a scan over time, which defines them, and a native kernel,
several times faster, where the machine can build it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from avem.kernels import cpp as native
from avem.kernels import kalman
from avem.numerics.matrices import Matrix, pack

_MOST_STATES = 6
"""Of the native kernel, whose code is unrolled over them."""


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
    problem: kalman.Problem,
    w: Float[Array, "time w lane"],
    s: Float[Array, "time s lane"],
    seen: Bool[Array, "time group lane"],
) -> Moments:
    """Filter and smoother of every lane, and the sums; `seen` is the problem's, by group."""
    q = shape.n_latent
    if problem.more is None and q <= _MOST_STATES:
        target = native.find("moments", STATES=q)
        if target is not None:
            return by_native(target, shape, problem, w, s, seen)
    return by_scan(shape, problem, w, s)


def by_native(
    target: str, shape: Shape, problem: kalman.Problem, w: Array, s: Array, seen: Array
) -> Moments:
    """By the kernel in ``native/moments.cc``."""
    q, p, n_groups, n = shape.n_latent, shape.n_outcomes, len(shape.groups), w.shape[-1]
    n_w, n_s = w.shape[1], s.shape[1]
    pairs = [(), (q,), (q, q), (q, q), (q, q), (q, n_s), (q, n_s)]
    when_seen = [(n_groups, q, q), (n_groups, q, n_w), (p, q), (p, n_w), (p,)]
    shapes: list[tuple[int, ...]] = [*pairs, *when_seen]  # in the order of the fields of `Moments`
    ends = np.cumsum([prod(shape) for shape in shapes])
    drive = jnp.zeros((0, q, n)) if problem.drive is None else problem.drive
    rows = jax.ffi.ffi_call(
        target, jax.ShapeDtypeStruct((int(ends[-1]), n), w.dtype), vmap_method="expand_dims"
    )(
        *problem.system,
        problem.y,
        seen,
        problem.valid,
        drive,
        w,
        s,
        shape.group_of.astype(np.int32),
    )
    parts = jnp.split(rows, ends[:-1], axis=0)
    return Moments(*(part.reshape(*shape, n) for part, shape in zip(parts, shapes, strict=True)))


def by_scan(shape: Shape, problem: kalman.Problem, w: Array, s: Array) -> Moments:
    """By the scan of `kalman.visit_smoothed`."""
    sums = _Sums.start(shape, problem)
    also = sums.also(shape, problem, w, s)
    loglik, sums, _ = kalman.visit_smoothed(problem, sums.visit(problem), sums, also)

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


class _Sums(NamedTuple):
    """The same while the backward pass of a scan is on its way."""

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
    def start(cls, shape: Shape, problem: kalman.Problem) -> _Sums:
        """Nothing yet."""
        alike, n = pack(problem.system.loading), problem.y.shape[-1]
        q, p, n_groups = shape.n_latent, shape.n_outcomes, len(shape.groups)

        def zeros(rows: int, columns: int) -> Any:
            return pack(jnp.zeros((rows, columns, n)), alike) if columns else None

        s, w = len(shape.drive_cols), len(shape.w_cols)
        return cls(
            zeros(q, 1),
            zeros(q, q),
            zeros(q, q),
            zeros(q, q),
            zeros(q, s),
            zeros(q, s),
            (zeros(q, q),) * n_groups,
            (zeros(q, w),) * n_groups,
            zeros(p, q),
            zeros(p, w),
            zeros(p, 1),
        )

    def also(self, shape: Shape, problem: kalman.Problem, w: Array, s: Array) -> tuple[Any, ...]:
        """What `visit` reads at every step besides the states."""

        def column(array: Array) -> Any:
            return pack(array[..., None, :], self.seen_ee) if array.shape[1] else None

        seen = problem.seen.astype(problem.y.dtype)
        drive = None if problem.drive is None else column(jnp.roll(problem.drive, -1, axis=0))
        masks = tuple(problem.seen[:, group[0]] for group in shape.groups)
        return column(problem.y), column(seen), column(w), column(jnp.roll(s, -1, 0)), drive, masks

    def visit(self, problem: kalman.Problem) -> Callable[[_Sums, kalman.Step], Any]:
        """Adds a step to the sums."""
        loading = pack(problem.system.loading)
        transition = pack(problem.system.transition, loading)

        def add(total: _Sums, step: kalman.Step) -> tuple[_Sums, None]:
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

            return _Sums(
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
