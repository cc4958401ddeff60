"""From a panel's rows to the arrays that a model computes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from avem.data import Panel
from avem.data.layout import build_layout
from avem.models.encoded import Encoded, PanelData, Placement


def encode_panel(model: Any, panel: Panel, given: PanelData | None, max_lanes: int) -> Encoded:
    """The panel laid out for a model, on the device; ``max_lanes`` 0: as many at once as fit."""
    data: PanelData = model.read(panel) if given is None else given
    y, a = model.scaling.data_in(data.Y, data.A)
    unit = data.spreads(range(y.shape[1])) / model.scaling.scale
    beyond = model.beyond(panel, y, unit)
    if beyond.any():
        y = np.where(beyond[:, None], np.nan, y)
    place = Placement.of(panel, model.size, y.shape[1] + a.shape[1], model.one_per_core)
    layout = build_layout(panel, max_lanes or place.n_lanes)
    by_lane = model.by_lane(panel, data.A)
    made = model.laid_out(y, a, panel.row_step > 0, data.possible, by_lane)
    chunks = layout.chunks(y, a, made.masks, made.patterns, made.lists)
    if beyond.any():  # there the sequence ends; to go on unseen would be to grow for ever
        ends = layout.scatter(beyond[:, None])
        pairs = zip(chunks, ends, strict=True)
        chunks = (c._replace(valid=c.valid & ~end[:, 0]) for c, end in pairs)
    return Encoded(
        panel=panel,
        y=y,
        a=a,
        layout=layout,
        chunks=place.chunks(chunks),
        executor=place.executor,
        platform=place.device.platform,
        kernel=made.kernel,
        spread=unit**2,
        n_without_past=data.n_without_past,
        possible=data.possible,
        n_runaway=int(beyond.sum()),
    )
