"""Tables hold every number of the fit, under names that a reader understands."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax

import avem
from avem.fits.estimates import Cell
from avem.fits.predict.at import average_moves, average_start
from avem.fits.sections import frames
from avem.fits.tables import _cell_text, _number
from tests.fits.kinds import KINDS, fit_from, fit_of, seen_rows


def section(fit, start):
    (found,) = [section for section in frames(fit) if section.title.startswith(start)]
    return found


def rows_of(name, value):
    """The numbers of a parameter that are free, in order."""
    if name == "effect_covariance":
        return value[np.tril_indices(len(value))]
    if name == "covariance":
        return np.concatenate([block[np.tril_indices(len(block))] for block in value])
    if name == "transition_coef":
        return value[~np.eye(len(value), dtype=bool)].ravel()
    return value.ravel()


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_in_the_table_once(kind):
    fit = fit_of(kind)
    table = fit.table()
    assert table["parameter"].unique().tolist() == [n for n, v in fit.params.items() if v.size]
    for name, value in fit.params.items():
        found = table.loc[table["parameter"] == name, "estimate"]
        np.testing.assert_array_equal(found, rows_of(name, value))
    keys = table.drop(columns="estimate")
    assert not keys.duplicated().any()  # each row says what it is


def test_rows_say_what_they_are():
    table = fit_of("movement").table().set_index("parameter")
    shape = table.loc["step.shape_coef"]
    assert shape["outcome"].tolist() == ["step"] * 4
    assert shape["term"].tolist() == ["Intercept", "x"] * 2
    assert table.loc["angle.concentration", "outcome"].tolist() == ["angle", "angle"]
    labels = fit_of("labels").table().query("parameter == 'coef' and state == 1")
    assert labels["outcome"].tolist() == ["a[2.5]", "a[4]", "b[2.5]", "b[4]"]
    moving = fit_of("moving").table().query("parameter == 'effect_covariance'")
    last = moving.iloc[-1]
    assert (last["state"], last["to_state"], last["other"]) == (1, 0, "1->0: Intercept")
    assert last["estimate"] == 0.2
    assert moving["outcome"].iloc[0] == "y"
    assert moving["outcome"].iloc[-1] is None


def test_transitions_at_the_average():
    fit = fit_of("moving")
    x = seen_rows(fit)["x"].mean()
    coef = fit.params["transition_coef"]
    wanted = softmax(coef[:, :, 0] + coef[:, :, 1] * x, axis=1)
    np.testing.assert_allclose(average_moves(fit), wanted, rtol=1e-8)  # averages have nine digits
    found = section(fit, "Transition probabilities at effect 0 and average covariates")
    np.testing.assert_array_equal(found.frame, average_moves(fit))
    assert found.chances
    odds = section(fit, "Transitions (log odds")
    assert odds.frame.loc["1 -> 0", "x"] == coef[1, 0, 1]
    start = average_start(fit)
    np.testing.assert_allclose(start @ average_moves(fit), start, atol=1e-12)
    assert start.sum() == pytest.approx(1)


def test_the_first_state_at_the_average():
    fit = fit_of("by_state")
    share = (seen_rows(fit)["kind"] == "b").mean()
    wanted = softmax([0.0, 0.5 - 0.5 * share])
    np.testing.assert_allclose(average_start(fit), wanted, rtol=1e-8)
    frame = section(fit, "First state").frame
    assert frame.loc["kind[b]", "state 1"] == -0.5
    assert average_start(fit_of("counts")).tolist() == [0.4, 0.6]


def test_natural_scales():
    fit = fit_of("choice")
    table = seen_rows(fit)
    at = np.array([1.0, table["x"].mean(), (table["kind"] == "b").mean()])
    found = section(fit, "Probabilities at effect 0 and average covariates")
    np.testing.assert_allclose(
        found.frame.loc["choice = left"], expit(fit.params["coef"][:, 0] @ at)
    )
    found = section(fit_of("labels"), "Probabilities at effect 0").frame
    np.testing.assert_allclose(
        found.loc["b = 1"], 1 / (1 + np.exp([0.0, 1.0]) + np.exp([1.0, -1.0]))
    )
    np.testing.assert_allclose(found.iloc[:3].sum(), 1)
    movement = fit_of("movement")
    found = section(movement, "step: shape at average covariates").frame.loc["step"]
    x = seen_rows(movement)["x"].mean()
    np.testing.assert_allclose(found, np.exp([1 + 0.2 * x, 1.5 + 0.1 * x]))
    np.testing.assert_allclose(
        section(movement, "step: mean at effect 0").frame.loc["step"], [1, np.e**2]
    )


TITLES = {
    "gaussian": ["Coefficients", "Noise (standard deviation)", "Noise (correlation)"],
    "spread": ["Coefficients", "Coefficients of sd (link scale)", "Sd at average covariates"],
    "counts": ["Coefficients (log scale)", "Rate at effect 0 and average covariates"],
    "trials": ["Coefficients (logit scale)", "Probabilities at effect 0"],
    "movement": [
        "step: coefficients (log scale)",
        "step: coefficients of shape (link scale)",
        "step: mean at effect 0",
        "step: shape at average covariates",
        "angle: coefficients",
        "angle: concentration",
    ],
    "zeros": ["Coefficients (log scale)", "Shape", "Zero", "Mean"],
    "custom": ["c: parameters", "y: coefficients", "y: noise (standard deviation)"],
}


@pytest.mark.parametrize(("kind", "titles"), TITLES.items())
def test_titles(kind, titles):
    fit = fit_of(kind)
    shown = [found.title for found in frames(fit)]
    assert shown[: len(titles)] == titles
    assert shown[len(titles)] == "Transition probabilities (from row to column)"
    text = str(fit.summary(errors=False))
    assert all(f"\n{title}\n" in text for title in shown)


def test_noise_is_shown_as_standard_deviations_and_correlations():
    fit = fit_of("gaussian")
    sd = section(fit, "Noise (standard").frame
    np.testing.assert_allclose(sd.loc["y2"], np.sqrt([0.5, 0.4]))
    correlation = section(fit, "Noise (corr").frame
    np.testing.assert_allclose(correlation.loc["y2 with y1"], [0.3 / 0.5**0.5, -0.2 / 0.32**0.5])


def test_effects_without_variance_have_no_correlation():
    fit = fit_of("moving")
    sigma = fit.params["effect_covariance"].copy()
    sigma[1] = sigma[:, 1] = 0
    frame = section(replace(fit, params=fit.params | {"effect_covariance": sigma}), "Effects").frame
    assert frame["sd"].tolist() == np.sqrt([0.5, 0.0, 0.2]).tolist()
    assert np.isnan(frame.loc["1->0: Intercept", "corr. 0->1: Intercept"])
    isotropic = section(fit_of("labels"), "Effects between 8 subjects").frame
    assert list(isotropic.columns) == ["sd"]


@pytest.mark.parametrize(
    ("kind", "there"), [("labels", np.eye(4)), ("gaussian", np.ones((4, 4))), ("moving", None)]
)
def test_covariances_that_the_model_has_not_are_constant(kind, there):
    fit = fit_of(kind)
    there = fit.params["effect_covariance"] != 0 if there is None else there
    table = fit.table()
    constant = fit.model.constant_rows()[table["parameter"] == "effect_covariance"]
    assert constant.tolist() == (there[np.tril_indices(len(there))] == 0).tolist()


def test_the_structure_of_one_effect_is_nothing_to_speak_of():
    assert ", effects" not in str(fit_of("counts").summary(errors=False))
    assert ", effects isotropic" in str(fit_of("labels").summary(errors=False))


def test_the_summary_tells_of_the_chain():
    assert "\ntransitions ~ x + (1 | who), stationary start\n" in str(
        fit_of("moving").summary(errors=False)
    )
    assert "\ntransitions ~ x, first state ~ kind\n" in str(
        fit_of("by_state").summary(errors=False)
    )
    plain = str(fit_of("movement").summary(errors=False))
    assert "stationary" not in plain
    assert plain.splitlines()[1] == "2 states, gamma, von Mises"


def test_small_probabilities_are_not_zero():
    fit = fit_of("counts")
    params = fit.params | {"transition": np.array([[1 - 1e-5, 1e-5], [0.0, 1.0]])}
    text = str(replace(fit, params=params).summary(errors=False))
    assert "state 0    1.000   <0.001" in text
    assert "state 1    0.000    1.000" in text


def test_outcomes_with_different_numbers_of_levels_are_summed_up():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": np.repeat(np.arange(6), 20)})
    frame = frame.assign(a=rng.integers(0, 3, 120), b=rng.integers(0, 2, 120))
    fit = avem.MixedHMM("a + b ~ 1", 2, "categorical").fit(frame, subject="id", n_starts=1)
    text = str(fit.summary(errors=False))
    assert "a = 2" in text
    assert "b = 1" in text


def test_a_summary_counts_in_plain_words():
    known = fit_of("zeros")  # no effects: what was maximised is the log likelihood itself
    assert known.panel is not None
    one = known.panel.table.query("who == 's0'")
    fit = fit_from(KINDS["zeros"][0], KINDS["zeros"][1], one, np.zeros((1, 0)))
    text = str(fit.summary(errors=False))
    assert "1 subject, 1 sequence, 24 rows" in text
    assert "1 subject," in repr(fit)
    assert f"log likelihood {fit.bound:.3f} after" in text
    assert "bound" in str(fit_of("choice").summary(errors=False))  # with effects, not refined


def test_a_p_of_zero_is_small():
    cell = Cell(("a",), 5.5, 0.01, 5.48, 5.52, z=550.0, p=0.0)
    assert _cell_text(cell, 0.95, "")["p"] == "<0.001"
    assert _cell_text(cell._replace(p=0.0012), 0.95, "")["p"] == "0.001"
    assert _cell_text(cell._replace(p=np.nan), 0.95, "")["p"] == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (14.0, "14.00"),
        (-1.53, "-1.530"),
        (0.02164, "0.02164"),
        (35343.4, "35343"),
        (0, "0"),
        (2.4e-10, "2.4e-10"),
        (np.nan, ""),
    ],
)
def test_numbers_have_four_digits_and_whole_ones_all(value, shown):
    assert _number(value) == shown


def test_a_share_of_zeros_is_shown_as_a_probability():
    fit = fit_of("zeros")
    title = [section for section in frames(fit) if section.title.lower().endswith("zero")]
    assert title
    assert all(section.chances for section in title)


def test_log_odds_say_of_what():
    assert avem.Bernoulli(("Fine", "Rainy")).coef_scale == "log odds of Rainy"
    assert avem.Categorical(("a", "b", "c")).coef_scale == "log odds against a"
    assert section(fit_of("labels"), "Coefficients").title == "Coefficients (log odds against 1)"
