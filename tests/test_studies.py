"""Studies: a killed run goes on where it was, with any number of jobs, to the same tables."""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # studies/ lies beside the package, not in it

from studies import catalogue, coverage, runner  # noqa: E402


def draw(cell, seed):
    return [{"method": "a", "value": cell["size"] + seed % 97}]


def means(frame):
    return {"means": frame.groupby(["size", "method"], as_index=False)["value"].mean()}


@pytest.fixture
def tiny(monkeypatch):
    study = runner.Study("tiny", "Which?", ({"size": 1}, {"size": 2}), draw, means)
    monkeypatch.setattr(catalogue, "find", lambda name: study)
    return study


def files(folder):
    return {path.name: path.read_text() for path in folder.glob("*.csv")}


def test_a_run_that_was_killed_goes_on(tiny, tmp_path):
    whole = runner.run(tiny, 6, 1, tmp_path / "whole")
    runner.run(tiny, 6, 1, tmp_path / "killed")
    path = tmp_path / "killed" / "replicates.jsonl"
    path.write_text(path.read_text()[:-25])  # in the middle of the last line
    before = path.read_text().splitlines()[:-1]
    again = runner.run(tiny, 6, 1, tmp_path / "killed")
    assert path.read_text().splitlines()[: len(before)] == before  # nothing was done twice
    pd.testing.assert_frame_equal(whole["means"], again["means"])
    assert files(tmp_path / "whole") == files(tmp_path / "killed")


def test_more_replicates_keep_the_first(tiny, tmp_path):
    runner.run(tiny, 3, 1, tmp_path)
    runner.run(tiny, 6, 1, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "replicates.jsonl").read_text().splitlines()]
    assert len(lines) == 12
    assert {line["replicate"] for line in lines} == set(range(6))
    page = (tmp_path / "README.md").read_text()
    assert "python -m studies tiny --reps 6" in page
    assert "| size | method | value |" in page


def test_all_studies_are_complete():
    for name in catalogue.NAMES:
        study = catalogue.find(name)
        assert study.name == name
        assert study.cells


def test_intervals_hold_the_truth_in_a_few_panels():
    """The coverage study in small: 4 panels x 8 parameters, of which a few may miss."""
    rows = [row for seed in range(4) for row in coverage.replicate(coverage.CELLS[0], seed)]
    frame = pd.DataFrame(rows).assign(model=coverage.CELLS[0]["model"])
    table = coverage.tables(frame)["coverage"]
    observed = table[table["kind"] == "observed"]
    assert len(observed) == 8
    assert observed["coverage"].mean() > 0.8
    assert (observed["without se"] == 0).all()
    # Intervals a fifth as wide would not pass.
    short = frame[frame["kind"] == "observed"]
    inside = (short["estimate"] - short["truth"]).abs() < 0.4 * short["se"]
    assert inside.mean() < 0.6
