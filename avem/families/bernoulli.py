"""Yes or no: P(y = 1) = logistic(eta)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import Array

from avem.data.frames import examples
from avem.errors import DataError
from avem.families.base import LOGIT, Etas, Parameter
from avem.families.labelled import Labelled


@dataclass(frozen=True, repr=False)
class Bernoulli(Labelled):
    """An outcome with two values; the model is of the probability of the second.

    Parameters
    ----------
    levels : tuple
        Its two values. Without them: 0 and 1, or the two that occur, in order.

    Examples
    --------
    >>> avem.Bernoulli(levels=("no", "yes")).levels
    ('no', 'yes')
    """

    levels: tuple[Any, ...] = ()

    name = "bernoulli"
    other_names = ("binary", "logistic")
    wanted = "two values, such as 0 and 1"
    discrete = True
    usual_levels = (0, 1)
    most_levels = 2
    concave = True

    def describe(self) -> str:
        return "Bernoulli"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("probability", LOGIT),)

    @property
    def coef_scale(self) -> str:
        return f"log odds of {self.levels[1]}" if self.levels else "log odds"

    def learn(self, outcome: str, levels: Sequence[Any]) -> Bernoulli:
        if set(levels) <= {0, 1}:  # False == 0 and True == 1
            return replace(self, levels=(0, 1))
        if len(levels) != 2:
            raise DataError(
                f"The outcome {outcome!r} takes {len(levels)} values ({examples(levels)}); a "
                "bernoulli outcome has two. Choose another family, such as 'categorical' or "
                "'poisson', or recode it."
            )
        return replace(self, levels=tuple(levels))

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return (y[0] == 0) | (y[0] == 1)

    def log_density(self, y: tuple[Array, ...], eta: tuple[Array, ...]) -> Array:
        # y eta - log(1 + exp(eta)), without overflow on either side
        return y[0] * eta[0] + jax.nn.log_sigmoid(-eta[0])

    def start(self, y: tuple[np.ndarray, ...]) -> tuple[float, ...]:
        share = (y[0].sum() + 0.5) / (len(y[0]) + 1)
        return (float(LOGIT.to_eta(share)),)

    def features(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        return 2.0 * y[0][:, None] - 1.0

    def mean(self, eta: Etas) -> np.ndarray:
        return LOGIT.to_natural(eta[0])

    def natural_location(self, outcome: str, eta: Etas) -> dict[str, np.ndarray]:
        return {f"{outcome} = {self.levels[1]}": self.mean(eta)}

    def cdf(self, y: Any, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        below = LOGIT.to_natural(-np.asarray(eta[0]))
        return np.where(np.asarray(y) < 0, 0.0, np.where(np.asarray(y) < 1, below, 1.0))

    def variance(self, eta: Etas, extras: tuple[Any, ...] = ()) -> np.ndarray:
        p = self.mean(eta)
        return p * (1 - p)

    def draw(self, rng: np.random.Generator, eta: Etas, extras: tuple[np.ndarray, ...]) -> Any:
        p = self.mean(eta)
        return (rng.random(np.shape(p)) < p).astype(float)
