"""Linear stochastic differential equations over an interval: dz = A z dt + (dW, 0).

The first q entries z are states with noise of their own, x; the others are constants that push
them, so that their rows of A are 0. All is found at a short interval by series, and from there by
doubling, as often as an interval needs: no matrix is inverted, nothing large cancels, however long
it is, or others are. Matrices are (row, column, ...), of NumPy or JAX; axes that follow may be of
length 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from avem.numerics.generator import Repeat, in_turn, product

_LARGEST, _TERMS = 0.25, 15
"""The size of A times the shortest interval, and terms of its series: the rest is below 1e-16."""
_MOST = 100
"""Doublings; a drift beyond them is taken for no drift at all, and ends as NaN."""


class Interval(NamedTuple):
    """What an interval does: z at its end is G z + N(0, Q)."""

    transition: Any
    """G = exp(A d), (r, r, ...)."""
    noise: Any
    """Q (q, q, ...): of the states."""


class Within(NamedTuple):
    """Integrals over intervals, given what is known of the states at their ends."""

    zz: Any
    """(r, r, ...) of E z z'."""
    ez: Any
    """(q, r, ...) of E (dx - A z dt) z'."""


class Ends(NamedTuple):
    """What is known of the ends of one interval, or the sum of that over several alike.

    With e = x_end - (G z)_x, p = Q^-1 e is what the end says of the path before it.
    """

    zz: Any
    """(r, r, ...) E z z' at the beginning."""
    zp: Any
    """(r, q, ...) E z p'."""
    pp: Any
    """(q, q, ...) E p p' - Q^-1."""
    count: Any
    """(...) of the intervals."""


def discretise(drift: Any, time: Any, n_states: int, repeat: Repeat = in_turn) -> Interval:
    """What dz = A z dt + (dW, 0) does over intervals of these lengths (...).

    In compiled code `repeat` is a loop, through which derivatives can be taken forwards.
    """
    n = _doublings(drift, time, n_states)
    return _doubled(n, _series(drift, time * 0.5**n, n_states), repeat)


def integrals(drift: Any, time: Any, ends: Ends, n_states: int, repeat: Repeat = in_turn) -> Within:
    """Integrals over the paths between known ends.

    An interval is cut into halves until it is short. What is known of the ends of all its parts
    together follows from what is known of the ends of intervals twice as long; over the short ones
    the moments follow a linear differential equation, which has a series.
    """
    n = _doublings(drift, time, n_states)
    short = _series(drift, time * 0.5**n, n_states)

    def halve(i: Any, known: Ends) -> Ends:
        halved = _halved(known, _doubled(n - 1 - i, short, repeat), n_states)
        return Ends(*_where(i < n, halved, known))

    return _over_short(drift, time * 0.5**n, repeat(n.max(), halve, ends), short, n_states)


def _doublings(drift: Any, time: Any, q: int) -> Any:
    xp = drift.__array_namespace__()
    largest = xp.abs(drift[:q, :q]).sum(1).max(0) * time
    wanted = xp.ceil(xp.log2(xp.maximum(largest / _LARGEST, 1.0)))
    return xp.minimum(xp.where(xp.isfinite(wanted), wanted, 0.0), 1.0 * _MOST)


def _series(drift: Any, time: Any, q: int) -> Interval:
    xp = drift.__array_namespace__()
    step = drift * time
    own, shape = step[:q, :q], step.shape[2:]
    transition = term = _unit(xp, len(drift), shape)
    wider = _unit(xp, q, shape)
    noise = wider = wider * time
    for k in range(1, _TERMS):
        term = product(step, term) / k
        transition = transition + term
        half = product(own, wider) / (k + 1)
        wider = half + _turned(half)
        noise = noise + wider
    return Interval(transition, noise)


def _doubled(n: Any, short: Interval, repeat: Repeat) -> Interval:
    """After `n` (...) doublings of intervals."""

    def double(i: Any, one: Interval) -> Interval:
        transition, noise = one
        q = len(noise)
        own = transition[:q, :q]
        moved = product(product(own, noise), _turned(own))
        twice = Interval(product(transition, transition), noise + moved)
        return Interval(*_where(i < n, twice, one))

    return repeat(n.max(), double, short)


def _where(which: Any, chosen: Any, other: Any) -> Any:
    """Parts of two records."""
    xp = which.__array_namespace__()
    return (xp.where(which, own, old) for own, old in zip(chosen, other, strict=True))


def _halved(known: Ends, half: Interval, q: int) -> Ends:
    """What is known of the ends of both halves, added up."""
    zz, zp, pp, count = known
    whole, noise = half
    xp = zz.__array_namespace__()
    own = whole[:q, :q]
    back = product(noise, _turned(own))
    # The middle is G z + Q G'p and noise Q; what the middle says of the path before it is G'p.
    with_z = product(whole, zz) + _below(xp, product(back, _turned(zp)), len(zz))
    with_p = product(whole, zp) + _below(xp, product(back, pp), len(zz))
    square = product(with_z, _turned(whole))
    square = square + _beside(xp, product(with_p, _turned(back)), len(zz))
    square = square + _corner(xp, count * noise, len(zz))
    return Ends(
        zz + square,
        product(zp, own) + with_p,
        product(product(_turned(own), pp), own) + pp,
        2.0 * count,
    )


def _over_short(drift: Any, time: Any, known: Ends, short: Interval, q: int) -> Within:
    """By series in time.

    With N = E z z', C = E p z' and P = E p p' - Q^-1 along the path,

    N' = A N + N A' + C + C' + I,   C' = -A'C + C A' + P,   P' = -A'P - P A.
    """
    zz, zp, pp, count = known
    xp = zz.__array_namespace__()
    r, back = len(zz), _turned(drift[:q, :q])
    own = short.transition[:q, :q]
    p = product(product(_turned(own), pp), own) * time
    c, n = product(_turned(own), _turned(zp)) * time, zz * time
    total_n, total_c = n, c
    for k in range(2, _TERMS + 2):
        half = product(drift, n) + _below(xp, c, r)
        if k == 2:
            half = half + 0.5 * _corner(xp, _unit(xp, q, p.shape[2:]) * (count * time), r)
        moved = product(back, p)
        back_c = product(c, _turned(drift)) - product(back, c) + _beside(xp, p, r)
        n, c, p = (
            (half + _turned(half)) * (time / k),
            back_c * (time / k),
            -(moved + _turned(moved)) * (time / k),
        )
        total_n, total_c = total_n + n, total_c + c
    return Within(total_n, total_c)


def _unit(xp: Any, size: int, shape: tuple[int, ...]) -> Any:
    unit = xp.reshape(xp.eye(size), (size, size, *[1] * len(shape)))
    return unit + xp.zeros(shape)


def _turned(matrix: Any) -> Any:
    """The transpose."""
    return matrix.swapaxes(0, 1)


def _below(xp: Any, top: Any, size: int) -> Any:
    """Rows of 0 beneath (q, ...), so that there are `size`."""
    if len(top) == size:
        return top
    return xp.concatenate([top, xp.zeros((size - len(top), *top.shape[1:]))], 0)


def _beside(xp: Any, left: Any, size: int) -> Any:
    """Columns of 0 to the right."""
    return _turned(_below(xp, _turned(left), size))


def _corner(xp: Any, square: Any, size: int) -> Any:
    return _beside(xp, _below(xp, square, size), size)
