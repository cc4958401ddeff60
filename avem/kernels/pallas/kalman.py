"""Filter and smoother of state-space models with their sums over time, a lane per thread.

The steps are those of `kalman_filter` and `kalman`, and the sums those of `kalman_moments`: here
their matrices have vectors over the lanes of a block as entries. Filtered moments go to memory and
come back.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from avem.kernels.kalman import smooth_step
from avem.kernels.kalman_filter import LOG_2PI, Leaving, Now, Packed, filter_step
from avem.kernels.kalman_moments import MomentSums, Shape
from avem.kernels.matrices import Unrolled


class States(NamedTuple):
    """References to the problem, and to where results go."""

    start_mean: Any
    start_cov: Any
    transition: Any
    state_noise: Any
    loading: Any
    noise: Any
    y: Any
    seen: Any
    valid: Any
    drive: Any
    w: Any
    s: Any
    loglik: Any
    known: Any
    """(time, moments, lane) filtered means, and covariances up to their diagonals."""


class _Row(NamedTuple):
    """A step's data."""

    y: tuple[Array, ...]
    seen: tuple[Array, ...]
    valid: Array
    drive: tuple[Array, ...] | None
    w: tuple[Array, ...] | None
    s: tuple[Array, ...] | None


def run(shape: Shape, refs: States) -> MomentSums:
    """Both passes of the lanes of a block; the log likelihood is written, the sums returned."""
    n_times, q, group_of = refs.y.shape[0], shape.n_latent, shape.group_of.tolist()
    zero = jnp.zeros(refs.valid.shape[-1:], refs.loglik.dtype)

    def matrix(ref: Any) -> Unrolled:
        rows, columns = map(range, ref.shape[:2])
        return Unrolled(tuple(tuple(zero + ref[i, j, :] for j in columns) for i in rows))

    def vector(ref: Any) -> Unrolled:
        return _column([zero + ref[i, :] for i in range(ref.shape[0])])

    def zeros(rows: int, columns: int) -> Unrolled:
        return Unrolled(((zero,) * columns,) * rows)

    packed = Packed(*map(matrix, (refs.transition, refs.state_noise, refs.loading)))
    noise = [zero + refs.noise[j, :] for j in range(shape.n_outcomes)]
    precision = [1.0 / own for own in noise]
    constant = [LOG_2PI + jnp.log(own) for own in noise]

    def read(t: Any) -> _Row:
        """What a step needs is on its way from memory while the step before it is computed."""
        t = jnp.clip(t, 0, n_times - 1)

        def all_of(ref: Any) -> tuple[Array, ...] | None:
            return None if ref is None else tuple(ref[t, i, :] for i in range(ref.shape[1]))

        y, seen, drive, w, s = map(all_of, (refs.y, refs.seen, refs.drive, refs.w, refs.s))
        return _Row(y or (), seen or (), refs.valid[t, :], drive, w, s)

    def observed(row: _Row) -> list[tuple[Array, Array]]:
        """Whether each outcome was seen, and its value, 0 if not."""
        shown = [row.seen[g] != 0 for g in group_of]
        return [(here, jnp.where(here, own, 0.0)) for here, own in zip(shown, row.y, strict=True)]

    def forward(t: Any, carry: Any) -> Any:
        before, row = carry
        after, cells = read(t + 1), observed(row)
        logs = [jnp.where(here, c, 0.0) for (here, _), c in zip(cells, constant, strict=True)]
        weights = [jnp.where(here, w, 0.0) for (here, _), w in zip(cells, precision, strict=True)]
        values = _column([own for _, own in cells])
        leads = Leaving(_column(after.drive), None, None)
        now = Now(values, _column(weights), reduce(jnp.add, logs), row.valid != 0, leads, None)
        before, known = filter_step(packed, before, now)
        for number, entry in enumerate(_moments(*known)):
            refs.known[t, number, :] = entry
        return before, after

    first = vector(refs.start_mean)
    if refs.drive is not None:
        first = first + _column(read(0).drive)
    start = ((first, matrix(refs.start_cov), zero), read(0))
    (_, _, loglik), last = lax.fori_loop(0, n_times, forward, start)
    refs.loglik[:] = loglik

    visit = MomentSums.visit(packed.loading, packed.transition)

    def known(t: Any) -> tuple[Array, ...]:
        t = jnp.maximum(t, 0)
        return tuple(refs.known[t, i, :] for i in range(refs.known.shape[1]))

    def backward(i: Any, carry: Any) -> Any:
        total, ahead, goes_on, row, after, here = carry
        t = n_times - 1 - i
        then = read(t - 1), known(t - 1)
        leads, on = Leaving(_column(after.drive), None, None), goes_on != 0
        step = smooth_step(packed, _matrices(here, q), ahead, leads, row.valid != 0, on)
        cells = observed(row)
        weights = [jnp.where(here, 1.0, 0.0) for here, _ in cells]
        masks = tuple(own != 0 for own in row.seen)
        columns = ([own for _, own in cells], weights, row.w, after.s)
        total, _ = visit(total, step._replace(also=(*map(_column, columns), leads.drive, masks)))
        return total, (step.mean, step.cov), row.valid, then[0], row, then[1]

    begin = (MomentSums.start(shape, zeros), (zeros(q, 1), zeros(q, q)), jnp.zeros_like(last.valid))
    carry = (*begin, last, last, known(n_times - 1))
    return lax.fori_loop(0, n_times, backward, carry)[0]


def _column(entries: Any) -> Any:
    return None if entries is None else Unrolled(tuple((own,) for own in entries))


def _moments(mean: Any, cov: Any) -> list[Array]:
    """A mean, and a covariance up to its diagonal, row by row."""
    lower = [own for i, row in enumerate(cov.entries) for own in row[: i + 1]]
    return [own for (own,) in mean.entries] + lower


def _matrices(moments: tuple[Array, ...], q: int) -> tuple[Unrolled, Unrolled]:
    """The inverse of `_moments`."""
    lower = moments[q:]

    def entry(i: int, j: int) -> Array:
        i, j = max(i, j), min(i, j)
        return lower[i * (i + 1) // 2 + j]

    cov = tuple(tuple(entry(i, j) for j in range(q)) for i in range(q))
    return _column(moments[:q]), Unrolled(cov)


def write(total: MomentSums, results: dict[str, Any]) -> None:
    """The sums to where they go, by name; what has no entries has no reference."""

    def put(ref: Any, part: Any, *group: int) -> None:
        for i, row in enumerate(part.entries):
            for j, own in enumerate(row):
                ref[(*group, i, j, slice(None))] = own

    for name, ref in results.items():
        part = getattr(total, name)
        if name in ("seen_xx", "seen_xw"):
            for g, own in enumerate(part):
                put(ref, own, g)
        else:
            put(ref, part)
