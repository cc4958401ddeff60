"""Full disks, damaged files, processes at the same time, and those that are killed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import avem
from tests.execution.clusters import ROOT
from tests.scans import MODEL, TRUTH, assert_equal_fit, uneven, write_files

pytest.importorskip("duckdb")

NEAR = {"init": TRUTH, "refine": None, "tol": 1e-3}
SETTINGS = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}}


@pytest.fixture(scope="module")
def frame():
    return uneven()


# --- a disk that is full ------------------------------------------------------------------------

FULL = """
import gc, json, resource, sys
from pathlib import Path
import avem
from avem.execution import disk
from tests.execution.test_faults import NEAR
from tests.scans import MODEL

files, cache = sys.argv[1], Path(sys.argv[2])
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)

def told(what, room, work):
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
    try:
        work()
        words = "nothing"
    except avem.FileError as error:
        words = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    gc.collect()
    left = sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")
    print(json.dumps([what, words, left]), flush=True)

def scanned():
    return avem.Panel.scan(files, "subject", time="time", cache=cache)

for room in (0, 1000, 9000):
    told("scan", room, scanned)
scan = scanned()
for room in (0, 1000, 16_000):
    told("layout", room, lambda: MODEL.fit(scan, **NEAR))
disk._FOR_CHUNKS = disk._FOR_SUBJECTS = 0.0

def cut(iteration):
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))

told("iterations", most, lambda: MODEL.fit(scan, callback=cut, **NEAR))
fit = MODEL.fit(scan, **NEAR)
told("answer", 100, lambda: fit.decode().write_parquet(cache / "states"))
fit.decode().write_parquet(cache / "states")
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no limits on the size of files")
def test_a_full_disk_is_told_wherever_it_is_met_and_nothing_is_left(frame, tmp_path):
    """A real limit of the system, on the size of files, in a process of its own."""
    files, cache = write_files(frame, tmp_path / "data"), tmp_path / "cache"
    command = [sys.executable, "-c", FULL, str(files), str(cache)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **SETTINGS)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    met = [what for what, _, _ in lines]
    assert met == ["scan"] * 3 + ["layout"] * 3 + ["iterations", "answer"]
    kept = [name for _, _, left in lines for name in left if name.endswith(".tmp")]
    *before, (_, words, left) = lines
    for what, said, there in before:
        assert "no room for the rows" in said, what
        assert "File too large. Make room, or give Panel.scan a cache=" in said
        assert len(there) == (0 if what == "scan" else 1)  # the sorted rows
    assert "File too large" in words
    assert "states" not in left
    assert len(kept) == 1  # of the fit whose answer was asked for
    assert len(pd.read_parquet(cache / "states")) == len(frame)


# --- files that are damaged ---------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut short", "cut in the middle", "overwritten", "empty"])
def test_a_damaged_file_is_named_and_nothing_is_left(frame, tmp_path, damage):
    files, cache = write_files(frame, tmp_path / "data"), tmp_path / "cache"
    path = files / "part-02.parquet"
    whole = path.read_bytes()
    size = len(whole)
    path.write_bytes(
        {
            "cut short": whole[:-20],
            "cut in the middle": whole[:100] + whole[size // 2 :],  # its end is as it was
            "overwritten": whole[:4] + b"\xff" * (size // 2) + whole[4 + size // 2 :],
            "empty": b"",
        }[damage]
    )
    with pytest.raises(avem.FileError, match=r"part-02\.parquet"):
        avem.Panel.scan(files, "subject", time="time", cache=cache)
    assert not [one for one in cache.iterdir() if one.is_dir()]
    path.write_bytes(whole)
    assert avem.Panel.scan(files, "subject", time="time", cache=cache).n_rows == len(frame)


def test_sorted_rows_that_are_lost_are_named(frame, tmp_path):
    """The cache was tidied up, or damaged, by somebody else."""
    files, cache = write_files(frame, tmp_path / "data"), tmp_path / "cache"
    scan = avem.Panel.scan(files, "subject", time="time", cache=cache)
    rows = scan.folder / "rows.parquet"
    rows.write_bytes(rows.read_bytes()[:2000])
    with pytest.raises(avem.FileError, match=r"rows\.parquet.*scan again"):
        MODEL.fit(scan, **NEAR)
    rows.unlink()
    with pytest.raises(avem.FileError, match=r"rows\.parquet.*scan again"):
        MODEL.fit(scan, **NEAR)


def test_the_seventeenth_of_twenty_files_lacks_a_column(frame, tmp_path):
    files = write_files(frame, tmp_path / "data", n_files=20)
    odd = files / "part-16.parquet"
    whole = pd.read_parquet(odd)
    whole.drop(columns="x").to_parquet(odd)
    with pytest.raises(avem.DataError, match=r"part-16\.parquet' has no column 'x'"):
        avem.Panel.scan(files, "subject", time="time")
    whole.assign(x="much").to_parquet(odd)
    with pytest.raises(avem.FileError, match=r"part-16\.parquet"):
        avem.Panel.scan(files, "subject", time="time")


def test_subjects_in_every_file_are_one_subject_each(frame, tmp_path):
    """As many files as the shortest subject has rows, each of them with one row of everyone."""
    n_files = int(frame["subject"].value_counts().min())
    turn = frame.groupby("subject").cumcount() % n_files
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(n_files):
        frame[turn == number].to_parquet(folder / f"{number:02}.parquet", index=False)
    scan = avem.Panel.scan(folder, "subject", time="time")
    together = pd.concat([pd.read_parquet(path) for path in sorted(folder.iterdir())])
    assert together.groupby("subject").size().min() == n_files
    wanted = MODEL.fit(together.reset_index(drop=True), time="time", **NEAR)
    assert_equal_fit(MODEL.fit(scan, **NEAR), wanted)


# --- several processes, and those that are killed -----------------------------------------------

SCAN = """
import json, sys, avem
print("go", flush=True)
sys.stdin.readline()
scan = avem.Panel.scan(sys.argv[1], "subject", time="time", cache=sys.argv[2])
print(json.dumps([str(scan.folder), scan.n_rows]), flush=True)
"""


def scanning(files, cache):
    command = [sys.executable, "-c", SCAN, str(files), str(cache)]
    one = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **SETTINGS
    )
    assert one.stdout is not None
    assert one.stdout.readline() == "go\n"
    return one


def started(*processes):
    for one in processes:
        one.stdin.write("now\n")
        one.stdin.flush()


@pytest.mark.slow
def test_of_scans_at_once_one_is_killed_and_the_others_make_one_folder(frame, tmp_path):
    files, cache = write_files(frame, tmp_path / "data"), tmp_path / "cache"
    for moment in range(3):
        three = [scanning(files, cache) for _ in range(3)]
        started(*three)
        time.sleep(0.05 * moment)
        three[0].send_signal(signal.SIGKILL)
        found = [json.loads(one.communicate(timeout=120)[0]) for one in three[1:]]
        assert found[0] == found[1]
        assert found[0][1] == len(frame)
        three[0].communicate()
        assert [path.name for path in cache.iterdir() if path.is_dir()] == [
            os.path.basename(found[0][0])
        ]
        os.utime(files / "part-00.parquet", ns=(moment, moment))
        (cache / found[0][0] / "rows.parquet").unlink()
        for path in list((cache / found[0][0]).iterdir()):
            path.unlink()
        (cache / found[0][0]).rmdir()


FITTED = """
import sys, avem
from tests.scans import MODEL
from tests.execution.test_faults import NEAR
scan = avem.Panel.scan(sys.argv[1], "subject", time="time", cache=sys.argv[2])
def told(iteration):
    print("iteration", flush=True)
    sys.stdin.readline()
MODEL.fit(scan, callback=told, **NEAR)
"""


def test_what_a_killed_fit_has_left_goes_with_the_next(frame, tmp_path):
    files, cache = write_files(frame, tmp_path / "data"), tmp_path / "cache"
    command = [sys.executable, "-c", FITTED, str(files), str(cache)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes, **SETTINGS) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "iteration\n"
        one.kill()
    left = [path.name for path in cache.glob("*.tmp")]
    assert len(left) == 1
    scan = avem.Panel.scan(files, "subject", time="time", cache=cache)
    assert not list(cache.glob("*.tmp"))
    found = MODEL.fit(scan, **NEAR)
    np.testing.assert_array_equal(found.subjects, frame["subject"].unique())
