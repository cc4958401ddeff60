"""What constraints and priors are to the engine: linear conditions on theta, and a penalty.

The numbers that users see follow linearly from theta (or their logarithms, log odds, do), so that
every constraint is a row of linear equations or inequalities in the entries of theta themselves.
Nothing here knows of which component they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from avem.components.base import Match
from avem.components.free import Free, Span
from avem.components.param_info import ParamInfo, Params
from avem.components.priors import Prior
from avem.errors import ModelError
from avem.models.constraints import Constraint, Entry, Named, Reference
from avem.numerics.polyhedron import Polyhedron

_ACTIVE = 1e-5
"""A bound is reached where a number, on the scale of the fit, is this close to it."""
_INSIDE = 1e-3
"""Least probability of what is possible, at a start."""
_LINEAR = 1e-7


class Row(NamedTuple):
    """One linear condition on numbers of one or two parameters, on the scales of their links."""

    parts: tuple[tuple[str, int, float], ...]
    """Parameter, flat place, factor."""
    equal: bool
    value: float
    """What the sum is, or is at least."""
    text: str


class OfPrior(NamedTuple):
    """A prior and what it is of."""

    name: str
    """The user's parameter."""
    at: np.ndarray | None
    """Flat places; None: the whole of it."""
    prior: Prior
    kind: str
    """Of the parameter."""

    def value(self, params: Params) -> np.ndarray:
        """What it is a density of."""
        own = params[self.name]
        return own if self.at is None else own.ravel()[self.at]

    def log_density(self, params: Params) -> float:
        """At parameters."""
        return self.prior.log_density(self.value(params), self.kind)


class Group(NamedTuple):
    """Some of the entries of theta of a restriction."""

    keys: tuple[str, ...]
    numbers: np.ndarray
    """(numbers,) bool: which are theirs."""
    sides: Polyhedron
    """Of these alone."""


@dataclass(frozen=True, eq=False)
class Restriction:
    """What theta must be, in some of its numbers, and what is said of them beforehand."""

    spans: tuple[Span, ...]
    sides: Polyhedron
    """Of the numbers of all spans."""
    priors: tuple[OfPrior, ...]
    params_out: Callable[[Params], Params]
    likes: Params
    """Theta inside all bounds, with what is held where it is held."""
    told_apart: bool
    """Constraints themselves, not only probabilities' sums, are among the sides."""

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The entries of theta that are concerned."""
        return tuple(dict.fromkeys(span.key for span in self.spans))

    @cached_property
    def _slices(self) -> list[slice]:
        ends = np.cumsum([0, *(span.places.shape[1] for span in self.spans)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def places(self, key: str) -> np.ndarray:
        """(entries of theta[key], numbers) which entries each number is."""
        parts = [
            span.places if span.key == key else np.zeros((self.likes[key].size, width))
            for span, width in zip(self.spans, map(_width, self._slices), strict=True)
        ]
        return np.concatenate(parts, axis=1)

    def read(self, theta: Params) -> np.ndarray:
        """The numbers in theta."""
        return _read(self.spans, theta)

    def write(self, numbers: np.ndarray, theta: Params) -> Params:
        """Theta with these numbers."""
        new = dict(theta)
        for span, own in zip(self.spans, self._slices, strict=True):
            flat = np.array(new[span.key], float).ravel()
            mine = span.places.any(1)
            flat[mine] = span.places[mine] @ numbers[own]
            new[span.key] = flat.reshape(theta[span.key].shape)
        return new

    def within(self, theta: Params, inside: float = 0.0) -> Params | None:
        """The nearest theta that is allowed; None where that is no theta.

        With `inside`, probabilities that may be more are at least that.
        """
        x = self.read(theta)
        sides = self.sides
        if inside:
            least = sides.least.copy()
            rows = [slice(0, 0)] + [own for s, own in self._chance_rows() if s]
            for own in rows:
                moving = np.abs(sides.free[own]).max(1, initial=0.0) > 1e-9
                least[own] = np.where(moving, inside, 0.0)
            roomy = replace(sides, least=least).nearest(x)
            if roomy is not None:
                return self._checked(roomy, theta)
        found = sides.nearest(x)
        return None if found is None else self._checked(found, theta)

    def _chance_rows(self) -> list[tuple[bool, slice]]:
        # The first rows of `above` are the numbers themselves, in their order.
        return [(s.chances, own) for s, own in zip(self.spans, self._slices, strict=True)]

    def _checked(self, numbers: np.ndarray, theta: Params) -> Params | None:
        new = self.write(numbers, theta)
        for key in self.keys:
            is_covariance = key.endswith("covariance") and bool(new[key].size)
            if is_covariance and np.linalg.eigvalsh(new[key]).min() <= 0:
                return None
        return new

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Entries of theta that conditions tie to each other, to be found together."""
        owner = np.concatenate(
            [np.full(_width(own), self.keys.index(span.key)) for span, own in self._pairs()]
        )
        label = np.arange(len(self.keys))
        for row in (*self.sides.equal, *self.sides.above):
            both = label[np.unique(owner[np.abs(row) > 1e-12])]
            label[np.isin(label, both)] = both.min()
        found = []
        for number in np.unique(label):
            keys = np.flatnonzero(label == number)
            own = np.isin(owner, keys)
            mine = [np.abs(part[:, own]).any(1) for part in (self.sides.equal, self.sides.above)]
            sides = Polyhedron(
                self.sides.equal[mine[0]][:, own],
                self.sides.level[mine[0]],
                self.sides.above[mine[1]][:, own],
                self.sides.least[mine[1]],
            )
            found.append(Group(tuple(self.keys[k] for k in keys), own, sides))
        return tuple(found)

    def _pairs(self) -> list[tuple[Span, slice]]:
        return list(zip(self.spans, self._slices, strict=True))

    def with_floors(
        self,
        floors: Mapping[str, np.ndarray],
        limits: Mapping[str, tuple[np.ndarray, np.ndarray]],
    ) -> Restriction:
        """With the smallest variances (by key, of the diagonal), and coefficients' limits."""
        least, above = self.sides.least.copy(), [self.sides.above]
        more: list[float] = []
        n = self.sides.above.shape[1]
        for span, own in self._pairs():
            if span.positive and span.key in floors:
                of_entry = np.broadcast_to(np.diag(floors[span.key]), self.likes[span.key].shape)
                lowest = np.array([of_entry.ravel()[c > 0].max() for c in span.places.T])
                at = np.arange(own.start, own.start + span.positive)
                least[at] = np.maximum(least[at], lowest[: span.positive])
            if span.key in limits:
                shape = self.likes[span.key].shape
                low, high = (np.broadcast_to(one, shape).ravel() for one in limits[span.key])
                for number, column in enumerate(span.places.T):
                    entry = int(column.argmax())
                    for sign, bound in ((1.0, low[entry]), (-1.0, -high[entry])):
                        if np.isfinite(bound):
                            row = np.zeros((1, n))
                            row[0, own.start + number] = sign
                            above.append(row)
                            more.append(bound)
        least = np.concatenate([least, more])
        return replace(self, sides=replace(self.sides, above=np.concatenate(above), least=least))

    def tied(self, key: str) -> np.ndarray:
        """Of the shape of theta[key], which entries a condition of a user's speaks of."""
        n = self.sides.equal.shape[1]
        rows = np.concatenate([self.sides.equal, self.sides.above[n:]])
        numbers = (np.abs(rows) > 1e-12).any(0) if len(rows) else np.zeros(n, bool)
        found = self.places(key)[:, numbers].sum(axis=1) > 0
        return np.reshape(found, self.likes[key].shape)

    def of_states(self, keys: Collection[str], states: Collection[int]) -> np.ndarray:
        """(numbers,) bool: those of some states, the first axis of these entries of theta."""
        found = np.zeros(self.sides.equal.shape[1], bool)
        for key in set(keys) & set(self.keys):
            own = np.zeros(self.likes[key].shape, bool)
            own[list(states)] = True
            found |= self.places(key)[own.ravel()].any(0)
        return found

    # --- what follows from it -------------------------------------------------------------------

    def moves_with(self, match: Match | None) -> Match | None:
        """The match of an effect, unless the coefficients are constrained or have a prior."""
        if match is None or match.key not in self.keys:
            return match
        move = np.zeros(self.likes[match.key].shape)
        states = slice(None) if match.state is None else match.state
        move[(states, *match.place)] = 1.0
        numbers = self.places(match.key).T @ move.ravel()
        concerned = (*self.sides.equal, *self.sides.above)
        if any(abs(row @ numbers) > 1e-9 for row in concerned) or self._has_prior(match.key):
            return None
        return match

    def _has_prior(self, key: str) -> bool:
        return any(np.abs(self._slope_of(one)[key]).max() > 0 for one in self.priors)

    def _slope_of(self, one: OfPrior) -> Params:
        """By key, how much what a prior is about depends on theta's entries."""
        jacobian = self._jacobian(one, self.likes)
        total = np.abs(jacobian).sum(0)
        return {key: self.places(key) @ total for key in self.keys}

    def _jacobian(self, one: OfPrior, theta: Params) -> np.ndarray:
        """(numbers, own numbers) derivative of what a prior is about."""
        x = self.read(theta)
        columns = []
        for j in range(len(x)):
            step = 1e-5 * max(1.0, abs(x[j])) * (np.arange(len(x)) == j)
            up = one.value(self.params_out(self.write(x + step, theta)))
            down = one.value(self.params_out(self.write(x - step, theta)))
            columns.append((up - down).ravel() / (2 * step[j]))
        return np.array(columns).T.reshape(-1, len(x))

    @cached_property
    def _fixed_jacobians(self) -> list[np.ndarray | None]:
        """Of every prior; None where it is not the same everywhere."""
        found: list[np.ndarray | None] = []
        other = self.write(self.read(self.likes) * 1.3 + 0.1, self.likes)
        for one in self.priors:
            here, there = self._jacobian(one, self.likes), self._jacobian(one, other)
            same = np.allclose(here, there, rtol=1e-6, atol=1e-9)
            found.append(np.where(np.abs(here) < 1e-9, 0.0, here) if same else None)
        return found

    def log_prior(self, theta: Params) -> float:
        """Of the parameters, up to a constant."""
        if not self.priors:
            return 0.0
        params = self.params_out(theta)
        return float(sum(one.log_density(params) for one in self.priors))

    def prior_terms(self, theta: Params) -> tuple[np.ndarray, np.ndarray]:
        """Slope and curvature of `log_prior` in the numbers; the curvature is never negative."""
        n = self.sides.equal.shape[1]
        slope, curvature = np.zeros(n), np.zeros((n, n))
        if not self.priors:
            return slope, curvature
        params = self.params_out(theta)
        for one, fixed in zip(self.priors, self._fixed_jacobians, strict=True):
            jacobian = self._jacobian(one, theta) if fixed is None else fixed
            first, second = one.prior.terms(one.value(params), one.kind)
            slope += jacobian.T @ first.ravel()
            curvature += jacobian.T @ second @ jacobian
        return slope, curvature

    def prior_slope(self, theta: Params) -> Params:
        """Slope of `log_prior` in the entries of theta, as `Free.pull` takes them."""
        slope, _ = self.prior_terms(theta)
        out = {}
        for key in self.keys:
            places = self.places(key)
            # A number that is several entries shares its slope among them.
            out[key] = (places @ (slope / np.maximum(places.sum(0), 1.0))).reshape(theta[key].shape)
        return out

    def reached(self, theta: Params) -> np.ndarray:
        """(rows, numbers) the bounds that theta is at, as conditions."""
        x = self.read(theta)
        size = np.maximum(np.linalg.norm(self.sides.above, axis=1), 1e-300)
        near = (self.sides.above @ x - self.sides.least) / size < _ACTIVE
        own = np.arange(len(self.sides.above)) >= len(x)  # beyond those of the numbers themselves
        return self.sides.above[near & own]


def _width(own: slice) -> int:
    return own.stop - own.start


def _read(spans: Sequence[Span], theta: Params) -> np.ndarray:
    parts = [
        span.places.T @ theta[span.key].ravel() / span.places.sum(0).clip(1.0) for span in spans
    ]
    return np.concatenate(parts or [np.zeros(0)])


# --- making one -----------------------------------------------------------------------------------


def make_restriction(
    constraints: Sequence[Constraint],
    priors: Sequence[OfPrior],
    named: Named,
    info: Mapping[str, ParamInfo],
    free: Free,
    params_out: Callable[[Params], Params],
    likes: Params,
    able: Sequence[str],
    strict: bool = True,
) -> Restriction | None:
    """The restriction of a model; None where there is none.

    ``able`` are the entries of theta whose M-step can be restricted; ``likes`` is a theta inside
    all bounds; `free` says what is not held; `strict`: what is held must keep to the constraints.
    """
    rows = [row for one in constraints for row in _rows(one, named, info)]
    if not rows and not priors:
        return None
    spans = tuple(part.span(likes) for part in free.parts)
    full = Restriction(spans, _none(spans, likes), tuple(priors), params_out, likes, bool(rows))
    names = dict.fromkeys([part[0] for row in rows for part in row.parts])
    scales = {name: _scale(info[name]) for name in names}
    origin, slopes = _linear(full, scales)
    conditions = [_condition(row, origin, slopes) for row in rows]
    touched = _touched(full, [slope for slope, *_ in conditions])
    _check_able(touched, able, rows, priors)
    keep = np.concatenate(
        [np.full(_width(s), span.key in touched) for span, s in full._pairs()] or [np.zeros(0)]
    ).astype(bool)
    own = tuple(span for span in spans if span.key in touched)
    base = _none(own, likes)
    equal, level = [base.equal], [base.level]
    above, least = [base.above], [base.least]
    for (slope, value, is_equal), row in zip(conditions, rows, strict=True):
        slope = slope[keep]
        if not np.abs(slope).max(initial=0.0) > 1e-10:
            if strict:
                _check_held(value, is_equal, row)
            continue
        (equal if is_equal else above).append(slope[None])
        (level if is_equal else least).append(np.array([value]))
        sides = Polyhedron(*(np.concatenate(part) for part in (equal, level, above, least)))
        if sides.nearest(_read(own, likes)) is None:
            raise ModelError(
                f"The constraint {row.text!r} cannot hold: it contradicts those before it, or what "
                "probabilities and variances can be. Take one of them out."
            )
    sides = Polyhedron(*(np.concatenate(part) for part in (equal, level, above, least)))
    return replace(full, spans=own, sides=sides)


def _none(spans: Sequence[Span], likes: Params) -> Polyhedron:
    """What is so without constraints: sums of probabilities, nothing below 0."""
    widths = [span.places.shape[1] for span in spans]
    n, starts = sum(widths), np.cumsum([0, *widths]).tolist()
    equal, level = [np.zeros((0, n))], []
    least = np.full(n, -np.inf)
    for span, start, width in zip(spans, starts, widths, strict=False):
        if span.chances:
            row = np.zeros((1, n))
            row[0, start : start + width] = 1.0
            equal.append(row)
            level.append(float(_read([span], likes).sum()))
            least[start : start + width] = 0.0
        least[start : start + span.positive] = 0.0
    return Polyhedron(np.concatenate(equal), np.array(level), np.eye(n), least)


def _scale(info: ParamInfo) -> Callable[[np.ndarray], np.ndarray]:
    """Where a parameter follows linearly from theta: its link's, or its own."""
    if info.link is not None:
        return info.link.to_eta
    return np.log if info.kind == "rate" else np.asarray


def _linear(
    full: Restriction, scales: Mapping[str, Callable[[np.ndarray], np.ndarray]]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Value at 0 and slopes of all numbers of some parameters, on their scales."""
    x = full.read(full.likes)
    if not scales:
        return {}, {}

    def at(there: np.ndarray) -> dict[str, np.ndarray]:
        params = full.params_out(full.write(there, full.likes))
        with np.errstate(all="ignore"):
            return {name: scale(params[name]).ravel() for name, scale in scales.items()}

    here = at(x)
    moved = [at(x + unit) for unit in np.eye(len(x))]
    with np.errstate(invalid="ignore"):  # what is 0 by definition has no logarithm
        slopes = {name: np.array([m[name] - here[name] for m in moved]).T for name in scales}
    mixed = np.random.default_rng(0).uniform(0.1, 0.4, len(x))
    there = at(x + mixed)
    for name in scales:
        wanted = here[name] + slopes[name] @ mixed
        finite = np.isfinite(here[name])
        if not np.allclose(there[name][finite], wanted[finite], rtol=_LINEAR, atol=_LINEAR):
            raise ModelError(
                f"{name!r} follows from other numbers in this model (log odds, where the first "
                "state is stationary), so that it cannot be constrained. Give initial= a formula, "
                "or constrain what it follows from."
            )
        slopes[name] = np.where(np.abs(slopes[name]) < 1e-12, 0.0, slopes[name])
    with np.errstate(invalid="ignore"):
        return {name: here[name] - slopes[name] @ x for name in scales}, slopes


def _rows(one: Constraint, named: Named, info: Mapping[str, ParamInfo]) -> list[Row]:
    name, text = one.first.name, one.text
    if one.word == "equal":
        groups = named.over(one.first, text)
        pairs = [(g[0], other) for g in groups for other in g[1:] if not g[0].constant]
        if not pairs:
            raise ModelError(f"The constraint {text!r} is about single numbers: nothing is tied.")
        return [_tie(name, a, name, b, text) for a, b in pairs]
    if isinstance(one.second, float):
        _check_value(one, info.get(name))
        entries = named.found(one.first, text)
        return [row for entry in entries for row in _bound(one, entry, info[name])]
    assert isinstance(one.second, Reference)
    pairs = named.paired(one.first, one.second, text)
    if _kind(info[name]) != _kind(info[one.second.name]):
        raise ModelError(
            f"The constraint {text!r} ties {name!r} to {one.second.name!r}, which is of another "
            "kind and has another scale."
        )
    return [_tie(name, a, one.second.name, b, text) for a, b in pairs]


def _kind(info: ParamInfo) -> tuple[str, str]:
    return info.kind, "" if info.link is None else info.link.name


def _tie(name: str, a: Entry, other: str, b: Entry, text: str) -> Row:
    if a.constant or b.constant:
        raise ModelError(
            f"The constraint {text!r} ties a number that the model has by definition, such as an "
            "impossible move."
        )
    if (name, a.at) == (other, b.at):
        raise ModelError(f"The constraint {text!r} ties a number to itself.")
    return Row(((name, a.at, 1.0), (other, b.at, -1.0)), True, 0.0, text)


def _bound(one: Constraint, entry: Entry, info: ParamInfo) -> list[Row]:
    assert isinstance(one.second, float)
    if entry.constant:
        if one.word == "==" and one.second == 0:
            return []  # it is 0 by definition
        raise ModelError(
            f"The constraint {one.text!r} is about a number that the model has by definition, such "
            "as an impossible move."
        )
    value = float(_scale(info)(np.array(one.second)))
    sign = -1.0 if one.word == "<=" else 1.0
    part = ((one.first.name, entry.at, sign),)
    return [Row(part, one.word == "==", sign * value, one.text)]


def _check_value(one: Constraint, info: ParamInfo | None) -> None:
    if info is None:
        return
    value = one.second
    assert isinstance(value, float)
    with np.errstate(all="ignore"):
        inside = bool(np.isfinite(_scale(info)(np.array(value))))
    if info.kind == "positive" and not (value > 0 or (one.word == ">=" and value == 0)):
        inside = False
    if info.kind == "simplex" and not 0 <= value <= 1:
        inside = False
    if not inside:
        more = ""
        if info.kind == "rate" and value == 0:
            more = " For moves that do not happen: avem.rates(moves=[(0, 1), ...])."
        raise ModelError(
            f"The constraint {one.text!r}: {one.first.name!r} can never be {value:g}.{more}"
        )


def _condition(
    row: Row, origin: Mapping[str, np.ndarray], slopes: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, float, bool]:
    """Slopes in the numbers of theta and the value, of size 1."""
    slope = sum((factor * slopes[name][at] for name, at, factor in row.parts), np.zeros(1))
    value = row.value - sum(factor * origin[name][at] for name, at, factor in row.parts)
    size = float(np.linalg.norm(slope))
    size = size if size > 1e-10 else 1.0
    return np.asarray(slope) / size, value / size, row.equal


def _touched(full: Restriction, slopes: Sequence[np.ndarray]) -> set[str]:
    found = {
        span.key
        for span, own in full._pairs()
        if any(np.abs(slope[own]).max(initial=0.0) > 1e-10 for slope in slopes)
    }
    for one in full.priors:
        found |= {key for key, slope in full._slope_of(one).items() if np.abs(slope).max() > 0}
    return found


def _check_able(
    touched: set[str],
    able: Sequence[str],
    rows: Sequence[Row],
    priors: Sequence[OfPrior],
) -> None:
    if touched <= set(able):
        return
    said = ", ".join([*(repr(row.text) for row in rows[:3]), *(repr(p.name) for p in priors)])
    raise ModelError(
        f"{said}: constraints and priors on how long stays last are not available. Take them out, "
        "or hold the whole parameter with fixed=."
    )


def _check_held(value: float, equal: bool, row: Row) -> None:
    holds = abs(value) < 1e-7 if equal else value < 1e-7
    if not holds:
        raise ModelError(
            f"The constraint {row.text!r} contradicts a parameter that fixed= holds at another "
            "value. Take one of them out."
        )
