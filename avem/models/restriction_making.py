"""From sentences and densities to a restriction: every sentence is a row of linear conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from avem.components.free import Free, Span
from avem.components.param_info import ParamInfo, Params
from avem.errors import ModelError
from avem.models.constraints import Constraint, Entry, Named
from avem.models.restriction import OfPrior, Restriction, read_numbers, width
from avem.numerics.polyhedron import Polyhedron

_LINEAR = 1e-7


class Condition(NamedTuple):
    """One linear condition on numbers of one or two parameters, on the scales of their links."""

    parts: tuple[tuple[str, int, float], ...]
    """Parameter, flat place, factor."""
    equal: bool
    value: float
    """What the sum is, or is at least."""
    text: str


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
        [np.full(width(s), span.key in touched) for span, s in full.pairs()] or [np.zeros(0)]
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
        if sides.nearest(read_numbers(own, likes)) is None:
            raise ModelError(
                f"The constraint {row.text!r} cannot hold: it contradicts those before it, or what "
                "probabilities and variances can be. Take one of them out."
            )
    if not own:
        return None  # all is held, where the constraints have it
    sides = Polyhedron(*(np.concatenate(part) for part in (equal, level, above, least)))
    return replace(full, spans=own, sides=sides)


def _none(spans: Sequence[Span], likes: Params) -> Polyhedron:
    """What is so without constraints: sums of probabilities, nothing below 0."""
    widths = [span.places.shape[1] for span in spans]
    n, starts = sum(widths), np.cumsum([0, *widths]).tolist()
    equal, level = [np.zeros((0, n))], []
    least = np.full(n, -np.inf)
    for span, start, wide in zip(spans, starts, widths, strict=False):
        if span.chances:
            row = np.zeros((1, n))
            row[0, start : start + wide] = 1.0
            equal.append(row)
            level.append(float(read_numbers([span], likes).sum()))
            least[start : start + wide] = 0.0
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
        slopes = {
            name: np.array([m[name] - here[name] for m in moved]).reshape(len(x), -1).T
            if moved
            else np.zeros((here[name].size, 0))
            for name in scales
        }
    mixed = np.random.default_rng(0).uniform(0.1, 0.4, len(x))
    there = at(x + mixed)
    for name in scales:
        wanted = here[name] + slopes[name] @ mixed
        finite = np.isfinite(here[name])
        if not np.allclose(there[name][finite], wanted[finite], rtol=_LINEAR, atol=_LINEAR):
            raise ModelError(
                f"{name!r} cannot be constrained here: it follows from other numbers (log odds, "
                "where the first state is stationary), or is about how long stays last. Give "
                "initial= a formula, or hold the whole parameter with fixed=."
            )
        slopes[name] = np.where(np.abs(slopes[name]) < 1e-12, 0.0, slopes[name])
    with np.errstate(invalid="ignore"):
        return {name: here[name] - slopes[name] @ x for name in scales}, slopes


def _rows(one: Constraint, named: Named, info: Mapping[str, ParamInfo]) -> list[Condition]:
    name, text, second = one.first.name, one.text, one.second
    if second is None:
        groups = named.over(one.first, text)
        pairs = [(g[0], other) for g in groups for other in g[1:] if not g[0].constant]
        if not pairs and named.size > 1:
            raise ModelError(f"The constraint {text!r} is about single numbers: nothing is tied.")
        return [_tie(name, a, name, b, text) for a, b in pairs]
    if isinstance(second, int | float):
        entries = named.found(one.first, text)
        _check_value(one, second, info[name])
        return [row for entry in entries for row in _bound(one, second, entry, info[name])]
    pairs = named.paired(one.first, second, text)
    if _kind(info[name]) != _kind(info[second.name]):
        raise ModelError(
            f"The constraint {text!r} ties {name!r} to {second.name!r}, which is of another kind "
            "and has another scale."
        )
    return [_tie(name, a, second.name, b, text) for a, b in pairs]


def _kind(info: ParamInfo) -> tuple[str, str]:
    return info.kind, "" if info.link is None else info.link.name


def _tie(name: str, a: Entry, other: str, b: Entry, text: str) -> Condition:
    if a.constant or b.constant:
        raise ModelError(
            f"The constraint {text!r} ties a number that the model has by definition, such as an "
            "impossible move."
        )
    if (name, a.at) == (other, b.at):
        raise ModelError(f"The constraint {text!r} ties a number to itself.")
    return Condition(((name, a.at, 1.0), (other, b.at, -1.0)), True, 0.0, text)


def _bound(one: Constraint, value: float, entry: Entry, info: ParamInfo) -> list[Condition]:
    if entry.constant:
        if one.word == "==" and value == 0:
            return []  # it is 0 by definition
        raise ModelError(
            f"The constraint {one.text!r} is about a number that the model has by definition, such "
            "as an impossible move."
        )
    first = entry.where.get("effect", entry.where.get("outcome"))
    variance = info.kind == "covariance" and first == entry.where.get("other")
    if variance and value <= 0 and one.word != ">=":
        raise ModelError(
            f"The constraint {one.text!r}: a variance can never be {value:g}. An effect that is "
            "none is left out of the formula."
        )
    level = float(_scale(info)(np.array(value)))
    sign = -1.0 if one.word == "<=" else 1.0
    part = ((one.first.name, entry.at, sign),)
    return [Condition(part, one.word == "==", sign * level, one.text)]


def _check_value(one: Constraint, value: float, info: ParamInfo) -> None:
    """Raise where no number of the parameter could have the value."""
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
    row: Condition, origin: Mapping[str, np.ndarray], slopes: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, float, bool]:
    """Slopes in the numbers of theta and the value, of size 1."""
    slope = sum((factor * slopes[name][at] for name, at, factor in row.parts), np.zeros(()))
    value = row.value - sum(factor * origin[name][at] for name, at, factor in row.parts)
    size = float(np.linalg.norm(slope))
    size = size if size > 1e-10 else 1.0
    return np.asarray(slope) / size, value / size, row.equal


def _touched(full: Restriction, slopes: Sequence[np.ndarray]) -> set[str]:
    found = {
        span.key
        for span, own in full.pairs()
        if any(np.abs(slope[own]).max(initial=0.0) > 1e-10 for slope in slopes)
    }
    for one in full.priors:
        found |= {key for key, slope in full.slope_of(one).items() if np.abs(slope).max() > 0}
    return found


def _check_able(
    touched: set[str],
    able: Sequence[str],
    rows: Sequence[Condition],
    priors: Sequence[OfPrior],
) -> None:
    if touched <= set(able):
        return
    said = ", ".join([*(repr(row.text) for row in rows[:3]), *(repr(p.name) for p in priors)])
    raise ModelError(
        f"{said}: constraints and priors on how long stays last are not available. Take them out, "
        "or hold the whole parameter with fixed=."
    )


def _check_held(value: float, equal: bool, row: Condition) -> None:
    holds = abs(value) < 1e-7 if equal else value < 1e-7
    if not holds:
        raise ModelError(
            f"The constraint {row.text!r} contradicts a parameter that fixed= holds at another "
            "value. Take one of them out."
        )
