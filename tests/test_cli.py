"""The command `avem`: what it writes, and the exit codes a script can rely on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import avem
from avem.cli import _cache_folder, app

ROOT = Path(__file__).resolve().parents[1]
FORMULA = "y ~ 1 + (1 | who)"
FILES = ["effects.csv", "fit.avem", "parameters.csv", "report.html", "states.csv", "summary.txt"]
PLOTS = ["bound.png", "effects.png", "emissions.png", "states.png"]


def make_data(n_subjects=6, n_times=20):
    """Rows in a random order, labels with leading zeros, -99 and a dot where missing."""
    rng = np.random.default_rng(2)
    n = n_subjects * n_times
    state = np.repeat(rng.random(n // 5) < 0.5, 5)
    y = np.repeat(rng.normal(size=n_subjects), n_times) + 5 * state + rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "who": np.repeat([f"{i:03d}" for i in range(n_subjects)], n_times),
            "t": np.tile(np.arange(n_times), n_subjects),
            "y": [f"{value:.3f}" for value in y],
        }
    )
    frame.loc[[3, 50], "y"] = ["-99", "."]
    return frame.sample(frac=1, random_state=1)


def run(*arguments):
    """The result of the command in this process, without a cache on disk."""
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"AVEM_NO_CACHE": "1"})


def start(*arguments, **env):
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "avem", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.csv"
    make_data().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def options():
    return ["--time", "t", "--starts", 1, "--missing-code", "-99", "--missing-code", "."]


@pytest.fixture(scope="module")
def fitted(data, options, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "made" / "here"
    return out, run("fit", data, FORMULA, "--states", 2, *options, "--out", out)


def test_fit_writes_everything(fitted, data):
    out, result = fitted
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES + PLOTS)
    fit = avem.results.saving.load(out / "fit.avem")
    text = (out / "summary.txt").read_text(encoding="utf-8")
    assert text == f"{fit.summary()}\n"
    assert text in result.stdout
    assert all(str(out / name) in result.stdout for name in FILES + PLOTS)
    table = pd.read_csv(out / "parameters.csv")
    np.testing.assert_allclose(table["estimate"], fit.table()["estimate"], rtol=1e-14)
    effects = pd.read_csv(out / "effects.csv", dtype={"who": str})
    assert sorted(effects["who"]) == [f"{i:03d}" for i in range(6)]
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in PLOTS)
    assert fit.info.n_missing == 2


def test_states_come_in_the_order_of_the_rows(fitted, data):
    out, _ = fitted
    states = pd.read_csv(out / "states.csv", dtype={"who": str})
    rows = pd.read_csv(data, dtype={"who": str})
    assert list(states.columns) == ["who", "t", "state", "state_0", "state_1"]
    pd.testing.assert_frame_equal(states[["who", "t"]], rows[["who", "t"]])
    np.testing.assert_allclose(states[["state_0", "state_1"]].sum(axis=1), 1)
    low = pd.to_numeric(rows["y"], errors="coerce").groupby(states["state"]).mean()
    assert low[0] < low[1]


def test_results_are_overwritten_only_by_force(fitted, data, options, tmp_path):
    (tmp_path / "fit.avem").write_text("precious")
    command = ["fit", data, FORMULA, "--states", 2, *options, "--out", tmp_path]
    began = time.perf_counter()
    result = run(*command)
    assert time.perf_counter() - began < 1  # it did not fit first
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("avem: ")
    assert "--force" in result.stderr
    assert (tmp_path / "fit.avem").read_text() == "precious"
    assert run(*command, "--force", "--no-plots").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


def test_a_fit_that_does_not_converge_is_written_and_told_by_its_code(data, options, tmp_path):
    result = run(
        *("fit", data, FORMULA, "--states", 2, *options, "--max-iter", 1),
        *("--no-plots", "--out", tmp_path),
    )
    assert result.exit_code == 3
    assert "avem: warning: The iteration limit was reached" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv", FORMULA], "no file 'absent.csv'"),
        (["{data}", "y ~ z + (1 | who)"], "no column 'z'"),
        (["{data}", "y ~ exit(1) + (1 | who)"], "exit() is not available"),
        (["{data}", "y ~ 1"], "Which rows belong together?"),
        (["{data}", FORMULA, "--covariance", "odd"], "odd"),
        (["{data}", FORMULA, "--starts", "0"], "n_starts is 0"),
        (["{data}.txt", FORMULA], "'.txt'; .csv, .tsv or .parquet is wanted"),
        (["{empty}", FORMULA], "Cannot read"),
        (["{data}", FORMULA, "--out", "{empty}"], "is a file; a folder is wanted"),
    ],
)
def test_wrong_input_gives_one_line_and_code_2(data, tmp_path, arguments, message):
    (tmp_path / "empty.csv").touch()
    names = {"data": data, "empty": tmp_path / "empty.csv"}
    arguments = [argument.format(**names) for argument in arguments]
    out = [] if "--out" in arguments else ["--out", tmp_path / "out"]
    result = run("fit", *arguments, "--states", 2, "--missing-code", "-99", *out)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("avem: ")
    assert not (tmp_path / "out").exists()


def test_decode_agrees_with_fit_and_takes_parquet(fitted, data, tmp_path):
    out, _ = fitted
    codes = ["--missing-code", "-99", "--missing-code", "."]
    result = run("decode", out / "fit.avem", data, *codes, "--out", tmp_path / "states.csv")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert (tmp_path / "states.csv").read_text() == (out / "states.csv").read_text()
    pytest.importorskip("pyarrow")
    frame = pd.read_csv(data, dtype={"who": str}, na_values={"y": ["."]})
    frame.replace({"who": {"001": "new"}}).to_parquet(tmp_path / "data.parquet")
    command = ("decode", out / "fit.avem", tmp_path / "data.parquet", "--missing-code", "-99")
    result = run(*command, "--out", tmp_path / "new.tsv")
    assert result.exit_code == 0, result.output
    assert "1 of 6 subjects are not in the fit ('new')" in result.stderr
    one = pd.read_csv(tmp_path / "new.tsv", sep="\t")
    other = pd.read_csv(tmp_path / "states.csv")
    assert (one["state"] == other["state"]).mean() > 0.9


def test_simulate(fitted, data, tmp_path):
    fit = fitted[0] / "fit.avem"
    size = ("--subjects", 5, "--times", 7, "--seed", 1)
    for name in ("one.csv", "two.csv"):
        assert run("simulate", fit, *size, "--out", tmp_path / name).exit_code == 0
    made = pd.read_csv(tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "two.csv").read_text()
    assert (made["who"].nunique(), len(made), made["y"].notna().all()) == (5, 35, True)
    assert run("simulate", fit, "--data", data, "--out", tmp_path / "like.csv").exit_code == 0
    like = pd.read_csv(tmp_path / "like.csv", dtype={"who": str})
    pd.testing.assert_frame_equal(
        like[["who", "t"]], pd.read_csv(data, dtype={"who": str})[["who", "t"]]
    )
    for wrong in ([], ["--subjects", 3], ["--subjects", 3, "--times", 2, "--data", data]):
        result = run("simulate", fit, *wrong, "--out", tmp_path / "no.csv")
        assert result.exit_code == 2
        assert "--times" in result.stderr


def test_summary_and_report(fitted, data, tmp_path):
    out, _ = fitted
    result = run("summary", out / "fit.avem")
    assert (result.exit_code, result.stdout) == (0, (out / "summary.txt").read_text())
    codes = ["--missing-code", "-99", "--missing-code", "."]
    command = ("report", out / "fit.avem", *codes, "--data")
    result = run(*command, data, "--out", tmp_path / "report.html")
    assert result.exit_code == 0, result.output
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    pd.read_csv(data, dtype=str).iloc[1:].to_csv(tmp_path / "other.csv", index=False)
    result = run(*command, tmp_path / "other.csv", "--out", tmp_path / "other.html")
    assert result.exit_code == 2
    assert "is not what was fitted: it has 119 rows" in result.stderr


def test_a_damaged_fit_is_an_input_error(fitted, tmp_path):
    content = (fitted[0] / "fit.avem").read_bytes()
    (tmp_path / "half.avem").write_bytes(content[: len(content) // 2])
    result = run("summary", tmp_path / "half.avem")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "damaged" in result.stderr


def test_version_and_usage():
    assert run("--version").stdout == f"avem {avem.__version__}\n"
    assert run("fit", "--sates", 2).exit_code == 2
    assert run("nonsense").exit_code == 2


def test_in_a_process_of_its_own(data, options, tmp_path):
    """python -m avem: an error without a traceback, and compiled code that is kept."""
    cache = str(tmp_path / "cache")
    fit = ("fit", data, FORMULA, "--states", 2, *options, "--no-plots", "--out", tmp_path / "out")
    runs = [
        start("summary", tmp_path / "absent.avem"),
        start(*fit, XDG_CACHE_HOME=cache, LOCALAPPDATA=cache, AVEM_NO_CACHE="0"),
    ]
    absent, fitted = ((*process.communicate(), process.returncode) for process in runs)
    assert absent == ("", f"avem: There is no file '{tmp_path / 'absent.avem'}'.\n", 2)
    assert fitted[1:] == ("", 0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    assert [path for path in (tmp_path / "cache" / "avem").rglob("*") if path.is_file()]


def test_a_cache_that_cannot_be_written_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    assert _cache_folder() is None
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "folder"))
    folder = _cache_folder()
    assert folder is not None
    assert folder.is_dir()
    assert folder.is_relative_to(tmp_path / "folder" / "avem")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_before_anything_could_be_kept(data, options, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr(avem.MixedHMM, "fit", interrupted)
    result = run("fit", data, FORMULA, "--states", 2, *options, "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert result.stderr == "avem: interrupted.\n"
    assert not (tmp_path / "out").exists()


def test_a_bug_is_not_dressed_up_as_bad_input(data, monkeypatch, tmp_path):
    monkeypatch.setattr(avem.MixedHMM, "fit", lambda *_, **__: 1 / 0)
    result = run("fit", data, FORMULA, "--states", 2, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.slow
def test_demo(tmp_path):
    result = run("demo", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES + PLOTS)
    assert run("demo", "--out", tmp_path).exit_code == 0
