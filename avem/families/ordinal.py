"""One of several ordered levels: P(y <= level) = logistic(threshold - location).

The first threshold is 0, and each further one lies a positive gap above the one before. So the
location has an intercept, and two levels are a Bernoulli outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from avem.families.base import IDENTITY, LOG, LOGIT, Etas, Parameter
from avem.families.labelled import Levelled


@dataclass(frozen=True, repr=False)
class Ordinal(Levelled):
    """An outcome with a few ordered values: a cumulative logit.

    The location says how high answers are: exp of a coefficient is the ratio of the odds of a
    higher answer, whatever the answer. Thresholds cut it into levels. The first one is 0;
    ``gap_2``, ``gap_3``, ... are the distances from each to the next, one number per state.

    Parameters
    ----------
    levels : tuple
        Its values, lowest first. Without them: the numbers that occur, or the categories of an
        ordered categorical column. The order of words must be given.

    Examples
    --------
    >>> family = avem.Ordinal(levels=("low", "middle", "high"))
    >>> [parameter.name for parameter in family.parameters]
    ['location', 'gap_2']
    """

    name = "ordinal"
    other_names = ("cumulative", "ordered", "ordered_logit", "proportional_odds")
    wanted = "a few ordered values"
    ordered = True
    most_levels = 30

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        gaps = (Parameter(f"gap_{j}", LOG) for j in range(2, len(self.levels)))
        return Parameter("location", IDENTITY), *gaps

    @property
    def coef_scale(self) -> str:
        return "log odds of a higher level"

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        # With a the threshold above and b the one below, the probability is
        # s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)), s the logistic function: nothing cancels.
        location, *logs = eta
        gaps = [jnp.exp(log_gap) for log_gap in logs]
        n = len(self.levels)
        above, below, within, threshold = 0.0, 0.0, 0.0, jnp.zeros(())
        for j in range(1, n - 1):
            gap, here = gaps[j - 1], y[0] == j
            below = jnp.where(here, threshold, below)
            threshold = threshold + gap
            above = jnp.where(here, threshold, above)
            within = jnp.where(here, jnp.log(-jnp.expm1(-gap)), within)
        below = jnp.where(y[0] == n - 1, threshold, below)
        up = jnp.where(y[0] < n - 1, jax.nn.log_sigmoid(above - location), 0.0)
        down = jnp.where(y[0] > 0, jax.nn.log_sigmoid(location - below), 0.0)
        return up + down + within

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        count = np.bincount(y[0].astype(int), minlength=len(self.levels)) + 0.5
        threshold = LOGIT.to_eta(np.cumsum(count)[:-1] / count.sum())
        return float(-threshold[0]), *np.log(np.diff(threshold)).tolist()

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return y[0][:, None]

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        below = self._below(eta)
        return (rng.random((*below.shape[:-1], 1)) > below).sum(-1).astype(float)

    def mean_values(self, eta: Etas) -> np.ndarray:
        """Probabilities of the levels; of two, that of the second."""
        chance = self._chances(eta)
        return chance if len(self.levels) > 2 else chance[..., 1:]

    def _below(self, eta: Etas) -> np.ndarray:
        """P(y <= level) of all levels but the last, on a new last axis."""
        location, *gaps = np.broadcast_arrays(*(np.asarray(e, float) for e in eta))
        steps = np.stack([np.zeros_like(location), *map(np.exp, gaps)], axis=-1)
        return LOGIT.to_natural(np.cumsum(steps, axis=-1) - location[..., None])

    def _chances(self, eta: Etas) -> np.ndarray:
        below = self._below(eta)
        ends = np.zeros_like(below[..., :1])
        return np.diff(np.concatenate([ends, below, ends + 1.0], axis=-1), axis=-1)
