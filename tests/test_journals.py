"""Journals: for one process at a time, nothing in them that no run writes, and whole lines only."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import avem
from avem.data.line_file import LineFile
from avem.workflows.recipe import Recipe
from tests.cli.processes import ROOT, fit
from tests.data.test_writing import disk_of

sys.path.insert(0, str(ROOT))  # studies/ lies beside the package, not in it

from studies import runner
from tests.tiny_study import STUDY

unix = pytest.mark.skipif(sys.platform == "win32", reason="as Unix does it")

HOLDS = """
import sys, time
from avem.data.line_file import LineFile
file = LineFile(sys.argv[1])
print("has it", flush=True)
time.sleep(60)
"""


@cache
def lines():
    """The file of three replicates."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "boot.jsonl"
        avem.bootstrap(fit(), 3, path=path)
        return tuple(path.read_bytes().splitlines(keepends=True))


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "boot.jsonl"
    path.write_bytes(b"".join(lines()))
    return path


@unix
def test_one_process_at_a_time_and_the_next_after_a_kill(journal):
    command = [sys.executable, "-c", HOLDS, str(journal)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert holder.stdout is not None
    holder.stdout.readline()
    before = journal.read_bytes()
    for _ in range(2):
        with pytest.raises(avem.FileError, match="is in use: another process"):
            avem.bootstrap(fit(), 4, path=journal)
    assert journal.read_bytes() == before
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    assert len(avem.bootstrap(fit(), 3, path=journal).done) == 3


def test_two_studies_in_one_folder(tmp_path):
    file = LineFile(tmp_path / "replicates.jsonl")
    with pytest.raises(avem.FileError, match="is in use"):
        runner.run(STUDY, {"paper": 1}, 1, tmp_path)
    file.close()
    runner.run(STUDY, {"paper": 1}, 1, tmp_path)
    runner.run(STUDY, {"paper": 1}, 1, tmp_path)  # it was given back
    assert len((tmp_path / "replicates.jsonl").read_bytes().splitlines()) == 2


def changed(**parts):
    record = json.loads(lines()[1])
    for name, value in parts.items():
        if name in record["params"]:
            record["params"][name] = value
        else:
            record[name] = value
    return json.dumps(record).encode()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: b"", "a JSON object"),
        (lambda: b"0.5", "a JSON object"),
        (lambda: b"[1, 2", "a JSON object"),
        (lambda: b"[" * 100_000, "a JSON object"),
        (lambda: b"\xff\xfe\x00", "a JSON object"),
        (lambda: b"\0" * 40, "a JSON object"),
        (lambda: changed(more=1), "a JSON object"),
        (lambda: changed(number=-1), "its number is -1"),
        (lambda: changed(number=1.0), "its number is 1.0"),
        (lambda: changed(number="1"), "its number is '1'"),
        (lambda: changed(number=True), "its number is True"),
        (lambda: changed(stop="INTERRUPTED"), "its stop is 'INTERRUPTED'"),
        (lambda: changed(stop=["CONVERGED"]), "its stop is"),
        (lambda: changed(reason=None), "its reason is None"),
        (lambda: changed(bound=float("nan")), "its bound is nan"),
        (lambda: changed(bound="-1"), "its bound is '-1'"),
        (lambda: changed(bound=10**400), "its bound is 1000"),
        (lambda: changed(params=None), "parameters initial, .* are wanted"),
        (lambda: changed(params={"coef": [1.0]}), "parameters initial, .* are wanted"),
        (lambda: changed(stop="FAILED"), "it failed, and yet"),
        (lambda: changed(initial=[0.5, float("nan")]), "its 'initial' is no array"),
        (lambda: changed(initial=[0.5, "0.5"]), "its 'initial' is no array"),
        (lambda: changed(initial=[0.5]), r"numbers of the shape \(2,\)"),
        (lambda: changed(initial=[[0.5, 0.5]]), "its 'initial' is no array"),
        (lambda: changed(initial=[0.5, None]), "its 'initial' is no array"),
        (lambda: changed(initial=[True, False]), "its 'initial' is no array"),
        (lambda: changed(coef=[[1.0], [2.0]]), "its 'coef' is no array"),
    ],
)
def test_a_line_that_no_bootstrap_writes(journal, make, words):
    made = make()
    whole = [*lines()[:2], made + b"\n", *lines()[2:]]
    journal.write_bytes(b"".join(whole))
    with pytest.raises(avem.FileError, match=rf"Line 3 of .*{words}.*Delete the line"):
        avem.bootstrap(fit(), 3, path=journal)
    assert journal.read_bytes() == b"".join(whole)
    journal.write_bytes(b"".join([*lines()[:2], *lines()[2:]]))
    assert len(avem.bootstrap(fit(), 3, path=journal).done) == 3  # nothing holds the file


def test_two_lines_of_one_replicate(journal):
    other = np.add(json.loads(lines()[1])["params"]["initial"], [0.1, -0.1]).tolist()
    journal.write_bytes(b"".join([*lines(), lines()[1]]))
    assert len(avem.bootstrap(fit(), 3, path=journal).done) == 3
    journal.write_bytes(b"".join([*lines(), changed(initial=other) + b"\n"]))
    with pytest.raises(avem.FileError, match=r"Line 5 .* replicate 0 is there already"):
        avem.bootstrap(fit(), 3, path=journal)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"protocol": "paper"}', "a JSON object"),
        ('{"protocol": "odd", "cell": 0, "replicate": 0, "rows": [{}]}', "its protocol is 'odd'"),
        ('{"protocol": [], "cell": 0, "replicate": 0, "rows": [{}]}', "its protocol is"),
        ('{"protocol": "paper", "cell": 2, "replicate": 0, "rows": [{}]}', "its cell is 2; 0 to 1"),
        (
            '{"protocol": "paper", "cell": 0, "replicate": NaN, "rows": [{}]}',
            "its replicate is nan",
        ),
        ('{"protocol": "paper", "cell": 0, "replicate": 0, "rows": []}', "its rows are no list"),
        ('{"protocol": "paper", "cell": 0, "replicate": 0, "rows": [3]}', "its rows are no list"),
        ('{"protocol": "paper", "cell": 0, "replicate": 0, "rows": [{"a": []}]}', "its rows"),
    ],
)
def test_a_line_that_no_study_writes(tmp_path, line, words):
    runner.run(STUDY, {"paper": 1}, 1, tmp_path)
    path = tmp_path / "replicates.jsonl"
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(avem.FileError, match=f"Line 3 of .* is not what .* writes: {words}"):
        runner.run(STUDY, {"paper": 1}, 1, tmp_path)


@unix
def test_a_full_disk_leaves_whole_lines(journal):
    size = len(journal.read_bytes())
    room = size + len(lines()[3]) // 2
    with disk_of(room), pytest.raises(avem.FileError, match=r"Cannot write .*No space left"):
        avem.bootstrap(fit(), 4, path=journal)
    assert journal.read_bytes() == b"".join(lines())
    assert len(avem.bootstrap(fit(), 4, path=journal).done) == 4


@unix
def test_a_file_that_is_taken_away_is_told(journal, monkeypatch):
    original = Recipe.replicate

    def loses(self, number):
        journal.unlink(missing_ok=True)
        return original(self, number)

    monkeypatch.setattr(Recipe, "replicate", loses)
    with pytest.raises(avem.FileError, match="Cannot write"):
        avem.bootstrap(fit(), 4, path=journal)
    assert not journal.exists()


def test_parameters_that_are_not_finite_are_a_failure(tmp_path, monkeypatch):
    """So that every line that is written can be read."""
    broken = {name: value * np.nan for name, value in fit().params.items()}
    made = replace(fit(), params=broken)
    monkeypatch.setattr(avem.MixedHMM, "fit", lambda *_, **__: made)
    for _ in range(2):
        with pytest.warns(avem.AvemWarning, match="not finite"):
            found = avem.bootstrap(fit(), 2, path=tmp_path / "boot.jsonl")
        assert found.n_failed == 2


@unix
def test_a_device_is_no_journal():
    with pytest.raises(avem.FileError, match="is a device"):
        avem.bootstrap(fit(), 2, path="/dev/null")
