"""Steps and turns: against complex numbers on the plane and vectors in space, row by row."""

import cmath
import warnings
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import avem
from avem.errors import AvemWarning, DataError


@pytest.fixture(scope="module")
def walk():
    """Three animals, one in two seasons, rows shuffled, two positions missing, one stay."""
    rng = np.random.default_rng(3)
    lengths = {("a", 1): 9, ("b", 1): 6, ("b", 2): 7, ("c", 1): 1}
    rows = [(who, season, t) for (who, season), n in lengths.items() for t in range(n)]
    frame = pd.DataFrame(rows, columns=["id", "season", "hour"])
    frame["x"] = rng.normal(0, 40, len(frame)).cumsum()
    frame["y"] = rng.normal(0, 40, len(frame)).cumsum()
    frame.loc[3, ["x", "y"]] = frame.loc[2, ["x", "y"]].to_numpy()  # a stay
    frame.loc[6, "x"] = np.nan
    frame.loc[12, ["x", "y"]] = np.nan
    frame["note"] = [f"n{i}" for i in range(len(frame))]
    shuffled = frame.iloc[rng.permutation(len(frame))]
    return shuffled.set_axis([f"r{i}" for i in shuffled.index], axis=0)


def slowly(frame, step, turn):
    """(steps, angles) of every row by plain loops; `step` and `turn` of points."""
    out: Any = pd.DataFrame(np.nan, frame.index, ["step", "angle"])
    for _, own in frame.groupby(["id", "season"]):
        own = own.sort_values("hour")
        points = list(zip(own["x"], own["y"], strict=True))
        for i in range(len(points) - 1):
            out.loc[own.index[i], "step"] = step(points[i], points[i + 1])
        for i in range(1, len(points) - 1):
            before, after = out.loc[own.index[i - 1], "step"], out.loc[own.index[i], "step"]
            if before > 0 and after > 0:
                out.loc[own.index[i], "angle"] = turn(*points[i - 1 : i + 2])
    return out


def test_on_the_plane_as_complex_numbers(walk):
    def step(p, q):
        return abs(complex(*q) - complex(*p))

    def turn(p, q, r):
        return cmath.phase((complex(*r) - complex(*q)) / (complex(*q) - complex(*p)))

    found = avem.steps_and_turns(walk, "id", time="hour", sequence="season")
    expected = slowly(walk, step, turn)
    assert expected["angle"].notna().sum() > 5
    pd.testing.assert_frame_equal(found[["step", "angle"]], expected, rtol=1e-9, atol=1e-12)
    pd.testing.assert_frame_equal(found[list(walk)], walk)
    assert (found["step"] == 0).sum() == 1


def unit(point):
    lon, lat = np.radians(point)
    return np.array([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


def arc(p, q):
    a, b = unit(p), unit(q)
    return 6371.0088 * np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b)


def turn_in_space(p, q, r):
    """Between the tangents of two great circles at the point where they meet."""
    a, b, c = unit(p), unit(q), unit(r)
    came, leaves = np.cross(np.cross(a, b), b), np.cross(np.cross(b, c), b)
    return np.arctan2(np.cross(came, leaves) @ b, came @ leaves)


def test_on_the_sphere_as_vectors_in_space(walk):
    wide = walk.assign(x=walk["x"] % 360 - 180, y=walk["y"] / walk["y"].abs().max() * 89)
    small = walk.assign(x=11 + walk["x"] / 1e5, y=65 + walk["y"] / 1e5)
    for frame in (wide, small):
        found = avem.steps_and_turns(
            frame, "id", time="hour", sequence="season", kind="lonlat", unit="km"
        )
        expected = slowly(frame, arc, turn_in_space)
        np.testing.assert_allclose(found["step"], expected["step"], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found["angle"], expected["angle"], atol=2e-6)


def test_a_great_circle_is_straight_and_a_degree_is_111_km():
    lat = np.arange(50.0, 56.0)
    north = pd.DataFrame({"id": 1, "lon": 8.0, "lat": lat})
    found = avem.steps_and_turns(north, "id", "lon", "lat", kind="lonlat", unit="m")
    np.testing.assert_allclose(found["step"][:-1], 111_195.08, rtol=1e-6)
    np.testing.assert_allclose(found["angle"][1:-1], 0, atol=1e-9)
    # A great circle that is no meridian: its heading changes, but it does not turn.
    start, end = unit((0, 10)), unit((120, 50))
    normal = np.cross(start, end) / np.linalg.norm(np.cross(start, end))
    side = np.cross(normal, start)
    way = np.array([np.cos(s) * start + np.sin(s) * side for s in np.linspace(0, 1.5, 6)])
    track = pd.DataFrame(
        {
            "id": 1,
            "lon": np.degrees(np.arctan2(way[:, 1], way[:, 0])),
            "lat": np.degrees(np.arcsin(way[:, 2])),
        }
    )
    found = avem.steps_and_turns(track, "id", "lon", "lat", kind="lonlat")
    np.testing.assert_allclose(found["angle"][1:-1], 0, atol=1e-9)
    np.testing.assert_allclose(found["step"][:-1], 0.3 * 6371.0088, rtol=1e-9)
    # Across the date line, and left is positive.
    east = pd.DataFrame({"id": 1, "lon": [179.0, -179.0, -179.0], "lat": [0.0, 0.0, 1.0]})
    found = avem.steps_and_turns(east, "id", "lon", "lat", kind="lonlat")
    assert found["step"][0] == pytest.approx(2 * found["step"][1])
    assert found["angle"][1] == pytest.approx(np.pi / 2)


def test_frames_come_back_in_their_kind(walk):
    options = {"subject": "id", "time": "hour", "sequence": "season", "max_gap": 2}
    plain = avem.steps_and_turns(walk, **options)
    for make in (pl.from_pandas, pa.Table.from_pandas):
        frame = make(walk.reset_index(drop=True))
        found = avem.steps_and_turns(frame, **options)
        assert type(found) is type(frame)
        assert nw.from_native(found).columns == [*walk.columns, "step", "angle", "track"]
        assert nw.from_native(found)["step"].null_count() == plain["step"].isna().sum()
        back = nw.from_native(found).to_pandas()
        for name in ("step", "angle", "track"):
            np.testing.assert_array_equal(back[name].to_numpy(float), plain[name].to_numpy(float))
    wrapped = avem.steps_and_turns(nw.from_native(pl.from_pandas(walk)), **options)
    assert isinstance(wrapped, nw.DataFrame)


def test_a_gap_in_time_begins_a_track(walk):
    late = walk.assign(hour=walk["hour"] + 10 * (walk["hour"] > 4))
    found = avem.steps_and_turns(late, "id", time="hour", sequence="season", max_gap=1)
    cut = late.assign(season=late["season"] * 2 + (late["hour"] > 4))
    pieces = avem.steps_and_turns(cut, "id", time="hour", sequence="season")
    pd.testing.assert_frame_equal(found[["step", "angle"]], pieces[["step", "angle"]])
    tracks = found.groupby("id")["track"].nunique()
    assert tracks.to_dict() == {"a": 2, "b": 4, "c": 1}
    assert found.groupby("id")["track"].min().eq(0).all()
    same = found.groupby(["id", "track"])["season"].nunique()
    assert same.eq(1).all()
    day = pd.Timestamp("2024-01-01", tz="Europe/Oslo")
    dated = late.assign(hour=day + pd.to_timedelta(late["hour"], unit="h"))
    dated = avem.steps_and_turns(dated, "id", time="hour", sequence="season", max_gap="1h")
    np.testing.assert_array_equal(dated["track"], found["track"])
    np.testing.assert_array_equal(dated["step"], found["step"])
    with pytest.warns(AvemWarning, match=r"3 steps in 'hour' are longer .*max_gap="):
        joined = avem.steps_and_turns(late, "id", time="hour", sequence="season")
    assert joined["step"].notna().sum() > found["step"].notna().sum()


def test_few_rows_have_no_steps():
    for n in (1, 2):
        found = avem.steps_and_turns(pd.DataFrame({"id": 1, "x": range(n), "y": 0}), "id")
        assert found["step"].notna().sum() == n - 1
        assert found["angle"].isna().all()


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, {"x": "y"}, "x='y' and y='y' are one column"),
        ({}, {"x": "hour"}, "x='hour' and time='hour' are one column"),
        ({}, {"x": "easting"}, "no column 'easting', wanted as the coordinate x"),
        ({}, {"x": "note"}, "the coordinate x, holds 'n.*'; numbers are wanted"),
        (
            {"x": 700.0},
            {"kind": "lonlat"},
            "'x', the longitude, is 700 at .*; degrees from -180 to 360 are wanted",
        ),
        ({"x": 10.0, "y": 200.0}, {"kind": "lonlat"}, "latitude, is 200 at row.*Is it the long"),
        ({"x": -170.0, "y": 95.0}, {"kind": "lonlat"}, "latitude, is 95 at .*kind='projected'"),
        ({"x": pd.NaT}, {}, "the coordinate x, is datetime64.*numbers are wanted"),
        ({"x": 1e80}, {}, "'x', the coordinate x, "),
        ({"x": np.inf}, {}, "'x', the coordinate x, is infinite at rows"),
        ({}, {"kind": "utm"}, "kind is 'utm'; choose one of 'projected', 'lonlat'"),
        ({}, {"unit": "km"}, "unit is 'km', but steps on a plane"),
        ({}, {"kind": "lonlat", "unit": "miles"}, "unit is 'miles'; choose"),
        ({}, {"time": None, "max_gap": 2}, "max_gap is 2, which needs time="),
        ({}, {"max_gap": "2h"}, "times in 'hour' are numbers: a number in their unit"),
        ({}, {"max_gap": 0}, "max_gap is 0; a length of time above 0"),
        ({"step": 1.0}, {}, "already has a column 'step'"),
        ({"hour": 1}, {}, "has two rows at time 1"),
    ],
)
def test_what_cannot_be(walk, change, options, words):
    options = {"subject": "id", "time": "hour", "sequence": "season"} | options
    with pytest.raises(DataError, match=words):
        avem.steps_and_turns(walk.assign(**change), **options)


def test_dates_need_a_length_of_time_and_degrees_their_kind(walk):
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(walk["hour"], unit="h")
    for gap in (2, "soon", object(), "NaT"):
        with pytest.raises(DataError, match="dates: a length of time such as '2h' is wanted"):
            avem.steps_and_turns(
                walk.assign(hour=dates), "id", time="hour", sequence="season", max_gap=gap
            )
    track = pd.DataFrame({"id": 1, "Lon": [8.0, 8.1], "Lat": [50.0, 50.1]})
    with pytest.warns(AvemWarning, match="'Lon' and 'Lat' look like degrees"):
        avem.steps_and_turns(track, "id", "Lon", "Lat")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        avem.steps_and_turns(track.assign(Lon=[7e5, 8e5]), "id", "Lon", "Lat")
