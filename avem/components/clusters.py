"""Clusters of subjects: how many there are of each, and a component that each has for itself.

Every subject is of one type for good, and nobody knows of which. Each type has a chain of its own;
outcomes and effects are those of all.

The entries of theta of all types stand one below the other: (types x states, ...) where a component
has (states, ...), and (types, states) where it has a single row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.components.base import Block, Component, Row
from avem.components.free import Part, Plain, Span, odds_part
from avem.components.linear import CoefTerms
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling
from avem.components.transitions import (
    expected_of_chances,
    information_of_chances,
    slope_of_chances,
)
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms

SHARES = "clusters"
"""Of theta and of the user's parameters: how probable each type is."""


@dataclass(frozen=True)
class Stack:
    """Where the entries of theta of each type stand."""

    n: int
    """Types."""
    keys: tuple[str, ...]
    """The entries of theta that every type has."""
    single: tuple[str, ...]
    """Those of them that are a single row."""

    @classmethod
    def of(cls, n: int, middle: Params) -> Stack:
        """From one type's entries."""
        return cls(n, tuple(middle), tuple(key for key, own in middle.items() if own.ndim == 1))

    def places(self, key: str, n_rows: int, c: int) -> int | slice:
        """Those of type c on the first axis."""
        each = n_rows // self.n
        return c if key in self.single else slice(c * each, (c + 1) * each)

    def own(self, theta: Mapping[str, Any], c: int) -> dict[str, Any]:
        """Theta as the component of type c knows it."""
        new = dict(theta)
        for key in self.keys:
            if key in theta:
                new[key] = theta[key][self.places(key, len(theta[key]), c)]
        return new

    def joined(self, parts: list[Params]) -> Params:
        """Theta from the entries of each type."""
        return {
            key: (np.stack if key in self.single else np.concatenate)([part[key] for part in parts])
            for key in parts[0]
        }

    @property
    def types(self) -> range:
        """Their numbers."""
        return range(self.n)


# --- the shares -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares(Component):
    """How probable it is that a subject is of each type."""

    n_clusters: int
    key = SHARES

    def param_info(self) -> dict[str, ParamInfo]:
        return {SHARES: ParamInfo((self.n_clusters,), "simplex", "clusters")}

    def params_out(self, theta: Params, units: Scaling) -> Params:
        return {SHARES: np.array(theta[SHARES])}

    def params_in(self, params: Params, units: Scaling) -> Params:
        return {SHARES: np.array(params[SHARES], float)}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for c in range(self.n_clusters):
            yield Row({"cluster": c}, value[c])

    def middle(self) -> Params:
        return {SHARES: np.full(self.n_clusters, 1 / self.n_clusters)}

    def held(self, fixed) -> set[str]:
        return {SHARES} & set(fixed)

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        return [] if SHARES in fixed else [odds_part(SHARES, (), theta[SHARES])]

    def relabelled(self, theta: Params, order: np.ndarray) -> Params:
        return {SHARES: theta[SHARES]}

    def block(self) -> SharesBlock:
        """Its compiled half."""
        return SharesBlock()


@dataclass(frozen=True)
class SharesBlock(Block):
    """The shares to compiled code; what is collected are (type, subject) probabilities."""

    def weigh(self, collected: Array, share: Array, chunk: Chunk) -> Array:
        return collected * share

    def sums(self, collected: Array, mean, second) -> Array:
        return collected.sum(-1)

    def maximise(self, theta, sums, fixed, noise_floor):
        return {} if SHARES in fixed else {SHARES: sums / sums.sum()}

    def slopes(self, theta, sums):
        return {SHARES: slope_of_chances(sums, theta[SHARES])}

    def expected(self, theta, sums):
        return expected_of_chances(sums, theta[SHARES])

    def information(self, theta, sums):
        return {SHARES: information_of_chances(sums, theta[SHARES])}


# --- a component of each type ---------------------------------------------------------------------


@dataclass(frozen=True)
class Clustered(Component):
    """A component that every type of subject has for itself; its effects are those of all."""

    inner: Component
    n_clusters: int

    @property
    def key(self) -> str:  # type: ignore[override]
        return self.inner.key

    @cached_property
    def stack(self) -> Stack:
        """Where the entries of theta of each type stand."""
        return Stack.of(self.n_clusters, self.inner.middle())

    def param_info(self) -> dict[str, ParamInfo]:
        return {
            name: replace(
                info, shape=(self.n_clusters, *info.shape), axes=f"clusters x {info.axes}"
            )
            for name, info in self.inner.param_info().items()
        }

    def params_out(self, theta: Params, units: Scaling) -> Params:
        found = [self.inner.params_out(self.stack.own(theta, c), units) for c in self.stack.types]
        return {name: np.stack([one[name] for one in found]) for name in found[0]}

    def params_in(self, params: Params, units: Scaling) -> Params:
        return self.stack.joined(
            [self.inner.params_in(of_type(params, c), units) for c in self.stack.types]
        )

    def check_params(self, params: Params, where: str) -> None:
        own = {name: params[name] for name in self.param_info() if name in params}
        for c in self.stack.types if own else ():
            self.inner.check_params(of_type(own, c), f"{where} of cluster {c}, ")

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for c in self.stack.types:
            for row in self.inner.rows(name, value[c]):
                yield row._replace(where={"cluster": c, **row.where})

    def middle(self) -> Params:
        return self.stack.joined([self.inner.middle()] * self.n_clusters)

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        return [
            _OfType(part, self.stack, c)
            for c in self.stack.types
            for part in self.inner.free_parts(self.stack.own(theta, c), fixed, spread, scale)
        ]

    def held(self, fixed) -> set[str]:
        return self.inner.held(fixed)

    def free_entries(self, fixed) -> Params:
        return self.inner.free_entries(fixed)

    def limits(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return self.inner.limits()

    def effect_units(self, units: Scaling) -> list[tuple[tuple[int, ...], np.ndarray]]:
        return self.inner.effect_units(units)

    def effect_scale(self, spread: np.ndarray) -> dict[int, float]:
        return self.inner.effect_scale(spread)

    def slope_units(self, units: Scaling) -> Iterator[tuple[str, float]]:
        for name, size in self.inner.slope_units(units):
            yield name.replace("[", "[:, ", 1), size

    def relabelled(self, theta: Params, order: np.ndarray) -> Params:
        own = [self.inner.relabelled(self.stack.own(theta, c), order) for c in self.stack.types]
        return self.stack.joined(own)

    def block_of(self, inner: Block) -> ClusteredBlock:
        """Its compiled half, from that of one type."""
        return ClusteredBlock(inner, self.stack)


def of_type(params: Params, c: int) -> Params:
    """The user's parameters of one type."""
    return {name: value[c] for name, value in params.items()}


@dataclass(frozen=True, eq=False)
class _OfType:
    """Free entries of one type."""

    part: Part
    stack: Stack
    c: int

    @property
    def key(self) -> str:
        return self.part.key

    @property
    def size(self) -> int:
        return self.part.size

    def _own(self, array: np.ndarray) -> np.ndarray:
        """A view."""
        return array[self.stack.places(self.key, len(array), self.c)]

    def read(self, theta: Params) -> np.ndarray:
        return self.part.read({self.key: self._own(theta[self.key])})

    def write(self, theta: Params, values: np.ndarray) -> None:
        self.part.write({self.key: self._own(theta[self.key])}, values)

    def pull(self, theta: Params, slope: np.ndarray) -> np.ndarray:
        return self.part.pull({self.key: self._own(theta[self.key])}, self._own(slope))

    def without(self, states, each: int) -> Part:
        return Plain(self.key, np.zeros(0, int))  # no part of a chain is about states alone

    def span(self, theta: Params) -> Span:
        whole = theta[self.key]
        inner = self.part.span({self.key: self._own(whole)})
        at = self._own(np.arange(whole.size).reshape(whole.shape)).ravel()
        places = np.zeros((whole.size, inner.places.shape[1]))
        places[at] = inner.places
        return inner._replace(places=places)


@dataclass(frozen=True)
class ClusteredBlock(Block):
    """A component of each type to compiled code; what is collected is a tuple, type by type."""

    inner: Any
    stack: Stack

    @property
    def newton_keys(self) -> tuple[str, ...]:
        return self.inner.newton_keys

    @property
    def concave(self) -> bool:
        return self.inner.concave

    @property
    def has_effects(self) -> bool:
        return self.inner.has_effects

    @property
    def closed_form(self) -> bool:
        return self.inner.closed_form

    def _each(
        self, theta: Mapping[str, Any], collected: tuple[Any, ...]
    ) -> Iterator[tuple[Any, Any]]:
        """Every type's theta, and what was collected for it."""
        return ((self.stack.own(theta, c), own) for c, own in enumerate(collected))

    def weigh(self, collected, share: Array, chunk: Chunk) -> Any:
        return tuple(self.inner.weigh(own, share, chunk) for own in collected)

    def quadratic(self, theta, collected) -> tuple[Array, Array] | None:
        found = [self.inner.quadratic(*own) for own in self._each(theta, collected)]
        if found[0] is None:
            return None
        first, second = (_total(parts) for parts in zip(*found, strict=True))
        return first, second

    def value(self, theta, mean, cov, collected, chunk) -> Array:
        parts = self._each(theta, collected)
        return _total([self.inner.value(own, mean, cov, part, chunk) for own, part in parts])

    def effect_terms(self, theta, mean, cov, collected, chunk) -> EffectTerms:
        parts = self._each(theta, collected)
        found = [self.inner.effect_terms(own, mean, cov, part, chunk) for own, part in parts]
        return EffectTerms(*(_total(each) for each in zip(*found, strict=True)))

    def sums(self, collected, mean, second) -> Any:
        return tuple(self.inner.sums(own, mean, second) for own in collected)

    def read(self, sums) -> Any:
        return tuple(map(self.inner.read, sums))

    def maximise(self, theta, sums, fixed, noise_floor):
        parts = self._each(theta, sums)
        found = [self.inner.maximise(own, part, fixed, noise_floor) for own, part in parts]
        return self.stack.joined(found)

    def slopes(self, theta, sums):
        return self.stack.joined([self.inner.slopes(*own) for own in self._each(theta, sums)])

    def expected(self, theta, sums):
        return sum(self.inner.expected(*own) for own in self._each(theta, sums))

    def information(self, theta, sums):
        found = [self.inner.information(*own) for own in self._each(theta, sums)]
        return {key: _diagonal([one[key] for one in found]) for key in found[0]}

    def needed_by_newton(self, collected) -> Any:
        return tuple(map(self.inner.needed_by_newton, collected))

    def coef_terms(self, key, coef, mean, cov, collected, chunk) -> CoefTerms:
        each = len(coef) // self.stack.n
        found = [
            self.inner.coef_terms(key, coef[c * each : (c + 1) * each], mean, cov, own, chunk)
            for c, own in enumerate(collected)
        ]
        return CoefTerms(*(_below(each) for each in zip(*found, strict=True)))


def _total(parts: Any) -> Array:
    return reduce(jnp.add, parts)


def _below(parts: Any) -> Array:
    return jnp.concatenate([jnp.asarray(part) for part in parts])


def _diagonal(blocks: list[np.ndarray]) -> np.ndarray:
    """One matrix with these on its diagonal."""
    size = [len(block) for block in blocks]
    ends = np.cumsum([0, *size])
    out = np.zeros((ends[-1], ends[-1]))
    for a, b, block in zip(ends[:-1], ends[1:], blocks, strict=True):
        out[a:b, a:b] = block
    return out
