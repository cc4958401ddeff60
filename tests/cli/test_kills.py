"""A kill at any moment leaves nothing that looks complete, and the same command then completes."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pandas as pd
import pytest

import avem
from tests.cli.processes import ROOT, ended, fit, frame, start, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="as Unix does it")

BOOT = """
import sys
import avem
from tests.cli.processes import fit

if __name__ == "__main__":
    avem.bootstrap(fit(), 12, path=sys.argv[1], jobs=int(sys.argv[2]))
"""
COLUMNS = ("--subject", "who", "--time", "t")
LENGTHS = {"x.csv": 50_000, "states.csv": 120, "effects.csv": 0, "select.csv": 2}
LENGTHS["parameters.csv"] = 10


@pytest.fixture
def place(tmp_path):
    frame().to_csv(tmp_path / "data.csv", index=False)
    fit().save(tmp_path / "fit.avem")
    (tmp_path / "out").mkdir()
    return tmp_path


def commands(place):
    """What is killed."""
    fit_file, data, out = place / "fit.avem", place / "data.csv", place / "out"
    size = ("--subjects", 500, "--times", 100, "--seed", 1)
    quick = ("--starts", 2, "--refine", "never", "--no-plots")
    table = ("--out", out / "select.csv")
    return {
        "simulate": ("simulate", fit_file, *size, "--force", "--out", out / "x.csv"),
        "fit": ("fit", data, "y ~ 1", "--states", 2, *COLUMNS, *quick, "--force", "--out", out),
        "select": ("select", data, "y ~ 1", "--states", "1-2", *COLUMNS, "--force", *table),
        "report": ("report", fit_file, data, "--quick", "--force", "--out", out / "report.html"),
    }


def check_whole(out):
    """Whatever is there under its own name is complete."""
    for path in out.iterdir():
        if path.suffix == ".html":
            assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
        elif path.suffix == ".avem":
            assert zipfile.ZipFile(path).testzip() is None
            avem.load(path)
        elif path.suffix == ".csv":
            assert path.read_bytes().endswith(b"\n")
            assert len(pd.read_csv(path)) == LENGTHS[path.name]


def kill_and_repeat(command, place, moments, same):
    """Kill the command after so many seconds each; then let it finish."""
    out, cache = place / "out", {"JAX_COMPILATION_CACHE_DIR": str(place / "cache")}
    for seconds in moments:
        victim = start(*command, env=cache)
        time.sleep(seconds)
        os.kill(victim.pid, signal.SIGKILL)
        ended(victim)
        check_whole(out)
        assert sum(path.name.endswith(".tmp") for path in out.iterdir()) <= 1
    code, _, said = ended(start(*command, env=cache))
    assert (code, said) == (0, "")
    check_whole(out)
    assert not list(out.glob(".*"))
    assert contents(out) == same


def contents(out):
    """The tables, and other files without the times in them."""
    found = {}
    for path in out.iterdir():
        if path.suffix == ".csv":
            table = pd.read_csv(path)
            found[path.name] = table.drop(columns="seconds", errors="ignore").to_csv()
        elif path.suffix == ".html":
            found[path.name] = re.sub(r"[\d.]+ s\b", "", path.read_text(encoding="utf-8"))[:2000]
    return found


@pytest.mark.slow
def test_a_simulation_killed_at_some_moments(place):
    """`test_whole_files.py` has the smaller one."""
    command = commands(place)["simulate"]
    assert ended(start(*command))[0] == 0
    same = contents(place / "out")
    (place / "out" / "x.csv").unlink()
    kill_and_repeat(command, place, [1.0, 1.6], same)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simulate", "fit", "select", "report"])
def test_commands_killed_at_random_moments(place, name):
    command, cold = commands(place)[name], {"JAX_COMPILATION_CACHE_DIR": str(place / "cold")}
    began = time.monotonic()
    assert ended(start(*command, env=cold))[0] == 0
    whole, same = time.monotonic() - began, contents(place / "out")
    shutil.rmtree(place / "out")
    (place / "out").mkdir()
    draw = random.Random(1)
    kill_and_repeat(command, place, [whole * draw.random() for _ in range(30)], same)


def start_boot(place, jobs):
    (place / "boot.py").write_text(BOOT)
    return subprocess.Popen(
        [sys.executable, str(place / "boot.py"), str(place / "boot.jsonl"), str(jobs)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "kills"), [(1, 2), (2, 30)])
def test_a_bootstrap_killed_at_random_moments(tmp_path, jobs, kills):
    """Nothing that was written is done again, and the result is that of one run."""
    whole = avem.bootstrap(fit(), 12)
    path, draw, before = tmp_path / "boot.jsonl", random.Random(1), b""
    for number in range(kills):
        victim = start_boot(tmp_path, jobs)
        wanted = before.count(b"\n") + 1 if number % 2 == 0 else 0

        def there(wanted=wanted):
            return path.exists() and path.read_bytes().count(b"\n") > min(wanted, 12)

        until(there, victim, seconds=600)
        time.sleep(0.2 * draw.random())
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
        now = path.read_bytes()
        assert now.startswith(before[: before.rfind(b"\n") + 1])
        before = now[: now.rfind(b"\n") + 1]
        if before.count(b"\n") == 13:
            break
    found = avem.bootstrap(fit(), 12, path=path)
    pd.testing.assert_frame_equal(found.replicates, whole.replicates, rtol=1e-6)
    assert path.read_bytes().startswith(before)
    assert path.read_bytes().count(b"\n") == 13


@pytest.mark.slow
def test_a_study_killed_at_random_moments(tmp_path):
    """The small one is in test_studies.py."""
    tables = {}
    draw = random.Random(1)
    for name, kills in (("whole", 0), ("killed", 30)):
        options = ("--reps", 40, "--jobs", 2, "--out", tmp_path / name)
        for _ in range(kills):
            victim = start("tests.tiny_study", *options, module="studies", cwd=ROOT)
            time.sleep(5 * draw.random())
            os.kill(victim.pid, signal.SIGKILL)
            ended(victim)
        code, _, said = ended(start("tests.tiny_study", *options, module="studies", cwd=ROOT))
        assert code == 0, said
        assert not list((tmp_path / name).glob(".*"))
        assert len((tmp_path / name / "replicates.jsonl").read_bytes().splitlines()) == 80
        found = {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.csv")}
        tables[name] = {key: value for key, value in found.items() if key != "times.csv"}
    assert tables["whole"] == tables["killed"]


@pytest.mark.slow
def test_compiled_code_that_was_cut_short_is_made_again(place):
    """JAX writes it in one go, reads half of it with a warning, and never replaces it."""
    cache = place / "cache"
    command = (
        "decode",
        place / "fit.avem",
        place / "data.csv",
        "--force",
        "--out",
        place / "s.csv",
    )
    env = {"JAX_COMPILATION_CACHE_DIR": str(cache), "AVEM_NATIVE": "0"}
    assert ended(start(*command, env=env))[0] == 0
    entries = {path: path.read_bytes() for path in cache.glob("*-cache")}
    assert entries
    for path, content in entries.items():
        path.write_bytes(content[: len(content) // 2])
    code, _, said = ended(start(*command, env=env))
    assert (code, said) == (0, "")
    assert {path for path in entries if path.stat().st_size > 0.9 * len(entries[path])} == set(
        entries
    )
