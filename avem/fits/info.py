"""How a fit went, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from avem.data import Panel
from avem.inference.loop import Run
from avem.inference.methods.names import Integration
from avem.inference.starts import start_gaps, starts_agreeing


@dataclass(frozen=True)
class FitInfo:
    """How the fit went: for people, not for further computing."""

    method: str
    refined: bool
    """The adaptive tier went on from the method's solution."""
    lost: tuple[float, ...]
    """Share of the information on each effect that is lost by not seeing the states; AVEM only."""
    q_update: str
    anchor: str
    unanchored: tuple[str, ...]
    """The effects that partial anchoring integrated."""
    n_nodes: int | None
    n_draws: int | None
    fresh_draws: bool
    fixed: tuple[str, ...]
    """Parameters that were held."""
    plain: bool
    seed: int
    n_rows: int
    n_sequences: int
    n_observed: int
    """Observed outcome cells."""
    n_missing: int
    start_gaps: tuple[float, ...]
    """How far below the best start's bound each one ended."""
    start_iterations: tuple[int, ...]
    """Iterations that each start took before they were compared."""
    starts_agreeing: int
    """Starts that found the best one's solution."""
    moved: int
    """Times a subject was moved to a better mode of its effect."""
    seconds: float
    notes: tuple[str, ...]
    """What a reader should know, in sentences."""
    max_radius: float | None = None
    """Largest spectral radius that a subject's dynamics may have; state-space models only."""
    held_back: int = 0
    """Subjects whose dynamics were kept within it."""
    refine: str | None = None
    """As it was asked for; `refined` says what was done."""
    tol: float | None = None
    """None, here and below: not known, of a fit that an earlier avem has saved."""
    max_iter: int | None = None
    n_starts: int | None = None
    batch_size: int | None = None
    init: tuple[str, ...] = ()
    """Parameters that were given values to start from."""


class Outcome(Protocol):
    """What every fit leaves behind, of whatever model."""

    @property
    def run(self) -> Run: ...

    @property
    def how(self) -> Integration: ...

    @property
    def starts(self) -> tuple[Run, ...]: ...

    @property
    def seconds(self) -> float: ...


def make_info(
    fitted: Outcome,
    panel: Panel,
    observed: np.ndarray,
    effect_names: Sequence[str],
    notes: Sequence[str],
    **asked: Any,
) -> FitInfo:
    """The record of a fit; ``observed`` (rows, outcomes), ``asked`` are options as they were."""
    how = fitted.how
    return FitInfo(
        **asked,
        refined=how.refined,
        lost=how.lost,
        unanchored=tuple(effect_names[e] for e in how.unanchored or ()),
        n_rows=panel.n_rows,
        n_sequences=panel.n_lanes,
        n_observed=int(observed.sum()),
        n_missing=int((~observed).sum()),
        start_gaps=start_gaps(fitted.starts),
        start_iterations=tuple(len(start.bounds) for start in fitted.starts),
        starts_agreeing=starts_agreeing(fitted.starts),
        moved=fitted.run.moved,
        seconds=fitted.seconds,
        notes=tuple(notes),
    )
