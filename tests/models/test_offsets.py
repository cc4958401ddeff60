"""offset() in formulas: added to the linear predictor as it is."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data import Panel, parse_formula
from avem.data.design import Design
from avem.errors import DataError, ModelError

QUICK = {"n_starts": 1, "refine": None}


def panel(seed=0, n=8, n_times=40):
    """Counts per hours, at two rates that take turns; y is a number with an offset of its own."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n), n_times)
    state = (np.arange(n * n_times) // 10) % 2
    hours = rng.uniform(0.5, 12.0, n * n_times)
    rate = np.where(state, 6.0, 0.7) * np.exp(0.3 * rng.standard_normal(n))[who]
    y = 3.0 * state + 2 * hours + rng.standard_normal(n * n_times)
    return pd.DataFrame({"who": who, "calls": rng.poisson(rate * hours), "hours": hours, "y": y})


# --- formulas -------------------------------------------------------------------------------------


def test_an_offset_is_a_column_without_a_coefficient():
    frame = panel()
    rows = Panel.from_frame(frame, "who")
    design = Design.build(parse_formula("calls ~ y + offset(log(hours)) + offset(y / 2)"), rows)
    assert design.terms == ("Intercept", "y")
    column = design.apply(rows).A[:, design.offset_col]
    np.testing.assert_allclose(column, np.log(frame["hours"]) + frame["y"] / 2)
    assert design.covariates == ("y", "hours")
    again = Design.from_state(design.state)
    np.testing.assert_array_equal(again.apply(rows).A, design.apply(rows).A)
    assert Design.build(parse_formula("calls ~ y"), rows).offset_col == -1
    assert not parse_formula("~ offset(hours)").is_constant
    assert parse_formula("calls ~ offset").fixed == "offset"  # a column of that name


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("calls ~ y - offset(hours)", r"offset\(-x\)"),
        ("calls ~ y * offset(hours)", "term of its own"),
        ("calls ~ (1 + offset(hours) | who)", "term of its own"),
        ("calls ~ log(offset(hours))", "term of its own"),
        ("calls ~ offset()", "term of its own"),
        ("calls ~ offset(calls)", "on both sides"),
        ("calls ~ offset(2)", "names no column"),
    ],
)
def test_offsets_that_cannot_be_read(formula, message):
    with pytest.raises(ModelError, match=message):
        parse_formula(formula)


def test_offsets_that_are_not_available():
    with pytest.raises(ModelError, match="not available in a state-space model"):
        avem.MixedSSM("y ~ 1 + offset(hours)", 1)
    with pytest.raises(ModelError, match=r'Gaussian\("diagonal"\)'):
        avem.MixedHMM("y ~ offset(hours)", 2, avem.Gaussian("full"))
    with pytest.raises(ModelError, match="says nothing"):
        avem.MixedHMM("y ~ 1", 2, initial="~ offset(hours)")
    custom = avem.Custom(lambda y, x, history, params, effect: 0.0, {"a": 0.0})
    with pytest.raises(ModelError, match="add it in log_prob"):
        avem.MixedHMM("y ~ offset(hours)", 2, custom)
    frame = panel()
    frame.loc[4, "hours"] = 0.0
    with pytest.raises(DataError, match="not a finite number"):
        avem.MixedHMM("calls ~ offset(log(hours))", 1, "poisson").fit(frame, "who")


# --- fits -----------------------------------------------------------------------------------------


def test_one_state_is_a_rate_per_hour():
    frame = panel()
    fit = avem.MixedHMM("calls ~ offset(log(hours))", 1, "poisson").fit(frame, "who", **QUICK)
    rate = frame["calls"].sum() / frame["hours"].sum()
    np.testing.assert_allclose(fit.params["coef"].ravel(), [np.log(rate)], atol=1e-7)


def test_a_gaussian_offset_is_subtracted():
    """In any unit; and of two outcomes that share it, each in its own."""
    frame = panel()
    frame = frame.assign(y=1e5 * frame["y"], shift=2e5 * frame["hours"])
    frame["less"] = frame["y"] - frame["shift"]
    with_offset = avem.MixedHMM("y ~ calls + offset(shift)", 2).fit(frame, "who", **QUICK)
    plain = avem.MixedHMM("less ~ calls", 2).fit(frame, "who", **QUICK)
    np.testing.assert_allclose(with_offset.params["coef"], plain.params["coef"], rtol=1e-4)
    sd = np.sqrt(plain.params["variance"])
    np.testing.assert_allclose(with_offset.params["sd"], sd, rtol=1e-4)
    np.testing.assert_allclose(with_offset.bound, plain.bound, rtol=1e-8)
    both = avem.MixedHMM("y + z ~ offset(shift)", 1).fit(
        frame.assign(z=frame["shift"] + frame["calls"]), "who", **QUICK
    )
    expected = [frame["less"].mean(), frame["calls"].mean()]
    np.testing.assert_allclose(both.params["coef"].ravel(), expected, rtol=1e-6)


@pytest.fixture(scope="module")
def counted():
    frame = panel()
    model = avem.MixedHMM("calls ~ 1 + offset(log(hours)) + (1 | who)", 2, "poisson")
    return frame, model.fit(frame, **QUICK)


def test_states_are_rates_not_counts(counted):
    frame, fit = counted
    np.testing.assert_allclose(np.exp(fit.params["coef"].ravel()), [0.7, 6.0], rtol=0.35)
    state = (np.arange(len(frame)) // 10) % 2
    assert (fit.decode().to_numpy() == state).mean() > 0.97
    # Without the offset, hours pass for states.
    without = avem.MixedHMM("calls ~ 1 + (1 | who)", 2, "poisson").fit(frame, **QUICK)
    assert (without.decode().to_numpy() == state).mean() < 0.95
    assert fit.bound > without.bound + 100


def test_a_constant_offset_moves_the_intercept(counted):
    frame, _ = counted
    one = avem.MixedHMM("calls ~ offset(log(h)) + (1 | who)", 2, "poisson")
    fit = one.fit(frame.assign(h=3.0), **QUICK)
    plain = avem.MixedHMM("calls ~ 1 + (1 | who)", 2, "poisson").fit(frame, **QUICK)
    moved = fit.params["coef"] + np.log(3.0)
    np.testing.assert_allclose(moved, plain.params["coef"], atol=1e-4)
    np.testing.assert_allclose(fit.bound, plain.bound, rtol=1e-8)


def test_what_is_done_with_a_fit(counted, tmp_path):
    frame, fit = counted
    drawn = fit.simulate(seed=1).frame
    half = frame["hours"] > frame["hours"].median()
    ratio = drawn["calls"][half].mean() / drawn["calls"][~half].mean()
    assert 2.0 < ratio < 4.0
    with pytest.raises(DataError, match="hours"):
        fit.predict(horizon=1)
    last = frame.groupby("who").tail(1)
    ahead = [
        fit.predict(horizon=1, future=last.assign(hours=h))["mean"].to_numpy() for h in (1.0, 4.0)
    ]
    np.testing.assert_allclose(ahead[1], 4.0 * ahead[0], rtol=1e-8)
    assert abs(fit.residuals()["calls"].std() - 1) < 0.15
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem").with_data(frame)
    np.testing.assert_allclose(again.loglik(), fit.loglik(), rtol=1e-10)
    text = str(fit.summary(errors=False))
    assert "offset(log(hours))" in text
    assert "Rate at effect 0 and the average offset" in text


def test_an_offset_of_the_transitions():
    """A constant one moves the log odds of moving, and nothing else."""
    frame = panel().assign(h=0.8)
    model = avem.MixedHMM("y ~ hours", 2, transition="~ 1 + offset(h)")
    fit = model.fit(frame, "who", **QUICK)
    plain = avem.MixedHMM("y ~ hours", 2).fit(frame, "who", **QUICK)
    odds = np.log(plain.params["transition"] / np.diag(plain.params["transition"])[:, None])
    moved = fit.params["transition_coef"][..., 0] + 0.8 * (1 - np.eye(2))
    np.testing.assert_allclose(moved, odds, atol=1e-3)
    np.testing.assert_allclose(fit.bound, plain.bound, rtol=1e-7)


def test_an_offset_of_log_rates_is_a_covariate_whose_coefficient_is_one():
    """And a constant one moves the intercepts."""
    frame = panel(n=4, n_times=20).assign(o=lambda f: np.sin(f["hours"]), two=np.log(2.0))
    frame["t"] = frame.groupby("who")["hours"].cumsum()
    start = {"initial": [0.5, 0.5], "coef": [[[3.0]], [[20.0]]], "variance": [[30.0], [30.0]]}

    def bound(formula, *rates):
        coef = np.zeros((2, 2, len(rates)))
        coef[0, 1] = coef[1, 0] = rates
        model = avem.MixedHMM("y ~ 1", 2, time_scale="continuous", transition=formula)
        truth = start | {"rate_coef": coef}
        return model.fit(frame, "who", "t", init=truth, fixed=truth, **QUICK).bound

    wanted = bound("~ o", -3.0, 1.0)
    assert bound("~ 1 + offset(o)", -3.0) == pytest.approx(wanted, rel=1e-12)
    assert bound("~ o + offset(two)", -3.0 - np.log(2), 1.0) == pytest.approx(wanted, rel=1e-12)
    assert bound("~ o", -3.0, 0.0) != pytest.approx(wanted, rel=1e-4)
