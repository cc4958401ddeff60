"""A number of a known family, and limits: what censoring and truncation share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from avem.errors import ModelError, did_you_mean
from avem.families.base import Family, Parameter
from avem.families.exponential import Exponential
from avem.families.gamma import Gamma
from avem.families.log_normal import LogNormal
from avem.families.normal import UnivariateGaussian
from avem.families.tails import Tailed
from avem.families.univariate import Univariate
from avem.families.weibull import Weibull

_BASES: dict[str, Tailed] = {
    "gaussian": UnivariateGaussian(),
    "log_normal": LogNormal(),
    "gamma": Gamma(),
    "weibull": Weibull(),
    "exponential": Exponential(),
}


@dataclass(frozen=True)
class Limited(Univariate):
    """A quantity of a family, and limits."""

    family: str
    lower: Any = None
    upper: Any = None

    harmless = 1.0  # to all of them

    def __post_init__(self) -> None:
        given: Any = self.family
        word = given if isinstance(given, str) else getattr(given, "name", None)
        plain_gaussian = getattr(given, "covariance", "diagonal") == "diagonal"
        if word not in _BASES or not plain_gaussian:
            raise ModelError(
                f"{type(self).__name__} family is {given!r}; available: {', '.join(_BASES)}."
                f"{did_you_mean(given, _BASES)}"
            )
        object.__setattr__(self, "family", word)
        for side in ("lower", "upper"):
            object.__setattr__(self, side, self._limit(side, getattr(self, side)))
        if self.lower is None and self.upper is None:
            raise ModelError(self._needed())
        numbers = [end for end in (self.lower, self.upper) if isinstance(end, float)]
        if len(numbers) == 2 and not numbers[0] < numbers[1]:
            raise ModelError(f"lower={self.lower} is not below upper={self.upper}.")

    @classmethod
    def _needed(cls) -> str:
        return (
            f"A {cls.name} outcome needs the family of the quantity and a limit: "
            f"avem.{cls.__name__}('gaussian', lower=0)."
        )

    @classmethod
    def from_word(cls) -> Self:
        raise ModelError(cls._needed())

    @classmethod
    def _limit(cls, side: str, given: Any) -> Any:
        """A limit as it is kept: a finite number, or None."""
        if given is None:
            return None
        number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
        if not number or np.isnan(given):
            raise ModelError(f"{side}={given!r}; {cls.limit_wanted} is wanted.")
        none = -np.inf if side == "lower" else np.inf
        if np.isinf(given) and given != none:
            raise ModelError(f"{side}={given!r} leaves no value; {cls.limit_wanted} is wanted.")
        return None if np.isinf(given) else float(given)

    limit_wanted = "a number"

    # --- facts, all of them the base's ----------------------------------------------------------

    @property
    def base(self) -> Tailed:
        """The family of the quantity itself."""
        return _BASES[self.family]

    @property
    def location_scale(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.location_scale

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.base.parameters

    def within(self, other: Family, numbers: tuple[int, int] = (1, 1)) -> bool:
        if not isinstance(other, Limited) or self.name != other.name:
            return False
        limits = (self.lower, self.upper) == (other.lower, other.upper)
        return limits and self.base.within(other.base, numbers)

    def describe(self) -> str:
        return f"{self.name} {self.base.describe()}"

    def _fields(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in super()._fields() if value is not None]

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        return self.base.start((y[0],))

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return self.base.features((y[0],))
