"""Priors of parameters: penalties that a fit adds to the log likelihood.

A prior is a density of one of the parameters that users see, `fit.params`, in their units. With
priors a fit is at the maximum of likelihood times prior (maximum a posteriori), not at that of the
likelihood.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from avem.components.param_info import ParamInfo
from avem.errors import ModelError

__all__ = ["Dirichlet", "HalfNormal", "InverseWishart", "Normal", "Prior", "Sticky", "Wishart"]

_NEVER = 1e-300
_FARTHEST = 1e75


@dataclass(frozen=True)
class Prior(ABC):
    """A density of one parameter, up to a constant."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """Of parameters that it is for."""
    for_words: ClassVar[str] = ""
    whole: ClassVar[bool] = False
    """It is about all numbers of a parameter together."""

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _plain(getattr(self, field.name), field.name))
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Raise where its numbers cannot be."""

    def check_for(self, name: str, info: ParamInfo, some: bool) -> None:
        """Raise unless it can be the prior of a parameter, or of `some` of its numbers."""
        if info.kind not in self.kinds:
            raise ModelError(
                f"priors has {self!r} for {name!r}; it is a prior of {self.for_words}, which "
                f"{name!r} is not."
            )
        if some and self.whole:
            raise ModelError(
                f"priors has {self!r} for some of the numbers of {name!r}; it is about all of them "
                "together: leave the brackets out."
            )
        self._check_shape(name, info)

    def _check_shape(self, name: str, info: ParamInfo) -> None:
        return None

    @abstractmethod
    def log_density(self, value: np.ndarray, kind: str) -> float:
        """At the value of a parameter of some kind, up to a constant."""

    @abstractmethod
    def terms(self, value: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Slope (of the value's shape), and a curvature (size, size) that is never negative."""

    def describe(self) -> str:
        """Its word and its numbers, for people: rounded, and without those that say nothing."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        said = [f"{name}={_rounded(value)}" for name, value in own.items() if value != np.inf]
        return f"{type(self).__name__}({', '.join(said)})"

    def to_json(self) -> dict[str, Any]:
        """Its word and its numbers."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        named = {name: "inf" if value == np.inf else value for name, value in own.items()}
        return {"prior": type(self).__name__, **named}


def _plain(value: Any, name: str) -> Any:
    """A number, or a nested tuple of numbers."""
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if not (np.abs(array) <= _FARTHEST).all() and not (
        name in ("sd", "scale") and (array == np.inf).all()
    ):
        raise ModelError(
            f"A prior has {name}={str(value)[:40]!r}; numbers are wanted, of at most {_FARTHEST:g}."
        )
    if array.size > 10_000:
        raise ModelError(f"A prior has {array.size:,} numbers as {name}; at most 10,000 are.")
    return _nested(array.tolist())


def _nested(value: Any) -> Any:
    return tuple(_nested(one) for one in value) if isinstance(value, list) else value


def _rounded(value: Any) -> str:
    """Four digits of each number; several that are one number are that number."""
    if not isinstance(value, tuple):
        return f"{value:.4g}"
    shown = list(dict.fromkeys(_rounded(one) for one in value))
    return shown[0] if len(shown) == 1 and value else f"[{', '.join(map(_rounded, value))}]"


def _need(condition: Any, prior: Prior, words: str) -> None:
    if not np.all(condition):
        raise ModelError(f"{prior!r} cannot be: {words}.")


@dataclass(frozen=True)
class Normal(Prior):
    """A normal density of each coefficient: a penalty on its square (ridge).

    Parameters
    ----------
    mean : float
        Its centre.
    sd : float
        Its standard deviation, in the units of the coefficient; infinite: no prior at all.

    Examples
    --------
    >>> ridge = {"coef[:, 'x']": avem.priors.Normal(0, 2)}
    >>> model = avem.MixedHMM("y ~ x", n_states=2, priors=ridge)
    """

    mean: float = 0.0
    sd: float = 1.0
    kinds = ("free", "natural")
    for_words = "coefficients"

    def _check(self) -> None:
        _need(np.greater(self.sd, 0), self, "sd must be positive")
        _need(np.isfinite(self.mean), self, "mean must be finite")

    def _check_shape(self, name: str, info: ParamInfo) -> None:
        _need(np.ndim(self.mean) == np.ndim(self.sd) == 0, self, "mean and sd are one number each")

    def log_density(self, value: np.ndarray, kind: str) -> float:
        return float(-0.5 * (((value - self.mean) / self.sd) ** 2).sum())

    def terms(self, value: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
        return (self.mean - value) / self.sd**2, np.eye(value.size) / self.sd**2


@dataclass(frozen=True)
class HalfNormal(Prior):
    """A normal density, cut off at 0, of standard deviations: it keeps them from growing.

    Of a variance, or of the covariance of effects, it is about the square roots (of the diagonal);
    of other positive parameters, about themselves.

    Parameters
    ----------
    sd : float
        The scale that it is not much larger than.

    Examples
    --------
    >>> avem.priors.HalfNormal(1)
    HalfNormal(sd=1.0)
    """

    sd: float = 1.0
    kinds = ("positive", "covariance", "natural", "rate")
    for_words = "variances, covariances and positive numbers"

    def _check(self) -> None:
        _need(np.ndim(self.sd) == 0 and np.greater(self.sd, 0), self, "sd must be positive")

    def _check_shape(self, name: str, info: ParamInfo) -> None:
        signed = info.kind == "natural" and (info.link is None or info.link.name != "log")
        _need(not signed, self, f"{name!r} may be negative")

    def _variances(self, value: np.ndarray, kind: str) -> np.ndarray:
        """Flat places of what it is about."""
        if kind == "covariance":
            return np.flatnonzero(np.broadcast_to(np.eye(value.shape[-1]), value.shape))
        return np.arange(value.size)

    def log_density(self, value: np.ndarray, kind: str) -> float:
        own = value.ravel()[self._variances(value, kind)]
        squares = own if kind in ("positive", "covariance") else own**2
        return float(-0.5 * squares.sum() / self.sd**2)

    def terms(self, value: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
        at, slope = self._variances(value, kind), np.zeros(value.size)
        curvature = np.zeros((value.size, value.size))
        if kind in ("positive", "covariance"):
            slope[at] = -0.5 / self.sd**2
        else:
            slope[at] = -value.ravel()[at] / self.sd**2
            curvature[at, at] = 1.0 / self.sd**2
        return slope.reshape(value.shape), curvature


@dataclass(frozen=True)
class _Counts(Prior):
    """Rows of probabilities: as if moves had been seen more often."""

    kinds = ("simplex",)
    for_words = "probabilities"
    whole = True

    @abstractmethod
    def counts(self, value: np.ndarray) -> np.ndarray:
        """How many more of each were seen."""

    def log_density(self, value: np.ndarray, kind: str) -> float:
        possible = value > 0
        return float((self.counts(value) * np.log(np.where(possible, value, 1.0))).sum())

    def terms(self, value: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
        counts = np.where(value > 0, self.counts(value), 0.0)
        inverse = 1.0 / np.maximum(value, _NEVER)
        expected = np.where(value > 0, counts.sum(-1, keepdims=True) * inverse, 0.0)
        return counts * inverse, np.diag(expected.ravel())


@dataclass(frozen=True)
class Dirichlet(_Counts):
    """Rows of probabilities: as if every move had been seen `concentration` - 1 times more.

    Parameters
    ----------
    concentration : float or array
        At least 1, which is no prior; one number, or one for each probability.

    Examples
    --------
    >>> avem.priors.Dirichlet(2)
    Dirichlet(concentration=2.0)
    """

    concentration: Any = 1.0

    def _check(self) -> None:
        _need(np.isfinite(self.concentration), self, "concentration must be finite")
        _need(np.greater_equal(self.concentration, 1), self, "below 1 there is no maximum inside")

    def _check_shape(self, name: str, info: ParamInfo) -> None:
        given = np.shape(self.concentration)
        _need(
            given in ((), info.shape),
            self,
            f"{name!r} has shape {info.shape}, concentration {given}",
        )

    def counts(self, value: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.concentration, float) - 1.0, value.shape)


@dataclass(frozen=True)
class Sticky(_Counts):
    """Transitions: as if every state had been seen to stay so many times more.

    Parameters
    ----------
    stays : float
        How many times more staying was seen, in every state.
    moves : float
        How many times more each move to another state was seen.

    Examples
    --------
    >>> avem.priors.Sticky(10)
    Sticky(stays=10.0, moves=0.0)
    """

    stays: float = 1.0
    moves: float = 0.0

    def _check(self) -> None:
        for own in (self.stays, self.moves):
            _need(np.ndim(own) == 0 and np.isfinite(own) and own >= 0, self, "counts are not < 0")

    def _check_shape(self, name: str, info: ParamInfo) -> None:
        _need(name == "transition", self, f"{name!r} are no moves between states")

    def counts(self, value: np.ndarray) -> np.ndarray:
        one = np.where(np.eye(value.shape[-1]) > 0, self.stays, self.moves)
        return np.broadcast_to(one, value.shape)


@dataclass(frozen=True)
class InverseWishart(Prior):
    """Covariances and variances: as if some deviations of known size had been seen more.

    Its log density is -(df + d + 1) / 2 log det S - tr(scale S^-1) / 2, for a d x d matrix; of
    variances, which are 1 x 1 each, too. So its maximum is at scale / (df + d + 1), and S is kept
    from 0.

    Parameters
    ----------
    df : float
        Degrees of freedom, more than d - 1.
    scale : float or array
        A number stands for as many on the diagonal; of variances it may be one for each outcome.

    Examples
    --------
    >>> avem.priors.InverseWishart(df=3, scale=0.5)
    InverseWishart(df=3.0, scale=0.5)
    """

    df: float = 3.0
    scale: Any = 1.0
    kinds = ("positive", "covariance")
    for_words = "variances and covariances"
    whole = True

    def _check(self) -> None:
        _need(np.ndim(self.df) == 0 and np.isfinite(self.df) and self.df > 0, self, "df is > 0")
        _need(np.isfinite(self.scale), self, "scale must be finite")

    def _check_shape(self, name: str, info: ParamInfo) -> None:
        d = info.shape[-1] if info.kind == "covariance" else 1
        _need(self.df > d - 1, self, f"{name!r} is {d} x {d}, so df must be more than {d - 1}")
        shape = np.shape(self.scale)
        if info.kind == "covariance":
            _need(shape in ((), (d, d)), self, f"scale is a number or ({d}, {d})")
            matrix = np.asarray(self.scale) * np.eye(d) if not shape else np.asarray(self.scale)
            _need(np.allclose(matrix, matrix.T), self, "scale must be symmetric")
            _need(np.linalg.eigvalsh(matrix) > 0, self, "scale must be positive definite")
        else:
            _need(shape in ((), info.shape[-1:], info.shape), self, f"scale is for {info.shape}")
            _need(np.greater(self.scale, 0), self, "scale must be positive")

    def _matrices(self, value: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """(matrices, d, d) the value, and scales."""
        scale = np.asarray(self.scale, float)
        own = _as_matrices(value, kind)
        if kind == "positive":
            return own, np.broadcast_to(scale, value.shape).reshape(-1, 1, 1)
        full = scale * np.eye(own.shape[-1]) if scale.ndim == 0 else scale
        return own, np.broadcast_to(full, own.shape)

    def log_density(self, value: np.ndarray, kind: str) -> float:
        own, scale = self._matrices(value, kind)
        weight = self.df + own.shape[-1] + 1
        inside = np.einsum("kij,kji->k", scale, np.linalg.inv(own))
        return float(-0.5 * (weight * np.linalg.slogdet(own)[1] + inside).sum())

    def terms(self, value: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
        own, scale = self._matrices(value, kind)
        weight, inverse = self.df + own.shape[-1] + 1, np.linalg.inv(own)
        slope = 0.5 * (inverse @ scale @ inverse - weight * inverse)
        return slope.reshape(value.shape), _of_squares(0.5 * weight, inverse)


@dataclass(frozen=True)
class Wishart(Prior):
    """Covariances of effects: kept from 0, where there are few subjects, and little else.

    Its log density is (df - d - 1) / 2 log det S - tr(scale^-1 S) / 2, for a d x d matrix: with an
    infinite scale it is flat but for the first part, which is minus infinity at 0 (Chung and others
    2013).

    Parameters
    ----------
    df : float
        Degrees of freedom, at least d + 1; d + 2 is the usual choice.
    scale : float
        Beyond df times this, S is kept from growing.

    Examples
    --------
    >>> avem.priors.Wishart(df=3)
    Wishart(df=3.0, scale=inf)
    """

    df: float = 3.0
    scale: float = np.inf
    kinds = ("positive", "covariance")
    for_words = "variances and covariances"
    whole = True

    def _check(self) -> None:
        _need(np.ndim(self.df) == 0 and np.isfinite(self.df) and self.df > 0, self, "df is > 0")
        _need(np.ndim(self.scale) == 0 and self.scale > 0, self, "scale is one positive number")

    def _check_shape(self, name: str, info: ParamInfo) -> None:
        d = info.shape[-1] if info.kind == "covariance" else 1
        _need(self.df >= d + 1, self, f"{name!r} is {d} x {d}, so df must be at least {d + 1}")

    def log_density(self, value: np.ndarray, kind: str) -> float:
        own = _as_matrices(value, kind)
        weight = 0.5 * (self.df - own.shape[-1] - 1)
        trace = np.trace(own, axis1=1, axis2=2)
        return float((weight * np.linalg.slogdet(own)[1] - 0.5 * trace / self.scale).sum())

    def terms(self, value: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
        own = _as_matrices(value, kind)
        weight, inverse = 0.5 * (self.df - own.shape[-1] - 1), np.linalg.inv(own)
        slope = weight * inverse - 0.5 * np.eye(own.shape[-1]) / self.scale
        return slope.reshape(value.shape), _of_squares(weight, inverse)


def _as_matrices(value: np.ndarray, kind: str) -> np.ndarray:
    """(matrices, d, d); a variance is one."""
    d = 1 if kind == "positive" else value.shape[-1]
    return value.reshape(-1, d, d)


def _of_squares(weight: float, inverse: np.ndarray) -> np.ndarray:
    """(size, size) minus the second derivatives of weight log det S, from the inverses of S."""
    n, d = inverse.shape[:2]
    out = np.zeros((n, d * d, n, d * d))
    for k, one in enumerate(inverse):
        out[k, :, k] = weight * np.kron(one, one)
    return out.reshape(n * d * d, n * d * d)


KINDS: dict[str, type[Prior]] = {
    kind.__name__: kind for kind in (Normal, HalfNormal, Dirichlet, Sticky, InverseWishart, Wishart)
}


def prior_from_json(found: Any) -> Prior:
    """The prior that `to_json` described."""
    own = dict(found) if isinstance(found, dict) else {}
    kind = KINDS.get(str(own.pop("prior", "")))
    if kind is None or own.keys() - {field.name for field in fields(kind)}:
        raise ModelError(f"its prior {str(found)[:60]!r} is unknown here.")
    return kind(**own)
