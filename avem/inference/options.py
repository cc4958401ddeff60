"""The options of a fit as the user gave them, and what they mean to the iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from avem.components.param_info import check_count
from avem.errors import ModelError
from avem.inference.check_options import PLAIN_TOL, check_nodes, check_options, effect_numbers
from avem.inference.loop import Rules
from avem.inference.methods.names import Integration
from avem.inference.stages import Options

_BATCH_TOL = 1e-4


@dataclass(frozen=True)
class Asked:
    """The options that all models have; they are checked when this is made."""

    method: str
    refine: str | None
    unanchored: str | Sequence[str]
    n_nodes: int | None
    n_draws: int | None
    fresh_draws: bool
    anchor: str
    n_starts: int
    max_iter: int
    tol: float | None
    seed: int
    plain: bool
    q_update: str = "laplace"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_options(
            method=self.method,
            refine=self.refine,
            anchor=self.anchor,
            n_starts=self.n_starts,
            max_iter=self.max_iter,
            tol=self.tol,
            seed=self.seed,
            q_update=self.q_update,
        )
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
            if self.plain or self.anchor != "mean" or self.method != "avem":
                raise ModelError(
                    "batch_size goes with method='avem', the mean anchor, and without plain=True."
                )
        check_nodes(self.method, self.refine, self.n_nodes, self.n_draws, self.fresh_draws)

    def options(self, effect_names: Sequence[str], fixed: frozenset[str], resume: bool) -> Options:
        """How to go about it; `resume`: the start is a refined solution."""
        how = Integration(
            self.method,
            self.q_update,
            n_nodes=self.n_nodes,
            n_draws=self.n_draws,
            fresh_draws=self.fresh_draws,
            unanchored=effect_numbers(effect_names, self.unanchored, self.method),
            follow=not self.plain,
        )
        return Options(
            self.anchor,
            how,
            None if self.plain and self.refine == "auto" else self.refine,
            resume and self.method == "avem",
            self.batch_size is not None,
            fixed,
        )

    def rules(self, usual: float) -> Rules:
        """When to stop; `usual` is the tolerance where nothing else is said."""
        if self.plain:
            usual = PLAIN_TOL
        elif self.batch_size is not None:
            usual = _BATCH_TOL
        return Rules(self.max_iter, usual if self.tol is None else self.tol, self.plain)

    def record(self) -> dict[str, Any]:
        """What a person needs to ask for the same again, in plain Python numbers."""
        return {
            "method": self.method,
            "refine": self.refine,
            "q_update": self.q_update,
            "anchor": self.anchor,
            "n_nodes": _whole(self.n_nodes),
            "n_draws": _whole(self.n_draws),
            "fresh_draws": bool(self.fresh_draws),
            "batch_size": _whole(self.batch_size),
            "n_starts": int(self.n_starts),
            "max_iter": int(self.max_iter),
            "plain": bool(self.plain),
            "seed": int(self.seed),
        }


def _whole(value: int | None) -> int | None:
    return None if value is None else int(value)
