"""How one model lies within another, and what follows for their likelihood ratio."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from math import comb
from typing import NamedTuple

from avem.components.lines import Line
from avem.fits.report.html import count
from avem.models.hmm import HMMModel


class Reference(NamedTuple):
    """A mixture of chi-squared distributions."""

    weights: tuple[float, ...]
    dfs: tuple[int, ...]
    words: str


def reference(smaller: HMMModel, larger: HMMModel, df: int, held: bool = False) -> Reference:
    """What twice the rise of the log likelihood is compared with, for `df` more parameters.

    `held` says that the larger model's effect covariance is not estimated.

    An effect that only the larger model has adds a variance, which is 0 on the boundary, and
    perhaps covariances with other effects. When it is the only new one among those it may be
    correlated with, the covariances are free near the boundary and half of all directions are
    allowed: half of the time the variance is estimated as 0 (Stram and Lee 1994). Several such
    effects are taken as estimated independently of each other (Self and Liang 1987).
    """
    regular = f"chi-squared with {_degrees(df)}"
    new = _new_variances(smaller, larger)
    if held or not new:
        return Reference((1.0,), (df,), regular)
    r = len(new)
    if max(new.values()) > 1 or r > df:
        return Reference(
            (1.0,),
            (df,),
            f"{regular}, which is conservative (the p-value is too large rather than too small): "
            "several variances lie on their boundary, 0, together with their covariances",
        )
    weights = tuple(comb(r, j) / 2**r for j in range(r + 1))
    dfs = tuple(df - r + j for j in range(r + 1))
    parts = ", ".join(f"{w:g} x {k}" for w, k in zip(weights, dfs, strict=True))
    variances = "variance lies on its" if r == 1 else "variances lie on their"
    return Reference(
        weights,
        dfs,
        f"a mixture of chi-squared distributions (weight x degrees of freedom: {parts}): in the "
        f"smaller model {r} {variances} boundary, 0",
    )


def _degrees(df: int) -> str:
    return f"{df} degree{'' if df == 1 else 's'} of freedom"


def _new_variances(smaller: HMMModel, larger: HMMModel) -> Counter[int]:
    """The new effects' variances, counted by the effects that they may be correlated with."""
    known = set(smaller.effect_names)
    new = [i for i, name in enumerate(larger.effect_names) if name not in known]
    if larger.effect_covariance == "isotropic":  # one variance for all
        return Counter() if smaller.n_effects or not new else Counter([0])
    if larger.effect_covariance == "diagonal":
        return Counter(new)
    return Counter(int(larger.effect_blocks[i]) for i in new)


def nesting_doubts(smaller: HMMModel, larger: HMMModel) -> Iterator[str]:
    """What speaks against the smaller model being a special case of the larger one."""
    found = list(_extras(smaller, larger))
    if found:
        yield (
            f"The smaller model has what the larger one has not: {'; '.join(found)}. The test "
            "holds only if it is a special case of the larger one all the same."
        )


def _extras(smaller: HMMModel, larger: HMMModel) -> Iterator[str]:
    kinds, others = (
        {name: type(p.family).__name__ for p in model.structure.pieces for name in p.outcomes}
        for model in (smaller, larger)
    )
    for name, kind in kinds.items():
        # A Gaussian with a formula for its sd is a Normal inside.
        if others[name] not in (kind, "Normal" if kind == "Gaussian" else kind):
            yield f"another family for {name!r}"
    of_larger = {_key(line): line.terms for line in _lines(larger)}
    for line in _lines(smaller):
        # A line that the larger model does not spell out is free, but constant.
        extra = [t for t in line.terms if t not in of_larger.get(_key(line), ("Intercept",))]
        if extra:
            yield f"the terms {', '.join(extra)} of {line.label or line.parameter!r}"
    if larger.stationary and not smaller.stationary:
        yield "a first state of its own"
    effects = [name for name in smaller.effect_names if name not in larger.effect_names]
    if effects:
        yield f"the effects {', '.join(effects)}"
    if _looser(smaller, larger) or (
        larger.effect_covariance == "isotropic" and 0 < smaller.n_effects < larger.n_effects
    ):
        kept = f"{smaller.effect_covariance!r} within {larger.effect_covariance!r}"
        yield f"another structure of the effect covariance ({kept}, {_sizes(smaller, larger)})"


def _looser(smaller: HMMModel, larger: HMMModel) -> bool:
    """Whether the smaller model's effects may vary in ways that the larger one's may not."""
    order = ("isotropic", "diagonal", "block", "full")
    one, other = (order.index(model.effect_covariance) for model in (smaller, larger))
    return one > other and smaller.n_effects > 1


def _sizes(smaller: HMMModel, larger: HMMModel) -> str:
    return f"{smaller.n_effects} within {count(larger.n_effects, 'effect')}"


def _lines(model: HMMModel) -> Iterator[Line]:
    structure = model.structure
    of_pieces = (line for piece in structure.pieces for line in piece.lines)
    return chain(of_pieces, structure.moves, structure.start)


def _key(line: Line) -> tuple[str, str, str]:
    return line.outcome, line.parameter, line.label
