"""What a part of a model is: a component, and its compiled half, a block.

A model is a list of components: emissions, the distribution of the first state, transitions (or
dynamics and loadings), and the distribution of the effects. A component is one class in one file
that knows everything about itself; code outside loops over components and never asks which one it
has.

**A component** is made once the model's designs are known, and works in NumPy.

- Its parameters: `param_info` (names, shapes), `params_out` and `params_in` (between the user's
  values and its own entries of theta, which is a flat dict of arrays on the scale of the fit),
  `rows` (each single number with the words that say where it belongs), `held`, `free_entries` and
  `limits` (what the M-step may move, and how far), `free_parts` (what is free as one unconstrained
  vector, for standard errors), `middle` (values inside all bounds), `matches` (which coefficient an
  effect is added to), `effect_units` and `effect_scale` (in which unit its effects are).
- What a user gives for them: `check_params`.
- Its states: `relabelled` (the same parameters, the states renumbered).
- Emissions (`emission.py`), transitions and initial distributions add what is theirs: `start`, how
  they draw or give probabilities, and `block`.

**A block** is what a component is to compiled code on one data set: hashable, so that jit can key
on it, and without numbers of its own. Subjects are on the last axis; `mean` and `cov` describe q,
and ``cov=None`` means the point `mean`.

- `table`, of emissions, transitions and initial distributions each in its own shape: log densities
  or probabilities, at given effects or expected under q.
- `collect`, likewise: what the local posterior leaves behind for the later steps; `weigh`: that,
  times a share of each subject.
- Its part of Q(f), the expected log likelihood: `quadratic`, where it is one; otherwise `value`
  and `effect_terms`.
- Its M-step: in closed form from `sums` over subjects (`maximise`, `slopes`, `expected`,
  `information`, `shifted`), or by Newton (`newton_keys`, `coef_terms`, and `needed_by_newton` of
  what was collected).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax import Array

from avem.components.free import Part, Plain
from avem.components.lanes import Theta
from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.kernels.gaussian_chain import Squares

if TYPE_CHECKING:
    from avem.components.param_info import ParamInfo, Params
    from avem.components.scaling import Scaling


class Match(NamedTuple):
    """The fixed coefficients that an effect is added to."""

    key: str
    """Of theta."""
    state: int | None
    """None: of every state."""
    place: tuple[int, ...]


class Row(NamedTuple):
    """One number among the parameters."""

    where: dict[str, Any]
    """Some of state, to_state, outcome, term, other."""
    estimate: float
    constant: bool = False
    """It is what it is by definition."""


class Component:
    """One part of a model; see the top of this file. The defaults are those of no parameters."""

    key: str
    """Prefix of its entries in theta."""

    # --- parameters -----------------------------------------------------------------------------

    def param_info(self) -> dict[str, ParamInfo]:
        """Its parameters by the user's names."""
        return {}

    def params_out(self, theta: Params, units: Scaling) -> Params:
        """The user's parameters from its entries of theta."""
        return {}

    def params_in(self, params: Params, units: Scaling) -> Params:
        """Its entries of theta from the user's parameters."""
        return {}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        """Every single number of one of its parameters, states first."""
        return iter(())

    def middle(self) -> Params:
        """Entries of theta inside all bounds, where nothing is at a boundary."""
        return {}

    def free_parts(
        self, theta: Params, fixed: Collection[str], spread: np.ndarray, scale: np.ndarray
    ) -> list[Part]:
        """What is free: not held by the user, and not on the boundary.

        ``spread`` (outcome columns) and ``scale`` (effects) are the variances that others are
        judged by. By default, the coefficients that may move.
        """
        free = self.free_entries(fixed).items()
        return [Plain(k, np.flatnonzero(np.resize(own, theta[k].size))) for k, own in free]

    def held(self, fixed: Collection[str]) -> set[str]:
        """The entries of theta with a closed form that stay as they are."""
        return set()

    def free_entries(self, fixed: Collection[str]) -> Params:
        """For every coefficient array of theta, which coefficients (of a state) may move."""
        return {}

    def floors(self, spread: np.ndarray) -> Params:
        """For its covariances in theta, the variances that theirs are judged by."""
        return {}

    def limits(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Lowest and highest coefficients, where a density could close in on a single value."""
        return {}

    def matches(self, fixed: Collection[str]) -> dict[int, Match]:
        """By place in f, the coefficients that an effect is added to, unless they are held."""
        return {}

    def effect_units(self, units: Scaling) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """Places in f, and the matrix from effects there on the scale of the fit to the user's."""
        return []

    def effect_scale(self, spread: np.ndarray) -> dict[int, float]:
        """By place in f, the variances beside which its effects are judged, where not 1."""
        return {}

    def check_params(self, params: Params, where: str) -> None:
        """Raise ModelError where values that a user gave for its parameters cannot be."""

    # --- what weak priors are about --------------------------------------------------------------

    def variance_units(self, units: Scaling) -> Params:
        """By the name of a variance or covariance, the size of the data that it is about."""
        return {}

    def slope_units(self, units: Scaling) -> Iterator[tuple[str, float]]:
        """Coefficients that may run away, in brackets, and the size of the covariate."""
        return iter(())

    # --- states ---------------------------------------------------------------------------------

    def relabelled(self, theta: Params, order: np.ndarray) -> Params:
        """Its entries of theta with the states renumbered: state k is what `order[k]` was."""
        return {key: theta[key][order] for key in self.middle()}


class Block(ABC):
    """The compiled half of a component of a hidden Markov model; see the top of this file.

    The defaults are those of a block without effects and without closed forms.
    """

    @property
    def newton_keys(self) -> tuple[str, ...]:
        """The entries of theta whose M-step has no closed form."""
        return ()

    @property
    def concave(self) -> bool:
        """Its part of Q(f) is concave."""
        return True

    @property
    def has_effects(self) -> bool:
        """Effects act on it."""
        return False

    @property
    def closed_form(self) -> bool:
        """Its part of Q(f) is quadratic, or effects do not act on it."""
        return not self.has_effects

    @abstractmethod
    def weigh(self, collected: Any, share: Array, chunk: Chunk) -> Any:
        """What was collected, counting only with a share of each subject."""

    def quadratic(self, theta: Theta, collected: Any) -> tuple[Array, Array] | None:
        """Lambda and h with Q(f) = h'f - f'Lambda f / 2 + constant; None where it is not."""
        return None

    def value(self, theta: Theta, mean: Array, cov, collected: Any, chunk: Chunk) -> Array:
        """E_q of its part of Q(f), as far as f acts on it, where it is not quadratic."""
        return np.zeros(mean.shape[1])  # type: ignore[return-value]

    def effect_terms(
        self, theta: Theta, mean: Array, cov, collected: Any, chunk: Chunk
    ) -> EffectTerms:
        """`value` with its gradient (d, subject) and curvature (d, d, subject)."""
        d, n = mean.shape
        none: Any = np.zeros((d, d, n))
        return EffectTerms(none[0, 0], none[0], none, none)

    # --- the M-step -----------------------------------------------------------------------------

    def sums(self, collected: Any, mean: Array, second: Array) -> Any:
        """What its closed forms need, summed over subjects, given E_q[f] and E_q[f f']."""
        return ()

    def read(self, sums: Any) -> Any:
        """The sums as closed forms read them, once they have left the device; in NumPy."""
        return sums

    def maximise(
        self,
        theta: dict[str, np.ndarray],
        sums: Any,
        fixed: frozenset[str],
        noise_floor: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """New entries of theta, from the sums; in NumPy."""
        return {}

    def slopes(self, theta: dict[str, np.ndarray], sums: Any) -> dict[str, np.ndarray]:
        """Derivatives of the expected complete log likelihood in these entries."""
        return {}

    def expected(self, theta: dict[str, np.ndarray], sums: Any) -> float:
        """The expected complete log likelihood in these entries, up to a constant."""
        return 0.0

    def information(self, theta: dict[str, np.ndarray], sums: Any) -> dict[str, np.ndarray]:
        """For these entries, flat, minus the second derivative of `expected`, on average."""
        return {}

    def shifted(self, sums: Any, moves: Callable[[str], np.ndarray]) -> Any:
        """The sums as if coefficients had gained ``moves(key)``, and their effects lost it."""
        return sums

    def needed_by_newton(self, collected: Any) -> Any:
        """The part of what was collected that `coef_terms` reads; None where it reads nothing."""
        return collected if self.newton_keys else None

    def coef_terms(
        self, key: str, coef: Array, mean: Array, cov, collected: Any, chunk: Chunk
    ) -> CoefTerms:
        """E_q of its part of Q in theta[key], with derivatives, summed over subjects."""
        size = coef.size // len(coef)
        none: Any = np.zeros((len(coef), size, size))
        return CoefTerms(none[:, 0, 0], none[:, 0], none)


class EmissionBlock(Block):
    """A block that emits outcomes."""

    @abstractmethod
    def table(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None) -> Array:
        """(time, state, lane) log density of each row in each state; 0 where nothing was seen."""

    @abstractmethod
    def collect(self, state: Array, chunk: Chunk) -> Any:
        """What state probabilities (time, state, lane) leave behind."""

    def squares(self, theta: Theta, f: Array, chunk: Chunk) -> Squares | None:
        """Densities as squares of residuals; None: there is only a table.

        Then what `collect` leaves behind are the sums of products of `kernels/gaussian_chain.py`.
        """
        return None

    def histories(self, theta: Theta, f: Array, chunk: Chunk) -> Any:
        """What is remembered before each step, (time, state, ..., lane) a part; None: nothing."""
        return None
