"""How long a stay in a state lasts: distributions on 1, 2, ... rows.

What message passing reads are the chances that a stay ends after its u-th row, given that it lasted
so long, u = 1 ... D; from row D on they stay what they are in row D. A family says how probable
each length is, or how probable a longer stay; all else follows, with derivatives by JAX. The same
formulas serve NumPy and JAX: `maths` is one of `NUMPY` and `JAX`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from avem.errors import ModelError, did_you_mean

_LEAST = -600.0
"""Log probabilities are no lower: exp of it, and of twice as much, can still be added up."""
_TINY = 1e-260
_FARTHEST = 300.0
"""Locations and logarithms of shapes further out say the same."""
_REST, _FALLS = 1e-6, -0.01
"""Chance of a stay beyond the maximum from which on it is known by subtraction; log ratio of
chances one after the other that counts as falling off."""

DurationWord = Literal[
    "geometric", "shifted_poisson", "negative_binomial", "log_normal", "gamma", "free"
]


class Maths(NamedTuple):
    """The functions that the formulas need."""

    xp: Any
    gammaln: Any
    log_ndtr: Any
    logsumexp: Any


NUMPY = Maths(np, scipy.special.gammaln, scipy.special.log_ndtr, scipy.special.logsumexp)
JAX = Maths(jnp, jax.scipy.special.gammaln, jax.scipy.special.log_ndtr, jax.nn.logsumexp)


class Chances(NamedTuple):
    """Log probabilities of stays, (durations, ...) each."""

    leave: Any
    """A stay that has lasted u rows ends."""
    stay: Any
    """It goes on."""
    reach: Any
    """A stay lasts u rows or more."""

    def phase(self, maths: Maths) -> tuple[Any, Any]:
        """That a row at any time is the u-th of its stay (the D-th or later), and the log mean.

        The longer stays are, the more often a row is in them: this is u's chance to be reached,
        over the mean length.
        """
        last = self.reach[-1:] - self.leave[-1:]
        weight = maths.xp.concatenate([self.reach[:-1], last])
        mean = maths.logsumexp(weight, axis=0)
        return weight - mean, mean


@dataclass(frozen=True)
class DurationFamily(ABC):
    """A distribution on 1, 2, ... with a location on the whole line, and perhaps a shape."""

    word: ClassVar[str]
    words: ClassVar[str]
    """It in a sentence."""
    location: ClassVar[str]
    """What exp of the location is."""
    shape: ClassVar[str] = ""
    """What its second parameter is; empty: it has none."""
    limits: ClassVar[tuple[float, float]] = (0.0, 0.0)
    """Of the logarithm of the shape."""
    usual: ClassVar[float] = 0.0
    """Where the logarithm of the shape starts."""
    memoryless: ClassVar[bool] = False
    """A stay ends with the same chance however long it has lasted."""

    def within(self, other: DurationFamily, constant: bool) -> bool:
        """Whether it is a special case of another; `constant`: without covariates and effects."""
        return self == other

    @abstractmethod
    def chances(self, longest: int, eta: Any, shape: Any, maths: Maths) -> Chances:
        """At locations `eta` and logarithms of shapes, with a new first axis."""

    @abstractmethod
    def start(self, mean: np.ndarray) -> np.ndarray:
        """Locations at which stays last about so long."""


class _ByLength(DurationFamily):
    """A family that says how probable each length is."""

    @abstractmethod
    def log_chance(self, d: Any, eta: Any, shape: Any, maths: Maths) -> Any:
        """Of lengths d = 1, 2, ..."""

    def chances(self, longest: int, eta: Any, shape: Any, maths: Maths) -> Chances:
        xp = maths.xp
        eta, shape = _bounded(eta, xp), _bounded(shape, xp)
        log_chance = self.log_chance(_lengths(1, longest + 1, eta), eta, shape, maths)
        log_chance = xp.maximum(log_chance, _LEAST)
        ratio = xp.exp(xp.minimum(log_chance[-1] - log_chance[-2], _FALLS))
        log_chance = log_chance[:-1]
        chance = xp.exp(log_chance)
        # Of a small rest, one minus a sum has no digits; it falls off as the last chances do.
        rest = 1.0 - chance.sum(0)
        beyond = xp.where(rest > _REST, rest, chance[-1] * ratio / (1.0 - ratio))
        reach = xp.flip(xp.cumsum(xp.flip(chance, 0), 0), 0) + beyond
        log_reach = xp.log(xp.concatenate([reach, beyond[None]]))
        # Rounding may leave the sum of what is left a little below one of its parts.
        leave = xp.minimum(log_chance - log_reach[:-1], 0.0)
        return Chances(leave, log_reach[1:] - log_reach[:-1], log_reach[:-1])


class _BySurvival(DurationFamily):
    """A family that says how probable a longer stay is."""

    @abstractmethod
    def log_longer(self, d: Any, eta: Any, shape: Any, maths: Maths) -> Any:
        """That a stay lasts more than d = 1, 2, ... rows."""

    def chances(self, longest: int, eta: Any, shape: Any, maths: Maths) -> Chances:
        xp = maths.xp
        eta, shape = _bounded(eta, xp), _bounded(shape, xp)
        longer = self.log_longer(_lengths(1, longest, eta), eta, shape, maths)
        reach = xp.concatenate([xp.zeros_like(longer[:1]), longer])
        stay = reach[1:] - reach[:-1]
        leave = xp.log(xp.maximum(-xp.expm1(stay), _TINY))
        return Chances(leave, stay, reach[:-1])


class Geometric(_BySurvival):
    """The stays of a Markov chain: the location is the log odds of staying."""

    word, words = "geometric", "geometric, as in a Markov chain"
    memoryless = True
    location = "mean number of further rows"

    def within(self, other, constant):
        """Of size 1, with the same location; of shape 1, with another one."""
        sized, shaped = other == ShiftedNegativeBinomial(), other == DiscreteGamma()
        return self == other or sized or (shaped and constant)

    def log_longer(self, d, eta, shape, maths):
        return -d * maths.xp.logaddexp(0.0, -eta)

    def start(self, mean):
        return np.log(np.maximum(mean - 1, 0.05))


class ShiftedPoisson(_ByLength):
    """One row, and a Poisson number of further ones."""

    word, words = "shifted_poisson", "1 + Poisson"
    location = "mean number of further rows"

    def log_chance(self, d, eta, shape, maths):
        return (d - 1) * eta - maths.xp.exp(eta) - maths.gammaln(d)

    def start(self, mean):
        return np.log(np.maximum(mean - 1, 0.05))


class ShiftedNegativeBinomial(_ByLength):
    """One row, and a negative binomial number of further ones; of size 1 it is geometric."""

    word, words = "negative_binomial", "1 + negative binomial"
    location, shape = "mean number of further rows", "size"
    limits = (-4.0, 6.0)

    def log_chance(self, d, eta, shape, maths):
        xp, n = maths.xp, d - 1
        size = xp.exp(shape)
        counted = maths.gammaln(n + size) - maths.gammaln(size) - maths.gammaln(d)
        both = xp.logaddexp(eta, shape)
        return counted + n * (eta - both) + size * (shape - both)

    def start(self, mean):
        return np.log(np.maximum(mean - 1, 0.05))


class DiscreteLogNormal(_BySurvival):
    """A log-normal time, rounded up to rows."""

    word, words = "log_normal", "log-normal, rounded up to rows"
    location, shape = "median", "sd"
    limits = (-3.5, 1.5)
    usual = -0.25

    def log_longer(self, d, eta, shape, maths):
        return maths.log_ndtr((eta - maths.xp.log(d)) * maths.xp.exp(-shape))

    def start(self, mean):
        return np.log(np.maximum(mean - 0.5, 0.3)) - 0.5 * np.exp(2 * self.usual)


_RULE = np.polynomial.legendre.leggauss(20)
_NODES, _WEIGHTS = (_RULE[0] + 1) / 2, _RULE[1] / 2
_BENT = 8
"""In the first row the density may have a pole at 0: there the nodes are those of an 8th root."""


class DiscreteGamma(_ByLength):
    """A gamma time, rounded up to rows."""

    word, words = "gamma", "gamma, rounded up to rows"
    location, shape = "mean", "shape"
    limits = (-1.5, 4.0)

    def log_chance(self, d, eta, shape, maths):
        xp = maths.xp
        node, weight = (part.reshape(-1, *[1] * d.ndim) for part in (_NODES, _WEIGHTS))
        first = d <= 1
        at = np.where(first, node**_BENT, d - 1.0 + node)
        share = np.where(first, weight * _BENT * node ** (_BENT - 1), weight)
        # With x = at / mean and shape a: a log(a x) - a x - log gamma(a) - log at.
        log_x, a = np.log(at) - eta, xp.exp(shape)
        density = a * (shape + log_x - xp.exp(log_x)) - maths.gammaln(a)
        return maths.logsumexp(density + np.log(share / at), axis=0)

    def start(self, mean):
        return np.log(np.maximum(mean - 0.5, 0.3))


FAMILIES: dict[str, DurationFamily] = {
    family.word: family
    for family in (
        Geometric(),
        ShiftedPoisson(),
        ShiftedNegativeBinomial(),
        DiscreteLogNormal(),
        DiscreteGamma(),
    )
}


def duration_family(word: Any) -> DurationFamily:
    """The family of a word."""
    if not isinstance(word, str) or word not in FAMILIES:
        known = [*FAMILIES, "free"]
        raise ModelError(
            f"The duration is {word!r}; choose one of {', '.join(known)} (free: for all states)."
            f"{did_you_mean(word, known)}"
        )
    return FAMILIES[word]


def chances_of_states(
    families: Sequence[DurationFamily], longest: int, eta: Any, shape: Any, maths: Maths
) -> Chances:
    """Those of every state, which are the last axis but one of `eta` and `shape`."""
    if len(set(families)) == 1:
        return families[0].chances(longest, eta, shape, maths)
    parts = [
        family.chances(longest, eta[..., k : k + 1, :], shape[..., k : k + 1, :], maths)
        for k, family in enumerate(families)
    ]
    return Chances(*(maths.xp.concatenate(of, axis=-2) for of in zip(*parts, strict=True)))


def _bounded(predictor: Any, xp: Any) -> Any:
    """Kept from where its exponential, or the square of that, is no number."""
    return None if predictor is None else xp.clip(predictor, -_FARTHEST, _FARTHEST)


def _lengths(first: int, last: int, eta: Any) -> np.ndarray:
    """Lengths on a new first axis of `eta`."""
    return np.arange(first, last + 1, dtype=float).reshape(-1, *[1] * np.ndim(eta))
