"""Fits against depmixS4 and hmmTMB on panels that are not part of the project.

The data come from R packages and are read from a folder beside the repository, or the one that
AVEM_TEST_DATA names; without it these tests are skipped. The expected numbers are depmixS4's, those
with effects hmmTMB's.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import avem

FOLDER = Path(os.environ.get("AVEM_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def read(name):
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"{name} is not here; set AVEM_TEST_DATA to the folder that has it")
    return pd.read_csv(path)


def test_two_states_of_a_simulated_series():
    frame = read("hmmTMB_5x200_sim.csv")
    fit = avem.MixedHMM("Z ~ 1", 2).fit(frame, subject="ID", time="time")
    assert round(fit.bound, 3) == -2287.146  # without effects the bound is the log likelihood
    np.testing.assert_allclose(fit.params["coef"].ravel(), [1.012, 9.291], atol=1.5e-3)
    np.testing.assert_allclose(np.sqrt(fit.params["variance"]).ravel(), [1.017, 4.673], atol=1e-3)
    expected = [[0.907, 0.093], [0.171, 0.829]]
    np.testing.assert_allclose(fit.params["transition"], expected, atol=1e-3)
    np.testing.assert_allclose(fit.params["initial"], [0.185, 0.815], atol=1e-3)


def test_two_states_of_response_times():
    frame = read("speed.csv")
    fit = avem.MixedHMM("rt ~ 1", 2).fit(frame, subject="series")
    np.testing.assert_allclose(fit.bound, -84.34171, atol=2e-5)
    np.testing.assert_allclose(fit.params["coef"].ravel(), [5.511, 6.385], atol=1e-3)
    np.testing.assert_allclose(np.sqrt(fit.params["variance"]).ravel(), [0.193, 0.244], atol=1e-3)
    expected = [[0.895, 0.105], [0.084, 0.916]]
    np.testing.assert_allclose(fit.params["transition"], expected, atol=1e-3)


def with_reward(frame):
    """The covariate of the response times, standardised."""
    return frame.assign(zp=(frame["Pacc"] - frame["Pacc"].mean()) / frame["Pacc"].std(ddof=1))


def test_a_covariate_on_the_transitions():
    """In depmixS4 the covariate at t acts on the step from t to t+1: our lag()."""
    frame = with_reward(read("speed.csv"))
    fit = avem.MixedHMM("rt ~ 1", 2, transition="~ lag(zp)").fit(frame, subject="series")
    assert round(fit.bound, 4) == -38.1219
    other = avem.MixedHMM("rt ~ 1", 2, transition="~ zp").fit(frame, subject="series", n_starts=2)
    assert abs(other.bound - fit.bound) > 1.0  # so that the number tells the two apart


def test_outcomes_of_two_families_with_a_covariate_on_the_transitions():
    frame = with_reward(read("speed.csv"))
    outcomes = [avem.outcome("rt ~ 1"), avem.outcome("corr ~ 1", "categorical")]
    fit = avem.MixedHMM(outcomes, 2, transition="~ lag(zp)").fit(frame, subject="series")
    assert round(fit.bound, 4) == -248.9722


@pytest.mark.slow
def test_four_categorical_outcomes_with_effects_on_the_transitions():
    """hmmTMB maximises a Laplace approximation of the likelihood, we the likelihood."""
    frame = read("nonverbal.csv")
    model = avem.MixedHMM(
        "p_vocalizing + p_looking + t_vocalizing + t_looking ~ 1",
        2,
        "categorical",
        transition="~ 1 + (1 | id)",
        initial="stationary",
        effect_covariance="diagonal",
    )
    fit = model.fit(frame, n_starts=2)
    assert fit.bound == pytest.approx(-17485.98, abs=0.02)
    coef = fit.params["transition_coef"]
    np.testing.assert_allclose([coef[0, 1, 0], coef[1, 0, 0]], [-2.655, -2.914], atol=1.5e-3)

    odds = np.exp(fit.params["coef"][:, :, 0])  # against the first level: two rows, one, two, one
    for rows, expected in (
        (slice(0, 2), [[0.865, 0.000, 0.135], [0.008, 0.963, 0.028]]),
        (slice(3, 5), [[0.062, 0.918, 0.020], [0.711, 0.183, 0.106]]),
    ):
        chance = np.concatenate([np.ones((2, 1)), odds[:, rows]], axis=1)
        chance /= chance.sum(1, keepdims=True)
        np.testing.assert_allclose(chance, expected, atol=1e-3)

    sd = np.sqrt(np.diagonal(fit.params["effect_covariance"]))
    np.testing.assert_allclose(sd[0], 0.346, atol=3e-3)
    # Ten couples hardly say how much they differ in the second one.
    np.testing.assert_allclose(sd[1], 0.087, atol=0.015)
    theirs = model.fit(frame, n_starts=2, fixed={"effect_covariance": np.diag([0.346, 0.087]) ** 2})
    assert theirs.bound == pytest.approx(fit.bound, abs=0.01)


# --- msm: continuous time, exact times of death ---------------------------------------------------


@pytest.fixture(scope="module")
def lungs():
    """`fev` of the R package msm; 999 marks the day of death."""
    frame = read("fev.csv")
    frame["died"] = frame["fev"] == 999
    return frame.assign(fev=frame["fev"].where(~frame["died"]))


def lung_model(formula="fev ~ 1"):
    moves = [("well", "ill"), ("well", "dead"), ("ill", "dead")]
    rates = avem.rates(moves=moves, event="died", unit="days")
    return avem.MixedHMM(formula, 3, state_names=["well", "ill", "dead"], transition=rates)


def test_the_likelihood_is_that_of_msm(lungs):
    """At q12 = q23 = exp(-6), q13 = exp(-9), N(100, 16^2), N(54, 18^2): msm's own tests."""
    given = {
        "initial": [1.0, 0.0, 0.0],
        "rate": [[0, np.exp(-6), np.exp(-9)], [0, 0, np.exp(-6)], [0, 0, 0]],
        "coef": [[[100.0]], [[54.0]], [[0.0]]],
        "variance": [[16.0**2], [18.0**2], [1.0]],
    }
    fit = lung_model().fit(lungs, "ptnum", "days", fixed=given, n_starts=1)
    assert -2 * float(fit.loglik()) == pytest.approx(52388.7381942858, abs=1e-6)


def test_a_tie_of_coefficients_is_that_of_msm(lungs):
    """-2 log L 51597.8909 with a coefficient of `acute` that both states share, -8.792."""
    model = avem.MixedHMM.from_spec(
        lung_model("fev ~ acute").spec._replace(
            constraints=("coef['well', 'acute'] == coef['ill', 'acute']",)
        )
    )
    near = {
        "rate": [[0, 6e-4, 7e-5], [0, 0, 8e-4], [0, 0, 0]],
        "coef": [[[100.0, -8.0]], [[54.0, -8.0]], [[0.0, 0.0]]],
        "variance": [[17.0**2], [17.0**2], [1.0]],
    }
    held = {"initial": [1.0, 0.0, 0.0]}
    fit = model.fit(lungs, "ptnum", "days", init=near, fixed=held, n_starts=1)
    assert -2 * float(fit.loglik()) == pytest.approx(51597.8909, abs=1e-3)
    assert fit.params["coef"][:2, 0, 1] == pytest.approx([-8.792, -8.792], abs=2e-3)
    assert fit.params["rate"][1, 2] == pytest.approx(0.000801, abs=2e-6)
    assert fit.n_params == 8


@pytest.mark.slow
def test_the_maximum_is_that_of_msm(lungs):
    """-2 log L 51815.8125 with rates 5.6537e-4, 7.4286e-5, 8.8785e-4, from starts of our own."""
    fit = lung_model().fit(lungs, "ptnum", "days", fixed={"initial": [1.0, 0.0, 0.0]})
    assert -2 * float(fit.loglik()) == pytest.approx(51815.8125, abs=5e-3)
    rate = fit.params["rate"]
    found = [rate[0, 1], rate[0, 2], rate[1, 2]]
    np.testing.assert_allclose(found, [5.6537e-4, 7.4286e-5, 8.8785e-4], rtol=2e-3)
    np.testing.assert_allclose(fit.params["coef"][:2, 0, 0], [97.357, 49.423], atol=0.05)
    np.testing.assert_allclose(np.sqrt(fit.params["variance"][:2, 0]), [17.198, 16.818], atol=0.05)
