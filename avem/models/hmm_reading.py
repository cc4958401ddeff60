"""Outcomes, design columns and known states of a panel, as a hidden Markov model reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from avem.components.outcome import read_outcome
from avem.data import Panel
from avem.data.scanning.memory import need_rows
from avem.errors import DataError
from avem.models.encoded import PanelData
from avem.models.known import check_possible, possible_states, with_events
from avem.numerics.rows import any_seen, side_by_side, take_columns

if TYPE_CHECKING:
    from avem.models.hmm import HMMModel


def read_rows(
    model: HMMModel, panel: Panel, outcomes: bool = True, only: np.ndarray | None = None
) -> PanelData:
    """What `HMMModel.read` gives."""
    if not panel.in_memory:
        raise need_rows()
    if outcomes:
        named = [(e.family, name) for e in model.emissions for name in e.outcomes]
        columns = [read_outcome(family, panel, name) for family, name in named]
    else:
        columns = [np.full((panel.n_rows, model.n_columns), np.nan)]
    Y = side_by_side(columns)
    must = [number >= model.transition_part for number in range(len(model.designs.parts))]
    needed = needed_rows(model, panel, Y if outcomes else None)
    needed = needed if only is None else [rows & only for rows in needed]
    found = model.designs.apply(panel, needed, must)
    n_without_past = 0
    for emission in model.emissions:
        incomplete = np.any([found.incomplete[part] for part in emission.parts], axis=0)
        if incomplete.any():
            for column in emission.y_cols[: len(emission.outcomes)]:
                lost = incomplete & ~np.isnan(Y[:, column])
                n_without_past += int(lost.sum())
                Y[lost, column] = np.nan
        own = take_columns(Y, emission.y_cols)
        if (half := emission.half_seen(own)).any():
            raise DataError(
                f"Some of {', '.join(emission.outcomes)} are missing and some observed at "
                f"{panel.source.name_rows(half)}. Their density is a joint one: make all of "
                "them missing there, or give each a density of its own."
            )
        if (bad := emission.impossible(own)).any():
            raise DataError(
                f"{', '.join(emission.outcomes)} at {panel.source.name_rows(bad)}: a "
                f"{emission.family.name} outcome takes {emission.family.wanted}."
            )
    return PanelData(Y, found.A, n_without_past, _possible(model, panel, found.A))


def _possible(model: HMMModel, panel: Panel, A: np.ndarray) -> np.ndarray | None:
    """(rows, states) bool: where each row may be; None where nothing is known of that."""
    known, found = model.spec.known, None
    if known is not None:
        found = possible_states(panel, known, model.state_names, model.n_states)
    found = with_events(found, panel, model.transition)
    if found is not None:
        clock = model.transition.clock
        event = None if clock is None else clock.event
        given = [
            f"{name}={value!r}" for name, value in (("known", known), ("event", event)) if value
        ]
        what = "What is known of the states by " + " and ".join(given)
        own = (model.transition, model.events(A), what, model.duration is not None)
        check_possible(panel, found, *own)
    return found


def needed_rows(model: HMMModel, panel: Panel, Y: np.ndarray | None) -> list[np.ndarray]:
    """(rows,) bool for each design: where its covariates are used."""
    everywhere = np.ones(panel.n_rows, bool)
    seen: dict[int, np.ndarray] = {}
    for emission in model.emissions:
        at = emission.y_cols[: len(emission.outcomes)]
        observed = everywhere if Y is None else any_seen(Y, at)
        for line in emission.lines:
            before = seen.get(line.part)
            seen[line.part] = observed if before is None else before | observed
    nowhere, later = np.zeros(panel.n_rows, bool), panel.row_step > 0
    part = model.transition_part
    stays = len(model.designs.parts) - 2 if model.duration is not None else -1
    needed = []
    for number in range(len(model.designs.parts)):
        if number < part:
            needed.append(seen.get(number, nowhere))
        elif number == stays:
            needed.append(everywhere)
        elif number == part:
            first = model.stationary and bool(model.transition.lines)
            needed.append(everywhere if first else later if model.transition.lines else nowhere)
        else:
            needed.append(~later if model.initial.lines else nowhere)
    return needed
