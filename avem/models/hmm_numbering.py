"""How states and clusters of a hidden Markov model are numbered, and other ways to number them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from avem.components.clusters import SHARES
from avem.components.param_info import Params
from avem.models.encoded import Encoded
from avem.models.restriction import Restriction

if TYPE_CHECKING:
    from avem.models.hmm import HMMModel

_MANY_STATES = 7
"""With more, nobody looks which renumberings leave constraints as they are."""


def renumbered(model: HMMModel, theta: Params, order: np.ndarray) -> tuple[Params, np.ndarray]:
    """Theta with state k being what `order[k]` was, and (d, d) what turns effects."""
    new: Params = {}
    for component in model.parts:
        new.update(component.relabelled(theta, order))
    effects = model.structure.effects
    own, odds = model.initial.turned(order)
    turn = np.zeros((len(effects), len(effects)))
    turn[np.ix_(own, own)] = odds
    place_of = {effect: place for place, effect in enumerate(effects)}

    def old(state: int | None) -> int | None:
        return None if state is None else int(order[state])

    for place, effect in enumerate(effects):
        if place not in own:
            there = replace(effect, state=old(effect.state), to_state=old(effect.to_state))
            turn[place, place_of[there]] = 1.0
    new["effect_covariance"] = turn @ theta["effect_covariance"] @ turn.T
    return new, turn


def state_order(
    model: HMMModel, theta: Params, data: Encoded, rule: Restriction | None
) -> np.ndarray:
    """What `HMMModel.state_order` gives, under a restriction."""
    if model.spec.known is not None:
        return np.arange(model.n_states)
    emission = model.emissions[0]
    level = emission.level(theta, data.seen_design(emission.y_cols[0]))
    if model.orders is None:
        return np.argsort(level, kind="stable")
    orders = orders_at(model, rule, model.transition.orders(), theta)
    return np.array(min(orders, key=lambda order: tuple(level[list(order)])))


def cluster_order(model: HMMModel, theta: Params, rule: Restriction | None) -> np.ndarray:
    """Clusters by their size, the largest first, unless the restriction tells them apart."""
    order = np.argsort(-theta[SHARES], kind="stable")
    if rule is None or rule.allows(theta, model.with_clusters(theta, order)):
        return order
    return np.arange(model.n_clusters)


def orders_of(
    model: HMMModel, rule: Restriction | None, orders: Iterable[tuple[int, ...]] | None
) -> list[tuple[int, ...]] | None:
    """The renumberings that leave moves, constraints and priors as they are; None: all of them."""
    if rule is None:
        return None if orders is None else list(orders)
    examples = _examples(rule)
    if orders is None:
        first = tuple(range(model.n_states))
        # Swaps of neighbours make up all other renumberings.
        if all(_same(model, rule, _swapped(first, k), examples) for k in first[:-1]):
            return None
        orders = permutations(first) if model.n_states <= _MANY_STATES else [first]
    return [order for order in orders if _same(model, rule, order, examples)]


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


def _swapped(order: tuple[int, ...], k: int) -> tuple[int, ...]:
    new = list(order)
    new[k], new[k + 1] = new[k + 1], new[k]
    return tuple(new)


def _examples(rule: Restriction) -> list[Params | None]:
    """Some parameters that are allowed; None where the nearest ones are none."""
    rng = np.random.default_rng(0)
    near = ({k: v + 0.05 * _noise(rng, v) for k, v in rule.likes.items()} for _ in range(2))
    return [rule.within(theta, 1e-3) for theta in near]


def _same(
    model: HMMModel, rule: Restriction, order: tuple[int, ...], examples: list[Params | None]
) -> bool:
    """Whether allowed parameters with the states renumbered are allowed, and as probable."""
    for theta in examples:
        if theta is None:
            return False
        new, _ = model.relabelled(theta, np.array(order))
        apart = rule.sides.equal @ rule.read(new) - rule.sides.level
        if np.abs(apart).max(initial=0.0) > 1e-7:
            return False
        here = rule.log_prior(theta)
        if abs(rule.log_prior(new) - here) > 1e-6 * (1 + abs(here)):
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
