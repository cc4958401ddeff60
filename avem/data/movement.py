"""From positions to steps and turns."""

from __future__ import annotations

import warnings
from typing import Any, Literal, TypeVar

import narwhals as nw
import numpy as np
import pandas as pd

from avem.data.columns import refuse_beyond
from avem.data.frames import as_dates, column, numbers, shown
from avem.data.panel import Panel
from avem.errors import AvemWarning, DataError

F = TypeVar("F")
"""A kind of frame."""
EARTH = 6371.0088
"""Mean radius in km."""
_UNITS = {"km": EARTH, "m": 1000 * EARTH}
_DEGREES = {"lon", "long", "longitude", "lng", "lat", "latitude"}


def steps_and_turns(
    frame: F,
    subject: str,
    x: str = "x",
    y: str = "y",
    *,
    time: str | None = None,
    sequence: str | None = None,
    kind: Literal["projected", "lonlat"] = "projected",
    unit: Literal["km", "m"] | None = None,
    max_gap: Any = None,
) -> F:
    """Return the frame with the length of each step and the angle of each turn of a track.

    At each row, ``step`` is the distance from its position to the next one of its sequence, and
    ``angle`` the turn that is made at it: from the way it was reached to the way it is left, in
    radians between -pi and pi, 0 straight on, positive to the left. So the last row of a sequence
    has no step, and its first and last row have no angle. Nor has any row next to a missing
    position, nor a row reached or left by a step of length 0, which has no direction.

    Parameters
    ----------
    frame : DataFrame
        Positions: pandas, polars, pyarrow or any eager frame that narwhals reads.
    subject : str
        The column that says whose position it is.
    x, y : str
        The columns of the position: easting and northing, or longitude and latitude.
    time : str, optional
        The column to order the rows by, as for `Panel.from_frame`; without it they are taken in the
        order they come.
    sequence : str, optional
        The column that splits a subject's rows into tracks that have nothing to do with each other.
    kind : {"projected", "lonlat"}
        ``"projected"``: positions on a plane, steps in their own unit. ``"lonlat"``: longitude and
        latitude in degrees, steps along great circles of a sphere.
    unit : {"km", "m"}, optional
        Of steps between longitudes and latitudes, by default km.
    max_gap : number, str or timedelta, optional
        Two rows further apart in time than this are not joined by a step: a new track begins. For
        dates a length of time such as ``"2h"``. The frame then also gets ``track``, the number of
        the track from 0 for each subject, which is a ``sequence`` to fit with.

    Returns
    -------
    DataFrame
        All rows and columns of the frame as they were, and ``step``, ``angle`` (and ``track``).

    Examples
    --------
    >>> import pandas as pd
    >>> walk = pd.DataFrame({"id": "a", "x": [0.0, 3.0, 3.0, 2.0], "y": [0.0, 4.0, 5.0, 5.0]})
    >>> avem.steps_and_turns(walk, subject="id")["step"].tolist()
    [5.0, 1.0, 1.0, nan]
    """
    _check_words(kind, unit, max_gap, time)
    panel = Panel.from_frame(frame, subject, time, sequence)
    position = positions(panel, x, y, kind)
    if (
        kind == "projected"
        and {str(x).casefold(), str(y).casefold()} <= _DEGREES
        and _are_degrees(*position)
    ):
        _warn(f"{x!r} and {y!r} look like degrees, and are taken as positions on a plane. "
              "Longitudes and latitudes need kind='lonlat'.")  # fmt: skip
    order = panel.order
    starts = np.diff(panel.row_lane[order], prepend=-1) != 0
    new = {}
    if max_gap is not None:
        starts |= _after_gap(panel, order, max_gap)
        begun = np.cumsum(starts)
        first = pd.Series(begun).groupby(panel.row_subject[order]).transform("min")
        new["track"] = _back(begun - first.to_numpy(), order)
    elif panel.gaps()[0]:
        _warn(f"{panel.gaps()[0]:,} steps in {time!r} are longer than the usual one, so their "
              "lengths do not compare with those of others. max_gap= leaves them out.")  # fmt: skip
    lon_lat = [np.radians(values) for values in position] if kind == "lonlat" else position
    length, angle = _along(lon_lat[0][order], lon_lat[1][order], starts, kind == "lonlat")
    length = length * _UNITS[unit or "km"] if kind == "lonlat" else length
    return _with_columns(frame, {"step": _back(length, order), "angle": _back(angle, order)} | new)


def positions(panel: Panel, x: str, y: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(rows,) each: both coordinates, NaN where missing, or an error that says what is wrong."""
    _check_kind(kind)
    _check_columns(panel, x, y)
    found = _coordinate(panel, x, "x"), _coordinate(panel, y, "y")
    if kind == "lonlat":
        _check_degrees(panel, (x, y), *found)
    return found


# --- geometry -------------------------------------------------------------------------------------


def _along(
    x: np.ndarray, y: np.ndarray, starts: np.ndarray, sphere: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(rows,) length of the step from each row, in radii of the sphere if on one, and its turn."""
    ahead = (_great_circle if sphere else _plane)(x[:-1], y[:-1], x[1:], y[1:])
    back = (_great_circle if sphere else _plane)(x[1:], y[1:], x[:-1], y[:-1])
    joined = ~starts[1:]
    length = np.where(joined, ahead[0], np.nan)
    moves = length > 0
    leaves, came = (np.where(moves, heading, np.nan) for heading in (ahead[1], back[1]))
    # Straight on is to leave a position opposite to where it was reached from.
    turn = leaves[1:] - came[:-1] - np.pi
    turn = np.angle(np.exp(1j * turn))
    none = [np.nan]
    return np.concatenate([length, none]), np.concatenate([none, turn, none])[: len(x)]


def _plane(x: Any, y: Any, to_x: Any, to_y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distances, and headings anticlockwise from the x axis."""
    return np.hypot(to_x - x, to_y - y), np.arctan2(to_y - y, to_x - x)


def _great_circle(lon: Any, lat: Any, to_lon: Any, to_lat: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distances in radii (haversine), and headings at the start, anticlockwise from east."""
    turn = to_lon - lon
    half = np.sin((to_lat - lat) / 2) ** 2 + np.cos(lat) * np.cos(to_lat) * np.sin(turn / 2) ** 2
    east = np.cos(to_lat) * np.sin(turn)
    north = np.cos(lat) * np.sin(to_lat) - np.sin(lat) * np.cos(to_lat) * np.cos(turn)
    return 2 * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))), np.arctan2(north, east)


# --- columns --------------------------------------------------------------------------------------


def _coordinate(panel: Panel, name: str, use: str) -> np.ndarray:
    values = column(panel.table, name, f"the coordinate {use} ({use}= names another)")
    found = numbers(values)
    if found is None or values.dtype == bool:
        seen = values.dropna()
        held = f"holds {shown(seen.iloc[0])}" if len(seen) else f"is {values.dtype}"
        raise DataError(
            f"Column {name!r}, the coordinate {use}, {held}; numbers are wanted, missing where the "
            "position is not known."
        )
    if np.isinf(found).any():
        where = panel.source.name_rows(np.isinf(found))
        raise DataError(f"Column {name!r}, the coordinate {use}, is infinite at {where}.")
    refuse_beyond(found, f"Column {name!r}, the coordinate {use},")
    return found


def _are_degrees(x: np.ndarray, y: np.ndarray) -> bool:
    return bool((np.abs(x[~np.isnan(x)]) <= 360).all() and (np.abs(y[~np.isnan(y)]) <= 90).all())


def _check_degrees(panel: Panel, names: tuple[str, str], x: np.ndarray, y: np.ndarray) -> None:
    limits = (("longitude", x, -180, 360), ("latitude", y, -90, 90))
    for name, (what, values, low, high) in zip(names, limits, strict=True):
        out = (values < low) | (values > high)
        if out.any():
            hint = "kind='projected' is for positions on a plane, in metres or the like."
            if what == "latitude" and _are_degrees(y, x):
                hint = f"Is it the longitude? Then write x={names[1]!r}, y={names[0]!r}."
            raise DataError(
                f"Column {name!r}, the {what}, is {values[out][0]:g} at "
                f"{panel.source.name_rows(out)}; degrees from {low} to {high} are wanted. {hint}"
            )


def _after_gap(panel: Panel, order: np.ndarray, max_gap: Any) -> np.ndarray:
    """(rows in order,) whether the row before lies too far back in time."""
    values = column(panel.table, str(panel.time), "the time")
    dates = as_dates(values)
    if dates is not None:
        longest, times = _nanoseconds(max_gap, str(panel.time)), dates
    else:
        times, longest = numbers(values), max_gap
        if times is None:
            raise DataError(
                f"max_gap needs times that are numbers or dates; column {panel.time!r} holds "
                f"{values.iloc[0]!r}. Convert it first, dates with pd.to_datetime."
            )
        if isinstance(longest, bool) or not isinstance(longest, int | float | np.number):
            raise DataError(
                f"max_gap is {max_gap!r}, and the times in {panel.time!r} are numbers: a number in "
                "their unit is wanted."
            )
    if not longest > 0:
        raise DataError(f"max_gap is {max_gap!r}; a length of time above 0 is wanted.")
    return np.diff(times[order], prepend=times[order[0]]) > longest


def _nanoseconds(max_gap: Any, time: str) -> int:
    wanted = f"the times in {time!r} are dates: a length of time such as '2h' is wanted."
    if isinstance(max_gap, int | float | np.number):
        raise DataError(f"max_gap is {max_gap!r}, and {wanted}")
    try:
        length = pd.Timedelta(max_gap)
    except (ValueError, TypeError):
        raise DataError(f"max_gap is {max_gap!r}, and {wanted}") from None
    if length is pd.NaT:
        raise DataError(f"max_gap is {max_gap!r}, and {wanted}")
    return int(length.as_unit("ns").value)


def _back(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Values of rows in order, put where the rows came from."""
    out = np.empty_like(values)
    out[order] = values
    return out


def _with_columns(frame: Any, new: dict[str, np.ndarray]) -> Any:
    """The caller's own frame with more columns; a missing number is what the frame calls so."""
    wrapped = isinstance(frame, nw.DataFrame)
    table = frame if wrapped else nw.from_native(frame, eager_only=True)
    there = [name for name in new if name in table.columns]
    if there:
        raise DataError(
            f"The frame already has a column {there[0]!r}, which is not overwritten. Rename or "
            "drop it first."
        )
    native = table.to_native()
    if isinstance(native, pd.DataFrame):
        made: Any = native.assign(**new)
    else:
        columns = []
        for name, values in new.items():
            known = [None if value != value else value for value in values.tolist()]
            dtype = nw.Int64 if values.dtype.kind == "i" else nw.Float64
            columns.append(nw.new_series(name, known, dtype, backend=table.implementation))
        made = table.with_columns(*columns).to_native()
    return nw.from_native(made, eager_only=True) if wrapped else made


# --- words ----------------------------------------------------------------------------------------


def _check_kind(kind: Any) -> None:
    if kind not in ("projected", "lonlat"):
        raise DataError(f"kind is {kind!r}; choose one of 'projected', 'lonlat'.")


def _check_words(kind: Any, unit: Any, max_gap: Any, time: str | None) -> None:
    _check_kind(kind)
    if unit is not None and kind == "projected":
        raise DataError(
            f"unit is {unit!r}, but steps on a plane have the unit of their positions. "
            "Divide the positions first, or leave unit= out."
        )
    if unit is not None and unit not in _UNITS:
        raise DataError(f"unit is {unit!r}; choose one of 'km', 'm'.")
    if max_gap is not None and time is None:
        raise DataError(f"max_gap is {max_gap!r}, which needs time=, the column of the times.")


def _check_columns(panel: Panel, x: str, y: str) -> None:
    used = {"subject": panel.subject, "time": panel.time, "sequence": panel.sequence}
    named = {"x": x, "y": y} | {word: name for word, name in used.items() if name is not None}
    for word, name in named.items():
        other = [key for key, value in named.items() if value == name and key != word]
        if other and {word, other[0]} & {"x", "y"}:
            raise DataError(
                f"{word}={name!r} and {other[0]}={name!r} are one column; two different ones are "
                "wanted."
            )


def _warn(words: str) -> None:
    warnings.warn(words, AvemWarning, stacklevel=3)
