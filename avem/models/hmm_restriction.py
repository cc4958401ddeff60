"""Constraints and priors of a hidden Markov model: who they speak of, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.free import Free
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
from avem.models.restricted_free import restricted_free
from avem.models.restriction import OfPrior, Restriction
from avem.models.restriction_making import make_restriction

if TYPE_CHECKING:
    from avem.models.hmm import HMMModel
    from avem.models.hmm_specification import Specification


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


def free_under(model: HMMModel, free: Free, theta: Params, rule: Restriction | None) -> Free:
    """What is free of `free` at theta: what data say something of, under a restriction."""
    follow = None
    if model.silent:
        own = {key for emission in model.emissions for key in emission.middle()}
        parts = (
            part.without(model.silent, theta[part.key].size // model.n_states)
            if part.key in own
            else part
            for part in free.parts
        )
        free = Free(tuple(part for part in parts if part.size))
        follow = None if rule is None else rule.of_states(own, model.silent)
    return restricted_free(free, rule, theta, follow)


def moves_under(model: HMMModel, rule: Restriction | None) -> np.ndarray:
    """(from, to) bool: the moves that there are in some cluster under a restriction."""
    possible = model.transition.possible()
    if rule is None or "transition" not in rule.keys:
        return possible
    theta = rule.within(rule.likes, 1e-4) or rule.likes
    of_each = theta["transition"].reshape(-1, *possible.shape)
    return possible & (of_each > 1e-8).any(0)


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
        if np.isinf(value):
            raise ModelError(f"fixed[{name!r}] has {value}; finite numbers are wanted, or NaN.")
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
