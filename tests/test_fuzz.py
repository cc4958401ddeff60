"""The fuzzer: it finds what it should, and finds nothing in a few cases of each class."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.fuzz import command_questions, pool
from tools.fuzz.case import Case
from tools.fuzz.judge import judge
from tools.fuzz.pool import Limits, Worker
from tools.fuzz.run import AREAS, Finding, Tally, case_of, run, smallest, table

ROOT = Path(__file__).parents[1]
ONE = Limits(30.0, 300 << 20)


def case(after, *edits, before=""):
    return Case("formulas", 0, before, edits, after)


VERDICTS = {
    "1 + 1": "answered",
    "import avem; avem.MixedHMM('y', 2)": "refused",
    "{}['x']": "foreign error",
    "raise SystemExit(0)": "foreign error",
    "raise BaseException": "foreign error",
    "import avem; raise avem.DataError('')": "wrong answer",
    "import avem; raise avem.DataError('x' * 100_000)": "wrong answer",
    "import warnings; warnings.warn('x')": "foreign warning",
    "import avem, warnings; warnings.warn('x', avem.AvemWarning)": "answered",
    "print('x')": "printed",
    "import os; os.write(2, b'x')": "printed",
    "import sys; sys.stderr.write('x')": "printed",
    "raise MemoryError": "memory",
    "from tools.fuzz.case import NotFinite; raise NotFinite('x')": "not finite",
    "from tools.fuzz.case import Wrong; raise Wrong('x')": "wrong answer",
}


@pytest.mark.parametrize("after", VERDICTS)
def test_verdicts(after):
    assert judge(case(after)).kind == VERDICTS[after]


def test_edits_that_cannot_be_done_are_left_out_and_their_warnings_do_not_count():
    noisy = "import warnings; warnings.warn('x')"
    verdict = judge(case("assert x == 2", "x += 1", "x = nothing", noisy, before="x = 1"))
    assert verdict.kind == "answered"
    assert verdict.edits == ("x += 1", noisy)


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(pool, "_FIRST", 0.0)
    made = Worker()
    yield made
    made.close()


def test_a_process_that_ends_is_replaced(worker):
    sound = case("1 + 1")
    assert worker.ask(sound, ONE).kind == "answered"
    ended = worker.ask(case("import os; os._exit(7)"), ONE)
    assert (ended.kind, ended.place) == ("crash", "exit code 7")
    assert worker.ask(sound, ONE).kind == "answered"
    hung = worker.ask(case("while True: pass"), ONE._replace(seconds=1.0))
    assert hung.kind == "hang"
    assert worker.ask(sound, ONE).kind == "answered"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts as Linux does")
def test_memory_is_limited(worker):
    assert worker.ask(case("1 + 1"), ONE).kind == "answered"
    at_once = worker.ask(case("x = bytearray(100 << 30)"), ONE)
    assert at_once.kind == "memory"
    slowly = "import time; x = [time.sleep(0.01) or b'x' * (10 << 20) for _ in range(100)]"
    assert worker.ask(case(slowly), ONE).kind == "memory"


def test_a_finding_is_told_with_the_edits_that_it_takes(worker):
    whole = case("assert x != 3", "y = 1", "x += 1", "z = 2", "x += 1", before="x = 1")
    found = worker.ask(whole, ONE)
    assert found.kind == "foreign error"
    small = smallest(whole, found, worker)
    assert small.edits == ("x += 1", "x += 1")
    text = table({"formulas": Tally()}, [Finding(small, found)])
    assert "formulas-0: foreign error, 'AssertionError outside avem', 1 times" in text


def test_the_same_number_and_seed_give_the_same_case():
    for area in AREAS:
        assert case_of(area, 5, 1) == case_of(area, 5, 1)
        assert len({case_of(area, number, 1).script for number in range(20)}) > 10


def test_exit_code_and_options():
    command = [sys.executable, "-m", "tools.fuzz", "--only", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "formulas" in done.stderr


# --- a few cases --------------------------------------------------------------------------------


COMPILES = re.compile(r"^(fit|ask)\(|thorough=True|'(fit|fit-ssm|select)',", re.MULTILINE)


@pytest.mark.parametrize("area", ["frames", "formulas", "files", "commands"])
def test_nothing_is_found_in_a_few_cases(area, monkeypatch):
    monkeypatch.setattr(command_questions, "prepared", command_questions.tables)
    some = [case_of(area, number, 0) for number in range(24)]
    quick = [one for one in some if not COMPILES.search(one.script)]
    assert len(quick) > 5
    for one in quick:
        verdict = judge(one)
        assert not verdict.is_finding, (one.script, verdict)


@pytest.mark.slow
@pytest.mark.parametrize("area", AREAS)
def test_nothing_is_found_in_more_cases(area, tmp_path):
    tallies, findings = run(60, seed=1, only=[area], folder=tmp_path)
    assert tallies[area].counts.total() == 60
    assert not findings, table(tallies, findings)
