"""The last rows of sequences and where those to come lie, along the time since the last row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from avem.data import Panel
from avem.fits.plots.timeline import edges_of, make_stretches
from avem.fits.predict.ahead import rows_ahead
from avem.fits.questions.clock import time_words

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit
    from avem.fits.ssm_fit import SSMFit


class End(NamedTuple):
    """The last rows of one subject's last sequence, and those that follow."""

    label: object
    lane: int
    rows: np.ndarray
    before: np.ndarray
    """From the last row, in steps or in the unit of time: ..., -1, 0."""
    after: np.ndarray
    """(horizon,) the same of the rows to come: 1, 2, ..."""
    width: np.ndarray
    """(rows + horizon,) how far each row reaches, half way to its neighbours."""
    of_subject: np.ndarray
    """All rows of the subject."""

    @property
    def now(self) -> float:
        """Where the rows to come begin."""
        return float(self.after[0] - self.width[-len(self.after)] / 2)


def last_rows(
    fit: HMMFit | SSMFit,
    panel: Panel,
    shown: np.ndarray,
    horizon: int,
    max_rows: int | None,
    future: Any,
) -> list[End]:
    """What a forecast follows; by default three times as many rows as there are steps ahead."""
    kept = max(20, 3 * horizon) if max_rows is None else max(1, max_rows)
    clocks = _clocks(fit, panel, horizon, future)
    found = []
    for along in make_stretches(panel, shown, panel.n_rows)[0]:
        lane = int(panel.row_lane[along.rows[-1]])
        rows = along.rows[panel.row_lane[along.rows] == lane][-kept:]
        at = clocks[lane][-len(rows) - horizon :]
        stretch = edges_of(at, np.arange(len(at)) == 0)
        parts = (at[:-horizon], at[-horizon:], np.diff(stretch)[:, 0])
        found.append(End(along.label, lane, rows, *parts, along.rows))
    return found


def axis_words(fit: HMMFit | SSMFit) -> str:
    """What the axis of a forecast shows."""
    return f"{time_words(fit) if fit.model.continuous else 'steps'} from the last row"


def _clocks(fit: HMMFit | SSMFit, panel: Panel, horizon: int, future: Any) -> list[np.ndarray]:
    """By sequence, when its rows and those to come are, from its last row on."""
    clock = fit.model.clock
    if clock is None:
        return [np.arange(1.0 - n, horizon + 1) for n in panel.lane_length]
    longer = rows_ahead(fit.model, panel, horizon, future).panel
    gaps = np.split(clock.intervals(longer), np.cumsum(longer.lane_length)[:-1])
    since = (np.cumsum(gap) for gap in gaps)
    return [at - at[-horizon - 1] for at in since]
