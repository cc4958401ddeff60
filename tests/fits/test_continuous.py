"""Fits in continuous time: what they find, and what they can be asked."""

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm

import avem
from avem.errors import DataError, ModelError
from avem.fits.sections import frames
from avem.numerics.generator import generators
from avem.numerics.markov import in_steps, long_run
from tests.fits.kinds import fit_from

NAMES = ["ill", "well", "dead"]
MOVES = [("well", "ill"), ("ill", "well"), ("well", "dead"), ("ill", "dead")]
TRUTH = {
    "initial": [0.2, 0.8, 0.0],
    "rate": [[0.0, 0.4, 0.3], [0.5, 0.0, 0.05], [0.0, 0.0, 0.0]],
    "coef": [[[-1.0]], [[3.0]], [[0.0]]],
    "variance": [[1.0], [1.0], [1.0]],
}


def visits(n=40, length=16, seed=0):
    """Rows at irregular times."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"who": np.repeat(np.arange(n), length)})
    frame["year"] = rng.gamma(1.5, 0.4, len(frame)) + 0.05
    return frame.assign(year=frame.groupby("who")["year"].cumsum())


@pytest.fixture(scope="module")
def model():
    moves = avem.rates(moves=MOVES, event="died", unit="years")
    return avem.MixedHMM("fev ~ 1", 3, state_names=NAMES, transition=moves)


@pytest.fixture(scope="module")
def drawn(model):
    return model.simulate(TRUTH, data=visits(), subject="who", time="year", seed=1)


@pytest.fixture(scope="module")
def fit(model, drawn):
    return model.fit(drawn.frame, "who", "year", n_starts=2)


def test_simulated_deaths_are_where_the_states_say(drawn):
    frame, dead = drawn.frame, drawn.states == "dead"
    assert dead.any()
    assert frame["fev"].isna().equals(pd.Series(dead))
    first = pd.Series(dead).groupby(frame["who"]).cumsum() == 1
    assert (frame["died"].to_numpy() == first.to_numpy()).all()
    moved = frame["year"] != visits()["year"]
    assert (moved == frame["died"]).all()
    assert (frame.groupby("who")["year"].diff().dropna() > 0).all()


def test_times_of_entering_have_the_distribution_that_they_should():
    """From one state, at rate 0.7, within intervals of 2: an exponential that is cut off."""
    model = avem.MixedHMM("y ~ 1", 2, transition=avem.rates(moves="progressive", event="end"))
    rows = pd.DataFrame(
        {"subject": np.repeat(np.arange(4000), 2), "time": np.tile([0.0, 2.0], 4000)}
    )
    truth = {"initial": [1, 0], "rate": [[0, 0.7], [0, 0]], "coef": [[[0.0]], [[0.0]]]}
    truth |= {"variance": [[1.0], [1.0]]}
    found = model.simulate(truth, data=rows, time="time", seed=3).frame
    when = found.loc[found["end"], "time"].to_numpy()
    assert abs(len(when) / 4000 - (1 - np.exp(-1.4))) < 0.03
    rank = (1 - np.exp(-0.7 * when)) / (1 - np.exp(-1.4))
    assert np.abs(np.sort(rank) - (np.arange(len(rank)) + 0.5) / len(rank)).max() < 0.03


def test_the_fit_finds_the_rates(fit, drawn):
    assert fit.stop.name == "CONVERGED"
    assert fit.state_names == tuple(NAMES)
    table = fit.rates().set_index(["state", "to_state"])
    for k, m in MOVES:
        row = table.loc[(k, m)]
        true = TRUTH["rate"][NAMES.index(k)][NAMES.index(m)]
        assert abs(np.log(row["rate"] / true)) < 3 * row["se"] / row["rate"]
        assert row["lower"] < row["rate"] < row["upper"]
    np.testing.assert_allclose(fit.params["coef"][:2, 0, 0], [-1.0, 3.0], atol=0.3)
    assert (fit.decode() == drawn.states).mean() > 0.93
    assert (fit.decode()[drawn.states == "dead"] == "dead").all()


def test_states_without_outcomes_are_not_counted(fit):
    assert fit.n_params == 2 + 4 + 2 + 2  # first state, moves, means, variances
    assert any("state 2" in note and "not counted" in note for note in fit.info.notes)
    errors = fit.standard_errors().set_index(["parameter", "state"])["se"]
    assert np.isnan(errors[("coef", "dead")])
    assert errors[("coef", "well")] > 0
    assert fit.params["coef"][2, 0, 0] in fit.params["coef"][:2]
    assert fit.degenerate == ()
    means = next(part for part in frames(fit) if part.title == "Coefficients").frame
    assert means["dead"].isna().all()
    assert means[["ill", "well"]].notna().all(axis=None)


def test_what_follows_from_the_rates(fit):
    q = fit.params["rate"] - np.diag(fit.params["rate"].sum(1))
    stays = fit.dwell().set_index("state")["expected"]
    np.testing.assert_allclose(stays[["ill", "well"]], -1 / np.diagonal(q)[:2])
    assert np.isinf(stays["dead"])
    ahead = fit.transition_probabilities([0.5, 4.0])
    for horizon, rows in ahead.groupby("horizon"):
        own = rows["probability"].to_numpy().reshape(3, 3)
        np.testing.assert_allclose(own, expm(q * horizon), atol=1e-12)
    alive = fit.survival([0, 2.5], level=None)
    assert alive["state"].tolist() == ["ill", "well"] * 2
    np.testing.assert_allclose(alive["survival"], [1, 1, *(1 - expm(2.5 * q)[:2, 2])])
    one = fit.transitions(level=None)["probability"].to_numpy().reshape(3, 3)
    np.testing.assert_allclose(one, expm(q), atol=1e-12)
    assert one[2].tolist() == [0, 0, 1]  # exactly
    text = str(fit.summary())
    assert "Rates per year" in text
    assert "over 1 year" in text


def test_survival_has_the_interval_of_the_delta_method(fit):
    """Against a difference in each log rate, with the covariance of the estimates."""
    from avem.fits.uncertainty import parameter_covariance

    row = fit.survival(3.0).set_index("state").loc["ill"]
    theta, free = fit.theta, fit._curvature.free
    covariance, _ = parameter_covariance(fit._curvature, "observed")
    vector, slope = free.vector(theta), []

    def alive(v):
        rate = fit.model.params_out(free.theta(v, theta))["rate"]
        return 1 - expm(3.0 * (rate - np.diag(rate.sum(1))))[0, 2]

    for unit in np.eye(free.size):
        slope.append((alive(vector + 1e-5 * unit) - alive(vector - 1e-5 * unit)) / 2e-5)
    np.testing.assert_allclose(row["se"], np.sqrt(slope @ covariance @ slope), rtol=1e-5)
    assert row["lower"] < row["survival"] < row["upper"]


def test_forecasts_go_to_any_time(fit, drawn):
    frame = drawn.frame
    some = frame[frame["who"].isin([0, 1])]
    last = some.groupby("who")["year"].max()
    future = pd.DataFrame(
        {"who": [0, 0, 1, 1], "year": [last[0] + 1, last[0] + 3, last[1] + 2, last[1] + 2.5]}
    )
    found = fit.predict(horizon=2, data=some, future=future, of="states")
    now = fit.state_probabilities(some).to_numpy()
    q = fit.params["rate"] - np.diag(fit.params["rate"].sum(1))
    ends = [now[(some["who"] == who).to_numpy()][-1] for who in (0, 1)]
    wanted = [
        ends[0] @ expm(q),
        ends[0] @ expm(3 * q),
        ends[1] @ expm(2 * q),
        ends[1] @ expm(2.5 * q),
    ]
    np.testing.assert_allclose(found["probability"].to_numpy().reshape(4, 3), wanted, atol=1e-8)
    assert len(fit.predict(horizon=1, data=some)) == 2


def test_a_picture_of_what_is_to_come_has_the_unit_of_time(fit, drawn):
    future = pd.DataFrame({"who": [5, 5], "year": drawn.frame.query("who == 5")["year"].max()})
    future["year"] += [0.5, 2.5]
    every = [future.assign(who=who) for who in fit.subjects if who != 5]
    late = drawn.frame.groupby("who")["year"].transform("max").max()
    every = [one.assign(year=[late + 1, late + 2]) for one in every]
    figure = fit.plot.forecast(5, horizon=2, future=pd.concat([future, *every]))
    ax = figure.axes[0]
    assert figure.axes[-1].get_xlabel() == "years from the last row"
    ends = [line.get_xdata() for line in ax.lines if line.get_gid() == "mean"]
    np.testing.assert_allclose(np.mean(ends, axis=1), [0.5, 2.5])
    starts = [patch.get_x() for patch in figure.axes[-1].patches]  # of bars that do not overlap
    assert len(set(np.round(starts, 9))) == len(starts) / fit.model.n_states


def test_it_is_saved_loaded_and_reported(fit, drawn, tmp_path, blank_pictures):
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem").with_data(drawn.frame)
    assert again.model.spec.options == fit.model.spec.options
    assert (again.decode() == fit.decode()).all()
    assert float(again.loglik()) == pytest.approx(float(fit.loglik()))
    assert again.n_params == fit.n_params
    fit.report(tmp_path / "page.html", thorough=False)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Time is continuous" in page
    assert page.count("fev: mean") == 2  # of the dead there is none
    assert "years" in page
    assert "avem.rates(" in page
    assert "event='died'" in repr(avem.MixedHMM.from_spec(fit.model.spec))
    residuals = fit.residuals()["fev"]
    assert residuals.isna().equals(drawn.frame["fev"].isna())
    assert 0.8 < residuals.std() < 1.2


def test_what_needs_steps_or_rates_says_so(fit, drawn):
    with pytest.raises(ModelError, match="no lengths"):
        fit.dwell(by="length")
    with pytest.raises(ModelError, match="numbers of years"):
        fit.survival([-1])
    early = drawn.frame.copy()
    early.loc[early["who"] == 0, "died"] = [True] + [False] * 15
    with pytest.raises(DataError, match="first row of a sequence"):
        fit.decode(early)


@pytest.mark.parametrize("slower", [1.0, 1e13])
def test_stays_and_shares_at_covariates_follow_from_rates(slower):
    """However short the unit of time is."""
    hmm = avem.MixedHMM("y ~ 1", 3, transition="~ x", time_scale="continuous")
    coef = np.array(
        [[[0, 0], [0.4, 0.5], [-1, 0]], [[0.1, -1], [0, 0], [-2, 1]], [[3, 0], [-3, 1], [0, 0]]]
    )
    coef = coef - np.array([np.log(slower), 0.0]) * (1 - np.eye(3))[:, :, None]
    params = {"initial": np.full(3, 1 / 3), "rate_coef": coef, "coef": np.zeros((3, 1, 1))}
    params |= {"variance": np.ones((3, 1)), "effect_covariance": np.zeros((0, 0))}
    rows = visits(3, 4)
    rows["x"], rows["y"] = np.arange(12) % 5 - 1.0, 0.0
    own = fit_from(hmm, params, rows, np.zeros((3, 0)), time="year")
    stays = own.covariate("x", "dwell", grid=[-1.0, 2.0], level=None)["estimate"].to_numpy()
    shares = own.covariate("x", "stationary", grid=[-1.0, 2.0], level=None)["estimate"].to_numpy()
    for i, x in enumerate((-1.0, 2.0)):
        q = np.exp(coef @ [1.0, x]) * (1 - np.eye(3))
        q -= np.diag(q.sum(1))
        np.testing.assert_allclose(stays.reshape(2, 3)[i], -1 / np.diagonal(q), rtol=1e-12)
        share = shares.reshape(2, 3)[i]
        np.testing.assert_allclose(share @ q * slower, 0.0, atol=1e-12)
        np.testing.assert_allclose(share.sum(), 1.0)
        held = own.stationary(level=None, at={"x": x})["share"]
        np.testing.assert_allclose(held, share, rtol=1e-12)
    np.testing.assert_allclose(own.dwell(level=None, at={"x": 2.0})["expected"], stays[3:])


def test_covariates_on_stays_where_a_state_is_never_left():
    moves = avem.rates("~ x", moves=[(0, 1), (0, 2), (1, 2)])
    hmm = avem.MixedHMM("y ~ 1", 3, transition=moves)
    coef = np.zeros((3, 3, 2))
    coef[0, 1], coef[0, 2], coef[1, 2] = [-3.0, 0.5], [-5.0, 0.0], [-2.0, 0.1]
    params = {"initial": np.full(3, 1 / 3), "rate_coef": coef, "coef": np.zeros((3, 1, 1))}
    params |= {"variance": np.ones((3, 1)), "effect_covariance": np.zeros((0, 0))}
    rows = visits(3, 4)
    rows["x"], rows["y"] = np.arange(12) % 5 - 1.0, 0.0
    own = fit_from(hmm, params, rows, np.zeros((3, 0)), time="year")
    stays = own.covariate("x", "dwell", grid=[0.0], level=None)["estimate"]
    np.testing.assert_allclose(stays, [1 / (np.exp(-3) + np.exp(-5)), np.exp(2), np.inf])
    assert own.stationary(level=None)["share"].tolist() == pytest.approx([0, 0, 1])


def test_the_long_run_where_several_states_are_never_left():
    """Which one it ends in, however slow the way there is beside other moves."""
    q = generators(np.array([[0, 1.0, 3e-9, 0], [2.0, 0, 0, 1e-9], [0, 0, 0, 0], [0, 0, 0, 0]]))
    found = long_run(in_steps(q), np.array([1.0, 0, 0, 0]))
    np.testing.assert_allclose(found, [0, 0, 6 / 7, 1 / 7], atol=1e-7)


def test_models_in_steps_speak_of_uneven_times(drawn):
    frame = drawn.frame[drawn.frame["fev"].notna()]
    fit = avem.MixedHMM("fev ~ 1", 2).fit(frame, "who", "year", n_starts=1)
    assert any("time_scale='continuous'" in note for note in fit.info.notes)
    with pytest.raises(ModelError, match="one step apart"):
        fit.rates()
    with pytest.raises(ModelError, match=r"never left.*transition='absorbing'"):
        fit.survival([1, 2])
    with pytest.raises(ModelError, match="whole numbers of steps"):
        fit.transition_probabilities(0.5)
    two = fit.transition_probabilities(2, level=None)["probability"].to_numpy().reshape(2, 2)
    np.testing.assert_allclose(two, fit.params["transition"] @ fit.params["transition"])


def test_a_single_state_is_never_left(drawn):
    frame = drawn.frame[drawn.frame["fev"].notna()]
    one = avem.MixedHMM("fev ~ 1", 1, time_scale="continuous").fit(frame, "who", "year")
    steps = avem.MixedHMM("fev ~ 1", 1).fit(frame, "who", "year")
    assert float(one.loglik()) == pytest.approx(float(steps.loglik()), abs=1e-9)
    assert np.isinf(one.dwell(level=None)["expected"]).all()
    assert (one.transition_probabilities([0, 2.5], level=None)["probability"] == 1).all()
    assert "1 state" in str(one.summary())
    with pytest.raises(ModelError, match="there is only one"):
        one.rates()
    ends = avem.MixedHMM("fev ~ 1", 1, transition=avem.rates(event="died"))
    with pytest.raises(ModelError, match="beside others"):
        ends.fit(drawn.frame, "who", "year")


# --- effects and covariates on rates ------------------------------------------------------------


def with_effects(n, length, sd, seed):
    model = avem.MixedHMM("y ~ 1", 2, transition="~ x + (1 | who)", time_scale="continuous")
    rows = visits(n, length, seed)
    rows["x"] = np.random.default_rng(seed).standard_normal(len(rows))
    truth = {
        "initial": [0.5, 0.5],
        "rate_coef": [[[0, 0], [-0.3, 0.7]], [[-0.3, -0.7], [0, 0]]],
        "coef": [[[-2.0]], [[2.0]]],
        "variance": [[0.5], [0.5]],
        "effect_covariance": np.diag([sd**2, sd**2]) + 1e-9 * np.eye(2),
    }
    return model, model.simulate(truth, data=rows, time="year", seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.0, 1.0])
def test_subjects_differ_in_their_rates_or_not(sd):
    """The first is the control: where they do not, no spread is found."""
    model, drawn = with_effects(24, 24, sd, 4)
    diagonal = avem.MixedHMM.from_spec(model.spec._replace(effect_covariance="diagonal"))
    fit = diagonal.fit(drawn.frame, time="year", n_starts=1, refine=None)
    found = np.sqrt(np.diagonal(fit.params["effect_covariance"]))
    coef = fit.params["rate_coef"]
    np.testing.assert_allclose(coef[[0, 1], [1, 0], 1], [0.7, -0.7], atol=0.35)
    if sd:
        assert (found > 0.4).all()
        own = fit.effects_mean
        assert np.corrcoef(own[:, 0], drawn.effects[:, 0])[0, 1] > 0.6
    else:
        assert (found < 0.3).all()


@pytest.mark.slow
def test_rates_with_effects_are_recovered():
    model, drawn = with_effects(120, 40, 0.8, 6)
    diagonal = avem.MixedHMM.from_spec(model.spec._replace(effect_covariance="diagonal"))
    fit = diagonal.fit(drawn.frame, time="year")
    errors = fit.standard_errors()
    rows = errors[errors["parameter"] == "rate_coef"]
    truth = np.array([-0.3, 0.7, -0.3, -0.7])
    assert (np.abs(rows["estimate"] - truth) < 3.5 * rows["se"]).all()
    sd = np.sqrt(np.diagonal(fit.params["effect_covariance"]))
    np.testing.assert_allclose(sd, 0.8, atol=0.2)
