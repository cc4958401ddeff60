"""A monitor in one file: ``monitor.save("p01.monitor")`` and ``avem.Monitor.load("p01.monitor")``.

A zip as that of a fit (`saving`), with ``monitor.json``; it may come from a stranger, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.data.writing import replacing
from avem.errors import FileError
from avem.fits.io.archive import Archive, npy, write_archive
from avem.fits.io.checked_json import typed
from avem.fits.io.given import Given
from avem.fits.io.hmm_json import model_in, model_out
from avem.fits.io.labels import label_in, label_out
from avem.fits.io.possible import check_params
from avem.fits.io.saving import ColumnNames, param_member, reading, refuse_other
from avem.fits.monitor import Known, Monitor
from avem.models.hmm import HMMModel

if TYPE_CHECKING:
    from avem.families import Custom

FORMAT, VERSION, JSON = "avem monitor", 1, "monitor.json"
_MISSING = ["missing", None]


@dataclass(frozen=True)
class _Record:
    """What ``monitor.json`` holds beside the format, its version and the version of avem."""

    model: dict
    columns: dict
    subject: list
    """(kind, value), as all labels and values here."""
    sequence: list
    time: list
    tail: list
    """For each row that is looked back to, (column, kind, value) of what it has."""
    n_rows: int
    n_nodes: int
    places: int
    """The rows of a stay that are told apart; 1 without durations; 0: there was no row."""
    loglik: float
    enough: float
    carried: list = field(default_factory=list)
    """The covariates whose gaps are filled."""


def save_monitor(monitor: Monitor, path: str | os.PathLike[str]) -> None:
    """Write it; an existing file is replaced only once the new one is complete."""
    known, nodes = monitor.known, monitor.nodes
    states = (monitor.model.n_states, nodes.shape[1])
    now = np.zeros((0, *states)) if known.now is None else known.now.reshape(-1, *states)
    record = _Record(
        model=model_out(monitor.model),
        columns=monitor.columns,
        subject=_out(monitor.subject),
        sequence=_out(known.sequence),
        time=_out(known.time),
        tail=[[[name, *_out(value)] for name, value in row.items()] for row in known.tail],
        n_rows=known.n_rows,
        n_nodes=nodes.shape[1],
        places=len(now),
        loglik=known.loglik,
        enough=monitor.enough,
        carried=list(monitor.carried),
    )
    own = getattr(sys.modules["avem"], "__version__", "unknown")
    head = {"format": FORMAT, "version": VERSION, "avem": own}
    arrays = {param_member(name): value for name, value in monitor.params.items()}
    arrays |= {"nodes.npy": nodes, "log_weight.npy": known.log_weight, "now.npy": now}
    members = {JSON: json.dumps(head | asdict(record), indent=1).encode("ascii")}
    members |= {name: npy(np.asarray(value, dtype="<f8")) for name, value in arrays.items()}
    with replacing(path, " to save the monitor in") as file:
        write_archive(file, members)


def load_monitor(
    path: str | os.PathLike[str], custom: Custom | Mapping[str, Custom] | None
) -> Monitor:
    """The monitor that `save_monitor` wrote."""
    given = Given(custom)
    return reading(Path(path), lambda archive: _monitor(archive, given))


def _monitor(archive: Archive, given: Given) -> Monitor:
    refuse_other(archive, JSON)
    found = archive.json(JSON)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileError(f"its {JSON} does not say that it is of the format {FORMAT!r}.")
    if found.get("version") != VERSION:
        raise FileError(
            f"it has format version {found.get('version')!r}, written by avem "
            f"{found.get('avem')}; this avem reads version {VERSION}. Update avem."
        )
    record = typed(_Record, found, JSON)
    model = model_in(record.model, given)
    given.check_used()
    columns = asdict(typed(ColumnNames, record.columns, "columns"))
    params = {
        name: archive.numbers(param_member(name), info.shape)
        for name, info in model.param_info().items()
    }
    check_params(params, model)
    known = _known(archive, record, model)
    nodes = archive.numbers("nodes.npy", (model.n_effects, record.n_nodes))
    if not all(isinstance(name, str) for name in record.carried):
        raise FileError("the covariates that it fills have no names.")
    subject, carried = _in(record.subject), tuple(record.carried)
    return Monitor(model, params, columns, subject, nodes, known, record.enough, carried)


def _known(archive: Archive, record: _Record, model: HMMModel) -> Known:
    if record.n_rows < 0 or record.n_nodes < 1 or (record.n_rows > 0) != (record.places > 0):
        raise FileError("its number of rows or of nodes cannot be.")
    places = model.n_clusters if model.duration is None else model.duration.longest
    if record.places not in (0, places):
        raise FileError("its past is not that of its model.")
    now = archive.numbers("now.npy", (record.places, model.n_states, record.n_nodes))
    if record.places and not (now.min() >= 0 and np.abs(now.sum((0, 1)) - 1).max() < 1e-6):
        raise FileError("its states have no probabilities.")
    log_weight = archive.numbers("log_weight.npy", (record.n_nodes,))
    if abs(float(np.exp(log_weight).sum()) - 1) > 1e-6:
        raise FileError("its nodes have no weights.")
    return Known(
        None if not record.places else now[0] if places == 1 and not model.duration else now,
        log_weight,
        tuple(_tail_row(row) for row in record.tail),
        _in(record.sequence),
        _in(record.time),
        record.n_rows,
        record.loglik,
    )


def _tail_row(row: Any) -> dict[str, Any]:
    if not isinstance(row, list):
        raise FileError("its tail is damaged.")
    out = {}
    for cell in row:
        if not (isinstance(cell, list) and len(cell) == 3 and isinstance(cell[0], str)):
            raise FileError("its tail is damaged.")
        out[cell[0]] = _in(cell[1:], np.nan)
    return out


def _out(value: Any) -> list[Any]:
    missing = value is None or (isinstance(value, float) and np.isnan(value))
    return _MISSING if missing else label_out(value)


def _in(found: list[Any], missing: Any = None) -> Any:
    if found == _MISSING:
        return missing
    if len(found) != 2:
        raise FileError("one of its labels is damaged.")
    return label_in(*found)
