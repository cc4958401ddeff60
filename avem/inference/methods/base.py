"""A method of inference: what the user asks for (`Method`), and what it runs (`EStep`).

Given a subject's effects, local inference is easy. A method is a choice of the places (which
effects) where it is run, and of how to weigh what comes back. To add one, write both classes, or
reuse an E-step that is there:

    @dataclass(frozen=True)
    class Grid(avem.Method):
        word = "grid"
        likelihood = True
        n_points: int = 21

        def bind(self, em, effect_names, plain, rng):
            return PriorNodes(points, log_weights)

    model.fit(data, method=Grid(31))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from avem.data.layout import Chunk
from avem.inference.e_steps import State
from avem.inference.em import EM
from avem.inference.loop import Rules, Run, Watcher, iterate
from avem.inference.mode_search import Search
from avem.inference.passes import Glance, Pass
from avem.models.kernel import Kernel


class EStep(ABC):
    """Where the local passes of an E-step are run, what becomes of them, and what the loop needs.

    The iteration has it as `em.method`.
    """

    anchored: ClassVar[bool] = False
    """One anchor per subject, which climbs to a mode of its effects' posterior."""
    has_q: ClassVar[bool] = False
    """A Gaussian q_i that takes several E-steps to settle."""
    creeps: ClassVar[bool] = True
    """From effect variances near 0 it would hardly move: they are made larger before it begins,
    where the slopes of the likelihood speak for that."""

    def glance(
        self, kernel: Kernel, theta: Any, anchor: Any, chunk: Chunk, form: str
    ) -> Glance | None:
        """What climbing needs of an E-step, where that is much cheaper than all of it."""
        return None

    @property
    def nodes_stay(self) -> bool:
        """What it keeps beside the anchors stays where it is once the parameters hardly move."""
        return False

    @property
    def by_draws(self) -> bool:
        """Its objective is known up to the error of random draws."""
        return False

    @property
    def n_nodes(self) -> int:
        """Local passes per subject and centre."""
        return 1

    @abstractmethod
    def e_step(
        self, kernel: Kernel, theta: Any, anchor: Any, around: Any, chunk: Chunk, form: str
    ) -> Pass:
        """The E-step of a chunk; `around` is what the last one left in `Pass.around`, or None."""

    def begin(self, em: EM, state: State, rng: np.random.Generator) -> State:
        """Where it begins, given a start; `em` runs this E-step. Others' nodes are left behind."""
        return em.e.without_nodes(state)

    def rules(self, rules: Rules) -> Rules:
        """When it stops, given what was asked for."""
        return rules

    def heights(self, p: Pass, anchor: np.ndarray, theta: Any) -> np.ndarray:
        """(subject,) what a step of its q_i must not lower, of an E-step at these anchors."""
        return np.asarray(p.bound)

    def search(self, em: EM, state: State, rng: np.random.Generator) -> Search:
        """Better places to look at every subject from, once the parameters hardly move."""
        return Search(state, 0, 0.0)

    @property
    def redraws(self) -> bool:
        """Every iteration draws its own nodes, so that the objective is noisy."""
        return False

    def redrawn(self) -> EStep:
        """The E-step with nodes for the next iteration."""
        return self


class Method(ABC):
    """What the user asks for. A leaf is a frozen dataclass; its fields are the method's options.

    A leaf with a `word` of its own can be asked for by it: ``method="adaptive"``. What an option
    may be is checked in `__post_init__`.

    Examples
    --------
    >>> isinstance(avem.Adaptive(n_nodes=9), avem.Method)
    True
    """

    word: ClassVar[str]
    """Its name, in `fit.info.method` and wherever people read."""
    likelihood: ClassVar[bool] = False
    """It maximises the marginal likelihood, not a bound: there is nothing to refine."""
    expects_densities: ClassVar[bool] = False
    """Its local pass reads expectations of log densities over the effects."""
    anchors_first: ClassVar[bool] = False
    """It needs good anchors to begin with: AVEM comes near its solution first."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "word" in vars(cls):
            _KNOWN[cls.word] = cls

    @abstractmethod
    def bind(
        self, em: EM, effect_names: Sequence[str], plain: bool, rng: np.random.Generator
    ) -> EStep:
        """What runs on a model with these effects, of which there is at least one.

        Parameters
        ----------
        em : EM
            The anchored iteration that made the start.
        effect_names : sequence of str
            As in `fit.effects()`.
        plain : bool
            Whether the paper's iteration is wanted to the letter.
        rng : numpy.random.Generator
            For nodes that are drawn.

        Returns
        -------
        EStep
        """

    @property
    def q_of_start(self) -> str:
        """How AVEM, which makes the start, finds a subject's q."""
        return "laplace"

    @property
    def anchor_of_start(self) -> str:
        """Where AVEM, which makes the start, puts the anchors."""
        return "mean"

    @property
    def lanes_per_chunk(self) -> int:
        """Sequences that are computed together; 0: as many as usual."""
        return 0

    def check(self, effect_names: Sequence[str], plain: bool) -> None:  # noqa: B027
        """Raise ModelError unless it can be run on a model with these effects.

        Parameters
        ----------
        effect_names : sequence of str
            As in `fit.effects()`.
        plain : bool
            Whether the paper's iteration is wanted to the letter.

        Examples
        --------
        >>> avem.AVEM(batch_size=100).check(["valence: Intercept"], plain=False)
        """

    def tol(self, usual: float) -> float:
        """The tolerance where none is asked for.

        Parameters
        ----------
        usual : float
            That of the model.

        Returns
        -------
        float

        Examples
        --------
        >>> avem.Adaptive().tol(1e-6)
        1e-06
        """
        return usual

    def decided(self, em: EM, state: State, effect_names: Sequence[str]) -> Method:
        """The method with all that was left to the fit decided, at an anchored start.

        Parameters
        ----------
        em : EM
            The anchored iteration that made the start.
        state : State
            The start.
        effect_names : sequence of str
            As in `fit.effects()`.

        Returns
        -------
        Method
        """
        return self

    def iterate(
        self, em: EM, state: State, rules: Rules, rng: np.random.Generator, watch: Watcher
    ) -> Run:
        """From the start to the end.

        Parameters
        ----------
        em : EM
            The iteration, with this method's E-step.
        state : State
            The start.
        rules : Rules
            When to stop.
        rng : numpy.random.Generator
            For searches and draws.
        watch : Watcher
            Is told of every iteration.

        Returns
        -------
        Run
        """
        return iterate(em, state, rules, rng, watch)

    def options(self) -> dict[str, Any]:
        """Its options by name, as a file can hold them: numbers, words, lists of them.

        Returns
        -------
        dict of str to object

        Examples
        --------
        >>> avem.Adaptive(n_nodes=9).options()
        {'n_nodes': 9, 'n_draws': None}
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    def code(self) -> str:
        """What to write for it in Python.

        Returns
        -------
        str

        Examples
        --------
        >>> avem.Adaptive(n_nodes=9).code()
        'avem.Adaptive(n_nodes=9)'
        """
        given = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)  # pyright: ignore[reportArgumentType]
            if getattr(self, field.name) != field.default
        )
        home = "avem." if type(self).__module__.startswith("avem.") else ""
        return f"{home}{type(self).__name__}({', '.join(given)})"


_KNOWN: dict[str, type[Method]] = {}


def known_words() -> tuple[str, ...]:
    """The words of all methods that have been defined."""
    return tuple(_KNOWN)


def method_class(word: str) -> type[Method] | None:
    """The class of the method of this name; None if there is none."""
    return _KNOWN.get(word)
