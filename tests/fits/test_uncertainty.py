"""Standard errors, criteria and diagnosis of a fit, against closed forms and by their meaning."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import t

import avem
from tests.fits.kinds import KINDS, fit_from, fit_of

CHAIN = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.1, 0.9]]}
BERNOULLI = avem.MixedHMM("y ~ 1 + (1 | who)", 2, "bernoulli")
TRUTH = CHAIN | {"coef": [[[-1.5]], [[1.5]]], "effect_covariance": [[0.8]]}


@pytest.fixture(scope="module")
def made():
    return BERNOULLI.simulate(TRUTH, 30, 60, seed=4)


@pytest.fixture(scope="module")
def anchored(made):
    return BERNOULLI.fit(made.frame, time="time", refine=None, n_starts=2)


@pytest.fixture(scope="module")
def refined(made):
    return BERNOULLI.fit(made.frame, time="time", refine="adaptive", n_starts=2)


# --- standard errors ----------------------------------------------------------------------------


def test_one_state_has_the_textbook_standard_errors():
    """A Gaussian sample: sd / sqrt(n) for the mean, variance x sqrt(2 / n) for the variance."""
    model = avem.MixedHMM("y1 ~ 1", 1)
    y = 50 + 7 * np.random.default_rng(0).standard_normal((4, 50))
    fit = model.fit(avem.Panel.from_arrays(list(y)))
    table = fit.standard_errors().set_index("parameter")
    n, variance = y.size, y.var()
    assert table.loc["coef", "se"] == pytest.approx(np.sqrt(variance / n), rel=1e-5)
    assert table.loc["variance", "se"] == pytest.approx(variance * np.sqrt(2 / n), rel=1e-4)
    half = 1.959964 * np.sqrt(variance / n)
    assert table.loc["coef", "upper"] == pytest.approx(y.mean() + half, rel=1e-6)
    ratio = np.exp(1.959964 * np.sqrt(2 / n))
    assert table.loc["variance", "lower"] == pytest.approx(variance / ratio, rel=1e-4)
    # What is 1 by definition has no error, and no complaint.
    assert np.isnan(table.loc["transition", "se"])
    assert table.loc["transition", "note"] == "by definition"


@pytest.mark.slow
def test_a_balanced_random_intercept_has_the_anova_standard_error():
    """One state, n subjects x T rows: var(grand mean) = (tau2 + sigma2 / T) / n at the maximum."""
    model = avem.MixedHMM("y ~ 1 + (1 | who)", 1)
    truth = {"initial": [1.0], "transition": [[1.0]], "coef": [[[2.0]]], "variance": [[1.0]]}
    frame = model.simulate(truth | {"effect_covariance": [[0.7]]}, 25, 8, seed=1).frame
    fit = model.fit(frame, time="time", refine="adaptive")
    table = fit.standard_errors().set_index("parameter")
    tau2, sigma2 = fit.params["effect_covariance"][0, 0], fit.params["variance"][0, 0]
    assert table.loc["coef", "se"] == pytest.approx(np.sqrt((tau2 + sigma2 / 8) / 25), rel=1e-4)
    # Intervals with effects: Student's t of the 25 subjects.
    half = t.ppf(0.975, 24) * table.loc["coef", "se"]
    assert table.loc["coef", "upper"] == pytest.approx(table.loc["coef", "estimate"] + half)
    means = frame.groupby("who")["y"].mean()
    assert fit.params["coef"][0, 0, 0] == pytest.approx(means.mean(), abs=1e-5)
    # The sandwich for a mean of independent subjects is their spread itself.
    sandwich = fit.standard_errors("sandwich").set_index("parameter")
    assert sandwich.loc["coef", "se"] == pytest.approx(means.std(ddof=0) / 5, rel=1e-4)


def test_standard_errors_of_a_mixed_hmm(refined):
    table = refined.standard_errors()
    assert list(table.columns[-4:]) == ["se", "lower", "upper", "note"]
    assert (table["note"] == "").all()
    assert (table["se"] > 0).all()
    assert (table["lower"] < table["estimate"]).all()
    assert (table["estimate"] < table["upper"]).all()
    chances = table["parameter"].isin(["initial", "transition"])
    assert table.loc[chances, ["lower", "upper"]].to_numpy().min() > 0
    assert table.loc[chances, ["lower", "upper"]].to_numpy().max() < 1
    # The two probabilities of a row are one parameter, seen from both sides.
    row = table[(table["parameter"] == "transition") & (table["state"] == 0)]
    assert row["se"].iloc[0] == pytest.approx(row["se"].iloc[1])
    assert row["lower"].iloc[0] == pytest.approx(1 - row["upper"].iloc[1])
    narrow = refined.standard_errors(level=0.5)
    assert (narrow["upper"] < table["upper"]).all()


@pytest.mark.slow
def test_units_carry_through():
    """Outcomes in thousandths have errors a thousand times as large, and variances a million."""
    model = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
    truth = CHAIN | {"coef": [[[-2.0]], [[2.0]]], "variance": [[1.0], [0.5]]}
    frame = model.simulate(truth | {"effect_covariance": [[0.5]]}, 12, 30, seed=0).frame
    options = {"time": "time", "n_starts": 1, "refine": "adaptive"}
    small = model.fit(frame, **options).standard_errors().set_index("parameter")
    large = model.fit(frame.assign(y=1000 * frame["y"] + 5), **options)
    large = large.standard_errors().set_index("parameter")
    for name, factor in (("coef", 1e3), ("variance", 1e6), ("effect_covariance", 1e6)):
        np.testing.assert_allclose(large.loc[name, "se"], factor * small.loc[name, "se"], rtol=1e-3)


def test_boundaries_and_held_parameters_are_said_in_words(made):
    always = made.frame.assign(y=lambda f: f["y"].where(f["time"] > 0, 0.0))
    fixed = {"transition": CHAIN["transition"]}
    fit = BERNOULLI.fit(
        always, time="time", fixed=fixed, init={"initial": [1.0 - 1e-9, 1e-9]}, n_starts=1
    )
    table = fit.standard_errors()
    held = table["parameter"] == "transition"
    assert (table.loc[held, "note"] == "held").all()
    assert table.loc[held, "se"].isna().all()
    assert not table.loc[~held & (table["note"] == ""), "se"].isna().any()
    gone = table["se"].isna()
    assert (table.loc[gone, "note"] != "").all()  # never a NaN without a word


@pytest.mark.slow
def test_a_variance_of_nothing_is_on_the_boundary():
    model = avem.MixedHMM("y1 ~ 1 + (1 | subject)", 1)
    y = np.random.default_rng(0).standard_normal((12, 20))
    y -= y.mean(1, keepdims=True)  # subjects do not differ at all
    fit = model.fit(avem.Panel.from_arrays(list(y)))
    row = fit.standard_errors().set_index("parameter").loc["effect_covariance"]
    assert np.isnan(row["se"])
    assert "boundary" in row["note"]


def test_a_probability_of_nothing_has_no_interval():
    """Zeros that a state does not have: its log odds have no end, and no error."""
    known, params = fit_of("zeros"), KINDS["zeros"][1]
    assert known.panel is not None
    never = params | {"zero": [[0.4], [2e-10]]}
    frame = known.panel.table
    fit = fit_from(KINDS["zeros"][0], never, frame[frame["y"] > 0], np.zeros((8, 0)))
    rows = fit.standard_errors().query("parameter == 'zero'")
    assert rows["note"].iloc[1] == "at its boundary: no standard error"
    assert rows[["se", "lower", "upper"]].iloc[1].isna().all()
    (zero,) = [line for line in str(fit.summary(errors=True)).splitlines() if "0.400 [0.2" in line]
    assert zero.endswith("<0.001")
    assert "[0, 1]" not in str(fit.summary(errors=True))
    sure = known.standard_errors().query("parameter == 'zero'")
    assert (sure["note"] == "").all()


def test_effects_know_that_states_are_uncertain(anchored, refined, made):
    narrow = anchored.effects()
    wide = anchored.effects(posterior="adaptive")
    assert (wide["sd"] > narrow["sd"]).mean() > 0.9
    own = refined.effects()
    same = refined.effects(posterior="adaptive")
    np.testing.assert_allclose(own["mean"], same["mean"], atol=0.01)
    # Most intervals hold the true effect.
    held = (own["lower"] < made.effects[:, 0]) & (made.effects[:, 0] < own["upper"])
    assert held.mean() > 0.8


# --- criteria -----------------------------------------------------------------------------------


def test_criteria_are_made_of_the_log_likelihood(refined):
    assert refined.n_params == 1 + 2 + 2 + 1
    assert refined.aic() == pytest.approx(-2 * refined.loglik() + 12)
    assert refined.bic() == pytest.approx(-2 * refined.loglik() + 6 * np.log(30))
    assert refined.icl() > refined.bic()  # states overlap: their paths have entropy


def test_the_entropy_of_paths_by_enumeration():
    from tests.brute import enumerate_paths

    model = avem.MixedHMM("y ~ 1", 2)
    frame = model.simulate(
        CHAIN | {"coef": [[[-1.0]], [[1.0]]], "variance": [[1.0], [1.0]]}, 2, 6, seed=3
    ).frame
    fit = model.fit(frame, "subject", time="time", n_starts=1, max_iter=20, fixed=CHAIN)
    entropy = 0.0
    for _, own in frame.groupby("subject"):
        mean, variance = fit.params["coef"][:, 0, 0], fit.params["variance"][:, 0]
        y = own["y"].to_numpy()[:, None]
        table = -0.5 * ((y - mean) ** 2 / variance + np.log(2 * np.pi * variance))
        _, joint = enumerate_paths(*CHAIN.values(), table)
        p = np.exp(joint - np.logaddexp.reduce(joint))
        entropy -= (p * np.log(p)).sum()
    assert fit.icl() - fit.bic() == pytest.approx(2 * entropy, rel=1e-6)


# --- diagnosis ----------------------------------------------------------------------------------


def test_diagnosis_adds_up_and_advises(anchored):
    found = anchored.diagnose()
    table = found.subjects
    assert list(table["who"]) == list(anchored.subjects)
    assert table["bound"].sum() == pytest.approx(anchored.bound, abs=1e-3)
    assert table["loglik"].sum() == pytest.approx(anchored.loglik(), abs=0.01)
    gap = table["anchoring_gap"] + table["gaussian_gap"]
    np.testing.assert_allclose(table["loglik"] - table["bound"], gap, atol=1e-9)
    assert table["anchoring_gap"].min() > -1e-6
    assert found.effects["lost"].iloc[0] > 0.3
    assert "refine='adaptive'" in found.advice
    assert "of the information lost" in repr(found)


def test_diagnosis_of_refined_separated_and_plain_models(refined):
    assert "This fit is refined" in refined.diagnose().advice
    model = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
    truth = CHAIN | {"coef": [[[-4.0]], [[4.0]]], "variance": [[1.0], [1.0]]}
    frame = model.simulate(truth | {"effect_covariance": [[0.5]]}, 10, 20, seed=0).frame
    assert "Anchoring holds" in model.fit(frame, time="time", n_starts=1).diagnose().advice
    without = avem.MixedHMM("y ~ 1", 2).fit(frame, "who", time="time", n_starts=1)
    found = without.diagnose()
    assert "no effects" in found.advice
    assert (found.subjects["anchoring_gap"] == 0).all()
    assert found.subjects["loglik"].sum() == pytest.approx(without.bound)


def test_the_gap_is_drawn(anchored):
    figure = anchored.plot.gap()
    assert isinstance(figure, Figure)
    bars, lost = figure.axes
    found = anchored.diagnose()
    longest = max(patch.get_x() + patch.get_width() for patch in bars.patches)
    gap = found.subjects["anchoring_gap"] + found.subjects["gaussian_gap"]
    assert longest == pytest.approx(gap.max(), rel=0.01)
    assert lost.patches[0].get_width() == pytest.approx(found.effects["lost"].iloc[0])
    own = Figure().subplots(1, 2)
    assert anchored.plot.gap(ax=own) is own[0].figure
    assert len(own[0].patches) == len(bars.patches)


# --- without data -------------------------------------------------------------------------------


def test_a_loaded_fit_gets_its_data_back(refined, made, tmp_path):
    refined.save(tmp_path / "fit.avem")
    loaded = avem.load(tmp_path / "fit.avem")
    assert loaded.loglik(made.frame) == pytest.approx(refined.loglik(), abs=0.02)
    with pytest.raises(avem.DataError, match=r"fit.with_data\(frame\)"):
        loaded.standard_errors()
    again = loaded.with_data(made.frame)
    np.testing.assert_allclose(
        again.standard_errors()["se"], refined.standard_errors()["se"], rtol=1e-3
    )
    with pytest.raises(avem.DataError, match="not the data of the fit"):
        loaded.with_data(made.frame.iloc[:-1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda fit: fit.standard_errors("exact"),
            "choose one of 'observed', 'sandwich'",
        ),
        (lambda fit: fit.standard_errors(level=95), "a number between 0 and 1"),
        (lambda fit: fit.effects(posterior="true"), "choose one of 'fit', 'adaptive'"),
    ],
)
def test_wrong_options_are_refused(refined, call, words):
    with pytest.raises(avem.ModelError, match=words):
        call(refined)
