"""Constraints and priors of a hidden Markov model: who they speak of, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.param_info import ParamInfo, Params
from avem.errors import ModelError
from avem.models.constraints import (
    Entry,
    Named,
    as_constraints,
    named_rows,
    reference,
    text_of,
)
from avem.models.given_priors import told
from avem.models.restriction import OfPrior, Restriction
from avem.models.restriction_making import make_restriction

if TYPE_CHECKING:
    from avem.models.hmm import HMMModel
    from avem.models.hmm_specification import Specification

_MANY_STATES = 7
"""With more, nobody looks which renumberings leave constraints as they are."""


def named_of(model: HMMModel) -> Named:
    """All numbers of a model by the words for them."""
    places = {
        name: np.arange(int(np.prod(info.shape)), dtype=float).reshape(info.shape)
        for name, info in model.param_info().items()
    }
    constant = model.constant_rows()
    rows = [
        (name, row._replace(constant=bool(fixed)))
        for (name, row), fixed in zip(model.parameter_rows(places), constant, strict=True)
    ]
    return Named(named_rows(rows, model.effect_names), model.state_names, model.n_states)


def priors_of(model: HMMModel, named: Named) -> list[OfPrior]:
    """The priors that a user gave, and what each is about."""
    info, found = model.param_info(), []
    for text, prior in told(model):
        of = reference(text)
        entries = named.found(of, text, "priors has")
        own = info[of.name]
        some = bool(of.items)
        prior.check_for(of.name, own, some)
        at = None
        if not prior.whole and own.kind != "covariance":
            at = np.array([entry.at for entry in entries if not entry.constant], int)
        found.append(OfPrior(of.name, at, prior, own.kind))
    return found


def restriction_of(
    model: HMMModel, fixed: Collection[str], theta: Params, strict: bool = True
) -> Restriction | None:
    """The restriction of a model whose `fixed` parameters are held where theta has them.

    `strict`: constraints must agree with these.
    """
    spec = model.spec
    if not spec.constraints and not spec.priors:
        return None
    named, info = named_of(model), model.param_info()
    for name, _ in spec.priors:
        if strict and reference(name).name in fixed:
            raise ModelError(f"priors has {name!r}, which fixed= holds. Take one of them out.")
    likes = {key: np.array(value, float) for key, value in model.middle().items()}
    if fixed:
        there = model.params_out(theta)
        likes = model.override(likes, {name: there[name] for name in fixed})
    able = [key for part in model.parts if part is not model.duration for key in part.middle()]
    able.append("effect_covariance")
    return make_restriction(
        as_constraints(list(spec.constraints)),
        priors_of(model, named),
        named,
        info,
        model.all_free(fixed),
        model.params_out,
        likes,
        able,
        strict,
    )


def orders_of(
    model: HMMModel, rule: Restriction | None, orders: Iterable[tuple[int, ...]] | None
) -> list[tuple[int, ...]] | None:
    """The renumberings that leave moves, constraints and priors as they are; None: all of them."""
    listed = None if orders is None else list(orders)
    if rule is None:
        return listed
    every = permutations(range(model.n_states))
    if model.n_states > _MANY_STATES and listed is None:
        first = tuple(range(model.n_states))
        listed = [first, *(_swapped(first, k) for k in range(model.n_states - 1))]
        kept = [order for order in listed if _same(model, rule, order)]
        return None if len(kept) == len(listed) else [first]
    kept = [o for o in (every if listed is None else listed) if _same(model, rule, o)]
    return None if listed is None and len(kept) == _factorial(model.n_states) else kept


def orders_at(
    model: HMMModel,
    rule: Restriction | None,
    orders: Iterable[tuple[int, ...]] | None,
    theta: Params,
) -> list[tuple[int, ...]]:
    """Those that these parameters may be renumbered by: allowed then, and as probable."""
    own = tuple(range(model.n_states))
    if rule is None:
        return list(orders or [own])
    if orders is None:
        orders = permutations(own) if model.n_states <= _MANY_STATES else [own]

    def fits(order: tuple[int, ...]) -> bool:
        return rule.allows(theta, model.relabelled(theta, np.array(order))[0])

    return [order for order in orders if order == own or fits(order)]


def _factorial(n: int) -> int:
    return int(np.prod(np.arange(1, n + 1)))


def _swapped(order: tuple[int, ...], k: int) -> tuple[int, ...]:
    new = list(order)
    new[k], new[k + 1] = new[k + 1], new[k]
    return tuple(new)


def _same(model: HMMModel, rule: Restriction, order: tuple[int, ...]) -> bool:
    """Whether allowed parameters with the states renumbered are allowed, and as probable."""
    rng = np.random.default_rng(0)
    for _ in range(2):
        theta = rule.within({k: v + 0.05 * _noise(rng, v) for k, v in rule.likes.items()}, 1e-3)
        if theta is None:
            return False
        new, _ = model.relabelled(theta, np.array(order))
        x = rule.read(new)
        if len(rule.sides.equal) and np.abs(rule.sides.equal @ x - rule.sides.level).max() > 1e-7:
            return False
        if abs(rule.log_prior(new) - rule.log_prior(theta)) > 1e-6 * (
            1 + abs(rule.log_prior(theta))
        ):
            return False
    return _same_bounds(model, rule, order)


def _noise(rng: np.random.Generator, value: np.ndarray) -> np.ndarray:
    noise = rng.uniform(size=value.shape)
    square = value.ndim >= 2 and value.shape[-1] == value.shape[-2]
    return (noise + np.swapaxes(noise, -1, -2)) / 2 if square else noise


def _same_bounds(model: HMMModel, rule: Restriction, order: tuple[int, ...]) -> bool:
    """Whether every bound is also one of the states that take each other's place."""
    n = rule.sides.above.shape[1]
    own = slice(n, None)
    rows, least = rule.sides.above[own], rule.sides.least[own]
    if not len(rows):
        return True
    rng = np.random.default_rng(1)
    theta = {k: v + 0.05 * _noise(rng, v) for k, v in rule.likes.items()}
    new, _ = model.relabelled(theta, np.array(order))
    slack = np.sort(rows @ rule.read(theta) - least)
    return np.allclose(slack, np.sort(rows @ rule.read(new) - least), atol=1e-9)


def pinned_rows(model: HMMModel, rule: Restriction | None) -> np.ndarray:
    """(rows,) bool: which numbers of `parameter_rows` constraints hold at a value."""
    names = [name for name, _ in model.parameter_rows(model.params_out(model.middle()))]
    if rule is None or not rule.told_apart:
        return np.zeros(len(names), bool)
    theta = rule.within(rule.likes, 1e-3) or rule.likes
    here = _numbers(model, theta)
    x, basis = rule.read(theta), rule.sides.free
    moved = [np.abs(_numbers(model, rule.write(x + 1e-4 * way, theta)) - here) for way in basis.T]
    still = np.max([*moved, 0 * here], axis=0) < 1e-10
    return still & ~model.constant_rows() & _concerned(model, rule)


def _concerned(model: HMMModel, rule: Restriction) -> np.ndarray:
    """(rows,) bool: which numbers depend on what the restriction is about at all."""
    theta = rule.likes
    x, here = rule.read(theta), _numbers(model, theta)
    moved = [
        np.abs(_numbers(model, rule.write(x + 1e-4 * u, theta)) - here) for u in np.eye(len(x))
    ]
    return np.max([*moved, 0 * here], axis=0) > 1e-10


def _numbers(model: HMMModel, theta: Params) -> np.ndarray:
    return np.array([row.estimate for _, row in model.parameter_rows(model.params_out(theta))])


def split_fixed(
    fixed: Any, learn: Callable[[], HMMModel]
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """What is held as a whole, and sentences for the single numbers of arrays that have NaN.

    ``learn`` gives the model, which is needed for the latter alone.
    """
    if not isinstance(fixed, Mapping):
        return fixed, ()
    arrays = {name: _as_array(value) for name, value in fixed.items()}
    parts = {n: array for n, array in arrays.items() if array is not None and np.isnan(array).any()}
    if not parts:
        return dict(fixed), ()
    model = learn()
    info, named = model.param_info(), named_of(model)
    parts = {name: array for name, array in parts.items() if name in info}
    sentences = [
        sentence
        for name, array in parts.items()
        for sentence in _sentences(name, array, info[name], named.entries[name])
    ]
    # Names that the model does not have are refused where all of fixed is checked.
    return {n: value for n, value in fixed.items() if n not in parts}, tuple(sentences)


def _sentences(
    name: str, array: np.ndarray, info: ParamInfo, entries: Iterable[Entry]
) -> Iterator[str]:
    """The numbers of an array that are not NaN, as constraints."""
    if array.shape != info.shape:
        raise ModelError(
            f"fixed[{name!r}] has shape {array.shape}; {info.shape} is wanted ({info.words})."
        )
    at = {entry.at: entry for entry in entries}
    for place in np.flatnonzero(~np.isnan(array.ravel())).tolist():
        value, entry = float(array.ravel()[place]), at.get(place)
        if entry is None:
            continue
        if not entry.constant:
            yield text_of(name, entry, value)
        elif value != 0:
            raise ModelError(
                f"fixed[{name!r}] has {value:g} where the model has another number by definition. "
                "Make it NaN."
            )


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError):
        return None


def check_batches(spec: Specification, method: Any) -> None:
    """Raise where a fit would go by batches."""
    if method.lanes_per_chunk and (spec.constraints or spec.priors):
        raise ModelError(
            "Constraints and priors are not available where parameters are updated after batches "
            "of subjects. Leave batch_size out."
        )
