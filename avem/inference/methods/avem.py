"""AVEM (the paper's Algorithm 1): one local pass per subject and iteration, at its anchor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from avem.components.param_info import check_count
from avem.errors import ModelError, did_you_mean
from avem.inference.e_steps import State
from avem.inference.em import ANCHORS, EM, Q_UPDATES
from avem.inference.loop import Rules, Run, Watcher
from avem.inference.methods.anchored import TO_THE_END, anchored_glance, anchored_pass
from avem.inference.methods.base import EStep, Method
from avem.inference.minibatch import iterate_batches, lanes_per_batch
from avem.inference.mode_search import Search, search_modes
from avem.inference.passes import Glance, Pass
from avem.inference.theta import theta_moves
from avem.inference.tuning import BATCH_TOL, SEARCHED

_SMALL = 20_000
"""Cells whose sums take no longer than compiling the code without them."""


@dataclass(frozen=True)
class AVEM(Method):
    """Anchored variational EM.

    Parameters
    ----------
    q_update : {"laplace", "quadrature"}
        How a subject's q is found where there is no closed form: ``"laplace"`` (mode and
        curvature) or ``"quadrature"`` (the best Gaussian, by Gauss-Hermite quadrature).
    anchor : {"mean", "optimal", "fixed"}
        Where each subject's local pass is run: at the ``"mean"`` of its q, at the ``"optimal"``
        anchor of the paper's Lemma 2 (several passes per effect and iteration), or ``"fixed"`` at
        the start (0, or the effects of an earlier fit given as `init`).
    batch_size : int, optional
        Update the parameters after every so many subjects instead of after all, until they are
        near the solution: for many thousand subjects.

    Examples
    --------
    >>> avem.AVEM(batch_size=1000)  # as in model.fit(data, method=avem.AVEM(batch_size=1000))
    AVEM(q_update='laplace', anchor='mean', batch_size=1000)
    """

    q_update: Literal["laplace", "quadrature"] = "laplace"
    anchor: Literal["mean", "optimal", "fixed"] = "mean"
    batch_size: int | None = None

    word = "avem"

    def __post_init__(self) -> None:
        check_q_update(self.q_update)
        if self.anchor not in ANCHORS:
            hint = did_you_mean(self.anchor, ANCHORS)
            raise ModelError(f"anchor is {self.anchor!r}; available: {', '.join(ANCHORS)}.{hint}")
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
            object.__setattr__(self, "batch_size", int(self.batch_size))
            self._check_batches(self.anchor == "mean")

    def _check_batches(self, possible: bool) -> None:
        if not possible:
            raise ModelError(
                "batch_size goes with method='avem', the mean anchor, and without plain=True."
            )

    def check(self, effect_names: Sequence[str], plain: bool) -> None:
        """Batches are none of the paper's iteration."""
        self._check_batches(self.batch_size is None or not plain)

    @property
    def q_of_start(self) -> str:
        """Its own."""
        return self.q_update

    @property
    def anchor_of_start(self) -> str:
        """Its own."""
        return self.anchor

    @property
    def lanes_per_chunk(self) -> int:
        """A batch is one chunk per processor."""
        return lanes_per_batch(self.batch_size)

    def tol(self, usual: float) -> float:
        """Looser with batches."""
        return usual if self.batch_size is None else BATCH_TOL

    def bind(
        self, em: EM, effect_names: Sequence[str], plain: bool, rng: np.random.Generator
    ) -> EStep:
        """What made the start goes on."""
        return em.method

    def iterate(
        self, em: EM, state: State, rules: Rules, rng: np.random.Generator, watch: Watcher
    ) -> Run:
        """In batches first, if so asked."""
        if self.batch_size is not None:
            return iterate_batches(em, state, rules, rng, watch)
        return super().iterate(em, state, rules, rng, watch)


@dataclass(frozen=True)
class Anchored(EStep):
    """One local pass at the anchor, the mean of q_i."""

    q_update: str = "laplace"
    newton_steps: int = TO_THE_END

    anchored = True
    creeps = False

    def e_step(self, kernel, theta, anchor, around, chunk, form) -> Pass:
        """The local pass at the anchor, and the new q_i."""
        return anchored_pass(
            kernel, theta, anchor, None, chunk, form, self.q_update, self.newton_steps
        )

    def glance(self, kernel, theta, anchor, chunk, form) -> Glance | None:
        """Where sums take long: quadratures at every cell of a chunk that is not small."""
        if kernel.closed_form or chunk.valid.size < _SMALL:
            return None
        steps = (self.q_update, self.newton_steps)
        return anchored_glance(kernel, theta, anchor, chunk, form, *steps)

    def search(self, em: EM, state: State, rng: np.random.Generator) -> Search:
        """Subjects in wrong modes are moved to better ones, unless they just were."""
        last = state.searched
        if last is not None and theta_moves(last, state.theta).max(initial=0.0) < SEARCHED:
            return Search(state, 0, 0.0)
        return search_modes(em.e, state, rng)


def check_q_update(word: str) -> None:
    """Raise unless q can be updated so."""
    if word not in Q_UPDATES:
        hint = did_you_mean(word, Q_UPDATES)
        raise ModelError(f"q_update is {word!r}; available: {', '.join(Q_UPDATES)}.{hint}")
