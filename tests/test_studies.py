"""Studies: a killed run goes on where it was, with any number of jobs, to the same tables; and what
is compared with the authors is measured as they did."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import avem
from avem.cli import app

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # studies/ lies beside the package, not in it

from studies import (  # noqa: E402
    catalogue,
    compare,
    coverage,
    fits,
    gaussian,
    gaussian_accuracy,
    runner,
    theory,
)
from studies.journal import Task  # noqa: E402
from studies.study import Study  # noqa: E402
from studies.workers import seed_of  # noqa: E402
from tests.inference.test_methods import QEM  # noqa: E402
from tests.inference.test_reference_fits import load, model, start  # noqa: E402


def draw(cell, seed):
    return [{"method": "a", "value": cell["size"] + seed % 97, "seconds": time.perf_counter()}]


def means(frame):
    assert "seconds" not in frame
    return {"means": frame.groupby(["protocol", "size"], as_index=False)["value"].mean()}


@pytest.fixture
def tiny(monkeypatch):
    cells = ({"size": 1}, {"size": 2})
    study = Study("tiny", "Which?", cells, {"paper": draw, "converged": draw}, means)
    monkeypatch.setattr(catalogue, "find", lambda name: study)
    return study


def start_study(out, name, reps, jobs, *options):
    """A run in a process group of its own."""
    arguments = [name, "--reps", reps, "--jobs", jobs, "--out", out, *options]
    return subprocess.Popen(
        [sys.executable, "-m", "studies", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )


def finish(process):
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said


def lines_of(folder):
    path = folder / "replicates.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def tables_of(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.csv")}


def test_tables_are_the_same_bytes_after_a_torn_line(tmp_path):
    """As a kill leaves it; the slow run kills processes."""
    study, torn = catalogue.find("tests.tiny_study"), tmp_path / "torn"
    runner.run(study, {"paper": 2}, 1, tmp_path / "whole")
    torn.mkdir()
    before = lines_of(tmp_path / "whole")[:2]
    half = '{"protocol": "paper", "ce'
    (torn / "replicates.jsonl").write_text("\n".join([*before, half]))
    runner.run(study, {"paper": 2}, 1, torn)
    assert lines_of(torn)[:2] == before  # nothing was done twice
    assert len(lines_of(torn)) == 4
    ours, theirs = tables_of(torn), tables_of(tmp_path / "whole")
    assert ours.pop("times.csv") != theirs.pop("times.csv")  # times are kept apart: they do differ
    assert ours == theirs


@pytest.mark.slow
def test_tables_are_the_same_bytes_after_a_kill_and_with_more_jobs(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    victim = start_study(killed, "tests.tiny_study", 8, 2)
    while len(lines_of(killed)) < 3:
        assert victim.poll() is None
        time.sleep(0.02)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    before = lines_of(killed)
    assert 3 <= len(before) < 16
    with (killed / "replicates.jsonl").open("a") as file:
        file.write('{"protocol": "paper", "ce')  # as if torn in the middle of a line
    finish(start_study(killed, "tests.tiny_study", 8, 2))
    runner.run(catalogue.find("tests.tiny_study"), {"paper": 8}, 1, whole)
    assert lines_of(killed)[: len(before)] == before  # nothing was done twice
    assert len(lines_of(killed)) == 16
    ours, theirs = tables_of(killed), tables_of(whole)
    assert set(ours) == {"rows.csv", "means.csv", "times.csv"}
    assert ours.pop("times.csv") != theirs.pop("times.csv")  # times are kept apart: they do differ
    assert ours == theirs
    record = json.loads((killed / "run.json").read_text())
    assert record["replicates"] == {"paper": 8}
    assert record["machine"]["cores"] == os.cpu_count()


@pytest.mark.slow
def test_fits_are_the_same_bytes_with_more_jobs(tmp_path):
    for jobs in (1, 2):
        out = tmp_path / str(jobs)
        finish(start_study(out, "gaussian-accuracy", 2, jobs, "--quick"))
    one, two = tables_of(tmp_path / "1"), tables_of(tmp_path / "2")
    del one["times.csv"], two["times.csv"]
    assert one == two
    assert "default_beside_exact.csv" in one


def test_more_replicates_and_another_protocol_keep_the_first(tiny, tmp_path):
    runner.run(tiny, {"paper": 3}, 1, tmp_path)
    runner.run(tiny, {"converged": 2}, 1, tmp_path)
    found = runner.run(tiny, {"paper": 6}, 1, tmp_path)
    assert len(lines_of(tmp_path)) == 16
    assert found["means"]["protocol"].tolist() == ["converged", "converged", "paper", "paper"]
    fewer = runner.run(tiny, {"paper": 3}, 1, tmp_path)["means"]  # the rest stays in the file
    seeds = [seed_of(Task("paper", 0, r)) for r in range(3)]
    assert fewer["value"].iloc[2] == 1 + np.mean([seed % 97 for seed in seeds])
    page = (tmp_path / "README.md").read_text()
    assert "`avem study tiny --protocol paper --reps 3`" in page
    assert "| protocol | size | value |" in page


def test_a_replicate_that_fails_is_left_out_and_counted(tiny, tmp_path, monkeypatch):
    def fails(cell, seed):
        if seed == seed_of(Task("paper", 0, 1)):
            raise avem.AvemError("A panel that cannot be fitted.")
        return draw(cell, seed)

    monkeypatch.setitem(tiny.replicate, "paper", fails)
    runner.run(tiny, {"paper": 2}, 1, tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["failed"] == ["A panel that cannot be fitted."]
    assert "1 replicates failed" in (tmp_path / "README.md").read_text()


def test_quick_runs_some_cells_with_the_seeds_of_the_full_study(tiny, tmp_path):
    runner.run(tiny, {"paper": 2}, 1, tmp_path, quick=True)
    lines = [json.loads(line) for line in lines_of(tmp_path)]
    assert {(line["cell"], line["replicate"]) for line in lines} == {(0, 0), (0, 1)}


def test_all_studies_are_complete():
    for name in catalogue.NAMES:
        study = catalogue.find(name)
        assert study.name == name
        assert max(study.quick_cells) < len(study.cells)
        assert set(study.replicate) <= {"paper", "converged"}
        assert len({json.dumps(cell) for cell in study.cells}) == len(study.cells)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gausian"], "There is no study 'gausian'; choose one of gaussian-accuracy"),
        (["coverage", "--protocol", "paper"], "coverage has no protocol 'paper'; choose converged"),
    ],
)
def test_the_command_names_what_there_is(arguments, words):
    before = dict(os.environ)
    result = CliRunner().invoke(app, ["study", *arguments])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert dict(os.environ) == before  # a process is made ready for a study that there is


def test_the_command_says_that_the_studies_are_in_the_source(monkeypatch, tmp_path):
    monkeypatch.setattr("avem.cli._process.__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["study", "coverage"])
    assert result.exit_code == 2
    assert "get the source" in result.output


# --- the authors' protocol -----------------------------------------------------------------------


def test_errors_of_the_paper_protocol_are_the_authors():
    """Ten replicates of one setting; the numbers of another setting do not pass."""
    number = gaussian_accuracy.CELLS.index({"tau2": 0.25, "T": 20, "n": 20})
    rows = []
    for r in range(10):
        cell = gaussian_accuracy.CELLS[number]
        own = gaussian_accuracy.paper(cell, seed_of(Task("paper", number, r)))
        rows += [cell | row for row in own]
    theirs = gaussian_accuracy.reference()
    keys, measures = gaussian_accuracy.KEYS, gaussian_accuracy.MEASURES
    z = compare.beside(pd.DataFrame(rows), theirs, keys, measures)["difference in standard errors"]
    assert z.abs().max() < 4
    other = pd.DataFrame(rows).assign(n=100, T=40)
    z = compare.beside(other, theirs, keys, measures)["difference in standard errors"]
    assert z.abs().max() > 5


def test_quadrature_em_stops_where_the_authors_stop():
    frame, _, reference = load("gauss_K2_d2_n40_T40")
    panel = avem.Panel.from_frame(frame, "subject")
    options = {"method": avem.Quadrature(9)}
    with pytest.warns(avem.AvemWarning, match="Stopped by the user"):
        found = fits.until_still(model(reference), panel, start(reference), 1e-4, 60, 1, **options)
    assert found.iterations == QEM["gauss_K2_d2_n40_T40_qem9"]["iterations"]


def test_the_simulated_setting_is_the_reference_sets():
    _, _, reference = load("gauss_K3_d2_n100_T80")
    begin, wanted = gaussian.start(3, 2, 1.0), start(reference)
    for name, value in begin.items():
        np.testing.assert_allclose(value, wanted[name], atol=1e-12)


def test_agreement_counts_settings():
    table = pd.DataFrame(
        {
            "measure": ["a", "a", "b"],
            "ours": [1.0, 2.0, 3.0],
            "authors'": [1.0, 1.0, 3.0],
            "difference in standard errors": [0.5, -6.0, 2.0],
        }
    )
    found = compare.agreement(table).set_index("measure")
    assert found.loc["a", "within 3 standard errors"] == 1
    assert found.loc["a", "beyond 5"] == 1
    assert found.loc["b", "share"] == 1.0


# --- theory and intervals ------------------------------------------------------------------------


def test_slopes_are_found_with_their_intervals():
    rng = np.random.default_rng(0)
    lengths = np.repeat([50, 100, 200, 400], 50)
    value = 3.0 / lengths * rng.gamma(20, 1 / 20, len(lengths))
    _, low, high = theory.slope_of(pd.DataFrame({"T": lengths, "x": value}), "x")
    assert low < -1.0 < high
    assert high - low < 0.15
    assert np.isnan(theory.slope_of(pd.DataFrame({"T": lengths, "x": 0.0}), "x")[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::avem.AvemWarning")
def test_the_anchoring_gap_by_its_definition_is_that_of_the_diagnosis():
    for cell in (theory.CELLS[0], theory.CELLS[len(theory.LENGTHS)]):
        hmm, panel, truth, _ = theory.setting(cell, 1)
        fit = hmm.fit(panel, init=truth, fixed=truth, refine=None)
        regret, gap = theory.anchor_regret(fit, panel)
        np.testing.assert_allclose(gap, fit.diagnose().subjects["anchoring_gap"], atol=1e-5)
        assert (regret >= 0).all()
        assert regret.sum() < 0.01 * gap.sum()


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::avem.AvemWarning")  # AVEM alone creeps
def test_a_state_space_panel_with_growing_states():
    """Refinement lowers the errors that anchoring leaves, and nothing explodes with the states."""
    rows = catalogue.find("messm").replicate["converged"]({"n": 25, "T": 25, "stable": False}, 1)
    default, anchored = ({row["method"]: row for row in rows}[name] for name in ("default", "AVEM"))
    assert default["finite"]
    assert anchored["finite"]
    assert default["stop"] == "CONVERGED"
    assert default["g_i"] < anchored["g_i"] < 0.25
    truth = default["variance of true h_i"]
    assert anchored["Sigma_h"] < 0.7 * truth < default["Sigma_h"] < 1.5 * truth
    errors = {name: default[name] for name in ("G", "H", "R", "h_i")}
    assert max(errors.values()) < 0.2, errors


@pytest.mark.slow
def test_the_default_finds_states_that_anchoring_merges():
    """Beside an exact likelihood that is written once more, from several starts."""
    cell = {"setting": "means +-0.5, staying 0.9"}
    rows = catalogue.find("default").replicate["converged"](cell, 3)
    default, anchored = ({row["method"]: row for row in rows}[name] for name in ("default", "AVEM"))
    assert default["below"] < 0.05
    assert abs(default["said - exact"]) < 0.02
    assert anchored["below"] > 0.5
    assert 0.97 < default["variance ratio"] < 1.03


def test_stays_that_are_not_those_of_a_chain_are_told_from_it(monkeypatch):
    from scipy.stats import nbinom

    from studies import durations

    monkeypatch.setattr(durations, "N", 10)
    (cell,) = [c for c in durations.CELLS if tuple(c.values()) == ("nearly fixed", "apart")]
    rows = pd.DataFrame(durations.replicate(cell, 1)).assign(**cell, replicate=0)
    # Short stays: those after which at most one further step is made.
    further = durations.STAYS - 1
    chance = 50 / (50 + further)
    assert rows["true_short"].iloc[0] == pytest.approx(nbinom.cdf(1, 50, chance).mean())
    chain, other = (rows[rows["method"] == name].iloc[0] for name in durations.MODELS)
    assert other["bic"] < chain["bic"]
    assert other["score"] > chain["score"]
    assert abs(other["short"] - other["true_short"]) < 0.1 < chain["short"] - chain["true_short"]
    found = durations.tables(rows)
    assert found["choice"]["chosen by bic"].tolist() == [1.0]
    assert "in 100% of panels" in durations.reading(found)
    assert durations.figure(rows).axes


def test_tables_of_clocks_set_both_tiers_and_the_control_apart():
    from studies import clocks

    rows = []
    for cell, (r, held) in product(clocks.CELLS, enumerate((1.0, 0.0))):
        differ = cell["subjects"] == "differ"
        for method, gain in (("anchored", 0.0), ("exact", 0.5)):
            own = {"protocol": "converged", **cell, "replicate": r, "method": method}
            location = {"parameter": "a", "truth": 1.0, "estimate": 1.0 + r, "se": 0.1}
            rows.append(own | location | {"held": held})
            effects = {"sd": 0.3 * differ, "of_sd": 0.3 * differ, "correlation": 0.9}
            more = {"loglik": -10 + gain, "converged": 1.0, "fit_seconds": 1.0}
            rows.append(own | effects | more)
    frame = pd.DataFrame(rows)
    found = clocks.tables(frame)
    assert (found["locations"]["coverage"] == 0.5).all()
    assert (found["locations"]["mean"] == 1.5).all()
    assert (found["likelihood"]["gained by the exact tier"] == 0.5).all()
    effects = found["effects"].set_index(["clock", "subjects", "method"])
    assert effects.loc[("rates", "differ", "exact"), "mean sd"] == pytest.approx(0.3)
    assert effects.loc[("rates", "alike", "exact"), "largest sd"] == 0.0
    assert "hold it in 50% and 50%" in clocks.reading(found)
    assert len(clocks.figure(frame).axes) == 3


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["stays", "rates", "drifts"])
def test_effects_on_clocks_are_found_and_not_where_there_are_none(clock):
    from studies import clocks

    found = {}
    for cell in [cell for cell in clocks.CELLS if cell["clock"] == clock]:
        rows = pd.DataFrame(clocks.replicate(cell, 1))
        located = rows[rows["parameter"].notna()]
        assert (np.abs(located["estimate"] - located["truth"]) < 4 * located["se"]).all()
        found[cell["subjects"]] = rows[rows["parameter"].isna()].set_index("method")
    for own in found.values():
        assert own["loglik"]["exact"] > own["loglik"]["anchored"] - 0.1
    true = found["differ"]["of_sd"].iloc[0]
    assert 0.4 < found["differ"]["sd"]["exact"] / true < 1.4
    assert (found["differ"]["correlation"] > 0.35).all()
    assert found["alike"]["sd"]["exact"] < 0.3 * true
