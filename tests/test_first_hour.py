"""Scripts of four users: their answers against the truth that made their data.

Every question is a comment in a script's `main`, followed by at most three lines of code.
"""

import ast
import io
import re
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from tests.chosen import chosen

FOLDER = Path(__file__).parents[1] / "examples" / "first_hour"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
LEAST_HELD = 0.8
"""Of nominal 95% intervals of some ten subjects, the share that holds the truth at the least."""


def ask(name, folder, blank):
    """What a script printed, wrote and knows to be true."""
    script, printed = import_module(f"examples.first_hour.{name}"), io.StringIO()
    with blank(), redirect_stdout(printed):
        script.main(folder)
    return SimpleNamespace(script=script, truth=script.TRUTH, out=folder, text=printed.getvalue())


@pytest.fixture(scope="module")
def psychologist(tmp_path_factory, blank):
    return ask("psychologist", tmp_path_factory.mktemp("diary"), blank)


@pytest.fixture(scope="module")
def ecologist(tmp_path_factory, blank):
    return ask("ecologist", tmp_path_factory.mktemp("tracks"), blank)


@pytest.fixture(scope="module")
def neuroscientist(tmp_path_factory, blank):
    return ask("neuroscientist", tmp_path_factory.mktemp("trials"), blank)


@pytest.fixture(scope="module")
def data_scientist(tmp_path_factory, blank):
    return ask("data_scientist", tmp_path_factory.mktemp("log"), blank)


@pytest.fixture(params=chosen(SCRIPTS, ("psychologist",)))
def user(request):
    return request.getfixturevalue(request.param)


# --- of all -------------------------------------------------------------------------------------


def questions(name):
    """The questions of a script, each with its lines of code."""
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    main = next(node for node in ast.parse(source).body if getattr(node, "name", "") == "main")
    body = source.splitlines()[main.lineno : main.end_lineno]
    blocks = [block.splitlines() for block in "\n".join(body).split("\n\n")]
    first = next(k for k, block in enumerate(blocks) if block[0].lstrip().startswith("#"))
    return {block[0].strip(): block[1:] for block in blocks[first:]}


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_question_takes_more_than_three_lines(name):
    asked = questions(name)
    assert len(asked) >= 10
    for question, code in asked.items():
        assert question.startswith("# "), f"{name}: {question} is no question"
        assert "?" in question, f"{name}: {question}"
        assert 1 <= len(code) <= 3, f"{name}: {question} takes {len(code)} lines"
        assert not any(";" in line or line.lstrip().startswith("#") for line in code), question


def test_there_are_four_users():
    assert SCRIPTS == ["data_scientist", "ecologist", "neuroscientist", "psychologist"]


def test_reports_have_titles_and_states(user):
    page = (user.out / "report.html").read_text(encoding="utf-8")
    source = Path(user.script.__file__).read_text(encoding="utf-8")
    title = re.search(r'title="(.*?)"', source)
    assert title
    assert f"<h1>{title[1]}</h1>" in page
    for state in user.script.MODEL.spec.state_names:
        assert state in page


def test_tables_for_papers_parse(user):
    (path,) = user.out.glob("table.*")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".tex":
        begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
        assert begun == ended[::-1] == ["table", "tabular"]
        rows = [line for line in text.splitlines() if line.startswith(r"\quad")]
        assert {row.count("&") for row in rows} == {5}
    else:
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) == 1
    assert len(rows) >= 8


def test_pictures_are_there(user):
    pictures = list(user.out.glob("*.png"))
    assert len(pictures) >= 2
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_the_true_model_is_preferred_and_diagnosed(user):
    better = {"psychologist": "stress", "ecologist": "temperature"}
    better |= {"neuroscientist": "two states", "data_scientist": "pushes"}
    name = user.script.__name__.rpartition(".")[2]
    assert f"Best by BIC: {better[name]};" in user.text
    assert "of the information lost" in user.text


# --- answers and truth --------------------------------------------------------------------------


def check_moves(table, user):
    """A covariate's coefficients: every interval holds the truth, and p finds those that act."""
    names = list(user.script.MODEL.spec.state_names)
    assert len(table) == 2
    for row in table.to_dict("records"):
        there = names.index(row["state"]), names.index(row["to_state"]), 1
        truth = np.array(user.truth["transition_coef"])[there]
        assert row["lower"] < truth < row["upper"]
        assert row["ratio_lower"] < np.exp(truth) < row["ratio_upper"]
        assert (row["p"] < 0.05) == (truth != 0)


def check_dwell(table, user, at):
    """Expected rows per visit where the covariate has a value."""
    moves = chances(user.truth, at)
    for k, row in enumerate(table.to_dict("records")):
        assert row["state"] == user.script.MODEL.spec.state_names[k]
        assert row["lower"] < 1 / (1 - moves[k, k]) < row["upper"]


def check_subjects(table, levels):
    """Own coefficients, in the rows' order; `levels`: (subjects, states) true ones."""
    held = (table["lower"] < levels.ravel()) & (levels.ravel() < table["upper"])
    assert held.mean() >= LEAST_HELD
    for k in range(levels.shape[1]):
        assert np.corrcoef(table["estimate"][k :: levels.shape[1]], levels[:, k])[0, 1] > 0.7


def chances(truth, at):
    """The true transition matrix of two states where the covariate is `at`."""
    there, back = (expit(np.array(truth["transition_coef"])[k, 1 - k] @ [1, at]) for k in (0, 1))
    return np.array([[1 - there, there], [back, 1 - back]])


def follow(states, names, moves):
    """Probabilities of the states after some moves, from those in which sequences ended."""
    probability = np.equal.outer(np.asarray(states), names).astype(float)
    for move in moves:
        probability = np.einsum(
            "nk,nkl->nl", probability, np.broadcast_to(move, (len(states), 2, 2))
        )
    return probability


def level(user, name="coef"):
    """The true intercepts, state by state."""
    return np.array(user.truth[name])[:, 0, 0]


def test_psychologist(psychologist):
    user = psychologist
    diary, states, effects = user.script.make_diary()
    read = {path.stem: pd.read_csv(path) for path in user.out.glob("*.csv")}
    assert (read["states"]["state"] == states).mean() > 0.93
    check_subjects(read["persons"], level(user, "mood.coef") + effects)
    check_dwell(read["dwell"], user, 0)
    check_moves(read["stress"], user)
    assert (read["whiteness"][["p_white", "p_normal"]] > 0.01).all(axis=None)
    ended = np.flatnonzero(~diary.duplicated(["person", "day"], keep="last") & (diary["day"] == 10))
    ahead = read["forecast"].query("step == 3 and outcome == 'mood'")
    found = follow(
        states[ended], user.script.MODEL.spec.state_names, [chances(user.truth, 1.5)] * 3
    )
    mean = (found * (level(user, "mood.coef") + effects)).sum(axis=1)
    assert (ahead["person"].to_numpy() == diary["person"].unique()).all()
    assert np.corrcoef(ahead["mean"], mean)[0, 1] > 0.8
    assert ahead["mean"].mean() == pytest.approx(mean.mean(), abs=2)
    assert ((ahead["lower"] < mean) & (mean < ahead["upper"])).all()


@pytest.mark.slow
def test_ecologist(ecologist):
    user = ecologist
    positions, states, effects = user.script.make_tracks()
    read = {path.stem: pd.read_csv(path) for path in user.out.glob("*.csv")}
    seen = read["states"]["step"].notna().to_numpy()
    assert (read["states"]["state"] == states)[seen].mean() > 0.93
    step = np.hypot(*(positions.groupby("animal")[c].diff(-1) for c in "xy"))
    np.testing.assert_allclose(read["states"]["step"], step)
    check_subjects(read["animals"], np.exp(level(user, "step.coef") + effects))
    check_dwell(read["dwell_cool"], user, 10)
    check_dwell(read["dwell_warm"], user, 20)
    check_moves(read["temperature"], user)
    assert (read["whiteness"][["p_white", "p_normal"]] > 0.01).all(axis=None)
    ahead = read["forecast"].query("step == 6 and state == 'travels'")["probability"]
    ended = np.flatnonzero(~positions.duplicated("animal", keep="last"))
    names = user.script.MODEL.spec.state_names
    found = follow(states[ended], names, [chances(user.truth, 25)] * 6)[:, 1]
    np.testing.assert_allclose(ahead, found, atol=0.12)


@pytest.mark.slow
def test_neuroscientist(neuroscientist):
    user = neuroscientist
    trials, states, effects = user.script.make_trials()
    read = {path.stem: pd.read_csv(path) for path in user.out.glob("*.csv")}
    own = trials.columns.tolist()
    pd.testing.assert_frame_equal(read["trials"][own], trials, check_dtype=False)
    likely = np.where(read["trials"]["engaged"] > 0.5, "engaged", "biased")
    assert (likely == states).mean() > 0.85
    shares = read["sessions"].query("state == 'engaged'").set_index(["mouse", "session"])
    truth = pd.Series(states == "engaged").groupby([trials["mouse"], trials["session"]]).mean()
    assert abs(shares["share"] - truth).max() < 0.25
    assert np.corrcoef(shares["share"], truth)[0, 1] > 0.9
    np.testing.assert_allclose(read["sessions"].groupby(["mouse", "session"])["share"].sum(), 1)
    check_subjects(read["mice"], level(user) + effects)
    check_dwell(read["dwell_early"], user, 0)
    check_dwell(read["dwell_late"], user, 1)
    check_moves(read["late"], user)
    ended = np.flatnonzero(~trials.duplicated(["mouse", "session"], keep="last"))
    names = user.script.MODEL.spec.state_names
    found = follow(states[ended], names, [chances(user.truth, 1)] * 10)
    mean = (found * expit(np.array(user.truth["coef"])[:, 0] @ [1, -1])).sum(axis=1)
    ahead = read["forecast"].query("step == 10")
    assert ahead["mean"].mean() == pytest.approx(mean.mean(), abs=0.08)
    checked = re.findall(r"^ *(?:mean|autocorrelation) +choice.* ([\d.]+)$", user.text, re.M)
    assert len(checked) == 2
    assert min(map(float, checked)) > 0.05


@pytest.mark.slow
def test_data_scientist(data_scientist, tmp_path):
    user = data_scientist
    log, states, effects = user.script.make_log(tmp_path)
    read = {path.stem: pd.read_parquet(path) for path in user.out.rglob("*.parquet")}
    rows, users = log.to_pandas(), log["user"].unique(maintain_order=True).to_numpy()
    rows["truth"] = states
    decoded = read["states"].merge(rows, on=["user", "day"], validate="1:1")
    assert len(decoded) == len(rows) == len(read["log"])
    assert (decoded["state"] == decoded["truth"]).mean() > 0.9
    by_user = read["users"].sort_values("user", kind="stable")
    check_subjects(by_user.reset_index(), np.exp(level(user) + effects)[np.argsort(users)])
    check_dwell(read["dwell"], user, 0)
    check_moves(read["push"], user)
    planned = read["planned"].pivot(index="user", columns="day", values="push").loc[users]
    moves = [np.array([chances(user.truth, push) for push in planned[day]]) for day in planned]
    last = rows.groupby("user")["truth"].last().loc[users]
    found = follow(last, user.script.MODEL.spec.state_names, moves)
    mean = pd.Series((found * np.exp(level(user) + effects)).sum(axis=1), users)
    ahead = read["forecast"].query("step == 7").set_index("user")["mean"].loc[users]
    assert ahead.mean() == pytest.approx(mean.mean(), rel=0.1)
    assert np.corrcoef(ahead, mean)[0, 1] > 0.8
