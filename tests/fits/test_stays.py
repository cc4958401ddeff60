"""Dwell times, long-run shares and occupancy: linear algebra, enumeration, counting, simulation."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm, t

import avem
from avem.errors import DataError, ModelError
from avem.fits.questions.dwell import find_runs, mean_stay
from tests.brute import enumerate_paths
from tests.fits.kinds import CHAIN, KINDS, fit_from, fit_of

THREE = [[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]]


@pytest.fixture(scope="module")
def three():
    """Three states that are told apart at once, long sequences."""
    hmm = avem.MixedHMM("y ~ 1", 3)
    truth = {
        "initial": [1 / 3] * 3,
        "transition": THREE,
        "coef": [[[0.0]], [[50.0]], [[100.0]]],
        "variance": [[1.0]] * 3,
        "effect_covariance": np.zeros((0, 0)),
    }
    rows = pd.DataFrame({"who": np.repeat(np.arange(40), 400), "t": np.tile(np.arange(400), 40)})
    drawn = hmm.simulate(truth, data=rows, subject="who", time="t", seed=1)
    return fit_from(hmm, truth, drawn.frame, drawn.effects), drawn


def subject_moves(x, effects):
    """The transition matrix of the kind "moving", written out."""
    up = expit(-1.5 + 0.5 * x + effects[:, 1])
    down = expit(-1.0 - 0.4 * x + effects[:, 2])
    return up, down


# --- long-run shares ----------------------------------------------------------------------------


def test_stationary_is_the_left_eigenvector_and_what_a_long_simulation_does(three):
    fit, drawn = three
    values, vectors = np.linalg.eig(np.transpose(THREE))
    wanted = np.real(vectors[:, np.argmax(np.real(values))])
    found = fit.stationary(level=None)
    np.testing.assert_allclose(found["share"], wanted / wanted.sum(), rtol=1e-10)
    counted = np.bincount(drawn.states) / len(drawn.states)
    np.testing.assert_allclose(found["share"], counted, atol=0.02)


def test_stationary_of_subjects_at_their_own_covariates_and_effects():
    fit = fit_of("moving")
    x = fit.panel.table.dropna(subset=["y"]).groupby("who")["x"].mean().to_numpy()
    up, down = subject_moves(x, fit.effects_mean)
    table = fit.stationary(by="who", level=None)
    assert table["who"].tolist() == np.repeat(fit.subjects, 2).tolist()
    np.testing.assert_allclose(table["share"].to_numpy()[1::2], up / (up + down), rtol=1e-10)
    # The group is at effect 0 and the average covariate.
    up, down = subject_moves(fit.panel.table.dropna(subset=["y"])["x"].mean(), np.zeros((1, 3)))
    shares = fit.stationary(level=None)["share"]
    # The average has nine digits.
    np.testing.assert_allclose(shares, np.concatenate([down, up]) / (up + down), rtol=1e-8)


def test_a_state_that_is_never_left_keeps_all():
    hmm, truth = avem.MixedHMM("y ~ 1", 2), KINDS["gaussian"][1]
    frame = pd.DataFrame({"who": [0, 0, 0, 1, 1], "t": [0, 1, 2, 0, 1], "y": [0.0, 1, 0, 3, 3]})
    truth = CHAIN | {
        "transition": [[0.8, 0.2], [0.0, 1.0]],
        "coef": [[[0.0]], [[3.0]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": np.zeros((0, 0)),
    }
    fit = fit_from(hmm, truth, frame, np.zeros((2, 0)))
    np.testing.assert_allclose(fit.stationary(level=None)["share"], [0, 1], atol=1e-12)
    assert fit.dwell(level=None)["expected"].tolist() == pytest.approx([5.0, np.inf])


# --- dwell times --------------------------------------------------------------------------------


def test_expected_dwell_is_one_over_the_chance_to_leave(three):
    fit, drawn = three
    table = fit.dwell(level=None)
    wanted = 1 / (1 - np.diagonal(THREE))
    np.testing.assert_allclose(table["expected"], wanted, rtol=1e-10)
    # The states are told apart at once, so that decoded stays are the true ones.
    np.testing.assert_allclose(table["decoded"], wanted, rtol=0.05)
    true = mean_stay(find_runs(fit.panel, drawn.states), 3)
    np.testing.assert_allclose(table["decoded"], true, rtol=1e-12)


def test_the_lengths_of_a_geometric_chain_are_geometric(three):
    fit, _ = three
    table = fit.dwell(by="length")
    for k, own in table.groupby("state"):
        stay = THREE[int(k)][int(k)]
        wanted = (1 - stay) * stay ** (own["length"] - 1)
        np.testing.assert_allclose(own["implied"], wanted, rtol=1e-10)
        np.testing.assert_allclose(own["decoded"][:5], wanted[:5], atol=0.03)


def test_runs_and_their_cut_ends_by_hand():
    frame = pd.DataFrame(
        {
            "who": list("aaaaaaabbbb"),
            "t": [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3],
            "y": [0.0] * 11,
        }
    ).sample(frac=1, random_state=0)
    panel = avem.Panel.from_frame(frame, "who", time="t")
    path = {"a": [0, 0, 1, 1, 1, 0, 0], "b": [1, 0, 1, 1]}
    state = np.array([path[who][when] for who, when in zip(frame["who"], frame["t"], strict=True)])
    runs = find_runs(panel, state)
    by_subject = {
        label: [
            (int(runs.state[i]), int(runs.length[i]), bool(runs.begun[i]), bool(runs.ended[i]))
            for i in np.flatnonzero(runs.subject == number)
        ]
        for number, label in enumerate(panel.subjects)
    }
    assert by_subject == {
        "a": [(0, 2, False, True), (1, 3, True, True), (0, 2, True, False)],
        "b": [(1, 1, False, True), (0, 1, True, True), (1, 2, True, False)],
    }
    # Steps from each state: 0 has 2 + 1 (+1 from b), left twice; 1 has 3 + 1 + 1, left twice.
    np.testing.assert_allclose(mean_stay(runs, 2), [4 / 2, 5 / 2])


def test_lengths_allow_for_stays_that_are_cut():
    """A stay of 1 that ended, one of 2 that was cut: after 1 row, 1 of 2 ended."""
    hmm = avem.MixedHMM("y ~ 1", 2)
    frame = pd.DataFrame(
        {"who": list("aaabbb"), "t": [0, 1, 2, 0, 1, 2], "y": [0.0, 90, 0, 0, 90, 90]}
    )
    truth = CHAIN | {
        "coef": [[[0.0]], [[90.0]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": np.zeros((0, 0)),
    }
    table = fit_from(hmm, truth, frame, np.zeros((2, 0))).dwell(by="length")
    own = table[table["state"] == 1]
    assert own["at_risk"].tolist() == [2, 0]
    assert own["ended"].tolist() == [1, 0]
    assert own["decoded"].tolist() == [0.5, 0.0]
    np.testing.assert_allclose(own["implied"], [0.3, 0.3 * 0.7])


def test_dwell_of_subjects():
    fit = fit_of("moving")
    x = fit.panel.table.dropna(subset=["y"]).groupby("who")["x"].mean().to_numpy()
    up, down = subject_moves(x, fit.effects_mean)
    table = fit.dwell(by="subject", level=None)
    np.testing.assert_allclose(table["expected"].to_numpy()[::2], 1 / up, rtol=1e-10)
    np.testing.assert_allclose(table["expected"].to_numpy()[1::2], 1 / down, rtol=1e-10)


def test_intervals_of_subjects_know_that_effects_are_uncertain():
    """With parameters as good as known, all that is left is the posterior of the effects."""
    fit = replace(fit_of("moving"))
    free = fit._curvature.free
    fit.__dict__["_curvature"] = replace(fit._curvature, information=1e16 * np.eye(free.size))
    x = fit.panel.table.dropna(subset=["y"]).groupby("who")["x"].mean().to_numpy()
    up, down = subject_moves(x, fit.effects_mean)
    cov = fit._posterior("adaptive")[1][:, 1:, 1:]
    dwell = fit.dwell(by="subject")
    # The log odds of staying are minus those of leaving.
    sd = np.sqrt(cov[:, 0, 0])
    np.testing.assert_allclose(dwell["se"][::2], (1 / up - 1) * sd, rtol=1e-6)
    half = norm.ppf(0.975) * sd
    np.testing.assert_allclose(dwell["upper"][::2], 1 + (1 / up - 1) * np.exp(half), rtol=1e-6)
    # d log(share / (1 - share)) = (1 - up) d logit(up) - (1 - down) d logit(down)
    share, slope = up / (up + down), np.stack([1 - up, down - 1], axis=1)
    spread = np.sqrt(np.einsum("nd,nde,ne->n", slope, cov, slope)) * share * (1 - share)
    np.testing.assert_allclose(fit.stationary(by="subject")["se"][1::2], spread, rtol=1e-6)


def test_by_what_is_said_where_it_cannot_be():
    with pytest.raises(ModelError, match="by is 'kind'; 'subject'"):
        fit_of("moving").stationary(by="kind")
    with pytest.raises(ModelError, match="level is 2"):
        fit_of("moving").dwell(level=2)
    with pytest.raises(ModelError, match="errors is 'robust'"):
        fit_of("moving").dwell(errors="robust")


# --- occupancy ----------------------------------------------------------------------------------


def test_occupancy_of_all_rows_is_counted(three):
    fit, drawn = three
    counted = np.bincount(drawn.states) / len(drawn.states)
    table = fit.occupancy()
    np.testing.assert_allclose(table["share"], counted, atol=1e-10)
    # Equal lengths: the standard error of a mean of the subjects' shares.
    each = pd.crosstab(drawn.frame["who"], drawn.states, normalize="index").to_numpy()
    np.testing.assert_allclose(table["se"], each.std(0, ddof=1) / np.sqrt(40), rtol=1e-8)
    assert ((table["lower"] < table["share"]) & (table["share"] < table["upper"])).all()


def test_occupancy_by_a_column_is_counted_group_by_group(three):
    fit, drawn = three
    early = np.where(drawn.frame["t"] < 10, "early", "late")
    table = fit.occupancy(by=pd.Series(early, name="when"))
    wanted = pd.crosstab(early, drawn.states, normalize="index")
    assert table["when"].tolist() == ["early"] * 3 + ["late"] * 3
    np.testing.assert_allclose(table["share"], wanted.to_numpy().ravel(), atol=1e-10)
    assert table["rows"].tolist() == [400] * 3 + [40 * 390] * 3
    by_time = fit.occupancy(by="t")
    wanted = pd.crosstab(drawn.frame["t"], drawn.states, normalize="index").to_numpy()
    np.testing.assert_allclose(by_time["share"].to_numpy().reshape(-1, 3), wanted, atol=1e-10)


@pytest.fixture(scope="module")
def short():
    """A fit of two subjects' few rows, whose paths can be counted."""
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
    truth = CHAIN | {
        "coef": [[[0.0]], [[1.5]]],
        "variance": [[1.0], [0.6]],
        "effect_covariance": [[0.4]],
    }
    rows = pd.DataFrame(
        {
            "who": list("a" * 6 + "b" * 4),
            "day": [0, 0, 0, 1, 1, 1] + [0] * 4,
            "t": range(10),
            "phase": list("xxyxyy" + "yxyz"),
        }
    )
    drawn = hmm.simulate(truth, data=rows, subject="who", time="t", sequence="day", seed=2)
    return fit_from(hmm, truth, drawn.frame, drawn.effects, sequence="day"), drawn.effects[:, 0]


def moments(fit, who, effect, counted):
    """Mean and variance of how many of the rows that are `counted` are in state 1, by counting."""
    mean = var = 0.0
    frame = fit.panel.table.assign(counted=counted)
    for _, own in frame[frame["who"] == who].groupby("day"):
        y = own["y"].to_numpy()[:, None]
        table = norm.logpdf(y, np.array([0.0, 1.5]) + effect, np.sqrt([1.0, 0.6]))
        paths, joint = enumerate_paths(CHAIN["initial"], CHAIN["transition"], table)
        weight = np.exp(joint - joint.max())
        weight, n = weight / weight.sum(), paths[:, own["counted"].to_numpy()].sum(1)
        mean += weight @ n
        var += weight @ n**2 - (weight @ n) ** 2
    return mean, var


def check_share(row, fit, effects, counted):
    """A row of state 1: mean and variance of the paths, and what the effect adds."""
    effect, n = effects[list(fit.subjects).index(row["who"])], counted.sum()
    mean, var = moments(fit, row["who"], effect, counted)
    ends = (moments(fit, row["who"], effect + step, counted)[0] for step in (1e-4, -1e-4))
    slope = np.subtract(*ends) / 2e-4
    assert row["share"] == pytest.approx(mean / n, rel=1e-8)
    assert row["se"] == pytest.approx(np.sqrt(var + 0.01 * slope**2) / n, rel=1e-4)
    assert 0 <= row["lower"] <= row["upper"] <= 1
    assert n == 1 or row["lower"] < row["share"] < row["upper"]  # a single row is in it or not
    assert row["rows"] == n


def test_occupancy_of_a_subject_has_the_moments_of_all_its_paths(short):
    fit, effects = short
    table = fit.occupancy(by="who").query("state == 1")
    assert table["who"].tolist() == ["a", "b"]
    for row in table.to_dict("records"):
        check_share(row, fit, effects, (fit.panel.table["who"] == row["who"]).to_numpy())


@pytest.mark.parametrize("column", ["day", "phase", "t"])
def test_occupancy_of_parts_of_subjects_has_the_moments_of_their_paths(short, column):
    """Parts of one sequence, of several, and single rows."""
    fit, effects = short
    table = fit.occupancy(by=["subject", column])
    assert (table["note"] == "").all()
    assert (table["subjects"] == 1).all()
    every = fit.panel.table.groupby(["who", column]).size()
    ones = table.query("state == 1")
    assert list(zip(ones["who"], ones[column], strict=True)) == every.index.tolist()
    frame = fit.panel.table
    for row in ones.to_dict("records"):
        here = (frame["who"] == row["who"]) & (frame[column] == row[column])
        check_share(row, fit, effects, here.to_numpy())


def test_occupancy_says_where_a_sequence_has_too_many_parts(short, monkeypatch):
    monkeypatch.setattr("avem.fits.questions.time_in_states.MOST_PARTS", 1)
    table = short[0].occupancy(by=["who", "phase"])
    single = table["rows"] == 1
    assert table.loc[single, "se"].notna().all()
    assert table.loc[~single, ["se", "lower", "upper"]].isna().all(axis=None)
    assert table.loc[~single, "note"].str.contains("groups within one sequence").all()
    assert table["share"].notna().all()


def test_occupancy_says_what_it_cannot_group_by(three):
    fit, _ = three
    with pytest.raises(DataError, match=r"no column 'phase'.*The columns are"):
        fit.occupancy(by="phase")
    with pytest.raises(DataError, match=r"by has shape \(3,\)"):
        fit.occupancy(by=[1, 2, 3])


def test_one_subject_has_no_spread_between_subjects():
    hmm, truth = avem.MixedHMM("y ~ 1", 1), {"initial": [1.0], "transition": [[1.0]]}
    truth |= {"coef": [[[0.0]]], "variance": [[1.0]], "effect_covariance": np.zeros((0, 0))}
    frame = pd.DataFrame({"who": [0, 0], "t": [0, 1], "y": [0.0, 1.0]})
    fit = fit_from(hmm, truth, frame, np.zeros((1, 0)))
    assert np.isnan(fit.occupancy()["se"]).all()
    assert fit.occupancy()["note"].tolist() == ["one subject: no sample to judge by"]
    assert fit.occupancy(by="subject")[["share", "lower", "upper"]].to_numpy().tolist() == [[1] * 3]
    assert fit.stationary(level=None)["share"].tolist() == [1.0]
    assert fit.dwell(level=None)["expected"].tolist() == [np.inf]
    endless = fit.dwell()  # a chance of 1 has no interval, and says so
    assert endless[["se", "lower", "upper"]].isna().all(axis=None)
    assert endless["note"].tolist() == ["at its boundary: no standard error"]


def test_few_subjects_have_wide_intervals(three):
    """Student's t enters: two subjects say little."""
    fit, _ = three
    two = fit.panel.table["who"].isin([0, 1]).to_numpy()
    by = np.where(two, "few", "many")
    table = fit.occupancy(by=by)
    few = table[table["by"] == "few"]
    assert (few["subjects"] == 2).all()
    ratio = (few["upper"] - few["lower"]) / (2 * few["se"])
    assert (ratio > 0.5 * t.ppf(0.975, 1)).all()
