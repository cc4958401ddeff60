"""Processes end with the one that started them, say that they cannot compute, and heed Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.chosen import chosen
from tests.cli.processes import ROOT, ended, frame, start, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="as Unix does it")

WORKERS = """
import os, time
from avem.workflows.processes import Processes

if __name__ == "__main__":
    with Processes(2, time.sleep, (0,)) as pool:
        pids = {pool.submit(os.getpid).result()}
        busy = [pool.submit(time.sleep, 60) for _ in range(3)]
        time.sleep(0.5)
        print(*pool._processes, flush=True)
        time.sleep(60)
"""

FORKS = """
import multiprocessing, os, sys, warnings
warnings.simplefilter("ignore")  # JAX warns of every fork
import avem
from tests.cli.processes import frame

def fitted():
    return avem.MixedHMM("y ~ 1", 2).fit(frame(), "who", "t", n_starts=1, refine=None)

def forked(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            print(work())
        except avem.AvemError as error:
            print("refused:", error)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)

def boot():
    return avem.bootstrap(fit, 2, path=sys.argv[1]).n_failed

forked(lambda: len(fitted().decode()))
fit = fitted()
forked(fitted)
forked(fit.decode)
forked(boot)
forked(lambda: len(fit.table()))
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(abs, [-1, 2]))
print(len(fit.decode()))
"""


def script(text, path, *arguments):
    path.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(path), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_alive(pid):
    """Whether a process runs; one whose parent has not asked for its end is dead, too."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children_of(pid):
    """The processes that one has started."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_workers_end_with_a_killed_parent(tmp_path):
    parent = script(WORKERS, tmp_path / "workers.py")
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(is_alive, pids))
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    until(lambda: not any(map(is_alive, pids)), seconds=10)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_workers_of_a_study_end_with_it(tmp_path, how):
    """By Ctrl-C, which reaches all of them, without a word. The one above is its smaller twin."""
    options = ("--reps", 2000, "--jobs", 2, "--out", tmp_path)
    study = start("tests.tiny_study", *options, module="studies", cwd=ROOT)
    journal = tmp_path / "replicates.jsonl"
    until(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 2, study)
    pids = children_of(study.pid)
    assert len(pids) >= 2
    if how is signal.SIGINT:
        os.killpg(study.pid, how)
    else:
        os.kill(study.pid, how)
    code, _, said = ended(study)
    assert code in (-how, 130)
    assert "Traceback" not in said
    until(lambda: not any(map(is_alive, pids)), seconds=10)


def test_a_forked_process_says_that_it_cannot_compute(tmp_path):
    journal = tmp_path / "boot.jsonl"
    process = script(FORKS, tmp_path / "forks.py", journal)
    code, out, err = ended(process, 60)
    assert code == 0, err
    early, *refused, table, pool, decoded = out.splitlines()
    assert early == "120"  # forked before anything was computed
    assert len(refused) == 3
    for line in refused:
        assert re.match(r"refused: Process \d+ was forked .*get_context\(\"spawn\"\)", line)
    assert int(table) > 4
    assert (pool, decoded) == ("[1, 2]", "120")
    assert journal.read_bytes().count(b"\n") == 1  # no replicate is written down as failed


# --- Ctrl-C --------------------------------------------------------------------------------------


@pytest.fixture
def fit_command(tmp_path):
    frame().to_csv(tmp_path / "data.csv", index=False)
    columns = ("--subject", "who", "--time", "t")
    return ("fit", tmp_path / "data.csv", "y ~ 1", "--states", 2, *columns, "--out", tmp_path / "o")


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    "module", chosen(("typer.main", "numpy", "pandas", "jax", "narwhals"), ("typer.main", "jax"))
)
def test_ctrl_c_during_imports_ends_without_a_traceback(fit_command, tmp_path, module):
    process = start(*fit_command, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert process.stderr is not None
    while process.stderr.readline().split()[-1:] != [module]:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (code, out, said) == (130, "", ["avem: interrupted."])
    assert not (tmp_path / "o").exists()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_during_the_first_compile(fit_command, tmp_path):
    """Without any compiled code on disk; the first step takes seconds."""
    cold = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "AVEM_NATIVE": "0"}
    process = start(*fit_command, env=cold)
    until(lambda: list(tmp_path.glob("cache/*-cache")), process)  # the first program is compiled
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (130, "avem: interrupted.\n")
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_at_any_moment(fit_command, tmp_path):
    for tenths in range(3, 80, 2):
        process = start(*fit_command, "--force")
        time.sleep(tenths / 10)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
        assert code in (0, 3, 130)
        assert "Traceback" not in err
        assert "ignored" not in err
        assert not list(tmp_path.glob("o/.*"))
