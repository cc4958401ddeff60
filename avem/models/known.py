"""Which states a row may be in, where something of that is known beside the outcomes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from avem.components.transitions import Transitions
from avem.data import Panel
from avem.data.frames import column, examples, shown
from avem.errors import DataError, ModelError
from avem.models.state_names import check_state_names, state_labels

_SEVERAL = "|"


def learn_names(panel: Panel, known: str, n_states: int) -> tuple[str, ...]:
    """Names of the states from the labels of a column; none where these are numbers."""
    values = column(panel.table, known, "known=")
    found = list(dict.fromkeys(label for value in _different(values) for label in _labels(value)))
    if all(_number(label) is not None for label in found):
        return ()
    if isinstance(values.dtype, pd.CategoricalDtype):
        order = [str(label) for label in values.dtype.categories]
        found = sorted(found, key=lambda label: order.index(label) if label in order else -1)
    else:
        found = sorted(found, key=str)
    if len(found) != n_states:
        raise ModelError(
            f"known={known!r} has the labels {examples(found)}, and the model has {n_states} "
            "states. Say which label is which state: state_names=[...]."
        )
    return check_state_names([str(label) for label in found], n_states, f"known={known!r}")


def possible_states(
    panel: Panel, known: str, names: Sequence[str], n_states: int
) -> np.ndarray | None:
    """(rows, states) bool from a column of labels, all where it is missing; None: no such column.

    A label is the name or the number of a state, several of them "a|b" or a list.
    """
    if known not in panel.table.columns:
        return None
    values = column(panel.table, known, "known=")
    words = {label: k for k, label in enumerate(state_labels(names, n_states))}
    masks: dict[str, np.ndarray] = {}
    out = np.ones((panel.n_rows, n_states), bool)
    for row, value in enumerate(values.tolist()):
        if _is_missing(value):
            continue
        key = repr(value)
        if key not in masks:
            masks[key] = np.zeros(n_states, bool)
            for label in _labels(value, words):
                k = words.get(label, _number(label))
                if k is None or not 0 <= k < n_states:
                    rows = values.map(lambda other, key=key: repr(other) == key).to_numpy(bool)
                    raise DataError(
                        f"known={known!r} has {shown(value)} at {panel.source.name_rows(rows)}; a "
                        f"state is wanted, one of {', '.join(words)}, or several as 'a|b', or "
                        "nothing where it is not known."
                    )
                masks[key][k] = True
        out[row] = masks[key]
    return out


def with_events(
    possible: np.ndarray | None, panel: Panel, transition: Transitions
) -> np.ndarray | None:
    """The same where the entry into absorbing states is seen exactly.

    Rows where it is said that this did not happen are in no such state, and those from then on in
    one. Elsewhere nothing is known.
    """
    if transition.clock is None or transition.clock.event is None:
        return possible
    marks, order = transition.clock.marks(panel), panel.order
    event = marks[order] == 1.0
    lane, total = panel.row_lane[order], np.cumsum(event)
    first = np.searchsorted(lane, lane, side="left")
    gone = np.zeros(panel.n_rows, bool)
    gone[order] = total > (total - event)[first]
    absorbing = np.isin(np.arange(transition.n_states), transition.absorbing)
    own = (gone[:, None] == absorbing) | (np.isnan(marks) & ~gone)[:, None]
    return own if possible is None else own & possible


def check_possible(
    panel: Panel,
    possible: np.ndarray,
    transition: Transitions,
    event: np.ndarray,
    what: str,
    lasting: bool = False,
) -> None:
    """Raise where no path of the chain goes through the states that rows may be in.

    With `lasting`, transitions are those between stays, which last for several rows.
    """
    allowed = transition.possible() | (np.eye(transition.n_states, dtype=bool) & lasting)
    order = panel.order
    starts = np.flatnonzero(panel.row_step[order] == 0)
    if event[order[starts]].any():
        bad = np.zeros(panel.n_rows, bool)
        bad[order[starts]] = event[order[starts]]
        raise DataError(
            f"An event is marked in the first row of a sequence, at {panel.source.name_rows(bad)}. "
            "It ends an interval: a row before it is needed."
        )
    now = np.ones((panel.n_lanes, transition.n_states), bool)
    for step in range(int(panel.lane_length.max())):
        rows = order[starts[panel.lane_length > step] + step]
        lane = panel.row_lane[rows]
        if step:
            moves = np.where(event[rows][:, None, None], transition.entered(), allowed)
            now[lane] = np.einsum("nk,nkm->nm", now[lane], moves)
        now[lane] &= possible[rows]
        lost = ~now[lane].any(1)
        if lost.any():
            bad = np.zeros(panel.n_rows, bool)
            bad[rows[lost]] = True
            raise DataError(
                f"{what} is impossible at {panel.source.name_rows(bad)}: no moves of the model "
                "lead from the states before to those that the row may be in. Correct the rows, or "
                "allow more moves."
            )


def _different(values: pd.Series) -> list[Any]:
    """The different values that are not missing."""
    return list({repr(v): v for v in values.tolist() if not _is_missing(v)}.values())


def _is_missing(value: Any) -> bool:
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return len(value) == 0
    return bool(pd.isna(value)) or (isinstance(value, str) and not value.strip())


def _labels(value: Any, known: Any = ()) -> list[Any]:
    """The states that a cell speaks of: one, or several."""
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return [label for one in value for label in _labels(one, known)]
    if not isinstance(value, Hashable):
        raise DataError(
            f"known= has {shown(value)}; a state is wanted, by its name or number, several as "
            "'a|b', or nothing where it is not known."
        )
    if not isinstance(value, str):
        return [value]
    if value.strip() in known:
        return [value.strip()]
    return [label.strip() for label in value.split(_SEVERAL)]


def _number(label: Any) -> int | None:
    """The number of a state that a label is: 1, 1.0, "1" or True; else None."""
    try:
        found = float(label)
    except (TypeError, ValueError):
        return None
    return int(found) if np.isfinite(found) and found == int(found) else None
