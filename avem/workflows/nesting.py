"""How one model lies within another, and what follows for their likelihood ratio."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from math import comb
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from avem.components.lines import Line
from avem.fits.words import count
from avem.models.hmm import HMMModel

_CONSERVATIVE = "which is conservative (the p-value is too large rather than too small)"


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
    effects are taken as estimated independently of each other (Self and Liang 1987). A move that
    the smaller model lacks has a probability on its boundary, too.
    """
    regular = f"chi-squared with {_degrees(df)}"
    if larger.transition.lacking(smaller.transition).any():
        edge = "moves that only the larger model has lie on their boundary, probability 0"
        return Reference((1.0,), (df,), f"{regular}, {_CONSERVATIVE}: {edge}")
    new = _new_variances(smaller, larger)
    if held or not new:
        return Reference((1.0,), (df,), regular)
    r = len(new)
    if max(new.values()) > 1 or r > df:
        edge = "several variances lie on their boundary, 0, together with their covariances"
        return Reference((1.0,), (df,), f"{regular}, {_CONSERVATIVE}: {edge}")
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


def tail(of: Reference, statistic: float) -> float:
    """P(at least this statistic); chi-squared with 0 degrees of freedom is always 0."""
    if statistic <= 0:
        return 1.0
    parts = (w * chdtrc(df, statistic) for w, df in zip(of.weights, of.dfs, strict=True) if df)
    return float(sum(parts))


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
    yield from _families(smaller, larger)
    yield from _chains(smaller, larger)
    # A line that a model does not spell out is free, but constant.
    of_larger, of_smaller = ({_key(line): line for line in _lines(m)} for m in (larger, smaller))
    for key in {**of_smaller, **of_larger}:
        own, other = of_smaller.get(key), of_larger.get(key)
        line: Any = own or other
        terms = other.terms if other else ("Intercept",)
        extra = [t for t in own.terms if t not in terms] if own else []
        if extra:
            yield f"the terms {', '.join(extra)} of {line.label or line.parameter!r}"
        added, kept = _offset(smaller, own), _offset(larger, other)
        # What the smaller one adds may be a term of the larger one, whose coefficient is then 1.
        if added != kept and (kept or added[len("offset(") : -1] not in terms):
            given = f"{added or 'no offset'} where the larger has {kept or 'none'}"
            yield f"{given}, of {line.label or line.parameter!r}"
    known = smaller.spec.constraints
    said = [text for text in larger.spec.constraints if text not in known]
    if said:
        yield f"freedom where the larger model has constraints ({'; '.join(said)})"
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


def _families(smaller: HMMModel, larger: HMMModel) -> Iterator[str]:
    holds = {name: emission for emission in larger.emissions for name in emission.outcomes}
    for own in smaller.emissions:
        for name in own.outcomes:
            other = holds[name]
            one, all_of = set(own.outcomes), set(other.outcomes)
            numbers = len(one), len(all_of)
            nested = one <= all_of or all_of <= one
            if not (nested and own.family.within(other.family, numbers)):
                yield f"another family for {name!r}"


def _chains(smaller: HMMModel, larger: HMMModel) -> Iterator[str]:
    """Of moves and stays."""
    lacking = np.argwhere(smaller.transition.lacking(larger.transition))
    if len(lacking):
        yield f"the moves {', '.join(f'{k} -> {m}' for k, m in lacking)}"
    elif not smaller.transition.within(larger.transition):
        yield "transitions of another kind"
    own, other = smaller.duration, larger.duration
    if own is None and other is None:
        return
    if own is None or other is None:
        inside = own.is_markov if own is not None else other is not None and other.has_markov
    else:
        inside = own.within(other)
    if not inside:
        yield f"other lengths of stays ({_stays(smaller)} within {_stays(larger)})"


def _stays(model: HMMModel) -> str:
    if model.duration is None:
        return "those of a Markov chain"
    given = model.duration.duration
    most = "" if given.is_free else f" with max={given.max}"
    return f"{', '.join(given.kinds)}{most}"


def _looser(smaller: HMMModel, larger: HMMModel) -> bool:
    """Whether the smaller model's effects may vary in ways that the larger one's may not."""
    order = ("isotropic", "diagonal", "block", "full")
    one, other = (order.index(model.effect_covariance) for model in (smaller, larger))
    return one > other and smaller.n_effects > 1


def _sizes(smaller: HMMModel, larger: HMMModel) -> str:
    return f"{smaller.n_effects} within {count(larger.n_effects, 'effect')}"


def _lines(model: HMMModel) -> Iterator[Line]:
    of_emissions = (line for emission in model.emissions for line in emission.lines)
    return chain(of_emissions, model.state_lines)


def _offset(model: HMMModel, line: Line | None) -> str:
    """What is added to a predictor as it is; empty where nothing is."""
    if line is None or line.offset < 0:
        return ""
    design = model.designs.parts[line.part]
    return design.columns[design.offset_col]


def _key(line: Line) -> tuple[str, str, str]:
    return line.outcome, line.parameter, line.label
