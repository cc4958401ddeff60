"""Labels of subjects as JSON, with their types."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd

from avem.errors import FileError

_PLAIN = {kind.__name__: kind for kind in (str, int, float, bool)}
_ISO = {kind.__name__: kind for kind in (dt.date, dt.datetime)}


def label_out(label: Any) -> list[Any]:
    """[kind, value] of a label, both plain JSON."""
    label = label.item() if isinstance(label, np.generic) else label
    name = type(label).__name__
    if isinstance(label, pd.Timestamp):
        zone = None if label.tz is None else str(label.tz)
        moment = label if zone is None else label.tz_convert("UTC")
        found = ["Timestamp", [moment.isoformat(), label.unit, zone]]
    elif _PLAIN.get(name) is type(label):
        found = [name, label]
    elif _ISO.get(name) is type(label):
        found = [name, label.isoformat()]
    else:
        found = None
    if found is None or not _is_same(label_in(*found), label):
        raise FileError(
            f"The subject label {label!r} is a {name}, which cannot be saved; numbers, text and "
            "dates can. Turn the subject column into text and fit again."
        )
    return found


def label_in(kind: str, value: Any) -> Any:
    """The label that `label_out` took apart."""
    if kind in _PLAIN and type(value) is _PLAIN[kind]:
        return value
    if kind in _ISO:
        return _ISO[kind].fromisoformat(value)
    if kind == "Timestamp":
        text, unit, zone = value
        if zone is not None and zone.startswith("dateutil"):  # would open a file of that name
            raise FileError(f"it has a subject label in the unknown time zone {zone[:40]!r}.")
        moment = pd.Timestamp(text)
        return (moment if zone is None else moment.tz_convert(zone)).as_unit(unit)
    raise FileError(
        f"it has a subject label {str(value)[:40]!r} of the unknown kind {str(kind)[:40]!r}."
    )


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other and str(one) == str(other)
