"""The command `avem`: what it writes, and the exit codes a script can rely on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import avem
from avem.cli import app
from avem.cli._files import table_ending
from avem.cli._outcomes import Defaults, read_outcomes
from avem.kernels.folder import cache_folder

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
    """The command in a process of its own.

    Matplotlib keeps its own cache where it is: to make it anew, on a busy machine, is told.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "avem", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"MPLCONFIGDIR": matplotlib.get_cachedir()} | env,
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
    fit = avem.fits.io.saving.load(out / "fit.avem")
    text = (out / "summary.txt").read_text(encoding="utf-8")
    assert text == f"{fit.summary(errors=False)}\n"
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


@pytest.mark.usefixtures("blank_pictures")
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


@pytest.mark.usefixtures("blank_pictures")
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
        (["{data}", FORMULA, "--formula", FORMULA], "there twice"),
        (["{data}"], "either one FORMULA, or every outcome"),
        (["{data}", FORMULA, "--outcome", "gamma: y ~ 1"], "either one FORMULA, or every outcome"),
        (["{data}", FORMULA, "--family", "banana"], "family is 'banana'; available: gaussian, be"),
        (["{data}", FORMULA, "--family", "binomial"], "needs its number of trials: --trials"),
        (["{data}", "t ~ 1 + (1 | who)", "--family", "gamma"], "takes positive numbers"),
        (["{data}", FORMULA, "--family", "poisson", "--covariance", "full"], "there is none"),
        (["{data}", FORMULA, "--trials", "5"], "--trials is for binomial outcomes"),
        (["{data}", FORMULA, "--transition", "y ~ 1"], "one-sided"),
        (
            ["{data}", "t ~ 1 + (1 | who)", "--initial", "~ 1 + (1 | who)"],
            "on the first state are not",
        ),
        (["{data}", FORMULA, "--effect-covariance", "odd"], "effect_covariance is 'odd'"),
        (["{data}", FORMULA, "--q-update", "odd"], "q_update is 'odd'"),
        (["{data}", "--outcome", "gamma(shape: y ~ 1"], "'(' is not closed"),
        (["{data}", "--outcome", "gamma(shape ~ x) y ~ 1"], "a colon and the formula"),
        (["{data}", "--outcome", "gamma(fast): y ~ 1"], "Cannot read 'fast' in gamma(fast)"),
        (["{data}", "--outcome", "gamma(trials = 3): y ~ 1"], "'trials' is no option of gamma"),
        (["{data}", FORMULA, "--duration", ","], "--duration ',' names nothing"),
        (["{data}", FORMULA, "--state-names", " "], "--state-names ' ' names nothing"),
        (["{data}", FORMULA, "--moves", ","], "--moves ',' names nothing"),
        (["{data}.txt", FORMULA], "'.txt'; .csv, .tsv or .parquet is wanted"),
        (["{empty}", FORMULA], "Cannot read"),
        (["{one}", FORMULA], "give --subject 'who'"),
        (["{data}", FORMULA, "--out", "{empty}"], "is a file; a folder is wanted"),
    ],
)
def test_wrong_input_gives_one_line_and_code_2(data, tmp_path, arguments, message):
    (tmp_path / "empty.csv").touch()
    names = {name: tmp_path / f"{name}.csv" for name in ("empty", "one")} | {"data": data}
    frame = pd.read_csv(data)
    frame[frame["who"] == frame["who"][0]].to_csv(names["one"], index=False)
    arguments = [argument.format(**names) for argument in arguments]
    out = [] if "--out" in arguments else ["--out", tmp_path / "out"]
    result = run("fit", *arguments, "--states", 2, "--missing-code", "-99", *out)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("avem: ")
    assert not (tmp_path / "out").exists()


# --- outcomes of any family ----------------------------------------------------------------------

NOTHING = Defaults("gaussian", None, None, False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("y ~ a:b", avem.outcome("y ~ a:b")),
        ("y1 + y2 ~ 1", avem.outcome("y1 + y2 ~ 1")),
        ("gamma: step ~ x + (1 | id)", avem.outcome("step ~ x + (1 | id)", "gamma")),
        (" gamma ( shape ~ x ) : s ~ 1 ", avem.outcome("s ~ 1", "gamma", shape="~ x")),
        (
            "gaussian(covariance = full): y + z ~ 1",
            avem.outcome("y + z ~ 1", avem.Gaussian("full")),
        ),
        ("binomial(trials = n): k ~ 1", avem.outcome("k ~ 1", avem.Binomial("n"))),
        ("binomial(trials=12): k ~ 1", avem.outcome("k ~ 1", avem.Binomial(12))),
        (
            "ordinal(levels = low < mid < high): k ~ 1",
            avem.outcome("k ~ 1", avem.Ordinal(("low", "mid", "high"))),
        ),
        ("ordinal: k ~ 1", avem.outcome("k ~ 1", "ordinal")),
        (
            "censored(family = gamma, lower = lod, upper = 9): k ~ 1",
            avem.outcome("k ~ 1", avem.Censored("gamma", "lod", 9)),
        ),
        (
            "truncated(family = gamma, lower = 0.2): k ~ 1",
            avem.outcome("k ~ 1", avem.Truncated("gamma", 0.2)),
        ),
        (
            "student_t(scale ~ log(x) + (1 | id), df ~ 1, effects_by_state): y ~ 1 + (1 | id)",
            avem.outcome(
                "y ~ 1 + (1 | id)",
                "student_t",
                effects_by_state=True,
                scale="~ log(x) + (1 | id)",
                df="~ 1",
            ),
        ),
    ],
)
def test_outcomes_as_text(text, wanted):
    (found,) = read_outcomes(None, [text], NOTHING)
    parts = found.formula, *found.formulas
    own = wanted.formula, *wanted.formulas
    assert [(f.outcomes, f.fixed, f.groups) for f in parts] == [
        (f.outcomes, f.fixed, f.groups) for f in own
    ]
    assert [name for name, _ in found.parameters] == [name for name, _ in wanted.parameters]
    assert (found.family, found.effects_by_state) == (wanted.family, wanted.effects_by_state)


def test_options_of_the_command_are_those_of_outcomes_without_their_own():
    given = Defaults("binomial", "full", "n", True)
    texts = ["k ~ 1", "binomial(trials = m): j ~ 1", "gaussian: y ~ 1"]
    one, two, three = read_outcomes(None, texts, given)
    assert (one.family, two.family) == (avem.Binomial("n"), avem.Binomial("m"))
    assert three.family == avem.Gaussian("full")
    assert all(item.effects_by_state for item in (one, two, three))
    (only,) = read_outcomes("k ~ 1", [], given._replace(covariance=None))
    assert only.family == avem.Binomial("n")


@pytest.fixture(scope="module")
def movement(tmp_path_factory):
    """Steps, angles and choices of 8 animals, in a file."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"id": np.repeat(np.arange(8), 24), "t": np.tile(np.arange(24), 8)})
    rows["x"] = rng.normal(size=len(rows)).round(2)
    model = avem.MixedHMM(
        [
            avem.outcome("step ~ 1 + (1 | id)", "gamma"),
            avem.outcome("angle ~ 1", "von_mises"),
            avem.outcome("side ~ x", avem.Bernoulli(("left", "right"))),
        ],
        2,
    )
    params = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.2, 0.8]],
        "step.coef": [[[0.0]], [[2.0]]],
        "step.shape": [[3.0], [5.0]],
        "angle.coef": [[[3.0]], [[0.0]]],
        "angle.concentration": [[1.0], [4.0]],
        "side.coef": [[[-1.0, 0.5]], [[1.5, 0.0]]],
        "effect_covariance": [[0.2]],
    }
    frame = model.simulate(params, data=rows, subject="id", time="t", seed=1).frame
    path = tmp_path_factory.mktemp("movement") / "data.csv"
    frame.round(4).to_csv(path, index=False)
    return path


@pytest.mark.usefixtures("blank_pictures")
def test_standard_errors_and_method(data, options, tmp_path):
    command = ["fit", data, FORMULA, "--states", 2, "--out", tmp_path, "--no-plots", *options]
    result = run(*command, "--method", "adaptive", "--standard-errors")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "parameters.csv")
    assert table.loc[table["parameter"] == "coef", "se"].gt(0).all()
    assert "log likelihood" in result.stdout
    result = run(*command, "--refine", "sometimes", "--force")
    assert result.exit_code == 2
    assert "refine is 'sometimes'" in result.stderr


def test_select(data, tmp_path):
    out = tmp_path / "states.csv"
    missing = ["--missing-code", "-99", "--missing-code", "."]
    result = run("select", data, FORMULA, "--states", "1-2", "--time", "t", "--out", out, *missing)
    assert result.exit_code == 0, result.output
    assert "Best by BIC: 2 states" in result.stdout
    table = pd.read_csv(out)
    assert table["n_states"].tolist() == [1, 2]
    assert table["bic"].notna().all()
    result = run("select", data, FORMULA, "--states", "many", "--out", tmp_path / "x.csv")
    assert result.exit_code == 2
    assert "such as 1-5 or 2,3,5" in result.stderr
    result = run("select", data, FORMULA, "--by", "time", "--out", tmp_path / "x.csv")
    assert result.exit_code == 2
    assert result.stderr == (
        "avem: --by says what is held out, and goes with --folds: --folds 5.\n"
    )


@pytest.fixture(scope="module")
def several(movement, blank, tmp_path_factory):
    out = tmp_path_factory.mktemp("several")
    command = ["fit", movement, "--states", 2, "--time", "t", "--starts", 1, "--transition", "~ x"]
    command += ["--refine", "never"]
    command += ["--outcome", "gamma: step ~ 1 + (1 | id)", "--outcome", "von_mises: angle ~ 1"]
    with blank():
        return out, run(*command, "--no-plots", "--out", out)


@pytest.mark.usefixtures("blank_pictures")
def test_several_outcomes(several, movement, tmp_path):
    out, result = several
    assert result.exit_code == 0, result.output
    spec = avem.load(out / "fit.avem").model.spec
    assert [item.family for item in spec.outcomes] == [
        avem.outcome("y ~ 1", word).family for word in ("gamma", "von_mises")
    ]
    assert (spec.transition.text, spec.initial.text) == ("~ x", "~ 1")
    table = pd.read_csv(out / "parameters.csv")
    assert {"step.coef", "step.shape", "angle.concentration", "transition_coef"} <= set(
        table["parameter"]
    )
    result = run("decode", out / "fit.avem", movement, "--out", tmp_path / "states.csv")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "states.csv").read_text() == (out / "states.csv").read_text()
    assert run("summary", out / "fit.avem").stdout == (out / "summary.txt").read_text()
    command = ("report", out / "fit.avem", "--data", movement, "--quick")
    result = run(*command, "--out", tmp_path / "r.html")
    assert result.exit_code == 0, result.output


def test_simulate_writes_the_true_states(several, movement, tmp_path):
    fit = several[0] / "fit.avem"
    command = ("simulate", fit, "--data", movement, "--seed", 4, "--states", "truth")
    result = run(*command, "--out", tmp_path / "made.csv")
    assert result.exit_code == 0, result.output
    made = pd.read_csv(tmp_path / "made.csv")
    rows = pd.read_csv(movement)
    np.testing.assert_array_equal(made["truth"], avem.load(fit).simulate(rows, seed=4).states)
    means = made.groupby("truth")["step"].mean()
    assert means[1] > 3 * means[0]
    result = run(*command[:-1], "x", "--out", tmp_path / "no.csv")
    assert result.exit_code == 2
    assert "there is a column 'x' already" in result.stderr
    result = run("simulate", fit, "--subjects", 3, "--times", 4, "--out", tmp_path / "no.csv")
    assert result.exit_code == 2
    assert "Give --data with the covariates" in result.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.usefixtures("blank_pictures")
def test_one_formula_of_another_family(movement, tmp_path):
    out = tmp_path / "out"
    result = run(
        *("fit", movement, "--formula", "side ~ x", "--family", "bernoulli", "--subject", "id"),
        *("--states", 2, "--time", "t", "--starts", 1, "--initial", "stationary", "--out", out),
    )
    assert result.exit_code == 0, result.output
    fit = avem.load(out / "fit.avem")
    assert fit.model.stationary
    ((family,),) = fit.model.families
    assert family == avem.Bernoulli(("left", "right"))
    assert sorted(path.name for path in out.iterdir()) == sorted({*FILES, *PLOTS} - {"effects.png"})
    size = ("--subjects", 2, "--times", 3)
    result = run("simulate", out / "fit.avem", *size, "--out", tmp_path / "new.csv")
    assert "no column 'x'" in result.stderr
    result = run("decode", out / "fit.avem", movement, "--out", tmp_path / "states.csv")
    assert (tmp_path / "states.csv").read_text() == (out / "states.csv").read_text()
    result = run("predict", out / "fit.avem", movement, "--out", tmp_path / "ahead.csv")
    assert result.exit_code == 2
    assert "needs 'x' at every step ahead" in result.stderr
    assert "Here that is --future FILE" in result.stderr


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


def test_a_folder_of_files_is_read_as_one(fitted, data, tmp_path):
    out, folder = fitted[0], tmp_path / "days"
    folder.mkdir()
    head, *lines = data.read_text(encoding="utf-8").splitlines()
    for name, rows in (("a", lines[:37]), ("b", lines[37:])):
        (folder / f"{name}.csv").write_text("\n".join([head, *rows]), encoding="utf-8")
    codes = ["--missing-code", "-99", "--missing-code", "."]
    for where, name in ((folder, "one.csv"), (folder / "*.csv", "two.csv")):
        result = run("decode", out / "fit.avem", where, *codes, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert (tmp_path / name).read_text() == (out / "states.csv").read_text()
    assert table_ending(folder, None) == ".csv"
    spread = run("fit", folder / "a.csv", str(folder / "b.csv"), "--states", 2, "--out", tmp_path)
    assert "is a file, and a formula is wanted there" in spread.stderr
    spread = run("fit", "a.csv", "b.csv", "c.csv", "--states", 2, "--out", tmp_path)
    assert "pattern of files, need quotes" in spread.stderr


def test_predict_knows_the_data_of_the_fit(fitted, data, tmp_path):
    fit, codes = fitted[0] / "fit.avem", ["--missing-code", "-99", "--missing-code", "."]
    ahead = ("predict", fit, data, *codes, "--horizon", 2, "--out", tmp_path / "ahead.csv")
    result = run(*ahead)
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "ahead.csv", dtype={"who": str})
    assert table["step"].tolist() == [1, 2] * 6
    frame = pd.read_csv(data, dtype={"who": str}, na_values=["-99", "."])
    expected = avem.load(fit).with_data(frame).predict(horizon=2)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)


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


@pytest.mark.usefixtures("blank_pictures")
def test_summary_and_report(fitted, data, tmp_path):
    out, _ = fitted
    result = run("summary", out / "fit.avem")
    assert (result.exit_code, result.stdout) == (0, (out / "summary.txt").read_text())
    codes = ["--missing-code", "-99", "--missing-code", "."]
    command = ("report", out / "fit.avem", *codes, "--data")
    result = run(*command, data, "--out", tmp_path / "report.html")
    assert result.exit_code == 0, result.output
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "MB)" in result.stdout
    twice = run(*command, data, data, "--out", tmp_path / "twice.html")
    assert twice.exit_code == 2
    assert "twice: as DATA and as --data" in twice.stderr
    pd.read_csv(data, dtype=str).iloc[1:].to_csv(tmp_path / "other.csv", index=False)
    result = run(*command, tmp_path / "other.csv", "--out", tmp_path / "other.html")
    assert result.exit_code == 2
    assert "These are not the data of the fit: 119 rows" in result.stderr


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


def test_shells_complete_commands_and_options():
    def completed(*words):
        shell = {"_AVEM_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words)}
        shell["COMP_CWORD"] = str(len(words) - 1)
        result = CliRunner().invoke(app, [], prog_name="avem", env=shell)
        return result.stdout.split()

    assert sorted(completed("avem", "de")) == ["decode", "demo"]
    assert "--standard-errors" in completed("avem", "fit", "--sta")
    assert "--install-completion" in run("--help").stdout


def test_in_a_process_of_its_own(tmp_path):
    """python -m avem: an error without a traceback."""
    process = start("summary", tmp_path / "absent.avem")
    said = (*process.communicate(), process.returncode)
    assert said == ("", f"avem: There is no file '{tmp_path / 'absent.avem'}'.\n", 2)


@pytest.mark.slow
def test_compiled_code_is_kept(data, options, tmp_path):
    cache = str(tmp_path / "cache")
    alike = ("y ~ 1", "--subject", "who")  # without effects there is less to compile
    fit = ("fit", data, *alike, "--states", 2, *options, "--no-plots", "--out", tmp_path / "out")
    kept = {"XDG_CACHE_HOME": cache, "LOCALAPPDATA": cache}
    process = start(*fit, **kept, AVEM_NO_CACHE="0", AVEM_NATIVE="0")
    _, said = process.communicate()
    assert (said, process.returncode) == ("", 0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    assert list((tmp_path / "cache" / "avem").rglob("jit_*-cache"))  # what is in C++: test_cpp.py


def test_a_cache_that_cannot_be_written_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    assert cache_folder() is None
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "folder"))
    folder = cache_folder()
    assert folder is not None
    assert folder.is_dir()
    assert folder.is_relative_to(tmp_path / "folder" / "avem")


@pytest.mark.usefixtures("ctrl_c")
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


# --- how tables are written ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def parquet(data, tmp_path_factory):
    """The same rows in Parquet."""
    pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("parquet") / "data.parquet"
    rows = pd.read_csv(data, dtype={"who": str}, na_values={"y": ["-99", "."]})
    rows.to_parquet(path, index=False)
    return path


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("word", [None, "csv"])
def test_tables_are_written_as_the_data_were_read(fitted, parquet, options, tmp_path, word):
    more = [] if word is None else ["--format", word]
    command = ["fit", parquet, FORMULA, "--states", 2, *options, "--no-plots", "--out", tmp_path]
    result = run(*command, *more)
    assert result.exit_code == 0, result.output
    ending, read = (".parquet", pd.read_parquet) if word is None else (".csv", pd.read_csv)
    names = {path.name for path in tmp_path.iterdir() if path.suffix in (".csv", ".parquet")}
    assert names == {f"{table}{ending}" for table in ("parameters", "effects", "states")}
    assert all(str(tmp_path / name) in result.stdout for name in names)
    for name in names:
        found, usual = read(tmp_path / name), pd.read_csv(fitted[0] / f"{Path(name).stem}.csv")
        if "who" in found:
            assert found["who"].astype(int).tolist() == usual["who"].astype(int).tolist()
        for column in usual.select_dtypes(float):
            np.testing.assert_allclose(found[column].astype(float), usual[column], atol=1e-6)
    again = run(*command, *more)
    assert (again.exit_code, f"states{ending}" in again.stderr) == (2, True)


def test_a_wrong_format_is_told_before_the_work(data, tmp_path):
    command = ["fit", data, FORMULA, "--states", 2, "--out", tmp_path, "--format"]
    result = run(*command, "parkett")
    assert (result.exit_code, "csv or parquet is wanted" in result.stderr) == (2, True)
    result = run(*command, "parket")
    assert "Did you mean 'parquet'?" in result.stderr


def test_without_pyarrow_parquet_is_refused_before_the_work(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "fastparquet", None)
    command = ["fit", data, FORMULA, "--states", 2, "--out", tmp_path, "--format", "parquet"]
    result = run(*command)
    assert (result.exit_code, "pip install 'avem[parquet]'" in result.stderr) == (2, True)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("blank_pictures")
def test_batches_are_those_of_the_method(data, options, tmp_path):
    command = ["fit", data, FORMULA, "--states", 2, *options, "--out", tmp_path]
    result = run(*command, "--batch-size", 0)
    assert (result.exit_code, "batch_size is 0" in result.stderr) == (2, True)
    result = run(*command, "--batch-size", 2, "--method", "adaptive")
    assert "batch_size goes with method='avem'" in result.stderr
    result = run(*command, "--batch-size", 3, "--method", "avm")
    assert "Did you mean 'avem'?" in result.stderr
    result = run(*command, "--batch-size", 3, "--refine", "never", "--no-plots")
    assert result.exit_code in (0, 3), result.output
    assert avem.load(tmp_path / "fit.avem").info.batch_size == 3


def test_the_help_says_what_methods_and_batches_are():
    words = " ".join(run("fit", "--help").stdout.replace("│", " ").split())
    for word in ("--method", "--batch-size", "--format", "monte_carlo", "many thousand subjects"):
        assert word in words
    assert "geometric (as there)" in words
    words = " ".join(run("fit-ssm", "--help").stdout.replace("│", " ").split())
    assert "move the states: '~ 0 + x'" in words
    assert "the first outcome loads on the first state alone" in words
    assert "lowest first" not in words


def test_a_report_has_the_title_it_is_given(fitted, tmp_path, monkeypatch):
    given = {}

    def report(self, path, **options):
        given.update(options)
        path.write_text("page", encoding="utf-8")

    monkeypatch.setattr(avem.Fit, "report", report)
    command = ["report", fitted[0] / "fit.avem", "--out"]
    assert run(*command, tmp_path / "one.html").exit_code == 0
    assert given["title"] is None
    result = run(*command, tmp_path / "two.html", "--title", "Sleep & mood")
    assert result.exit_code == 0, result.output
    assert given["title"] == "Sleep & mood"


def test_every_state_needs_a_name(data, options, tmp_path):
    command = ["fit", data, FORMULA, "--states", 2, *options, "--out", tmp_path / "out"]
    result = run(*command, "--state-names", "low, high,higher")
    assert result.exit_code == 2
    assert "3 names, ['low', 'high', 'higher'], and the model has 2 states" in result.output
    assert not (tmp_path / "out" / "fit.avem").exists()
