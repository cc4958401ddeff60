"""The subjects of a chunk in parts: each with as many centres and nodes as its posteriors need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.data.subset import some_of
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.passes import Pass, Piece
from avem.models.kernel import Kernel
from avem.numerics.arrays import per_subject, places, with_entries

_CHEAP = 1_000_000
"""Cells, times nodes, that are passed faster than code is compiled: in every iteration."""
_CHEAP_ONCE = 20_000_000
"""The same once."""


class Portion(NamedTuple):
    """Some subjects of a chunk, who share a rule."""

    centres: Centres
    level: int = 0
    """Of the ladder of rules."""
    members: Any = None
    """Their places in the chunk; None: everyone."""
    chunk: Chunk | None = None
    """Their data; None: the whole chunk's."""


class Portions(NamedTuple):
    """What the adaptive tier keeps of a shard's subjects."""

    parts: tuple[Portion, ...]
    n: int
    """Subjects of the chunk."""

    def _each(self, change: Callable[[Centres], Centres]) -> Portions:
        parts = tuple(part._replace(centres=change(part.centres)) for part in self.parts)
        return self._replace(parts=parts)

    def under(self, sigma: np.ndarray) -> Portions:
        """The centres under another effect covariance."""
        return self._each(lambda centres: centres.under(sigma))

    def shifted(self, shift: Array) -> Portions:
        """The centres when `shift` moves from the effects into the coefficients."""
        return self._each(lambda centres: centres.shifted(shift))

    def stepped(self, towards: Portions, stride: np.ndarray) -> Portions:
        """Themselves: nodes stay where they are while a q_i takes its steps."""
        return self

    def modes(self) -> list[np.ndarray]:
        """The centres' means (d, subject), every subject's heaviest first."""
        return self.joined().modes()

    def levels(self) -> np.ndarray:
        """(subject,) of the ladder of rules."""
        out = np.full(self.n, self.parts[0].level)
        for part in self.parts:
            if part.members is not None:
                out[part.members] = part.level
        return out

    def joined(self) -> Centres:
        """The centres of everyone; those that only some have are not in use for the others."""
        if self.parts[0].members is None:
            return self.parts[0].centres
        n, most = self.n, max(len(part.centres.log_share) for part in self.parts)
        prior = np.asarray(self.parts[0].centres.prior)
        d = len(prior)
        log_share = np.full((most, n), -np.inf)
        log_share[0] = 0.0
        wide = np.broadcast_to(prior[:, :, None], (most, d, d, n))
        made = Centres(log_share, np.zeros((most, d, n)), wide, prior)
        for part in self.parts:
            made = made.put(np.asarray(part.members), part.centres.filled(most))
        return made


def everyone(centres: Centres, level: int = 0) -> Portions:
    """One part."""
    return Portions((Portion(centres, level),), np.shape(centres.log_share)[1])


class Group(NamedTuple):
    """Subjects with equally many centres, who share a rule."""

    n_centres: int
    level: int
    members: np.ndarray


def apart(
    chunk: Chunk, centres: Centres, groups: Sequence[Group], n_nodes: Sequence[int], price: float
) -> Portions:
    """Subjects in parts; small groups go with others where that is cheaper than more code.

    Padding comes into none of them. `n_nodes` are those of each level, `price` is that of code.
    """
    groups = _merged(groups, chunk, n_nodes, _CHEAP * price)
    if len(groups) == 1:
        return everyone(centres.first(groups[0].n_centres), groups[0].level)
    made = []
    for count, level, members in groups:
        own = some_of(chunk, members)
        few = of_members(centres.first(count), members, len(own.real))
        made.append(Portion(few, level, members, own))
    return Portions(tuple(made), np.shape(centres.log_share)[1])


def _merged(
    groups: Sequence[Group], chunk: Chunk, n_nodes: Sequence[int], cheap: float
) -> list[Group]:
    """Fewer groups, where what they cost more is less than compiling would take."""
    each = chunk.valid.size / max(1, int(np.asarray(chunk.real).sum()))

    def cost(group: Group) -> float:
        return each * len(group.members) * group.n_centres * n_nodes[group.level]

    def together(a: Group, b: Group) -> Group:
        members = np.sort(np.concatenate([a.members, b.members]))
        return Group(max(a.n_centres, b.n_centres), max(a.level, b.level), members)

    left = [group for group in groups if len(group.members)]
    while len(left) > 1:
        pairs = [(a, b) for i, a in enumerate(left) for b in left[:i]]
        extra, a, b = min(
            ((cost(together(a, b)) - cost(a) - cost(b), a, b) for a, b in pairs),
            key=lambda found: found[0],
        )
        if extra > cheap:
            break
        left = [group for group in left if group is not a and group is not b] + [together(a, b)]
    return left


def enough_of(chunk: Chunk, members: np.ndarray, n_passes: int, price: float) -> Chunk:
    """The data of some for a few passes; everyone's, where that is faster than more code."""
    whole = 2 * len(members) > np.asarray(chunk.real).sum()
    if whole or chunk.valid.size * n_passes < _CHEAP_ONCE * price:
        return chunk
    return some_of(chunk, members)


def of_members(centres: Centres, members: np.ndarray, size: int) -> Centres:
    """The centres of some, padded."""
    padded = np.concatenate([members, np.repeat(members[:1], size - len(members))])
    return centres.of(padded)


class KeptPortions(NamedTuple):
    """What the parts' E-steps keep for the M-step by Newton."""

    parts: tuple[Piece, ...]

    def coef_terms(self, kernel: Kernel, key: str, coef: Array, chunk: Chunk) -> CoefTerms:
        """A sum over the parts."""
        found = [p.nodes.coef_terms(kernel, key, coef, p.chunk) for p in self.parts]
        return jax.tree.map(lambda *each: sum(each[1:], each[0]), *found)

    def pieces(self, chunk: Chunk) -> tuple[Piece, ...]:
        """The parts, as `Nodes.pieces` has everyone in one."""
        return self.parts


def pieces_of(found: Pass, chunk: Chunk) -> tuple[Piece, ...]:
    """The parts of a chunk's E-step."""
    kept: Any = found.kept
    return kept.pieces(chunk)


def all_nodes(found: Pass, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (node, d, subject) and shares (node, subject) of everyone, after an E-step."""
    pieces = pieces_of(found, chunk)
    n, most = len(np.asarray(chunk.real)), max(len(piece.nodes.share) for piece in pieces)
    at, share = np.zeros((most, pieces[0].nodes.at.shape[1], n)), np.zeros((most, n))
    for who, _, nodes in pieces:
        count = len(nodes.share)
        at[:count, :, who] = np.asarray(nodes.at)[..., : len(who)]
        share[:count, who] = np.asarray(nodes.share)[:, : len(who)]
    return at, share


def merged(parts: Portions, passes: Sequence[Pass]) -> Pass:
    """The E-steps of all parts as one."""
    pairs = list(zip(parts.parts, passes, strict=True))
    around = tuple(part._replace(centres=found.around) for part, found in pairs)
    if parts.parts[0].members is None:
        return passes[0]._replace(around=parts._replace(parts=around))

    names = ("mean", "covariance", "loglik", "bound", "quality")
    values = tuple(tuple(getattr(found, name) for found in passes) for name in names)
    sizes = (found.loglik.shape[-1] for found in passes)
    where = tuple(places(p.members, size) for p, size in zip(parts.parts, sizes, strict=True))
    whole = _spread(np.empty((parts.n, 0)), values, where)
    totals, terms = _together(tuple((found.totals, found.terms) for found in passes))
    pieces = (Piece(part.members, part.chunk, found.kept) for part, found in pairs)  # pyright: ignore[reportArgumentType]
    return Pass(
        **dict(zip(names, whole, strict=True)),
        around=parts._replace(parts=around),
        totals=totals,
        kept=KeptPortions(tuple(pieces)),
        terms=terms,
    )


@per_subject
def _together(xp: Any, parts: tuple[Any, ...]) -> Any:
    """The sums over the subjects of all parts."""
    return jax.tree.map(lambda *each: sum(each[1:], each[0]), *parts)


@per_subject
def _spread(
    xp: Any, nobody: Any, values: tuple[tuple[Any, ...], ...], members: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Every part's values in the places of its members, of as many as `nobody` has rows."""
    found = []
    for own in values:
        out = xp.zeros((*own[0].shape[:-1], len(nobody)))
        for value, who in zip(own, members, strict=True):
            out = with_entries(out, (..., who), value[..., : len(who)])
        found.append(out)
    return tuple(found)
