"""Families whose outcomes are labels: the levels are given, or learned from the data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from avem.data.frames import examples
from avem.errors import DataError
from avem.families.base import Etas, Family
from avem.families.univariate import Univariate


class Labelled(Univariate):
    """One of several labels, `levels`; empty where the data have yet to say which there are."""

    levels: tuple[Any, ...]

    def within(self, other: Family, numbers: tuple[int, int] = (1, 1)) -> bool:
        same = isinstance(other, Labelled) and self.name == other.name
        return (
            same
            and (not self.ordered or self.levels == other.levels)
            and set(self.levels) == set(other.levels)
        )

    def __repr__(self) -> str:
        given = f"levels={self.levels!r}" if self.levels else ""
        return f"{type(self).__name__}({given})"


@dataclass(frozen=True, repr=False)
class Levelled(Labelled):
    """One of a few labels, each of which has a probability; numbered 0, 1, ..."""

    levels: tuple[Any, ...] = ()

    discrete = True

    @abstractmethod
    def _chances(self, eta: Etas) -> np.ndarray:
        """Probabilities of all levels, on a new last axis."""

    def learn(self, outcome: str, levels: Sequence[Any]) -> Self:
        if not 2 <= len(levels) <= self.most_levels:
            raise DataError(
                f"The outcome {outcome!r} takes {len(levels)} values ({examples(levels)}); "
                f"{self.name} outcomes have from 2 to {self.most_levels}. Join some, or choose "
                "another family, such as 'gaussian' or 'poisson'."
            )
        return replace(self, levels=tuple(levels))

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return (y[0] >= 0) & (y[0] < len(self.levels))

    def mean(self, eta: Etas) -> np.ndarray:
        """Of the levels' numbers."""
        chance = self._chances(eta)
        return chance @ np.arange(chance.shape[-1])

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """Of the levels' numbers."""
        chance = self._chances(eta)
        number = np.arange(chance.shape[-1])
        return (chance * (number - self.mean(eta)[..., None]) ** 2).sum(-1)

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        """In the order of the levels."""
        chance = self._chances(eta)
        up_to = np.arange(chance.shape[-1]) <= np.asarray(y)[..., None]
        return np.minimum((chance * up_to).sum(-1), 1.0)

    def natural_location(self, outcome: str, eta: Etas) -> dict[str, np.ndarray]:
        chance = np.moveaxis(self._chances(eta), -1, 0)
        return {f"{outcome} = {level}": p for level, p in zip(self.levels, chance, strict=True)}
