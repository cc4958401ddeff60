"""One of several unordered levels: log odds of each level against the first are linear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from scipy.special import softmax

from avem.families.base import IDENTITY, Etas, Parameter
from avem.families.labelled import Levelled


@dataclass(frozen=True, repr=False)
class Categorical(Levelled):
    """An outcome with a few unordered values.

    The model is of the log odds of each level after the first against the first.

    Parameters
    ----------
    levels : tuple
        Its values; learned from the data if not given.

    Examples
    --------
    >>> avem.Categorical(levels=("rest", "walk", "run")).n_location
    2
    """

    name = "categorical"
    other_names = ("multinomial",)
    wanted = "a few different values"
    most_levels = 100
    by_level = True
    concave = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter(str(level), IDENTITY) for level in self.levels[1:])

    @property
    def n_location(self) -> int:
        """All predictors: the outcome's formula describes each level's log odds."""
        return len(self.levels) - 1

    @property
    def coef_scale(self) -> str:
        return f"log odds against {self.levels[0]}" if self.levels else "log odds"

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        chosen = sum((jnp.where(y[0] == j + 1, e, 0.0) for j, e in enumerate(eta)), 0.0)
        return chosen - log_total(eta)

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        count = np.bincount(y[0].astype(int), minlength=len(self.levels)) + 0.5
        return tuple(np.log(count[1:] / count[0]).tolist())

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        one_hot = y[0][:, None] == np.arange(len(self.levels))
        return one_hot * np.sqrt(2.0)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        passed = np.cumsum(self._chances(eta), axis=-1)[..., :-1]
        return (rng.random((*passed.shape[:-1], 1)) > passed).sum(-1).astype(float)

    def natural(self, eta: Etas) -> dict[str, np.ndarray]:
        """The probability of each level."""
        chance = np.moveaxis(self._chances(eta), -1, 0)
        return dict(zip(map(str, self.levels), chance, strict=True))

    def _chances(self, eta: Etas) -> np.ndarray:
        first = np.zeros(np.broadcast_shapes(*(np.shape(e) for e in eta)))
        logits = np.stack(np.broadcast_arrays(first, *eta), axis=-1)
        return softmax(logits, axis=-1)


def log_total(eta: tuple[Array, ...]) -> Array:
    """log(1 + sum of exp(eta)), elementwise over the arrays."""
    alike = jnp.broadcast_arrays(jnp.zeros_like(eta[0]), *eta)
    return logsumexp(jnp.stack(alike), axis=0)


@dataclass(frozen=True)
class Counts:
    """A categorical density for whole cells at once: ``y`` are expected counts of every level.

    Transitions and the first state are modelled with it. It is no family for outcomes.
    """

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        """Sum over levels of count times log probability."""
        total = sum(y[1:], y[0])
        linear = sum((count * e for count, e in zip(y[1:], eta, strict=True)), 0.0)
        return linear - total * log_total(eta)
