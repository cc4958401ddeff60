"""States as they happen: against all paths on a dense grid, and row by row against all at once."""

import json
import pickle
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import norm

import avem
from avem.data import Panel
from avem.effects.cover import Cover
from avem.errors import AvemWarning, DataError, FileError, ModelError
from avem.fits.monitor_start import begun
from avem.inference.after.filtering import filter_rows, population
from tests.brute import enumerate_paths, gaussian_table, log_sum
from tests.components.test_new_transitions import LeftToRight
from tests.fits.kinds import (
    CHAIN,
    CUSTOM,
    KINDS,
    fit_from,
    fit_of,
    log_prob,
    model_of,
    ssm_fit,
    true_fit,
)
from tests.fits.test_predict import (
    GRID,
    INITIAL,
    KEYS,
    MODEL,
    MOVES,
    NEW,
    SEEN,
    TRUTH,
    log_prior,
    sequences,
    table_of,
)


@pytest.fixture(scope="module")
def fit():
    return MODEL.fit(SEEN, **KEYS, init=TRUTH, fixed=TRUTH, refine=None)


def prefixes(table):
    """For each row, (grid,) log p(rows so far | effect) and (grid, states) given them, by paths."""
    for t in range(1, table.shape[1] + 1):
        paths, joint = enumerate_paths(INITIAL, MOVES, table[:, :t])
        ends = [np.logaddexp.reduce(joint[:, paths[:, -1] == k], axis=1) for k in range(2)]
        height = np.logaddexp(*ends)
        yield height, np.exp(np.stack(ends, axis=1) - height[:, None])


def brute(frame):
    """By row: filtered probabilities; per subject: mean, sd of its effect and log p in the end."""
    states, after = [], {}
    for who, own in frame.groupby("who", sort=False):
        total = log_prior()
        for day in own["day"].drop_duplicates():
            rows = own[own["day"] == day].sort_values("t")
            for (height, given), label in zip(prefixes(table_of(rows)), rows.index, strict=True):
                share = np.exp(total + height - log_sum(total + height))
                states.append(pd.Series(share @ given, name=label))
            total = total + height
        share = np.exp(total - log_sum(total))
        mean = share @ GRID
        after[who] = mean, np.sqrt(share @ (GRID - mean) ** 2), log_sum(total)
    return pd.DataFrame(states).reindex(frame.index).to_numpy(), after


def in_order(frame):
    """Rows of one subject as a stream has them."""
    days = frame["day"].drop_duplicates().tolist()
    return pd.concat([frame[frame["day"] == day].sort_values("t") for day in days])


# --- evidence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, NEW], ids=["own", "new"])
def test_filtering_is_the_sum_over_all_paths_so_far_on_a_dense_grid(fit, data):
    frame = SEEN if data is None else data
    found = fit.filter(data)
    assert (found.index == frame.index).all()
    np.testing.assert_allclose(found.to_numpy(), brute(frame)[0], atol=2e-7)


def test_a_monitor_agrees_with_the_dense_grid(fit):
    states, after = brute(NEW)
    for who, own in NEW.groupby("who"):
        monitor = fit.monitor(subject=who)
        for label, row in in_order(own).iterrows():
            new = monitor.update(row)
            wanted = states[NEW.index.get_loc(label)]
            np.testing.assert_allclose(list(new.states.values()), wanted, atol=1e-5)
        mean, sd, height = after[who]
        np.testing.assert_allclose(new.effects[["mean", "sd"]], [[mean, sd]], rtol=1e-5)
        assert abs(monitor.loglik - height) < 1e-5
        assert abs(fit.monitor(own).loglik - height) < 1e-7


def test_the_last_row_of_a_sequence_of_one_subject_is_smoothed_already(fit):
    """The identity with what a forward and a backward pass say together, at the same effects."""
    own = NEW[NEW["who"] == "z"]
    last = in_order(own).index[-1]
    at = fit.filter(own).loc[last]
    one_effect = fit.monitor(own, n_nodes=400).states
    np.testing.assert_allclose(at, list(one_effect.values()), atol=1e-8)


STAYS = avem.MixedHMM(
    "y ~ x + (1 | who)", 2, duration=avem.Duration("negative_binomial", "~ x + (1 | who)", max=9)
)
CLOCK = avem.MixedHMM("y ~ 1 + (1 | who)", 2, time_scale="continuous", transition="~ x")
LAGGED = avem.MixedHMM(
    "y ~ x + lag(y) + lag(x, 2) + (1 | who)", 2, transition="~ lag(x)", known="mark"
)
SHARES = avem.MixedHMM("a + b ~ x + (1 | who)", 2, "dirichlet")


def frame_of(hmm, seed=1):
    """Three subjects of two sessions."""
    rng = np.random.default_rng(seed)
    rows = [(w, s, t) for w in "pqr" for s in range(2) for t in range(7)]
    frame = pd.DataFrame(rows, columns=["who", "day", "t"])
    frame["t"] = frame["t"] + rng.uniform(0, 0.5, len(frame)).round(2)
    frame["x"] = rng.standard_normal(len(frame)).round(2)
    frame["y"] = rng.normal(1.0, 2.0, len(frame)).round(2)
    frame["a"] = rng.uniform(0.1, 0.9, len(frame)).round(3)
    frame["b"] = 1 - frame["a"]
    frame["mark"] = np.where(rng.uniform(size=len(frame)) < 0.2, 1.0, np.nan)
    frame.loc[4, ["y", "a", "b"]] = np.nan
    return frame


def some_fit(hmm):
    """At coefficients that are drawn: nothing is fitted."""
    panel = Panel.from_frame(frame_of(hmm), "who", "t", "day")
    model = model_of(hmm, panel)
    rng, theta = np.random.default_rng(3), model.middle()
    for key in [key for key in theta if key.endswith("coef")]:
        theta[key] = theta[key] + 0.5 * rng.standard_normal(theta[key].shape)
    return true_fit(hmm, model.params_out(theta), panel, np.zeros((3, model.n_effects)))


def both_ways(fit, frame):
    """Filtered probabilities of one subject's rows, one by one and all at once, at a few nodes."""
    encoded = fit._encode(frame)
    prior = population(fit.theta["effect_covariance"], 1)
    cover = Cover.make(prior, prior, 12)
    whole = filter_rows(encoded, fit.theta, cover).states
    monitor = begun(fit, cover, frame["who"].iloc[0])
    monitor.enough = 0.0
    rows = frame.iloc[encoded.panel.order]
    states = [list(monitor.update(row).states.values()) for _, row in rows.iterrows()]
    return pd.DataFrame(states, index=rows.index).reindex(frame.index).to_numpy(), whole, monitor


@pytest.mark.parametrize("kind", KINDS)
def test_row_by_row_is_all_at_once_in_every_family(kind):
    fit = fit_of(kind)
    frame = fit.panel.table
    own = frame[frame["who"] == "s0"].iloc[:12]  # a value is missing in row 7
    found, whole, _ = both_ways(fit, own)
    np.testing.assert_allclose(found, whole, atol=1e-10, rtol=0)
    assert np.abs(whole - whole[0]).max() > 0.05


@pytest.mark.parametrize(
    "hmm", [STAYS, CLOCK, LAGGED, SHARES], ids=["stays", "clock", "lags", "shares"]
)
def test_row_by_row_is_all_at_once_with_durations_clocks_lags_and_marks(hmm):
    fit = some_fit(hmm)
    frame = frame_of(hmm)
    own = frame[frame["who"] == "q"]
    found, whole, monitor = both_ways(fit, own)
    np.testing.assert_allclose(found, whole, atol=1e-10, rtol=0)
    history = begun(fit, Cover.make(*[population(fit.theta["effect_covariance"], 1)] * 2, 12), "q")
    history.enough = 0.0
    history.follow(fit._encode(own).panel)
    assert abs(history.loglik - monitor.loglik) < 1e-9
    row = own.iloc[-1].to_dict() | {"t": 99.0, "x": 0.3}
    np.testing.assert_allclose(
        list(history.update(row).states.values()), list(monitor.update(row).states.values())
    )
    if hmm is LAGGED:
        np.testing.assert_allclose(whole[own["mark"].notna(), 1], 1.0)


def test_durations_against_the_chain_that_counts_rows():
    """Filtering in the Markov chain of (state, row of the stay), built here."""
    hmm = avem.MixedHMM("y ~ 1", 2, duration=avem.Duration("free", max=3))
    frame = frame_of(hmm)
    fit = some_fit(hmm)
    own = frame[frame["who"] == "p"].assign(day=0, t=range(14))
    d = fit.params["duration"]
    reach = np.cumsum(d[:, ::-1], axis=1)[:, ::-1]
    leave = np.where(reach > 1e-14, d / np.where(reach > 1e-14, reach, 1.0), 1.0)
    sd = np.sqrt(fit.params["variance"][:, 0])
    chain = np.zeros((2, 3, 2, 3))
    for k in range(2):
        for u in range(3):
            chain[k, u, 1 - k, 0] += leave[k, u]
            chain[k, u, k, min(u + 1, 2)] += 1 - leave[k, u]
    now = fit.params["initial"][:, None] * fit_phase(fit, reach)
    wanted = []
    for t, y in enumerate(own["y"]):
        if t:
            now = np.einsum("ku,kulv->lv", now, chain)
        if not np.isnan(y):
            now = now * norm.pdf(y, fit.params["coef"][:, 0, 0], sd)[:, None]
        now = now / now.sum()
        wanted.append(now.sum(1))
    np.testing.assert_allclose(fit.filter(own), wanted, atol=1e-8)


def fit_phase(fit, reach):
    """(states, rows of a stay) where the first row is in its stay."""
    if not fit.model.duration.duration.cuts[0]:
        return np.eye(1, 3)
    return reach / reach.sum(1, keepdims=True)


def test_nothing_that_comes_later_counts(fit):
    own = in_order(NEW[NEW["who"] == "b"])
    early, whole = fit.filter(own.iloc[:3]), fit.filter(own)
    np.testing.assert_allclose(early, whole.iloc[:3], atol=1e-6)
    assert (whole - fit.state_probabilities(own)).abs().to_numpy().max() > 0.01


def test_what_the_fit_knows_of_its_subjects_can_come_first(fit):
    """Rows of the fit and later ones, or later ones from where the fit's left the effects."""
    mine = fit.filter(NEW, effects="integrated")
    other = fit.filter(NEW)
    strangers = NEW["who"] == "z"
    np.testing.assert_allclose(mine[strangers], other[strangers], atol=1e-6)
    assert (mine - other)[~strangers].abs().to_numpy().max() > 0.005
    # The fit keeps the Gaussian form of the posterior, so that the grid of it is the reference.
    mean, sd = fit.effects_mean[1, 0], np.sqrt(fit.effects_cov[1, 0, 0])
    log_start = norm.logpdf(GRID, mean, sd) + np.log(GRID[1] - GRID[0])
    rows = sequences(NEW[NEW["who"] == "b"])
    first = in_order(NEW[NEW["who"] == "b"]).iloc[0]
    sequence = next(own for own in rows if own["day"].iloc[0] == first["day"])
    height, given = next(prefixes(table_of(sequence)))
    share = np.exp(log_start + height - log_sum(log_start + height))
    np.testing.assert_allclose(mine.loc[first.name], share @ given, atol=1e-6)
    monitor = fit.monitor(subject="b", effects="integrated")
    np.testing.assert_allclose(
        list(monitor.update(first).states.values()), share @ given, atol=1e-5
    )


def test_two_effects_against_a_dense_grid():
    """A level and a slope, which lie askew in the posterior."""
    hmm = avem.MixedHMM("y ~ x + (1 + x | who)", 2)
    params = CHAIN | {
        "coef": [[[0.0, 0.5]], [[2.0, -0.5]]],
        "variance": [[1.0], [0.6]],
        "effect_covariance": [[0.8, 0.3], [0.3, 0.5]],
    }
    frame = frame_of(hmm)[["who", "t", "x", "y"]].assign(t=np.tile(np.arange(14.0), 3))
    frame = frame[frame["t"] < 6]
    fit = fit_from(hmm, params, frame, np.zeros((3, 2)))
    own = frame[frame["who"] == "q"]
    line = np.linspace(-5.5, 5.5, 111)
    f = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    sigma = np.array(params["effect_covariance"])
    log_weight = -0.5 * np.einsum("nd,de,ne->n", f, np.linalg.inv(sigma), f)
    y, x = own["y"].to_numpy(), own["x"].to_numpy()
    coef = np.array(params["coef"])[:, 0]
    mean = coef[:, 0] + x[:, None] * coef[:, 1] + (f[:, [0]] + f[:, [1]] * x)[:, :, None]
    table = gaussian_table(y[:, None], mean[..., None], np.array([[[1.0]], [[0.6]]]))
    wanted = []
    for t in range(1, 7):
        paths, joint = enumerate_paths(
            np.array(CHAIN["initial"]), np.array(CHAIN["transition"]), table[:, :t]
        )
        ends = np.stack(
            [np.logaddexp.reduce(joint[:, paths[:, -1] == k], axis=1) for k in range(2)]
        )
        mass = np.exp(ends + log_weight - log_sum(ends + log_weight))
        wanted.append(mass.sum(1))
    np.testing.assert_allclose(fit.filter(own), wanted, atol=1e-5)


# --- forecasts ------------------------------------------------------------------------------------


def test_the_forecast_is_that_of_predict(fit):
    own = NEW[NEW["who"] == "z"]
    monitor = fit.monitor(own, n_nodes=200)
    for of, column in (("states", "probability"), ("outcomes", "mean")):
        whole = fit.predict(own, horizon=1, of=of)
        last = in_order(own)["day"].iloc[-1]
        found, wanted = monitor.forecast(of=of), whole[whole["day"] == last]
        names = [column] if of == "states" else ["mean", "sd", "lower", "upper"]
        np.testing.assert_allclose(found[names], wanted[names], rtol=1e-3)


def test_covariates_ahead_are_asked_for_and_read():
    fit = fit_of("counts")
    frame = fit.panel.table
    own = frame[frame["who"] == "s2"].assign(who="new")
    monitor = fit.monitor(own.iloc[:9], n_nodes=200)
    with pytest.raises(DataError, match=r"A forecast needs 'x' of the next row. Pass future="):
        monitor.forecast()
    with pytest.raises(DataError, match=r"future has 'z'; what this model needs ahead is 'x'"):
        monitor.forecast({"x": 1.0, "z": 2.0})
    with pytest.raises(DataError, match="At the steps ahead: The covariate 'x' is infinite"):
        monitor.forecast({"x": np.inf})
    new = monitor.update(own.iloc[9], future={"x": own["x"].iloc[10]})
    whole = fit.predict(own.iloc[:10], horizon=1, future={"x": own["x"].iloc[10]})
    np.testing.assert_allclose(new.forecast["mean"], whole["mean"], rtol=2e-3)
    np.testing.assert_allclose(new.forecast["upper"], whole["upper"], rtol=2e-3)
    before = new.states
    monitor.update(own.iloc[10])
    assert new.states == before != monitor.states  # a record of its time


# --- where it is sent -----------------------------------------------------------------------------


def test_it_can_be_pickled_and_saved_and_goes_on(fit, tmp_path):
    own = in_order(NEW[NEW["who"] == "z"])
    monitor = fit.monitor(own.iloc[:3])
    monitor.save(tmp_path / "z.monitor")
    copies = [pickle.loads(pickle.dumps(monitor)), avem.Monitor.load(tmp_path / "z.monitor")]
    for copy in copies:
        assert repr(copy) == repr(monitor)
        assert copy.loglik == monitor.loglik
        for _, row in own.iloc[3:].iterrows():
            copy.update(row)
    for _, row in own.iloc[3:].iterrows():
        monitor.update(row)
    for copy in copies:
        assert copy.states == monitor.states
        assert copy.effects.equals(monitor.effects)
        assert copy.forecast().equals(monitor.forecast())
    monitor.save(tmp_path / "one")
    copies[1].save(tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.slow
def test_another_process_goes_on(fit, tmp_path):
    own = in_order(NEW[NEW["who"] == "z"])
    monitor = fit.monitor(own.iloc[:3])
    monitor.save(tmp_path / "z.monitor")
    row = own.iloc[3].to_dict()
    code = (
        "import sys, json, avem; m = avem.Monitor.load(sys.argv[1]);"
        "print(json.dumps(m.update(json.loads(sys.argv[2])).states))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "z.monitor"), json.dumps(row)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wanted = monitor.update(row).states
    np.testing.assert_allclose(list(json.loads(told).values()), list(wanted.values()), atol=1e-12)


@pytest.mark.parametrize(
    "hmm", [pytest.param(STAYS, marks=pytest.mark.slow), LAGGED], ids=["stays", "lags"]
)
def test_what_is_kept_of_the_past_is_in_the_file(hmm, tmp_path):
    fit, frame = some_fit(hmm), frame_of(hmm)
    own = frame[frame["who"] == "q"]
    monitor = fit.monitor(own.iloc[:10])
    monitor.save(tmp_path / "q.monitor")
    loaded = avem.Monitor.load(tmp_path / "q.monitor")
    for _, row in own.iloc[10:].iterrows():
        assert loaded.update(row).states == monitor.update(row).states


def test_a_custom_family_is_given_again(tmp_path):
    fit = fit_of("custom")
    own = fit.panel.table.iloc[:5]
    monitor = fit.monitor(own)
    monitor.save(tmp_path / "c.monitor")
    with pytest.raises(FileError, match="custom="):
        avem.Monitor.load(tmp_path / "c.monitor")
    loaded = avem.Monitor.load(tmp_path / "c.monitor", custom=CUSTOM)
    assert loaded.states == monitor.states
    with pytest.raises(ModelError, match="Forecasts of a monitor need the distribution function"):
        loaded.forecast({"x": 0.0})
    assert loaded.forecast({"x": 0.0}, of="states")["probability"].sum() == pytest.approx(1.0)


def test_files_that_are_no_monitors_are_refused(fit, tmp_path):
    fit.save(tmp_path / "fit.avem")
    with pytest.raises(FileError, match=r"it is a saved fit; avem\.load reads it"):
        avem.Monitor.load(tmp_path / "fit.avem")
    fit.monitor(subject="z").save(tmp_path / "z.monitor")
    with pytest.raises(FileError, match=r"it is a monitor; avem\.Monitor\.load reads it"):
        avem.load(tmp_path / "z.monitor")
    with pytest.raises(FileError, match="There is no file"):
        avem.Monitor.load(tmp_path / "none")
    whole = (tmp_path / "z.monitor").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match="damaged"):
        avem.Monitor.load(tmp_path / "cut")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("n_nodes", 10**12, "would have shape"),
        ("n_nodes", 7, "shape"),
        ("places", 3, "its past is not that of its model"),
        ("n_rows", -1, "number of rows"),
        ("version", 99, "Update avem"),
        ("format", "avem fit", "format"),
        ("tail", [[["y", "code", "1"]]], "unknown kind"),
        ("tail", "y", "tail"),
    ],
)
def test_a_damaged_monitor_says_so(fit, tmp_path, field, value, words):
    fit.monitor(in_order(NEW[NEW["who"] == "z"]).iloc[:2]).save(tmp_path / "z.monitor")
    edited = tmp_path / "edited"
    with zipfile.ZipFile(tmp_path / "z.monitor") as old, zipfile.ZipFile(edited, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "monitor.json":
                data = json.dumps(json.loads(data) | {field: value}).encode()
            new.writestr(name, data)
    with pytest.raises(FileError, match=words):
        avem.Monitor.load(edited)


# --- rows of all kinds, and those that cannot be --------------------------------------------------


def test_rows_may_be_of_any_kind(fit):
    row = in_order(NEW[NEW["who"] == "z"]).iloc[[0]]
    kinds = [row, pl.from_pandas(row), row.iloc[0], row.iloc[0].to_dict()]
    found = [fit.monitor(subject="z").update(one).states for one in kinds]
    assert all(one == found[0] for one in found)
    missing = row.iloc[0].to_dict() | {"y": None, "n": None}
    monitor = fit.monitor(subject="z")
    np.testing.assert_allclose(list(monitor.update(missing).states.values()), INITIAL, atol=1e-7)
    assert monitor.update(missing | {"t": 99}).loglik == pytest.approx(0.0, abs=1e-12)


def test_filter_answers_in_the_users_kind_of_frame(fit):
    assert isinstance(fit.filter(pl.from_pandas(NEW)), pl.DataFrame)
    named = fit.rename_states(["low", "high"])
    assert list(named.filter().columns) == ["low", "high"]
    assert set(named.monitor(subject="z").update(NEW.iloc[0].to_dict() | {"who": "z"}).states) == {
        "low",
        "high",
    }


def test_rows_that_cannot_be_are_named(fit):
    own = in_order(NEW[(NEW["who"] == "z") & (NEW["day"] == 0)])  # of four rows
    monitor = fit.monitor(own.iloc[:2])
    before = repr(monitor), monitor.loglik
    row = own.iloc[2].to_dict()
    wrong = {
        "is of subject 'a', and this is the monitor of 'z'": row | {"who": "a"},
        "The row lacks 'n'; y, n, day are wanted": {k: v for k, v in row.items() if k != "n"},
        "Rows come in the order of time": row | {"t": -1},
        "infinite at row 2": row | {"y": np.inf},
        "'n' is -1 at row 2": row | {"n": -1},
        "The row's 't' is '9', and the last one's": row | {"t": "9"},
        "The row's 't' is inf; one finite value": row | {"t": np.inf},
        "what is no character": row | {"y": "\ud800"},
        "The row's 'day' is .*; one finite value": row | {"day": [0]},
    }
    for words, bad in wrong.items():
        with pytest.raises(DataError, match=words):
            monitor.update(bad)
    with pytest.raises(DataError, match="The frame has 2 rows"):
        monitor.update(own.iloc[:2])
    assert (repr(monitor), monitor.loglik) == before  # nothing of them was kept
    with pytest.raises(DataError, match="of 2 subjects; a monitor is of one"):
        fit.monitor(NEW)
    with pytest.raises(DataError, match="and subject='b'"):
        fit.monitor(own, subject="b")
    with pytest.raises(DataError, match="none of the fit's"):
        fit.monitor(own, effects="integrated")
    with pytest.raises(DataError, match="no row yet"):
        _ = fit.monitor(subject="z").states
    with pytest.raises(ModelError, match="it is for rows that came later"):
        fit.filter(effects="integrated")
    with pytest.raises(ModelError, match="effects is 'fitted'; choose one of 'new', 'integrated'"):
        fit.filter(effects="fitted")
    with pytest.raises(ModelError, match="n_nodes is 0"):
        fit.filter(n_nodes=0)
    with pytest.raises(ModelError, match="at most 100,000"):
        fit.filter(n_nodes=10**9)
    with pytest.raises(DataError, match="the label of one subject"):
        fit.monitor(subject=["z"])
    new = fit.monitor()
    with pytest.raises(DataError, match="infinite"):
        new.update(row | {"y": np.inf})
    assert new.update(row | {"who": "a"}) is not None  # whose it is was not learned from a bad row
    assert new.subject == "a"


def test_probabilities_of_a_value_far_outside_add_up_to_one():
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
    params = CHAIN | {"coef": [[[0.0]], [[3.0]]], "variance": [[1.0], [1.0]]}
    frame = pd.DataFrame({"who": "a", "t": range(4), "y": [0.1, 0.2, 3.1, 2.8]})
    fit = fit_from(hmm, params | {"effect_covariance": [[0.3]]}, frame, np.zeros((1, 1)))
    monitor = fit.monitor(frame)
    far = monitor.update({"y": 1e70, "t": 5})
    assert sum(far.states.values()) == pytest.approx(1.0)
    assert np.exp(monitor.known.log_weight).sum() == pytest.approx(1.0)


def test_a_row_that_the_model_rules_out_is_named():
    hmm = avem.MixedHMM("y ~ 1", 2, transition=LeftToRight(), known="mark")
    params = {
        "initial": [1.0, 0.0],
        "transition": [[0.8, 0.2], [0.0, 1.0]],
        "coef": [[[0.0]], [[2.0]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": np.zeros((0, 0)),
    }
    frame = frame_of(hmm)[["who", "t", "y"]].assign(mark=np.nan)
    fit = fit_from(hmm, params, frame, np.zeros((3, 0)), time=None)
    monitor = fit.monitor(subject="new")
    monitor.update({"y": 0.1, "mark": None})
    monitor.update({"y": 0.1, "mark": 1})
    assert monitor.states["state_1"] == 1.0
    with pytest.raises(DataError, match="Row 2 of 'new' is impossible after those before it"):
        monitor.update({"y": 0.1, "mark": 0})
    assert monitor.update({"y": 0.1}).states["state_1"] == 1.0


def test_too_few_nodes_are_said(fit):
    own = in_order(NEW[NEW["who"] == "z"])
    far = pd.concat([own.iloc[[0]]] * 40, ignore_index=True).assign(t=range(40))
    with pytest.warns(AvemWarning, match=r"The 5 nodes .* are too few .*n_nodes=20"):
        fit.filter(far, n_nodes=5)
    monitor = fit.monitor(subject="z", n_nodes=5)
    with warnings.catch_warnings(record=True, action="always") as told:
        for _, row in far.iterrows():
            monitor.update(row)
    assert len(told) == 1  # once
    assert "Begin a new monitor with all rows" in str(told[0].message)
    assert fit.monitor(far).n_effective > 5


def test_what_cannot_be_monitored_is_refused():
    family = avem.Custom(
        log_prob, {"bias": 0.0}, effects=["bias"], history=0.0, update=lambda h, *rest: h
    )
    hmm = avem.MixedHMM(avem.outcome("c ~ x", family), 2)
    frame = fit_of("custom").panel.table
    params = CHAIN | {"bias": [-1.0, 1.0], "effect_covariance": [[0.3]]}
    fit = fit_from(hmm, params, frame, np.zeros((8, 1)))
    with pytest.raises(ModelError, match="A monitor does not keep what a Custom emission"):
        fit.monitor(subject="s1")
    assert fit.filter(frame.iloc[:5]).shape == (5, 2)
    for name in ("filter", "monitor"):
        with pytest.raises(AttributeError, match=r"fit\.states\(kind=.filtered.\)"):
            getattr(ssm_fit(), name)
