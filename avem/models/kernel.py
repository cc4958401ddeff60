"""What a model offers to every inference method: the seam between `models` and `inference`.

A kernel is a model's shape: hashable, so that compiled code can key on it, and without numbers of
its own. Its functions take ``theta`` (a flat dict of arrays) and ``f`` (d, subjects), the effects
of a chunk's subjects; everything comes back with subjects on the last axis. Two functions define
the model, `local` and `expected_complete`; the others are what follows from them in closed form or
by differentiation, and tests hold them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jax import Array

from avem.components.lanes import Theta
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms, Quadratic
from avem.models.relabelling import Move


class Local(Protocol):
    """A local pass, reduced to what later steps need; a tuple of arrays."""

    @property
    def loglik(self) -> Array:
        """(subject,) log p(D_i | f_i)."""
        ...


class Kernel(Protocol):
    """The functions of one model."""

    @property
    def n_effects(self) -> int:
        """d."""
        ...

    @property
    def closed_form(self) -> bool:
        """The expected log likelihood is quadratic in the effects."""
        ...

    @property
    def concave(self) -> bool:
        """The expected log likelihood is concave in the effects."""
        ...

    @property
    def has_twins(self) -> bool:
        """Posteriors of the effects may have several modes that matter."""
        ...

    @property
    def newton_keys(self) -> tuple[str, ...]:
        """The entries of theta whose M-step has no closed form."""
        ...

    def effects_act_on(self, key: str) -> bool:
        """Whether what one of `newton_keys` describes differs between subjects by their effects."""
        ...

    def summed(self) -> Kernel:
        """The same for a local pass that is not weighed.

        Where effects do not act, it may collect sums over subjects in place of each one's.
        """
        ...

    # The local process at given effects.

    def local(
        self, theta: Theta, f: Array, chunk: Chunk, form: str, cov: Array | None = None
    ) -> Any:
        """The local pass; with `cov`, with expectations under q of the log densities."""
        ...

    def weigh(self, local: Any, share: Array, chunk: Chunk) -> Any:
        """A local pass that counts only with a share of each subject."""
        ...

    def path_posterior(self, theta: Theta, f: Array, chunk: Chunk, form: str) -> Any:
        """The posterior of the latent path, in full."""
        ...

    def expected_complete(self, theta: Theta, f: Array, posterior: Any, chunk: Chunk) -> Array:
        """E over a path posterior of log p(D, U | f; theta)."""
        ...

    # The expected log likelihood Q(f) of a local pass, as far as the effects act on it.

    def quadratic(self, theta: Theta, local: Any) -> Quadratic:
        """The part of Q(f) that is quadratic."""
        ...

    def value(
        self, theta: Theta, mean: Array, cov: Array | None, local: Any, quadratic: Any, chunk: Chunk
    ) -> Array:
        """E_q Q(f); at the point `mean` when `cov` is None."""
        ...

    def effect_terms(
        self, theta: Theta, mean: Array, cov: Array | None, local: Any, quadratic: Any, chunk: Chunk
    ) -> EffectTerms:
        """E_q Q(f) with its gradient (d, subject) and curvature (d, d, subject) in f."""
        ...

    def twins(self, theta: dict[str, np.ndarray], matches: Sequence[Any]) -> list[Move]:
        """Where else a subject looks almost the same."""
        ...

    # The M-step.

    def sums(self, local: Any, mean: Array, cov: Array | None, chunk: Chunk) -> Any:
        """What the closed forms need, summed over subjects, when the effects are N(mean, cov)."""
        ...

    def read(self, sums: Any) -> Any:
        """The sums as `maximise` reads them, once they have left the device; in NumPy."""
        ...

    def maximise(
        self,
        theta: dict[str, np.ndarray],
        sums: Any,
        fixed: frozenset[str],
        free: Mapping[str, np.ndarray],
        noise_floor: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """New entries of theta, from the sums; in NumPy."""
        ...

    def slopes(self, theta: dict[str, np.ndarray], sums: Any) -> dict[str, np.ndarray]:
        """Derivatives of the expected complete log likelihood in these entries."""
        ...

    def shifted(self, sums: Any, moves: Callable[[str], np.ndarray]) -> Any:
        """The sums as if coefficients had gained ``moves(key)``, and their effects lost it."""
        ...

    def needed_by_newton(self, local: Any) -> Any:
        """The part of a local pass that `coef_terms` reads."""
        ...

    def coef_terms(
        self, key: str, coef: Array, mean: Array, cov: Array | None, local: Any, chunk: Chunk
    ) -> Any:
        """E_q of Q in one of `newton_keys`, with derivatives, summed over the chunk's subjects."""
        ...
