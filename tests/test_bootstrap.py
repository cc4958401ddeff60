"""The parametric bootstrap: right, resumable, the same in any number of processes, and honest."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import avem
from avem.inference.progress_of_replicates import ReplicateProgress
from avem.mixed_hmm import MixedHMM
from avem.workflows.bootstrap_table import Replicate
from avem.workflows.recipe import Recipe

HMM = MixedHMM("y ~ x + (1 | who)", 2)
PARAMS = {
    "initial": [0.6, 0.4],
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "coef": [[[-1.0, 0.3]], [[1.5, -0.2]]],
    "variance": [[0.5], [0.5]],
    "effect_covariance": [[0.3]],
}


@cache
def frame():
    """Ten subjects, 25 times, a covariate, and some missing cells."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({"who": np.repeat(np.arange(10), 25), "t": np.tile(np.arange(25), 10)})
    rows["x"] = rng.standard_normal(250)
    made = HMM.simulate(PARAMS, data=rows, time="t", seed=1).frame
    made.loc[[3, 40, 41, 200], "y"] = np.nan
    return made


@cache
def fit():
    return HMM.fit(frame(), time="t", n_starts=2, refine=None)


@cache
def five():
    """Five replicates, made in one go in this process."""
    return avem.bootstrap(fit(), 5)


def one_state(formula="y ~ 1", family="gaussian", **columns):
    data = pd.DataFrame(columns)
    data["who"] = np.arange(len(data)) // 10
    return MixedHMM(formula, 1, family).fit(data, subject="who")


def same(one, other):
    pd.testing.assert_frame_equal(one.replicates, other.replicates, check_exact=True)


# --- what comes out -----------------------------------------------------------------------------


def test_table_has_the_rows_of_the_fit():
    table, own = five().table(), fit().table()
    pd.testing.assert_frame_equal(table[own.columns], own)
    found = five().replicates
    assert found["replicate"].tolist() == [0, 1, 2, 3, 4]
    assert found["coef[1,0,1]"].nunique() == 5
    row = table[(table["parameter"] == "coef") & (table["state"] == 1) & (table["term"] == "x")]
    values = found["coef[1,0,1]"].to_numpy()
    np.testing.assert_allclose(row["se"], values.std(ddof=1))
    np.testing.assert_allclose(row["bias"], values.mean() - fit().params["coef"][1, 0, 1])
    half = five().table(level=0.5)
    assert (half["upper"] - half["lower"] <= table["upper"] - table["lower"]).all()
    assert repr(five()) == "Bootstrap('y ~ x + (1 | who)', n_states=2, 5 replicates)"


def test_spread_of_a_mean_is_what_theory_says():
    y, n = np.random.default_rng(0).normal(2.0, 3.0, 400), 60
    row = avem.bootstrap(one_state(y=y), n).table().set_index("parameter").loc["coef"]
    exact = y.std() / np.sqrt(len(y))
    error = 1 / np.sqrt(2 * n)  # relative, of a standard deviation from n draws
    assert abs(row["se"] / exact - 1) < 3 * error
    assert abs(row["bias"]) < 3 * exact / np.sqrt(n)
    assert abs((row["upper"] - row["lower"]) / (2 * 1.96 * exact) - 1) < 0.3


def test_replicates_are_the_fit_s_rows_with_new_outcomes(monkeypatch):
    made, seen, original = fit(), [], MixedHMM.fit

    def spy(self, data, **options):
        seen.append(data.table)
        return original(self, data, **options)

    monkeypatch.setattr(MixedHMM, "fit", spy)
    avem.bootstrap(made, 2)
    first, second = seen
    for table in seen:
        pd.testing.assert_frame_equal(table[["who", "t", "x"]], frame()[["who", "t", "x"]])
        assert (table["y"].isna() == frame()["y"].isna()).all()
    assert not np.isclose(first["y"], second["y"]).any()


def test_held_parameters_stay_held():
    fixed = {"transition": PARAMS["transition"], "effect_covariance": [[0.25]]}
    held = HMM.fit(frame(), time="t", n_starts=2, refine=None, fixed=fixed)
    found = avem.bootstrap(held, 3)
    for replicate in found.done:
        assert replicate.params is not None
        np.testing.assert_allclose(replicate.params["transition"], fixed["transition"], rtol=1e-12)
        np.testing.assert_allclose(replicate.params["effect_covariance"], 0.25, rtol=1e-12)
    table = found.table()
    is_held = table["parameter"].isin(fixed)
    assert (table.loc[is_held, "note"] == "held").all()
    assert table.loc[is_held, "se"].isna().all()
    assert (table.loc[~is_held, "se"] > 0).all()


def test_the_method_is_the_fit_s(monkeypatch):
    method = avem.Quadrature(7)
    info = replace(fit().info, method=method.word, options=method.options())
    chosen = replace(fit(), info=info)
    seen = []
    monkeypatch.setattr(MixedHMM, "fit", lambda self, data, **given: seen.append(given) or fit())
    avem.bootstrap(chosen, 2)
    assert seen[0]["method"] == method
    assert seen[0]["seed"] != seen[1]["seed"]


def test_replicates_can_leave_a_boundary():
    """Refits that started at a variance of 0 would stay there, and seem to be sure of it."""
    hmm = MixedHMM("y ~ 1 + (1 | who)", 1)
    rng = np.random.default_rng(8)
    data = pd.DataFrame({"who": np.repeat(np.arange(10), 10)})
    data["y"] = rng.standard_normal(100)
    data["y"] -= 0.999 * data.groupby("who")["y"].transform("mean")
    at_zero = hmm.fit(data, refine=None)
    assert at_zero.params["effect_covariance"][0, 0] < 1e-3
    found = avem.bootstrap(at_zero, 6).replicates["effect_covariance[0,0]"]
    assert (found > 0.01).any()


def test_a_level_that_no_draw_takes_keeps_its_parameters():
    labels = np.array(["a", "b", "a", "b", "a"] * 8 + ["c"] * 2)
    rare = one_state(family="categorical", y=labels)
    found = avem.bootstrap(rare, 12)
    assert found.n_ok == 12
    assert found.replicates["coef[0,1,0]"].min() < -5  # the log odds of 'c', where none was drawn


# --- files and processes ------------------------------------------------------------------------


def test_resumed_is_uninterrupted(tmp_path, monkeypatch):
    path = tmp_path / "replicates.jsonl"
    avem.bootstrap(fit(), 4, path=path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) == 5
    path.write_bytes(b"".join(lines[:3]) + lines[3][: len(lines[3]) // 2])
    made, original = [], Recipe.replicate
    five()  # kept from here on, so that what it draws is not counted below

    def spy(self, number):
        made.append(number)
        return original(self, number)

    monkeypatch.setattr(Recipe, "replicate", spy)
    same(avem.bootstrap(fit(), 5, path=path), five())
    assert made == [2, 3, 4]
    assert path.read_bytes().startswith(whole)
    same(avem.bootstrap(fit(), 5, path=path), five())
    assert avem.bootstrap(fit(), 3, path=path).replicates.equals(five().replicates[:3])
    assert made == [2, 3, 4]


def test_a_file_killed_in_its_first_line_starts_anew(tmp_path):
    path = tmp_path / "replicates.jsonl"
    avem.bootstrap(fit(), 2, path=path)
    head = path.read_bytes().splitlines()[0]
    path.write_bytes(head[:20])
    avem.bootstrap(fit(), 2, path=path)
    assert path.read_bytes().splitlines()[0] == head


def test_another_fit_s_file_is_refused(tmp_path):
    path = tmp_path / "replicates.jsonl"
    avem.bootstrap(fit(), 2, path=path)
    kept = path.read_bytes()
    with pytest.raises(avem.FileError, match=r"another fit.*seed 0; this one is .* seed 1"):
        avem.bootstrap(fit(), 2, path=path, seed=1)
    with pytest.raises(avem.FileError, match=r"'y ~ 1' with 1 states on 20 rows"):
        avem.bootstrap(one_state(y=np.arange(20.0)), 2, path=path)
    assert path.read_bytes() == kept
    path.write_text("a,b\n1,2\n")
    with pytest.raises(avem.FileError, match=r"not written by avem\.bootstrap"):
        avem.bootstrap(fit(), 2, path=path)
    assert path.read_text() == "a,b\n1,2\n"


def test_two_processes_find_the_same(tmp_path):
    path, fit = tmp_path / "replicates.jsonl", one_state(y=np.arange(20.0))
    same(avem.bootstrap(fit, 3, jobs=2, path=path), avem.bootstrap(fit, 3))
    numbers = [json.loads(line)["number"] for line in path.read_text().splitlines()[1:]]
    assert sorted(numbers) == [0, 1, 2]


@pytest.mark.parametrize("how", ["between fits", "within a fit"])
def test_ctrl_c_keeps_what_is_done(tmp_path, monkeypatch, how):
    path = tmp_path / "replicates.jsonl"
    original = Recipe.replicate

    def until_two(self, number):
        if number < 2:
            return original(self, number)
        if how == "between fits":
            raise KeyboardInterrupt
        return Replicate(number, "INTERRUPTED")

    with monkeypatch.context() as patched:
        patched.setattr(Recipe, "replicate", until_two)
        with pytest.warns(avem.AvemWarning, match="2 of 5 replicates are done"):
            found = avem.bootstrap(fit(), 5, path=path)
    assert len(found.done) == found.n_ok == 2
    assert "2 of 5 replicates" in repr(found)
    same(avem.bootstrap(fit(), 5, path=path), five())


def test_progress_says_how_far_it_is(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    with ReplicateProgress(True, 200) as progress:
        now = 1.0
        progress(1, 0)
        now = 11.0
        progress(101, 3)
    assert capsys.readouterr().err == "bootstrap: 101/200, about 10 s left, 3 failed\n"


# --- in words -----------------------------------------------------------------------------------


def test_failures_are_counted_and_said():
    rare = one_state(family="bernoulli", y=np.arange(20) == 0)  # many draws have no success
    with pytest.warns(avem.AvemWarning, match=r"left out of the summaries: \d x DataError: .*con"):
        found = avem.bootstrap(rare, 12)
    assert found.n_ok + found.n_failed == 12
    assert 0 < found.n_failed < 11
    assert f"{found.n_failed} left out" in repr(found)
    failed = found.replicates["stop"] == "FAILED"
    assert failed.sum() == found.n_failed
    assert found.replicates.loc[failed, "coef[0,0,0]"].isna().all()
    assert np.isfinite(found.table()["se"]).all()


def test_what_did_not_converge_is_left_out():
    late = [Replicate(i, "OUT_OF_STEPS", "too slow", 0.0, fit().params) for i in range(3)]
    few = avem.Bootstrap(fit(), 4, (*late, five().done[0]))
    assert (few.n_ok, few.n_failed) == (1, 3)
    with pytest.raises(avem.ModelError, match=r"here are 1\. 3 of 4 .* 3 x too slow"):
        few.table()
    both = avem.Bootstrap(fit(), 8, (*late, *five().done))
    pd.testing.assert_frame_equal(both.table(), five().table())


def test_a_loaded_fit_wants_its_data(tmp_path):
    fit().save(tmp_path / "fit.avem")
    loaded = avem.load(tmp_path / "fit.avem")
    with pytest.raises(avem.DataError, match=r"data=frame"):
        avem.bootstrap(loaded, 5)
    with pytest.raises(avem.DataError, match=r"240 rows.*the fit had 250"):
        avem.bootstrap(loaded, 5, data=frame()[:240])
    with pytest.raises(avem.DataError, match="not the data of the fit"):
        avem.bootstrap(loaded, 5, data=frame().assign(who=frame()["who"] + 1))
    same(avem.bootstrap(loaded, 5, data=frame()), five())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 1}, "n is 1; .* at least 2"),
        ({"n": 2.5}, "n is 2.5"),
        ({"jobs": 0}, "jobs is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"path": "no/such/folder/file"}, "There is no folder 'no/such/folder'"),
        ({"path": "."}, "is a folder"),
    ],
)
def test_bad_arguments(options, words):
    with pytest.raises(avem.AvemError, match=words):
        avem.bootstrap(fit(), **options)


def test_what_cannot_be_done_is_said_at_once():
    with pytest.raises(avem.ModelError, match="got a MixedHMM; a fit is wanted"):
        avem.bootstrap(HMM)  # type: ignore[arg-type]
    no_draw = avem.Custom(lambda y, x, history, params, effect: -((y - params["m"]) ** 2), {"m": 0})
    custom = one_state(family=no_draw, y=np.arange(20.0) % 3)
    with pytest.raises(avem.ModelError, match=r"cannot simulate"):
        avem.bootstrap(custom, 2)
    with pytest.raises(avem.ModelError, match=r"jobs=2 sends the model .* or use jobs=1"):
        avem.bootstrap(custom, 2, jobs=2)
    with pytest.raises(avem.ModelError, match="level is 95"):
        five().table(level=95)


def test_the_name_is_the_function():
    """A module of the same name would take its place once imported."""
    assert avem.bootstrap(fit(), 2).n_ok == 2
    assert callable(avem.bootstrap)
