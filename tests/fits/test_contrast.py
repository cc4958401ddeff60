"""Differences between groups, subjects and states, against hand computations."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import norm, ttest_ind

import avem
from avem.errors import DataError, ModelError
from tests.fits.kinds import CHAIN, fit_from, fit_of, rows


@pytest.fixture(scope="module")
def fit():
    return fit_of("gaussian")  # 8 subjects, 4 effects


@pytest.fixture(scope="module")
def groups(fit):
    return {who: "first" if number < 3 else "second" for number, who in enumerate(fit.subjects)}


def test_groups_differ_by_the_difference_of_their_means(fit, groups):
    table = fit.contrast(groups)
    one, other = fit.effects_mean[:3], fit.effects_mean[3:]
    assert table["effect"].tolist() == fit.model.effect_names
    assert (table["group"] + table["other"]).tolist() == ["firstsecond"] * 4
    np.testing.assert_allclose(table["difference"], one.mean(0) - other.mean(0))
    welch = ttest_ind(one, other, equal_var=False)
    interval = welch.confidence_interval(0.95)
    np.testing.assert_allclose(table["p"], welch.pvalue)
    np.testing.assert_allclose(table["lower"], interval.low)
    np.testing.assert_allclose(table["upper"], interval.high)
    # Of these very subjects: the mean of 3 and that of 5 with variances of 0.01 each.
    np.testing.assert_allclose(table["sd"], np.sqrt(0.01 / 3 + 0.01 / 5))
    assert table["n"].tolist() == [3] * 4
    assert table["n_other"].tolist() == [5] * 4


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_groups_may_be_a_column(fit, groups, kind):
    frame = fit.panel.table.assign(arm=fit.panel.table["who"].map(groups))
    frame = pl.from_pandas(frame) if kind == "polars" else frame
    again = fit.with_data(frame).contrast("arm")
    wanted = fit.contrast(pd.Series(groups, name="arm"))
    if kind == "polars":
        assert isinstance(again, pl.DataFrame)
        again = again.to_pandas()
    pd.testing.assert_frame_equal(again, wanted, check_dtype=kind == "pandas")


def test_pairs_of_subjects_have_their_posterior(fit):
    table = fit.contrast(subjects=["s4", "s1", "s2"], level=0.9)
    assert table["who"].tolist() == ["s4"] * 8 + ["s1"] * 4
    assert table["other"].tolist() == ["s1"] * 4 + ["s2"] * 8
    difference = fit.effects_mean[4] - fit.effects_mean[1]
    sd = np.sqrt(0.02)
    own = table[:4]
    np.testing.assert_allclose(own["difference"], difference)
    np.testing.assert_allclose(own["lower"], difference - norm.ppf(0.95) * sd)
    np.testing.assert_allclose(own["probability"], norm.cdf(np.abs(difference) / sd))


def test_a_single_subject_is_a_group_without_a_spread(fit):
    groups = {who: who == "s0" for who in fit.subjects}
    table = fit.contrast(groups)
    assert table[["se", "lower", "upper", "p"]].isna().all(axis=None)
    assert table["sd"].notna().all()
    assert table["note"].str.contains("one subject has no spread").all()
    assert (fit.contrast({who: who < "s3" for who in fit.subjects})["note"] == "").all()


def test_subjects_without_any_spread_are_not_tested(fit):
    alike = replace(
        fit, effects_mean=np.zeros_like(fit.effects_mean), effects_cov=0 * fit.effects_cov
    )
    table = alike.contrast({who: who < "s3" for who in fit.subjects})
    assert (table["difference"] == 0).all()
    assert table[["se", "lower", "upper", "p"]].isna().all(axis=None)
    assert table["note"].str.contains("no spread between the subjects").all()
    pair = alike.contrast(subjects=["s0", "s1"])
    assert (pair["probability"] == 0.5).all()  # no difference has no sign


def test_the_adaptive_posterior_is_used_when_asked_for():
    """It is put where the fit keeps it once found: finding it is others' business."""
    fit = replace(fit_of("counts"))
    found = SimpleNamespace(mean=np.arange(8.0)[None], cov=np.full((1, 1, 8), 0.5))
    fit.__dict__["_marginal"] = found
    table = fit.contrast(subjects=["s0", "s3"], posterior="adaptive")
    assert table["difference"][0] == pytest.approx(-3.0)
    assert table["sd"][0] == pytest.approx(1.0)
    with pytest.raises(ModelError, match="posterior is 'exact'"):
        fit.contrast(subjects=["s0", "s3"], posterior="exact")


def test_a_fit_without_its_data_compares_by_labels(fit):
    alone = replace(fit, panel=None)
    pd.testing.assert_frame_equal(
        alone.contrast(subjects=["s0", "s3"]), fit.contrast(subjects=["s0", "s3"])
    )
    for wanted, words in {
        ("s0", "nobody"): "no subject 'nobody'. The subjects are 's0'",
        3: "no subject 3. The subjects are 's0'",
        "s0": "subjects is 's0'; two or more different subjects",
    }.items():
        with pytest.raises(DataError, match=words):
            alone.contrast(subjects=wanted)
    with pytest.raises(DataError, match=r"no subject \['s0'\]"):
        alone.contrast(subjects=[["s0"], ["s1"]])


def test_groups_without_a_common_order_come_as_they_are_found(fit):
    labels = {who: ("a", 1) if i % 2 else 3 for i, who in enumerate(fit.subjects)}
    named = {who: "second" if i % 2 else "first" for i, who in enumerate(fit.subjects)}
    found, wanted = fit.contrast(labels), fit.contrast(named)
    assert (found["group"][0], found["other"][0]) == (3, ("a", 1))
    pd.testing.assert_frame_equal(found.iloc[:, 2:], wanted.iloc[:, 2:])


def test_what_cannot_be_compared_is_said(fit, groups):
    with pytest.raises(ModelError, match="one of groups=, subjects= and states="):
        fit.contrast()
    with pytest.raises(DataError, match="no column 'arm'"):
        fit.contrast("arm")
    with pytest.raises(DataError, match="'kind' changes within subjects: 's0'"):
        fit.contrast("kind")
    with pytest.raises(DataError, match="at least two"):
        fit.contrast(dict.fromkeys(fit.subjects, "all"))
    with pytest.raises(DataError, match="no group for the subjects 's7'"):
        fit.contrast({who: group for who, group in groups.items() if who != "s7"})
    with pytest.raises(ModelError, match="groups is a int"):
        fit.contrast(3)
    with pytest.raises(DataError, match="There is no subject 'nobody'"):
        fit.contrast(subjects=["s0", "nobody"])
    with pytest.raises(DataError, match="two or more different"):
        fit.contrast(subjects=["s0", "s0"])
    with pytest.raises(ModelError, match="No effects to compare"):
        fit_of("zeros").contrast(subjects=["s0", "s1"])
    missing = {**groups, "s0": None}
    with pytest.raises(DataError, match="group of the subjects 's0' is missing"):
        fit.contrast(missing)
    with pytest.raises(ModelError, match=r"states is \(0, 2\); two of 0 to 1"):
        fit.contrast(states=(0, 2))
    with pytest.raises(DataError, match="There are 60 groups; at most 50"):
        many_subjects(60).contrast({who: who for who in range(60)})


def many_subjects(n):
    """A fit of many short subjects."""
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 1)
    truth = {"initial": [1.0], "transition": [[1.0]], "coef": [[[0.0]]], "variance": [[1.0]]}
    truth |= {"effect_covariance": [[1.0]]}
    frame = pd.DataFrame({"who": np.repeat(np.arange(n), 2), "t": np.tile([0, 1], n)})
    frame["y"] = np.arange(2.0 * n)
    return fit_from(hmm, truth, frame, np.zeros((n, 1)))


# --- angles -------------------------------------------------------------------------------------


def fit_of_angles(turned=0.0):
    """Mean directions on both sides of pi; whole turns change nothing but the numbers."""
    hmm = avem.MixedHMM("angle ~ kind + x", 2, "von_mises")
    coef = np.array([[[3.0, 0.4, 2.0]], [[-3.0, -0.3, -2.0]]])
    truth = CHAIN | {"concentration": [[4.0], [3.0]], "effect_covariance": np.zeros((0, 0))}
    frame = rows()
    drawn = hmm.simulate(truth | {"coef": coef}, data=frame, subject="who", time="t", seed=4)
    coef[0, 0, :2] += turned * 2 * np.pi
    return fit_from(hmm, truth | {"coef": coef}, drawn.frame, np.zeros((8, 0)))


def test_directions_differ_by_the_nearer_way_round():
    fit = fit_of_angles()
    table = fit.contrast(states=(0, 1)).set_index(["parameter", "term"])
    of = table.loc["coef"]
    assert of.loc["Intercept", "difference"] == pytest.approx(6.0 - 2 * np.pi)
    assert of.loc["kind[b]", "difference"] == pytest.approx(0.7)
    assert of.loc["x", "difference"] == pytest.approx(4.0)  # a slope over numbers has no turns
    # Its standard error is that of the difference, and the interval lies around it.
    half = norm.ppf(0.975) * of["se"]
    np.testing.assert_allclose(of["upper"] - of["difference"], half, rtol=1e-8)
    np.testing.assert_allclose(of["difference"] - of["lower"], half, rtol=1e-8)
    assert (of["se"] > 0).all()
    assert of.loc["Intercept", "p"] == pytest.approx(
        2 * norm.sf(abs(of.loc["Intercept", "difference"] / of.loc["Intercept", "se"]))
    )
    turned = fit_of_angles(2).contrast(states=(0, 1)).set_index(["parameter", "term"])
    numbers = ["difference", "se", "lower", "upper", "p"]
    np.testing.assert_allclose(turned[numbers], table[numbers], rtol=1e-5, atol=1e-8)
