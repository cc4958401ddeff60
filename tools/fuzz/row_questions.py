"""What is asked of rows that come one by one, or from disk, and what is known of the answer."""

from __future__ import annotations

import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

import avem
from tools.fuzz.case import Wrong
from tools.fuzz.frame_questions import check_finite, known

_MODELS = (1, 7, 8)
_FEW = 12


def watch(frame: Any, model: int, extra: Any) -> None:
    """Filtering all rows of a subject at once, and one by one; `extra` stands in the last one."""
    fitted = known(_MODELS[model])
    at_once = nw.from_native(fitted.filter(frame), eager_only=True).to_numpy()
    check_finite("filtered", at_once)
    if len(at_once) and np.abs(at_once.sum(axis=1) - 1).max() > 1e-6:
        raise Wrong("filtered")
    rows = nw.from_native(frame, eager_only=True).to_pandas()
    rows = rows[rows["id"] == rows["id"].iloc[0]].head(_FEW)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", avem.AvemWarning)
        monitor = fitted.monitor(rows)
        last = nw.from_native(fitted.filter(rows), eager_only=True).to_numpy()
    if not warned and np.abs(last[_newest(rows)] - list(monitor.states.values())).max() > 1e-6:
        raise Wrong("monitor", last, monitor.states)
    times = np.sort(rows["time"].to_numpy())
    if len(times) < 2:
        return
    try:
        step = pd.Series(times[-2:]).diff().iloc[-1]
    except TypeError:
        return  # times that cannot be subtracted
    row = rows.iloc[_newest(rows)].to_dict()
    row["time"] += step
    if extra is not None:
        row[("y", "x", "id", "time", "k")[model]] = extra
    new = monitor.update(row)
    if abs(sum(new.states.values()) - 1) > 1e-6:
        raise Wrong("states of an update", new.states)
    check_finite("update", [new.loglik, *new.states.values(), *new.effects["mean"]])
    _check_again(monitor, row | {"time": row["time"] + step})


def _newest(rows: pd.DataFrame) -> int:
    return int(np.argmax(rows["time"].to_numpy()))


def _check_again(monitor: Any, row: dict[str, Any]) -> None:
    """Raise unless a monitor from a file goes on as the one that was saved."""
    path = Path(_folder().name) / "saved.monitor"
    monitor.save(path)
    again = avem.Monitor.load(path)
    one, other = monitor.update(row).states, again.update(row).states
    if one != other:
        raise Wrong("another monitor from its file", one, other)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="avem-fuzz-")


def scan(frame: Any, subject: Any, time: Any, sequence: Any) -> None:
    """The rows on disk are the panel in memory, or both are refused."""
    path = Path(_folder().name) / "rows.parquet"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            nw.from_native(frame, eager_only=True).write_parquet(path)
            rows = pd.read_parquet(path)
        except Exception:
            return  # no table that could be on disk
    found = avem.Panel.scan(path, subject, time, sequence, memory="200MB")
    repr(found)
    found.report()
    panel = avem.Panel.from_frame(rows, subject, time, sequence)
    for name in ("n_subjects", "n_lanes", "n_rows"):
        if getattr(found, name) != getattr(panel, name):
            raise Wrong(name, getattr(found, name), getattr(panel, name))
    if sorted(found.lane_length.tolist()) != sorted(panel.lane_length.tolist()):
        raise Wrong("lengths of sequences", found.lane_length)
    if found.gaps()[0] != panel.gaps()[0]:
        raise Wrong("gaps", found.gaps(), panel.gaps())
    values = [part.to_numpy() for part in found.column_parts("z")]
    if sorted(map(repr, np.concatenate(values))) != sorted(map(repr, rows["z"].to_numpy())):
        raise Wrong("values", values)
