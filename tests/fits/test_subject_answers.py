"""What is said of single subjects: their transitions, coefficients and occupancy."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import digamma, expit, logit, polygamma, softmax
from scipy.stats import t

import avem
from avem.errors import DataError, ModelError
from avem.fits.predict.at import moves_at
from avem.fits.questions.moves import subject_columns
from avem.fits.questions.uncertain_states import weighted_draws
from tests.fits.kinds import fit_from, fit_of
from tests.fits.test_stays import subject_moves

MOVES = np.zeros((2, 2, 1))
MOVES[0, 1], MOVES[1, 0] = -1.2, -0.8
TRUTH = {
    "initial": [0.5, 0.5],
    "transition_coef": MOVES,
    "coef": [[[0.0]], [[3.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[0.5, 0.0], [0.0, 0.3]],
}
RESTLESS = avem.MixedHMM("y ~ 1", 2, transition="~ 1 + (1 | who)", effect_covariance="diagonal")


def fit_to(seed, n=24, n_times=32):
    """A maximum likelihood fit with effects on the transitions, and the effects behind the data."""
    drawn = RESTLESS.simulate(TRUTH, n, n_times, seed=seed)
    with_init = {"init": TRUTH, "refine": "adaptive"}
    return RESTLESS.fit(drawn.frame, time="time", **with_init), drawn.effects


@pytest.fixture(scope="module")
def restless():
    return fit_to(3)[0]


def by_subject(table, column="probability"):
    """(subjects, from, to)."""
    return table[column].to_numpy(float).reshape(-1, 2, 2)


# --- transitions --------------------------------------------------------------------------------


def test_transitions_of_subjects_by_hand():
    fit = fit_of("moving")
    x = fit.panel.table.dropna(subset=["y"]).groupby("who")["x"].mean().to_numpy()
    table = fit.transitions(by="subject", level=None)
    assert list(table.columns) == ["who", "state", "to_state", "probability", "note"]
    assert table["who"].tolist() == np.repeat(fit.subjects, 4).tolist()
    found = by_subject(table)
    np.testing.assert_allclose(found.sum(2), 1.0, rtol=1e-12)
    up, down = subject_moves(x, fit.effects_mean)
    np.testing.assert_allclose(found[:, 0, 1], up, rtol=1e-10)
    np.testing.assert_allclose(found[:, 1, 0], down, rtol=1e-10)
    assert (table["note"] == "").all()


def test_covariates_are_held_where_they_are_given():
    fit = fit_of("moving")
    up, _ = subject_moves(2.0, fit.effects_mean)
    own = by_subject(fit.transitions(by="who", level=None, at={"x": 2.0}))
    np.testing.assert_allclose(own[:, 0, 1], up, rtol=1e-10)
    group = by_subject(fit.transitions(level=None, at={"x": 2.0}))
    np.testing.assert_allclose(group[0, [0, 1], [1, 0]], expit([-0.5, -1.8]), rtol=1e-10)
    # One vocabulary: what follows from the matrix is held there, too.
    dwell = fit.dwell(by="subject", level=None, at={"x": 2.0})["expected"].to_numpy()
    np.testing.assert_allclose(dwell[::2], 1 / up, rtol=1e-10)
    share = fit.stationary(level=None, at={"x": 2.0})["share"]
    np.testing.assert_allclose(share[1], expit(-0.5) / (expit(-0.5) + expit(-1.8)), rtol=1e-10)
    implied = fit.dwell(by="length", at={"x": 2.0}).query("state == 0 and length == 1")["implied"]
    assert implied.item() != fit.dwell(by="length")["implied"][0]


def test_what_transitions_cannot_be_asked_is_said():
    fit = fit_of("moving")
    with pytest.raises(ModelError, match=r"at has 'kind', which the transitions do not read.*'x'"):
        fit.transitions(at={"kind": "a"})
    with pytest.raises(ModelError, match="at is 'x'; a dict"):
        fit.stationary(at="x")
    with pytest.raises(ModelError, match="one value is wanted"):
        fit.dwell(at={"x": [1, 2]})
    with pytest.raises(ModelError, match="by is 'kind'"):
        fit.transitions(by="kind")
    with pytest.raises(ModelError, match="they read none"):
        fit_of("counts").transitions(at={"x": 1})


def test_without_effects_on_the_transitions_subjects_are_the_group_and_the_note_says_so():
    """Other effects are there; they move neither estimates nor intervals of the transitions."""
    fit = fit_of("by_state")
    columns = ["se", "lower", "upper"]
    for method, value in (("transitions", "probability"), ("stationary", "share")):
        group = getattr(fit, method)(at={"x": 0.5})
        own = getattr(fit, method)(by="subject", at={"x": 0.5})
        assert own["note"].str.startswith("the same for every subject").all()
        n = len(fit.subjects)
        for name in (value, *columns):
            wanted = np.tile(group[name].to_numpy(float), n)
            np.testing.assert_allclose(own[name].to_numpy(float), wanted, rtol=1e-5)
    apart = fit.transitions(by="subject", level=None)
    assert apart["note"].str.contains("by their covariates alone").all()


def test_a_model_without_any_effects():
    fit = fit_of("zeros")
    group, own = fit.transitions(), fit.transitions(by="subject")
    wanted = np.tile(group["lower"].to_numpy(), len(fit.subjects))
    np.testing.assert_allclose(own["lower"], wanted, rtol=1e-6)
    assert own["note"].str.startswith("the same for every subject").all()
    assert not len(fit.coefficients())


@pytest.mark.slow
def test_intervals_agree_with_draws_of_parameters_and_effects(restless):
    """The delta method beside 150 draws from the likelihood of both together."""
    fit = restless
    table = fit.transitions(by="subject")
    p = by_subject(table)
    on_logits = by_subject(table, "se") / (p * (1 - p))
    a, weights, odds = subject_columns(fit), [], []
    for weight, theta, effects in weighted_draws(fit, 150, 1):
        user = fit.model.effects_out(effects, np.zeros((2, *effects.shape)))[0]
        odds.append(logit(moves_at(fit.model, fit.model.params_out(theta), a, user)))
        weights.append(weight)
    mean = np.average(odds, axis=0, weights=weights)
    sd = np.sqrt(np.average((np.array(odds) - mean) ** 2, axis=0, weights=weights))
    ratio = on_logits / sd
    assert 0.9 < np.median(ratio) < 1.1
    assert ratio.min() > 0.65
    assert ratio.max() < 1.35
    # Effects and parameters as if independent would be wider, the effects alone narrower.
    inside = logit(by_subject(table, "upper")) - logit(p)
    df = inside / on_logits
    assert (df >= 1.959).all()
    assert (df <= t.ppf(0.975, 23) + 1e-9).all()


def test_draws_of_parameters_are_those_of_the_likelihood():
    """Of 12 values of one Gaussian, where the posterior under a flat prior is known: a t, and the
    logarithm of an inverse chi squared."""
    model = avem.MixedHMM("y ~ 1", 1)
    y = np.random.default_rng(3).normal(5.0, 2.0, 12)
    fit = model.fit(pd.DataFrame({"who": np.repeat(["a", "b", "c"], 4), "y": y}), subject="who")
    drawn = [(w, fit.model.params_out(theta)) for w, theta, _ in weighted_draws(fit, 800, 0)]
    weights = np.array([weight for weight, _ in drawn])
    mean = np.array([params["coef"].item() for _, params in drawn])
    log_variance = np.log([params["variance"].item() for _, params in drawn])
    squares, df = ((y - y.mean()) ** 2).sum(), 11
    spread = np.sqrt(squares / 12 / (df - 2))
    wanted = {
        "mean": (y.mean(), spread),
        "log variance": (np.log(squares / 2) - digamma(df / 2), np.sqrt(polygamma(1, df / 2))),
    }
    for values, (centre, sd) in zip((mean, log_variance), wanted.values(), strict=True):
        middle = np.average(values, weights=weights)
        assert abs(middle - centre) < 0.15 * sd
        found = np.sqrt(np.average((values - middle) ** 2, weights=weights))
        assert found == pytest.approx(sd, rel=0.12)


def test_errors_by_the_sandwich_are_others(restless):
    observed, sandwich = (
        restless.transitions(by="subject", errors=e) for e in ("observed", "sandwich")
    )
    assert not np.allclose(observed["se"], sandwich["se"], rtol=1e-3)
    assert (sandwich["se"] > 0).all()


def test_a_fit_from_a_file_answers_where_no_covariate_is_needed(restless):
    alone = replace(restless, panel=None)
    pd.testing.assert_frame_equal(
        alone.transitions(by="subject", level=None), restless.transitions(by="subject", level=None)
    )
    with pytest.raises(DataError, match="holds no data"):
        replace(fit_of("moving"), panel=None).transitions(by="subject", level=None)


def test_a_subject_column_that_is_called_like_a_result_is_refused(restless):
    odd = replace(restless, columns={**restless.columns, "subject": "state"})
    with pytest.raises(DataError, match="'state' has the name of another column"):
        odd.transitions(by="subject", level=None)
    with pytest.raises(DataError, match="'state' has the name of another column"):
        odd.coefficients(parameters="fixed")


def test_no_interval_where_the_variance_of_the_effects_is_hardly_known(restless):
    """Its estimate may be far too small, and the intervals with it: the note says so."""
    theta = dict(restless.theta, effect_covariance=np.diag([0.5, 1e-12]))
    flat = replace(restless, params=restless.model.params_out(theta))
    flat.__dict__["_marginal"], flat.__dict__["_curvature"] = (
        restless._marginal,
        restless._curvature,
    )
    table = flat.transitions(by="subject")
    hard = table["state"] == 1  # only moves from there have the second effect
    assert table.loc[hard, ["se", "lower", "upper"]].isna().all(axis=None)
    assert (
        table.loc[hard, "note"].str.startswith("the variance of the effects is hardly known").all()
    )
    assert table.loc[hard, "probability"].notna().all()
    assert table.loc[~hard, "se"].notna().all()
    both = flat.stationary(by="subject")  # has both effects in it
    assert both["se"].isna().all()
    assert flat.transitions()["se"].notna().all()  # the group is not concerned
    fixed = flat.coefficients(parameters="fixed")  # parameters taken as known
    assert fixed["se"].notna().all()


@pytest.mark.slow
def test_intervals_of_subjects_cover_their_own_transitions():
    """Nominal 95% in 60 panels, where intervals are given; and all effects at true parameters.

    A third of these small panels hardly know a variance of the effects: no intervals there.
    """
    hits, given, known_truth = [], [], []
    for seed in range(60):
        fit, effects = fit_to(9000 + seed)
        table = fit.transitions(by="subject")
        truth = np.stack([expit(-1.2 + effects[:, 0]), expit(-0.8 + effects[:, 1])], axis=1)
        low, high = (by_subject(table, name)[:, [0, 1], [1, 0]] for name in ("lower", "upper"))
        known = ~np.isnan(low)
        given.append(known.mean())
        hits += ((low < truth) & (truth < high))[known].tolist()
        assert (table.loc[table["se"].isna(), "note"] != "").all()
        at = replace(fit, params={name: np.array(value, float) for name, value in TRUTH.items()})
        mean, cov = at._posterior("adaptive")
        inside = np.abs(mean - effects) < 1.96 * np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
        known_truth.append(inside.mean())
    assert 0.93 < np.mean(hits) < 0.985
    assert 0.935 < np.mean(known_truth) < 0.965
    assert 0.5 < np.mean(given) < 0.9


# --- coefficients -------------------------------------------------------------------------------


def on_both(kind, fit=None):
    """The table on the scale of the link and on that of the response."""
    fit = replace(fit or fit_of(kind))
    # Nothing here is about how the posterior of the effects is found.
    mean, cov = fit.model.effects_in(fit.effects_mean), fit.model.effects_cov_in(fit.effects_cov)
    fit.__dict__["_marginal"] = SimpleNamespace(mean=mean, cov=cov)
    return tuple(
        fit.coefficients(parameters="fixed", scale=scale) for scale in ("link", "response")
    )


@pytest.mark.parametrize(
    ("kind", "inverse"), [("counts", np.exp), ("trials", expit), ("choice", expit)]
)
def test_intercepts_go_through_the_inverse_link(kind, inverse):
    link, response = on_both(kind)
    for name in ("estimate", "lower", "upper"):
        np.testing.assert_allclose(response[name], inverse(link[name]), rtol=1e-8)
    wanted = "" if kind == "trials" else "at covariates 0 or their reference"
    assert (response["note"] == wanted).all()


def test_levels_and_moves_become_probabilities_that_fit_together():
    link, response = on_both("labels")
    odds = link["estimate"].to_numpy().reshape(-1, 2)  # of the second and third level
    wanted = softmax(np.column_stack([np.zeros(len(odds)), odds]), axis=1)[:, 1:]
    np.testing.assert_allclose(response["estimate"], wanted.ravel(), rtol=1e-8)
    link, response = on_both("moving")
    moves = link["parameter"] == "transition_coef"
    np.testing.assert_allclose(response["upper"][moves], expit(link["upper"][moves]), rtol=1e-8)
    np.testing.assert_allclose(response["upper"][~moves], link["upper"][~moves])


def test_where_the_link_is_the_identity_both_scales_are_one():
    link, response = on_both("gaussian")  # with slopes
    pd.testing.assert_frame_equal(link, response)
    link, response = on_both("custom")
    pd.testing.assert_frame_equal(link, response)


def test_a_slope_has_no_value_on_the_response_scale():
    hmm = avem.MixedHMM("n ~ x + (1 + x | who)", 2, "poisson")
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.8, 0.2], [0.3, 0.7]],
        "coef": [[[0.0, 0.3]], [[2.0, 0.1]]],
        "effect_covariance": 0.1 * np.eye(2),
    }
    frame = fit_of("counts").panel.table
    fit = fit_from(hmm, truth, frame, np.zeros((8, 2)))
    link, table = on_both("", fit)
    slopes = table["term"] == "x"
    assert table.loc[slopes, ["estimate", "se", "lower", "upper"]].isna().all(axis=None)
    assert (table.loc[slopes, "note"] == "a slope has no value on this scale").all()
    wanted = np.exp(link.loc[~slopes, "estimate"])
    np.testing.assert_allclose(table.loc[~slopes, "estimate"], wanted, rtol=1e-8)
    with pytest.raises(ModelError, match="scale is 'odds'; choose one of 'link', 'response'"):
        fit.coefficients(scale="odds")


# --- occupancy ----------------------------------------------------------------------------------


def test_occupancy_by_several_columns_is_counted():
    fit = fit_of("by_state")
    high = np.where(fit.panel.table["x"] > 0.5, "high", None)
    table = fit.panel.table.assign(stress=high)
    fit = replace(fit, panel=replace(fit.panel, table=table))
    found = fit.occupancy(by=["kind", "stress"])
    chance = fit.state_probabilities().assign(kind=table["kind"], stress=high)
    wanted = chance.dropna().groupby(["kind", "stress"]).mean()  # a missing value is no group
    assert found["kind"].tolist() == ["a", "a", "b", "b"]
    assert set(found["stress"]) == {"high"}
    np.testing.assert_allclose(found["share"], wanted.to_numpy().ravel(), rtol=1e-10)
    assert found["rows"].sum() == 2 * len(chance.dropna())
    one = fit.occupancy(by=["kind"])
    pd.testing.assert_frame_equal(one, fit.occupancy(by="kind"))
    pd.testing.assert_frame_equal(fit.occupancy(by=["subject"]), fit.occupancy(by="who"))
    both = fit.occupancy(by=["subject", "kind"])
    assert list(both.columns[:3]) == ["who", "kind", "state"]
    assert both[["se", "lower", "upper"]].notna().all(axis=None)
    ax = fit.plot.occupancy(by=["kind", "stress"]).axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a, high", "b, high"]
    assert ax.get_xlabel() == "kind, stress"
    with pytest.raises(DataError, match="no column 'phase'"):
        fit.occupancy(by=["kind", "phase"])
    with pytest.raises(DataError, match="'share' has the name of another column"):
        fit.occupancy(by=pd.Series(np.zeros(len(table)), name="share"))


def test_occupancy_over_draws_of_the_parameters(restless, monkeypatch):
    for module in ("states_of_rows", "questions.time_in_states"):
        monkeypatch.setattr(f"avem.fits.{module}.STATE_DRAWS", 12)
    fixed = restless.occupancy(by="subject")
    table = restless.occupancy(by="subject", parameters="estimated")
    chance = restless.state_probabilities(parameters="estimated")
    rows = restless.panel.table["who"].to_numpy()
    wanted = chance.groupby(rows, sort=False).mean().to_numpy()
    np.testing.assert_allclose(table["share"], wanted.ravel(), rtol=1e-8)
    assert table["se"].mean() > fixed["se"].mean()
    assert ((table["lower"] <= table["share"]) & (table["share"] <= table["upper"])).all()
    with pytest.raises(ModelError, match="by='subject'"):
        restless.occupancy(parameters="estimated")
    parts = restless.occupancy(by=["who", "time"], parameters="estimated")
    np.testing.assert_allclose(parts["share"], chance.to_numpy().ravel(), rtol=1e-8)
