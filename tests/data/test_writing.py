"""Files are there whole or not at all: after a kill, on a full disk, through links and devices."""

import gc
import gzip
import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from avem.data.files import read_table, write_table
from avem.data.writing import replacing, write_text
from avem.errors import FileError

unix = pytest.mark.skipif(sys.platform == "win32", reason="as Unix does it")

KILLS = """
import os, random, signal, sys, time
from avem.data.writing import write_text
path, rounds = sys.argv[1], int(sys.argv[2])
folder = os.path.dirname(path)
texts = [letter * 2_000_000 for letter in "ab"]
random.seed(1)
torn = 0
for _ in range(rounds):
    pid = os.fork()
    if pid == 0:
        while True:
            for text in texts:
                write_text(path, text)
    time.sleep(0.03 * random.random())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if os.path.exists(path):
        assert open(path).read() in texts
    others = [name for name in os.listdir(folder) if name != "x.txt"]
    assert len(others) <= 1, others
    torn += len(others)
write_text(path, texts[0])
assert os.listdir(folder) == ["x.txt"], os.listdir(folder)
print(torn)
"""


@unix
@pytest.mark.parametrize("rounds", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path, rounds):
    command = [sys.executable, "-c", KILLS, str(tmp_path / "x.txt"), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > rounds // 10  # some were killed in the midst of a file


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x.txt"
    write_text(path, "old")

    def fails():
        with replacing(path) as file:
            file.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_two_that_write_the_same_file_do_not_meet(tmp_path):
    path = tmp_path / "x.txt"
    with replacing(path) as one:
        one.write(b"one")
        write_text(path, "two")
        assert path.read_text() == "two"
        one.write(b" more")
    assert path.read_text() == "one more"
    assert os.listdir(tmp_path) == ["x.txt"]


@contextmanager
def disk_of(size):
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


@unix
@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.csv.gz", "x.csv.zip", "x.parquet"])
def test_a_full_disk_keeps_the_old_table(tmp_path, name):
    if name == "x.parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    write_table(pd.DataFrame({"a": [1]}), path)
    old = path.read_bytes()
    large = pd.DataFrame({"a": np.random.default_rng(0).normal(size=20_000)})
    with disk_of(10_000), pytest.raises(FileError, match=r"Cannot write .*large\. Make room"):
        write_table(large, path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == [name]
    gc.collect()  # nothing is left that would write to the closed file: that would be a warning


@unix
def test_a_folder_that_cannot_be_written_to():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "old.txt").write_text("old")
        (folder / "old.txt").chmod(0o444)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(FileError, match=r"Cannot write .*new.txt.*Permission denied"):
                write_text(folder / "new.txt", "new")
            with pytest.raises(FileError, match=r"Cannot write .*old.txt.*Permission denied"):
                write_text(folder / "old.txt", "new")
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)
        assert (folder / "old.txt").read_text() == "old"


@unix
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_are_those_of_any_new_file_and_then_stay(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "x.txt", "new")
        (tmp_path / "y.txt").write_text("new")
        (tmp_path / "old.txt").write_text("old")
        (tmp_path / "old.txt").chmod(0o640)
        write_text(tmp_path / "old.txt", "new")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"x.txt": 0o666 & ~mask, "y.txt": 0o666 & ~mask, "old.txt": 0o640}


@unix
def test_a_file_of_another_user_stays_theirs(tmp_path):
    if os.geteuid():
        pytest.skip("only root can write it")
    (tmp_path / "x.txt").write_text("old")
    os.chown(tmp_path / "x.txt", 65534, 65534)
    write_text(tmp_path / "x.txt", "new")
    assert (tmp_path / "x.txt").stat().st_uid == 65534
    assert (tmp_path / "x.txt").read_text() == "new"


@unix
def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "there" / "x.txt")
    (tmp_path / "new.txt").symlink_to(tmp_path / "there" / "y.txt")
    for name in ("link.txt", "new.txt"):
        write_text(tmp_path / name, "new")
        assert (tmp_path / name).is_symlink()
    assert {path.name: path.read_text() for path in (tmp_path / "there").iterdir()} == {
        "x.txt": "new",
        "y.txt": "new",
    }


@unix
def test_devices_and_pipes_are_written_to(tmp_path, capfd):
    write_text("/dev/null", "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    print("before", flush=True)
    write_table(pd.DataFrame({"a": [1]}), Path("/dev/stdout"))
    print("after", flush=True)
    assert capfd.readouterr().out == "before\na\n1\nafter\n"  # a file, whose start is kept
    os.mkfifo(tmp_path / "pipe.csv")
    read = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read(), end='')"]
    reader = subprocess.Popen([*read, tmp_path / "pipe.csv"], stdout=subprocess.PIPE, text=True)
    write_table(pd.DataFrame({"a": [1]}), tmp_path / "pipe.csv")
    assert reader.communicate()[0] == "a\n1\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "is empty"),
        (".", "is a folder"),
        ("no/such/x.csv", "There is no folder 'no/such'"),
        ("a\0b.csv", "zero byte"),
        ("x" * 300, r"Cannot write .*too long"),
    ],
)
def test_names_that_cannot_be(name, words):
    with pytest.raises(FileError, match=words):
        write_text(name, "new")


def test_a_long_name_has_room_for_the_temporary_one(tmp_path):
    name = "ä" * 100 + ".txt"
    if sys.getfilesystemencoding() == "ascii":
        pytest.skip("no file can have such a name here")
    write_text(tmp_path / name, "new")
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zip"])
def test_tables_are_packed_as_their_name_says(tmp_path, ending):
    path = tmp_path / f"x.csv{ending}"
    write_table(pd.DataFrame({"a": [1, 2]}), path)
    columns = dict.fromkeys(("subject", "sequence", "time"))
    assert read_table(path, columns, ())["a"].tolist() == [1, 2]
    if ending == ".gz":
        assert gzip.decompress(path.read_bytes()) == b"a\n1\n2\n"
    if ending == ".zip":
        assert zipfile.ZipFile(path).namelist() == ["x.csv"]


def test_a_packed_parquet_file_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"End its name in \.parquet"):
        write_table(pd.DataFrame({"a": [1]}), tmp_path / "x.parquet.gz")
