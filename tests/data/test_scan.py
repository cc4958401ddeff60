"""Scans: files beyond memory, sorted once, and read part by part."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data.layout import build_layout, build_outline, layout_of_chunk
from avem.data.scanning import cache as caches
from avem.data.scanning.memory import bytes_of, shown_bytes
from tests.scans import as_frame, uneven, write_files

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def frame():
    return uneven()


@pytest.fixture(scope="module")
def files(frame, tmp_path_factory):
    return write_files(frame, tmp_path_factory.mktemp("scan") / "data")


@pytest.fixture(scope="module")
def scan(files):
    return avem.Panel.scan(files, "subject", time="time")


def rows_of(scan):
    """All rows of a scan, by their place in the source."""
    groups = list(scan.blocks(50))
    assert len(groups) > 3
    parts = [panel.table.set_axis(panel.source.index) for panel in scan.panels(groups)]
    return pd.concat(parts).sort_index()


# --- what is scanned ----------------------------------------------------------------------------


def test_a_scan_knows_the_panel(scan, frame):
    panel = avem.Panel.from_frame(frame, "subject", time="time")
    np.testing.assert_array_equal(scan.subjects, panel.subjects)
    np.testing.assert_array_equal(scan.lane_subject, panel.lane_subject)
    np.testing.assert_array_equal(scan.lane_length, panel.lane_length)
    assert (scan.n_rows, scan.n_lanes) == (panel.n_rows, panel.n_lanes)
    assert scan.gaps() == panel.gaps()
    assert "60 subjects in 'subject'" in repr(scan)


def test_every_row_is_there_in_its_place(scan, frame):
    pd.testing.assert_frame_equal(rows_of(scan), frame, check_dtype=False)


def test_columns_that_cannot_be_are_named(scan, files):
    with pytest.raises(avem.DataError, match="There is no column 'nothing'"):
        next(iter(scan.column_parts("nothing")))
    with pytest.raises(avem.DataError, match="the name of a column is wanted"):
        avem.Panel.scan(files, "subject", time=np.array([1.0]))


def test_parts_are_panels_in_order_of_time(scan, frame):
    for panel in scan.panels(scan.blocks(50)):
        again = avem.Panel.from_frame(panel.table, "subject", time="time")
        np.testing.assert_array_equal(panel.subjects, again.subjects)
        np.testing.assert_array_equal(panel.row_step, again.row_step)
        np.testing.assert_array_equal(panel.row_lane, again.row_lane)


def test_the_report_says_what_was_found(scan, frame):
    found = scan.report().set_index("column")
    assert found.loc["y", "missing"] == frame["y"].isna().sum()
    for name, wanted in (("min", frame["x"].min()), ("max", frame["x"].max())):
        assert found.loc["x", name] == wanted
    assert found.loc["x", "mean"] == pytest.approx(frame["x"].mean())
    assert found.loc["x", "sd"] == pytest.approx(frame["x"].std(ddof=0))
    assert np.isnan(found.loc["group", "mean"])


def test_some_subjects_come_in_the_order_of_all(scan, frame):
    panel = scan.sample(7)
    assert panel.n_subjects == 7
    known = {label: number for number, label in enumerate(scan.subjects)}
    assert np.all(np.diff([known[label] for label in panel.subjects]) > 0)
    rows = frame[frame["subject"].isin(panel.subjects)]
    assert len(panel.table) == len(rows)
    assert panel.table["x"].sum() == pytest.approx(rows["x"].sum())


@pytest.mark.parametrize("max_lanes", [8, 16, 1024])
def test_chunks_are_those_of_the_panel_in_memory(scan, frame, max_lanes):
    panel = avem.Panel.from_frame(frame, "subject", time="time")
    wanted, found = build_layout(panel, max_lanes), build_outline(scan, max_lanes)
    values = panel.table[["x"]].to_numpy()
    start = 0
    parts = scan.panels(slots.subjects for slots in found.slots)
    for slots, part, chunk in zip(found.slots, parts, wanted.scatter(values), strict=True):
        (own,) = layout_of_chunk(slots, part).scatter(part.table[["x"]].to_numpy())
        np.testing.assert_array_equal(own, chunk)
        start += part.n_rows
    for one, other in zip(found.slots, wanted.slots, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one.owner, other.owner)
        np.testing.assert_array_equal(one.subjects, other.subjects)
    assert start == scan.n_rows


# --- kinds of sources ---------------------------------------------------------------------------


def as_csv(frame, folder):
    for number, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_csv(folder / f"{number}.csv", index=False)
    return str(folder / "*.csv")


def as_polars(frame, folder):
    polars = pytest.importorskip("polars")
    frame.to_parquet(folder / "a.parquet")
    return polars.scan_parquet(folder / "a.parquet")


def as_arrow(frame, folder):
    dataset = pytest.importorskip("pyarrow.dataset")
    frame.to_parquet(folder / "a.parquet")
    return dataset.dataset(folder / "a.parquet")


def as_duckdb(frame, folder):
    frame.to_parquet(folder / "a.parquet")
    return pytest.importorskip("duckdb").read_parquet(str(folder / "a.parquet"))


@pytest.mark.parametrize("make", [as_csv, as_polars, as_arrow, as_duckdb])
def test_sources_of_all_kinds_are_one_panel(frame, tmp_path, make):
    found = avem.Panel.scan(make(frame, tmp_path), "subject", time="time")
    pd.testing.assert_frame_equal(rows_of(found), frame, check_dtype=False)
    kind = {as_polars: "polars", as_arrow: "pyarrow"}.get(make, "pandas")
    assert type(found.report()).__module__.startswith(kind)
    assert len(as_frame(found.report())) == len(frame.columns)


def test_a_dask_frame_is_scanned_part_by_part(frame, tmp_path):
    dask = pytest.importorskip("dask.dataframe")
    found = avem.Panel.scan(dask.from_pandas(frame, npartitions=3, sort=False), "subject", "time")
    pd.testing.assert_frame_equal(rows_of(found), frame, check_dtype=False)


def test_labels_with_zeros_in_front_stay_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("who,t,y\n007,1,2.5\n7,1,NA\n007,2,1.5\n")
    scan = avem.Panel.scan(path, "who", time="t")
    assert scan.subjects.tolist() == ["007", "7"]
    assert scan.facts["columns"]["y"]["missing"] == 1


def test_sequences_are_numbered_by_first_appearance(tmp_path):
    rows = {"who": ["b", "a", "b", "b", "a"], "day": [2, 1, 1, 2, 1], "t": [5, 1, 1, 4, 0]}
    frame = pd.DataFrame(rows)
    frame.to_parquet(tmp_path / "a.parquet")
    scan = avem.Panel.scan(tmp_path / "a.parquet", "who", time="t", sequence="day")
    panel = avem.Panel.from_frame(frame, "who", time="t", sequence="day")
    assert scan.subjects.tolist() == ["b", "a"]
    np.testing.assert_array_equal(scan.lane_length, panel.lane_length)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.assign(subject=f["subject"].mask(f.index == 3)), "'subject', the subject, is"),
        (
            lambda f: f.assign(time=f["time"].mask(f.index == 3)),
            "'time', the time, is missing at r",
        ),
        (lambda f: pd.concat([f, f[f.index == 3]]), "has two rows at time"),
        (lambda f: f.assign(time=f["time"].map("d{}".format).replace("d1", "d10")), "as text"),
        (lambda f: f[:0], "no rows"),
        (lambda f: f.drop(columns="time"), "There is no column 'time'"),
    ],
)
def test_bad_rows_are_named(frame, tmp_path, change, words):
    change(frame).to_parquet(tmp_path / "a.parquet", index=False)
    with pytest.raises(avem.DataError, match=words):
        avem.Panel.scan(tmp_path / "a.parquet", "subject", time="time")


def test_the_file_that_differs_is_named(frame, tmp_path):
    folder = write_files(frame, tmp_path / "data", n_files=20)
    path = folder / "part-16.parquet"
    pd.read_parquet(path).drop(columns="x").to_parquet(path)
    with pytest.raises(avem.DataError, match=r"part-16.parquet' has no column 'x'"):
        avem.Panel.scan(folder, "subject", time="time")


def test_a_truncated_file_is_named(frame, tmp_path):
    folder = write_files(frame, tmp_path / "data")
    path = folder / "part-02.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(avem.FileError, match=r"part-02.parquet' is damaged"):
        avem.Panel.scan(folder, "subject", time="time")


def test_no_files_and_mixed_kinds_are_said(frame, tmp_path):
    with pytest.raises(avem.FileError, match="There is no file"):
        avem.Panel.scan(tmp_path / "none*.parquet", "subject")
    frame.to_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(avem.FileError, match="different kinds"):
        avem.Panel.scan(tmp_path, "subject")
    with pytest.raises(avem.DataError, match="fitted as it is"):
        avem.Panel.scan([frame], "subject")
    with pytest.raises(avem.DataError, match="The source is or has 5"):
        avem.Panel.scan(5, "subject")
    with pytest.raises(avem.FileError, match="cache is empty"):
        avem.Panel.scan(tmp_path / "a.csv", "subject", cache="")


@pytest.mark.parametrize("memory", ["much", "4 apples", "1KB", -1, True, None])
def test_odd_amounts_of_memory_are_refused(files, memory):
    with pytest.raises(avem.ModelError, match="memory is"):
        avem.Panel.scan(files, "subject", memory=memory)


def test_amounts_of_memory():
    assert bytes_of("2GB") == bytes_of("2 gb") == 2 * 10**9
    assert bytes_of("1.5GiB") == 3 << 29
    assert bytes_of(10**9) == 10**9
    assert shown_bytes(2.5e9) == "2.5 GB"


def test_without_the_extra_it_says_what_to_install(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(avem.ModelError, match=r"pip install 'avem\[scale\]'"):
        avem.Panel.scan(files, "subject", time="time")


# --- the folder ---------------------------------------------------------------------------------


def folders(root):
    return sorted(path for path in root.iterdir() if path.is_dir())


def test_a_cache_is_found_again_until_the_files_change(frame, tmp_path):
    data, root = write_files(frame, tmp_path / "data"), tmp_path / "cache"
    first = avem.Panel.scan(data, "subject", time="time", cache=root)
    made = (first.folder / "scan.json").stat().st_mtime_ns
    again = avem.Panel.scan(data, "subject", time="time", cache=root)
    assert again.folder == first.folder
    assert (again.folder / "scan.json").stat().st_mtime_ns == made
    other = avem.Panel.scan(data, "subject", cache=root)
    assert other.folder != first.folder
    os.utime(data / "part-00.parquet", ns=(1, 1))
    changed = avem.Panel.scan(data, "subject", time="time", cache=root)
    assert changed.folder not in (first.folder, other.folder)
    assert len(folders(root)) == 3


@pytest.mark.parametrize("name", ["scan.json", "rows.parquet", "lane_length.npy"])
@pytest.mark.parametrize("damage", [lambda b: b[:40], lambda b: bytes(len(b)), None])
def test_a_damaged_cache_is_made_again(frame, tmp_path, name, damage):
    data, root = write_files(frame, tmp_path / "data"), tmp_path / "cache"
    first = avem.Panel.scan(data, "subject", time="time", cache=root)
    path = first.folder / name
    whole = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(whole))
    again = avem.Panel.scan(data, "subject", time="time", cache=root)
    assert again.folder == first.folder
    assert path.read_bytes() == whole
    assert len(folders(root)) == 1


def test_a_temporary_folder_goes_with_the_scan(files):
    scan = avem.Panel.scan(files, "subject", time="time")
    folder = scan.folder
    assert folder.exists()
    del scan
    assert not folder.exists()


def test_what_a_killed_process_left_is_removed(files, tmp_path):
    left = tmp_path / "avem-scan-0123.tmp"
    left.mkdir()
    (left / "lock").touch()
    avem.Panel.scan(files, "subject", time="time", cache=tmp_path)
    assert not left.exists()


def test_a_failure_leaves_nothing_behind(files, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caches.Sorter, "_write", full)
    with pytest.raises(avem.FileError, match="No space left on device"):
        avem.Panel.scan(files, "subject", time="time", cache=tmp_path)
    assert not folders(tmp_path)


SCAN = """
import json, sys, avem
scan = avem.Panel.scan(sys.argv[1], "subject", time="time", cache=sys.argv[2])
print(json.dumps([str(scan.folder), scan.n_rows]))
"""


def test_two_processes_make_one_folder(files, frame, tmp_path):
    command = [sys.executable, "-c", SCAN, str(files), str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [json.loads(one.communicate(timeout=120)[0]) for one in both]
    assert found[0] == found[1]
    assert found[0][1] == len(frame)
    assert len(folders(tmp_path)) == 1


@pytest.mark.slow
def test_a_killed_scan_is_made_again(files, frame, tmp_path):
    one = subprocess.Popen([sys.executable, "-c", SCAN, str(files), str(tmp_path)])
    deadline = time.monotonic() + 60
    while not folders(tmp_path) and one.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    one.kill()
    one.wait()
    assert avem.Panel.scan(files, "subject", time="time", cache=tmp_path).n_rows == len(frame)
    assert len(folders(tmp_path)) == 1


# --- what a model is laid out by ----------------------------------------------------------------


def test_a_few_rows_tell_of_all_how_they_are_laid_out(frame, monkeypatch):
    """Whatever is missing where, and in however many ways."""
    from avem.models import telling
    from avem.models.encoded import PanelData

    rng = np.random.default_rng(0)
    columns = [f"y{j}" for j in range(8)]
    values = rng.standard_normal((4000, 8))
    values[rng.random(values.shape) < 0.5] = np.nan
    values[:, 3] = np.where(np.isnan(values[:, 1]), np.nan, values[:, 3].mean())  # seen together
    table = pd.DataFrame(values, columns=columns).assign(who=np.arange(4000) // 40)
    panel = avem.Panel.from_frame(table, "who")
    model = avem.MixedSSM(columns, 1, subject="who")._model_type.learn(
        avem.MixedSSM(columns, 1, subject="who").spec, panel
    )
    data, later = model.read(panel), panel.row_step > 0
    wanted = model.laid_out(data.Y, data.A, later).kernel
    monkeypatch.setattr(telling, "_MOST_KINDS", 50)
    every = telling.Telling(8, data.A.shape[1])
    for rows in np.array_split(np.arange(4000), 9):
        # Each block by itself, wherever that is, and then what it tells together with the others'.
        own = telling.Telling(8, data.A.shape[1])
        own.add(model, PanelData(data.Y[rows], data.A[rows], 0), later[rows])
        every.add(model, own.data, own.later)
    assert len(every.later) < 120
    found = model.laid_out(every.data.Y, every.data.A, every.later).kernel
    assert found == wanted


def test_subjects_who_stand_out_are_found_block_by_block(monkeypatch):
    """New extremes of any column, and the first in whom a column is not 0; here row by row."""
    from avem.models import telling
    from avem.models.encoded import PanelData

    monkeypatch.setattr(telling, "_WITNESS_ROWS", 0)
    rng = np.random.default_rng(0)
    who = np.arange(400) // 4
    rare = np.isin(who, [20, 30, 31, 32, 90]) * 1.0
    values = np.column_stack([rng.standard_normal(400).round(1), rare])
    found, wanted = telling.Witnesses(2), {99}
    ends, n_moving = np.array([np.inf, np.inf]), np.zeros(2, int)
    lows, highs = ends, -ends
    for group in np.array_split(np.arange(100), 10):
        rows = np.flatnonzero(np.isin(who, group))
        own, block = values[rows], pd.DataFrame({"who": who[rows]})
        panel = avem.Panel.from_frame(block, "who")
        striking = telling.Striking.of(panel, PanelData(own[:, :1], own[:, 1:], 0))
        found.add(group, len(rows), striking, last=group[-1] == 99)
        low, high = own.min(axis=0), own.max(axis=0)
        lower = [row for row in rows if ((values[row] == low) & (low < lows)).any()]
        higher = [row for row in rows if ((values[row] == high) & (high > highs)).any()]
        wanted |= {int(who[row]) for row in (*lower[:3], *higher[:3])}
        lows, highs = np.minimum(lows, low), np.maximum(highs, high)
        for j in range(2):
            moving = sorted({int(who[row]) for row in rows if values[row, j]})[:3]
            wanted |= set(moving) if n_moving[j] < 3 else set()
            n_moving[j] += len(moving) if n_moving[j] < 3 else 0
    assert found.subjects.tolist() == sorted(wanted)
    assert {20, 30, 31, 32} < wanted
    assert len(wanted) < 30
