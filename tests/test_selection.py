"""Numbers of states, cross-validation and likelihood ratio tests."""

import re
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import chi2, norm

import avem
from avem.components.duration_families import NUMPY, duration_family
from avem.data import Panel
from avem.data.folds import subject_folds, time_folds, with_hidden
from avem.inference.progress_of_fits import Rounds
from avem.models.hmm import HMMModel
from avem.workflows.cross_validation import CrossValidation
from avem.workflows.folds import run_folds
from avem.workflows.nesting import nesting_doubts, reference, tail

# 8 subjects at most and 32 times or fewer: all panels below share one compiled shape.
CHAIN = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.15, 0.85]]}
PARAMS = {**CHAIN, "coef": [[[0.0]], [[4.0]]], "variance": [[1.0], [1.0]]}
OWN = {"subject": "subject", "time": "time"}
QUICK = {**OWN, "n_starts": 2}

PLAIN = avem.MixedHMM("y ~ 1", 2)
MIXED = avem.MixedHMM("y ~ 1 + (1 | subject)", 2)


@pytest.fixture(scope="module")
def frame():
    made = PLAIN.simulate(PARAMS, n_subjects=8, n_times=30, seed=1, subject="subject").frame
    return made[["subject", "time", "y"]]


@pytest.fixture(scope="module")
def differing():
    """The same with an effect."""
    params = {**PARAMS, "effect_covariance": [[0.5]]}
    return MIXED.simulate(params, n_subjects=8, n_times=30, seed=2).frame


@pytest.fixture(scope="module")
def selection(frame):
    return avem.select(PLAIN, frame, [3, 1, 2, 40], cv=4, **QUICK)


@pytest.fixture(scope="module")
def nested(differing):
    larger = MIXED.fit(differing, time="time", n_starts=2, refine="adaptive")
    return PLAIN.fit(differing, **QUICK), larger


# --- numbers of states --------------------------------------------------------------------------


def test_every_criterion_finds_the_two_states_that_there_are(selection):
    assert selection.criteria == ["aic", "bic", "icl", "held_out"]
    assert [selection.preferred(name) for name in selection.criteria] == [2, 2, 2, 2]
    assert selection.n_states == 2
    assert selection.best is selection.fits[2]
    # The likelihood alone would have taken the largest model.
    logliks = selection.table["loglik"].dropna()
    assert selection.table.loc[logliks.idxmax(), "n_states"] == 3


def test_criteria_by_hand(selection, frame):
    for k, fit in selection.fits.items():
        row = selection.table.set_index("n_states").loc[k]
        # Means, variances, first state, transitions.
        n_params = 2 * k + (k - 1) + k * (k - 1)
        assert row["n_params"] == n_params
        assert row["loglik"] == pytest.approx(forward(frame, fit.params, 0.0).sum(), abs=1e-6)
        assert row["aic"] == pytest.approx(2 * n_params - 2 * row["loglik"])
        assert row["bic"] == pytest.approx(np.log(8) * n_params - 2 * row["loglik"])
        assert row["icl"] == pytest.approx(row["bic"]) if k == 1 else row["icl"] > row["bic"]
        assert row["stop"] == fit.stop.name
        assert row["seconds"] == fit.info.seconds
        assert row["held_out"] == selection.scores[k].per_value
        assert row["held_out_se"] == selection.scores[k].se


def test_a_number_that_fails_keeps_the_others_and_says_why(selection):
    assert selection.table["n_states"].tolist() == [1, 2, 3, 40]
    assert list(selection.fits) == [1, 2, 3]
    *fine, failed = selection.table["problem"]
    assert fine == ["", "", ""]
    assert "40 states have" in failed
    assert "Use fewer states" in failed
    assert selection.table.iloc[-1][["loglik", "n_params", "bic", "held_out"]].isna().all()
    assert failed in repr(selection)


def test_types_of_the_table(selection):
    kinds = {name: str(kind) for name, kind in selection.table.dtypes.items()}
    floats = ["loglik", "error", "aic", "bic", "icl", "seconds", "held_out", "held_out_se"]
    assert all(kinds.pop(name) == "float64" for name in floats)
    assert kinds.pop("n_states") == "int64"
    assert kinds.pop("n_params") == kinds.pop("starts_agreeing") == "Int64"
    assert kinds == {"stop": "object", "degenerate": "object", "problem": "object"}


def test_words(selection):
    html = selection._repr_html_()
    assert html.count("<tr") == 1 + len(selection.table)
    assert "Best by BIC" in html
    scored = selection.scores[2]._repr_html_()
    assert scored.count("<tr") == 1 + len(selection.scores[2].table)
    assert "per held-out value" in scored
    words = repr(selection)
    gap = selection.table["bic"][2] - selection.table["bic"][1]
    assert f"Best by BIC: 2 states; next is 3, {gap:.4g} higher." in words
    assert "disagree" not in words
    assert "largest" not in words
    by_score = repr(replace(selection, criterion="held_out"))
    assert "Best by held-out score: 2 states; next is 3," in by_score
    assert "lower." in by_score

    table = selection.table.iloc[:3].copy()
    table["aic"] = [3.0, 2.0, 1.0]
    table["loglik"] = [-10.0, -5.0, -6.0]
    stopped = replace(selection.fits[3], stop=avem.Stop.OUT_OF_STEPS)
    few = replace(selection.fits[2], subjects=np.array(["only"]))
    fits = {**selection.fits, 2: few, 3: stopped}
    words = repr(replace(selection, table=table, fits=fits, criterion="aic", not_fitted=(4, 5)))
    assert "The criteria disagree: BIC is best with 2, ICL is best with 2, held-out" in words
    assert "3 states: not converged. The iteration limit was reached" in words
    assert "3 states: a log likelihood below that with fewer states" in words
    assert "BIC and ICL count 1 subject and so penalise parameters not at all" in words
    assert "Interrupted: 4, 5 states were not fitted." in words
    assert "3 is the largest number tried" in repr(replace(selection, table=table, criterion="aic"))


def test_the_picture_shows_the_table_and_marks_the_best(selection):
    figure = selection.plot()
    assert [ax.get_title().split(":")[0] for ax in figure.axes] == [
        "AIC",
        "BIC",
        "ICL",
        "Held-out score",
    ]
    assert figure.get_suptitle() == "2 states by BIC"
    for ax, name in zip(figure.axes, selection.criteria, strict=True):
        (line,) = [found for found in ax.lines if found.get_gid() == "line"]
        assert line.get_xdata().tolist() == [1, 2, 3]
        np.testing.assert_array_equal(line.get_ydata(), selection.table[name][:3])
        (best,) = [found for found in ax.lines if found.get_gid() == "best"]
        assert best.get_xdata().tolist() == [2]
        assert [text.get_text() for text in ax.texts] == ["no value"]
    (bars,) = figure.axes[3].containers
    low, high = (np.asarray(cap.get_ydata(), float) for cap in bars[1])
    np.testing.assert_allclose((high - low) / 2, selection.table["held_out_se"][:3])
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert len(selection.plot("icl").axes) == 1
    with pytest.raises(avem.ModelError, match=r"no 'dic' in the table; choose one of aic, bic"):
        selection.plot("dic")


def test_a_fit_that_did_not_converge_is_drawn_hollow(selection):
    table = selection.table.assign(stop=["CONVERGED", "CONVERGED", "OUT_OF_STEPS", None])
    ax = replace(selection, table=table).plot("bic").axes[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["not converged"]


def test_select_refines_unless_told_otherwise(frame, monkeypatch, selection):
    seen = []

    def fit(self, data, **options):
        seen.append(options.get("refine", "none given"))
        return selection.fits[self.spec.n_states]

    monkeypatch.setattr(avem.MixedHMM, "fit", fit)
    avem.select(PLAIN, frame, [2], **OWN)
    avem.select(PLAIN, frame, [2], refine=None, **OWN)
    avem.select(PLAIN, frame, [2], method="adaptive", **OWN)
    assert seen == ["adaptive", None, "none given"]


def test_warnings_say_which_fit_and_where_it_was_asked_for(frame):
    with pytest.warns(avem.AvemWarning, match="^2 states: The iteration limit") as caught:
        avem.select(PLAIN, frame, [2], max_iter=1, **QUICK)
    assert [seen.filename for seen in caught] == [__file__]
    with pytest.warns(avem.AvemWarning, match="^fold . of 2: The iteration limit") as caught:
        done = avem.cross_validate(PLAIN, frame, folds=2, max_iter=1, **QUICK)
    assert {seen.filename for seen in caught} == {__file__}
    assert "Not converged: fold 1, 2." in repr(done)


@pytest.mark.usefixtures("ctrl_c")
def test_interruptions_keep_what_there_is(frame, monkeypatch, selection, capsys):
    def fit(self, data, **options):
        k = self.spec.n_states
        stop = avem.Stop.INTERRUPTED if k == 2 else avem.Stop.CONVERGED
        return replace(selection.fits[k], stop=stop)

    with monkeypatch.context() as patched:
        patched.setattr(avem.MixedHMM, "fit", fit)
        found = avem.select(PLAIN, frame, [1, 2, 3], **OWN)
        assert found.table["stop"].tolist() == ["CONVERGED", "INTERRUPTED"]
        assert found.not_fitted == (3,)
        with pytest.raises(KeyboardInterrupt):
            avem.cross_validate(PLAIN, frame, folds=2, **OWN)
        cut = avem.select(PLAIN, frame, [2], cv=2, criterion="held_out", **OWN)
        assert "No number of states has a held-out score." in repr(cut)
        none = run_folds(PLAIN, selection.fits[2].panel, folds=2)  # interrupted in the first
        assert "Interrupted: none of 2 folds was done." in repr(none)
        assert "none of 2 folds" in none._repr_html_()
        assert none.interrupted
        assert none.loglik == 0.0
        assert np.isnan([none.per_value, none.per_row, none.se]).all()
    # Ctrl-C while no fit is running.
    tell = Rounds.tell

    def tell_and_interrupt(self, line):
        tell(self, line)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Rounds, "tell", tell_and_interrupt)
    monkeypatch.setattr("avem.inference.display.QUIET_SECONDS", 0.0)
    found = avem.select(PLAIN, frame, [1, 2], progress=True, **QUICK)
    assert found.table["n_states"].tolist() == [1]
    assert capsys.readouterr().err.splitlines()[-1].startswith("1 state: BIC ")
    found = avem.cross_validate(PLAIN, frame, folds=3, **QUICK)
    assert found.interrupted
    assert "Interrupted: 1 of 3 folds were done." in repr(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"states": []}, "states is empty"),
        ({"states": 3}, r"states is 3; several numbers"),
        ({"states": [0]}, "states is 0; a whole number"),
        ({"criterion": "dic"}, "criterion is 'dic'; available: aic, bic, icl, held_out"),
        ({"criterion": "held_out"}, "needs cross-validation: give cv=5"),
        ({"cv": {"fold": 3}}, r"cv has \['fold'\]; its options are folds, by, seed"),
        ({"cv": 1, "states": [1, 2]}, "folds is 1"),
        ({"cv": "days", "criterion": "held_out"}, "by is 'days'"),
        ({"states": [50, 60]}, "No number of states could be fitted. 50 states: .* 60 states: "),
    ],
)
def test_errors_of_select(frame, options, words, monkeypatch, selection):
    if "cv" in options:  # the fits themselves are not the point
        monkeypatch.setattr(avem.MixedHMM, "fit", lambda self, data, **_: selection.fits[2])
    options = {"states": [2], **options}
    with pytest.raises(avem.ModelError, match=words):
        avem.select(PLAIN, frame, **options, **OWN)


def test_with_states_changes_nothing_else():
    model = avem.MixedHMM("y ~ x", 2, "gamma", transition="~ x", initial="stationary")
    other = model.with_states(4)
    assert other.spec == model.spec._replace(n_states=4)
    assert model.spec.n_states == 2
    with pytest.raises(avem.ModelError, match="n_states is 0"):
        model.with_states(0)


# --- cross-validation ---------------------------------------------------------------------------


def forward(frame, params, effect, hidden=None):
    """(subjects, ...) log p(D_i | effect) by the forward recursion; `hidden` rows are missing."""
    mean = params["coef"][:, 0, 0] + np.asarray(effect)[..., None]
    sd, out = np.sqrt(params["variance"][:, 0]), []
    for _, rows in frame.sort_values("time").groupby("subject"):
        y = rows["y"] if hidden is None else rows["y"].mask(hidden)
        alpha = None
        for value in y:
            emitted = 0.0 if np.isnan(value) else norm.logpdf(value, mean, sd)
            if alpha is None:
                alpha = np.log(params["initial"]) + emitted + 0 * mean
            else:
                moved = alpha[..., :, None] + np.log(params["transition"])
                alpha = logsumexp(moved, axis=-2) + emitted
        out.append(logsumexp(alpha, axis=-1))
    return np.array(out)


def marginal(frame, params, hidden=None):
    """(subjects,) the same with the effect integrated over a dense grid."""
    sd = np.sqrt(params["effect_covariance"][0, 0])
    grid = np.linspace(-6, 6, 601) * sd
    heights = forward(frame, params, grid, hidden) + norm.logpdf(grid, 0, sd)
    return logsumexp(heights, axis=1) + np.log(grid[1] - grid[0])


def test_held_out_stretches_are_scored_by_their_predictive_density(differing):
    short = differing[differing["subject"] < 4]
    short = short[short["time"] < 29 - short["subject"]].sample(frac=1.0, random_state=0)
    short.loc[short.index[:5], "y"] = np.nan
    options = {"time": "time", "n_starts": 1}
    done = avem.cross_validate(MIXED, short, folds=2, by="time", seed=3, **options)
    length = short.groupby("subject")["time"].transform("size")
    expected = 0
    for fold, hidden in enumerate([2 * short["time"] < length, 2 * short["time"] >= length]):
        rest = short.assign(y=short["y"].mask(hidden))
        params = MIXED.fit(rest, seed=3, **options).params
        score = marginal(short, params) - marginal(short, params, hidden)
        row = done.table.iloc[fold]
        assert row["loglik"] == pytest.approx(score.sum(), abs=1e-4)
        assert row["n_values"] == short.loc[hidden, "y"].notna().sum()
        assert row["per_value"] == row["loglik"] / row["n_values"]
        expected = expected + score
    values = short.groupby("subject")["y"].count()
    np.testing.assert_allclose(
        done.by_subject.set_index("subject").loc[range(4), "loglik"], expected, atol=1e-4
    )
    assert done.by_subject.set_index("subject")["n_values"].sort_index().tolist() == values.tolist()
    assert done.per_value == pytest.approx(expected.sum() / values.sum())
    assert done.per_row == done.per_value  # there is one outcome


def test_held_out_subjects_are_scored_as_new_ones(frame):
    done = avem.cross_validate(PLAIN, frame, folds=3, seed=5, **QUICK)
    assert done.table["n_subjects"].tolist() == [3, 3, 2]
    parts = subject_folds(Panel.from_frame(frame, "subject", time="time"), 3, 5)
    expected = pd.Series(0.0, index=range(8))
    for held in parts:
        fit = PLAIN.fit(frame[~held], seed=5, **QUICK)
        expected.loc[frame.loc[held, "subject"].unique()] = forward(frame[held], fit.params, 0.0)
    np.testing.assert_allclose(done.by_subject["loglik"], expected, atol=1e-6)
    assert done.loglik == pytest.approx(expected.sum())
    # Equally many values each: the standard error is that of a mean of eight.
    assert done.se == pytest.approx((expected / 30).std(ddof=1) / np.sqrt(8))
    assert f"{done.per_value:.4f} (standard error {done.se:.4f})" in repr(done)


def test_standard_error_of_one_subject_is_between_folds():
    table = pd.DataFrame({"n_values": [10, 10, 10], "loglik": [-9.0, -12.0, -12.0]})
    one = CrossValidation(table, pd.DataFrame({"n_values": [30], "loglik": [-33.0]}), "time", 3)
    assert one.se == pytest.approx(np.std([-0.9, -1.2, -1.2], ddof=1) / np.sqrt(3))
    assert np.isnan(replace(one, table=table[:1]).se)


def test_folds_hold_out_every_row_once():
    lengths = {"a": [7, 4], "b": [9], "c": [5], "d": [4], "e": [30]}
    rows = [(w, s, t) for w, of in lengths.items() for s, n in enumerate(of) for t in range(n)]
    frame = pd.DataFrame(rows, columns=["who", "day", "t"]).sample(frac=1, random_state=1)
    panel = Panel.from_frame(frame, "who", time="t", sequence="day")
    for parts in (subject_folds(panel, 3, 0), time_folds(panel, 4)):
        assert (np.sum(parts, axis=0) == 1).all()
    for held in time_folds(panel, 4):
        for _, times in frame[held].groupby(["who", "day"])["t"]:
            assert np.ptp(times) == len(times) - 1  # one stretch
        assert len(frame[held].groupby(["who", "day"])) == panel.n_lanes
    assert any(
        (a != b).any()
        for a, b in zip(subject_folds(panel, 3, 0), subject_folds(panel, 3, 1), strict=True)
    )


@pytest.mark.parametrize(
    "values",
    [[True, False, True], [1, 2, 3], ["a", "b", "a"], pd.Categorical(["a", "b", "a"]), [1.5, 2, 3]],
)
def test_any_outcome_can_be_hidden(values):
    frame = pd.DataFrame({"subject": [1, 1, 1], "y": values, "x": [1, 2, 3]})
    panel = Panel.from_frame(frame, "subject")
    hidden = with_hidden(panel, ["y"], np.array([False, True, False]))
    assert hidden.table["y"].isna().tolist() == [False, True, False]
    assert hidden.table["y"].dropna().tolist() == [frame["y"][0], frame["y"][2]]
    pd.testing.assert_frame_equal(panel.table, frame)


@pytest.mark.parametrize(
    ("chosen", "options", "words"),
    [
        ([0], {}, r"There is 1 subject \(0 in column 'subject'\).*Use by='time'"),
        ([0, 1, 2], {"folds": 5}, r"There are 3 subjects;.*5 or more.*folds=3, or by='time'"),
        ([0, 1, 2], {"folds": 2}, r"leaves 1 to fit.*needs 2.*by='time', or folds=3\."),
        ([0, 1], {"folds": 2}, r"leaves 1 to fit.*needs 2.*Use by='time'\.$"),
        ([0, 1], {"folds": 31, "by": "time"}, r"subject 0 has 30 row\(s\).*31 stretches.*folds=30"),
        ([0, 1], {"folds": 1}, "folds is 1; at least 2"),
        ([0, 1], {"folds": 2.5}, "folds is 2.5; a whole number"),
        ([0, 1], {"by": "rows"}, "by is 'rows'; available: subjects, time"),
        ([0, 1], {"seed": -1}, "seed is -1"),
    ],
)
def test_errors_of_cross_validate(frame, chosen, options, words):
    part = frame[frame["subject"].isin(chosen)]
    with pytest.raises(avem.AvemError, match=words):
        avem.cross_validate(MIXED, part, time="time", **options)


def test_an_error_in_a_fold_says_which(frame):
    constant = frame.assign(y=frame["y"].where(frame["subject"] == 0, 1.0))
    with pytest.raises(avem.DataError, match=r"^fold \d of 8: Outcome 'y' is constant"):
        avem.cross_validate(PLAIN.with_states(1), constant, folds=8, **QUICK)


def custom(update):
    return avem.Custom(lambda y, x, h, p, e: -((y - p["m"]) ** 2), {"m": 0.0}, update=update)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (avem.MixedHMM("y ~ lag(y)", 2), "'y ~ lag.y.' reads y from other rows"),
        (avem.MixedHMM("y ~ 1", 2, transition="~ y"), "'~ y' reads y"),
        (
            avem.MixedHMM("y ~ 1", 2, custom(lambda h, y, x, p, e: y)),
            "custom family with a history",
        ),
    ],
)
def test_stretches_are_not_hidden_from_models_that_look_back(frame, model, words):
    with pytest.raises(avem.ModelError, match=f"by='time' hides.*{words}.*Use by='subjects'"):
        avem.cross_validate(model, frame, by="time", **OWN)


# --- likelihood ratio test ----------------------------------------------------------------------


def test_the_variance_between_subjects_is_tested_on_its_boundary(nested):
    smaller, larger = nested
    test = avem.likelihood_ratio_test(smaller, larger)
    gain = float(larger.loglik()) - float(smaller.loglik())
    assert test.df == 1
    assert test.statistic == pytest.approx(2 * gain)
    assert test.statistic > 10
    assert test.p_value == pytest.approx(chi2.sf(2 * gain, 1) / 2)
    assert "0.5 x 0, 0.5 x 1" in test.reference
    assert "1 more parameter, p < 0.0001" in repr(test)
    assert "p = 0.1235" in repr(replace(test, p_value=0.12345678))
    assert "p &lt; 0.0001" in test._repr_html_()


def model_of(formula, structure="full", by_state=False, **chain):
    table = pd.DataFrame(
        {"y": np.arange(6.0), "w": 1.0, "x": np.arange(6) % 2, "who": list("aaabbb")}
    )
    hmm = avem.MixedHMM(formula, 2, effect_covariance=structure, effects_by_state=by_state, **chain)
    return HMMModel.learn(hmm.spec, Panel.from_frame(table, "who"))


@pytest.mark.parametrize(
    ("smaller", "larger", "df", "weights", "dfs"),
    [
        (model_of("y ~ 1"), model_of("y ~ x"), 2, [1], [2]),
        (model_of("y ~ 1"), model_of("y ~ 1 + (1 | who)"), 1, [1, 1], [0, 1]),
        (model_of("y ~ 1"), model_of("y ~ x + (1 | who)"), 3, [1, 1], [2, 3]),
        # Stram and Lee: a second effect and its covariance with the first.
        (model_of("y ~ 1 + (1 | who)"), model_of("y ~ 1 + (1 + x | who)"), 2, [1, 1], [1, 2]),
        # Independent effects.
        (
            model_of("y ~ 1", "diagonal"),
            model_of("y ~ 1 + (1 + x | who)", "diagonal"),
            2,
            [1, 2, 1],
            [0, 1, 2],
        ),
        (model_of("y ~ 1"), model_of("y ~ 1 + (1 | who) + (0 + x | who)"), 2, [1, 2, 1], [0, 1, 2]),
        # One variance for all.
        (
            model_of("y ~ 1", "isotropic"),
            model_of("y + w ~ 1 + (1 | who)", "isotropic"),
            1,
            [1, 1],
            [0, 1],
        ),
        # Only covariances are new: they are 0 inside.
        (
            model_of("y ~ 1 + (1 + x | who)", "diagonal"),
            model_of("y ~ 1 + (1 + x | who)"),
            1,
            [1],
            [1],
        ),
    ],
)
def test_references(smaller, larger, df, weights, dfs):
    found = reference(smaller, larger, df)
    np.testing.assert_allclose(found.weights, np.array(weights) / sum(weights))
    assert list(found.dfs) == dfs
    assert "conservative" not in found.words
    if "w" not in larger.outcomes:
        assert not list(nesting_doubts(smaller, larger))
    for statistic in (0.3, 2.7, 11.0):
        expected = sum(
            w * (chi2.sf(statistic, k) if k else 0) for w, k in zip(found.weights, dfs, strict=True)
        )
        assert tail(found, statistic) == pytest.approx(expected)
    assert tail(found, 0.0) == 1.0


def test_a_reference_without_a_simple_form_is_conservative():
    found = reference(model_of("y ~ 1"), model_of("y ~ 1 + (1 + x | who)"), 3)
    assert found.dfs == (3,)
    assert "chi-squared with 3 degrees of freedom, which is conservative" in found.words
    held = reference(model_of("y ~ 1"), model_of("y ~ x + (1 | who)"), 2, held=True)
    assert held.words == "chi-squared with 2 degrees of freedom"


@pytest.mark.parametrize(
    ("smaller", "larger", "words"),
    [
        (model_of("y ~ x"), model_of("y ~ 1 + (1 | who)"), "the terms x of 'y'"),
        (model_of("y ~ 1 + (1 | who)"), model_of("y ~ x"), "the effects y: Intercept"),
        (model_of("y ~ 1", family="poisson"), model_of("y ~ x"), "another family for 'y'"),
        (model_of("y ~ 1"), model_of("y ~ x", initial="stationary"), "a first state of its own"),
        (
            model_of("y ~ 1 + (1 + x | who)"),
            model_of("y ~ x + (1 + x | who)", "diagonal"),
            "another structure",
        ),
        (
            model_of("y ~ 1 + (1 | who)", "isotropic"),
            model_of("y ~ x + (1 + x | who)", "isotropic"),
            "another structure",
        ),
    ],
)
def test_models_that_may_not_be_nested_are_doubted(smaller, larger, words):
    (doubt,) = nesting_doubts(smaller, larger)
    assert words in doubt


@pytest.mark.parametrize(
    ("smaller", "larger", "words"),
    [
        ("y ~ 1", "y ~ x + offset(w)", "no offset where the larger has offset(w), of 'y'"),
        ("y ~ 1 + offset(w)", "y ~ x", "offset(w) where the larger has none, of 'y'"),
        ("y ~ 1 + offset(w)", "y ~ x + offset(w)", None),
        ("y ~ 1 + offset(w)", "y ~ w", None),
    ],
)
def test_offsets_that_only_one_model_has(smaller, larger, words):
    doubts = list(nesting_doubts(model_of(smaller), model_of(larger)))
    assert not doubts if words is None else words in doubts[0]


def test_a_stationary_start_is_a_special_case():
    smaller = model_of("y ~ 1", initial="stationary")
    assert not list(nesting_doubts(smaller, model_of("y ~ 1")))


LOW, HIGH = (avem.Truncated("gamma", lower=low) for low in (0, 0.5))
FULL, DIAGONAL, ONE = (avem.Gaussian(word) for word in ("full", "diagonal", "spherical"))
STAYS = avem.Duration("negative_binomial", max=9)
PAIR = "y + w ~ 1"
APART = [avem.outcome("y ~ x"), avem.outcome("w ~ 1")]


# Each pair: the special case first.
@pytest.mark.parametrize(
    ("smaller", "larger", "words"),
    [
        ({"family": LOW}, {"family": avem.Truncated("log_normal", lower=0)}, "another family"),
        ({"family": LOW}, {"family": HIGH}, "another family for 'y'"),
        ({"formula": PAIR, "family": FULL}, {"formula": "y + w ~ x"}, "another family for 'w'"),
        ({"formula": PAIR, "family": FULL}, {"formula": APART}, "another family for 'y'"),
        ({"formula": PAIR}, {"formula": "y + w ~ x", "family": ONE}, "another family for 'y'"),
        ({}, {"transition": "left_to_right"}, "the moves 1 -> 0"),
        ({"duration": STAYS}, {}, "negative binomial with max=9 within those of a Markov chain"),
        ({"duration": "shifted_poisson"}, {"duration": "log_normal"}, "other lengths of stays"),
        ({"duration": STAYS}, {"duration": avem.Duration(STAYS.family, "~ x", max=8)}, "max=8"),
        ({}, {"duration": avem.Duration("negative_binomial", cut="start")}, "other lengths"),
        ({}, {"duration": "log_normal"}, "those of a Markov chain within log-normal"),
        ({}, {"time_scale": "continuous"}, "transitions of another kind"),
    ],
)
def test_parts_that_are_no_special_case_are_doubted(smaller, larger, words):
    (doubt,) = nesting_doubts(
        *(model_of(**{"formula": "y ~ 1"} | own) for own in (smaller, larger))
    )
    assert words in doubt


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ({"family": LOW}, {"family": LOW, "formula": "y ~ x"}),
        ({"family": "exponential"}, {"family": "gamma"}),
        ({"family": avem.Truncated("exponential", lower=0)}, {"family": LOW}),
        ({}, {"formula": [avem.outcome("y ~ 1", sd="~ x")]}),
        ({"family": FULL}, {"formula": "y ~ x"}),  # of one outcome
        ({"formula": PAIR}, {"formula": APART}),
        ({"formula": APART}, {"formula": "y + w ~ x", "family": FULL}),
        ({"formula": PAIR, "family": ONE}, {"formula": PAIR}),
        ({"transition": "left_to_right"}, {"transition": "~ x"}),
        ({}, {"duration": "negative_binomial"}),
        ({}, {"duration": "gamma"}),
        ({"duration": "geometric"}, {"duration": STAYS}),
        ({"duration": "geometric"}, {"transition": "~ x"}),
        ({"duration": STAYS}, {"duration": avem.Duration(STAYS.family, "~ x", max=9)}),
    ],
)
def test_parts_that_are_a_special_case_are_not_doubted(smaller, larger):
    one, other = (model_of(**{"formula": "y ~ 1"} | own) for own in (smaller, larger))
    assert not list(nesting_doubts(one, other))


def test_moves_that_are_impossible_in_the_smaller_model_lie_on_their_boundary():
    smaller, larger = model_of("y ~ 1", transition="left_to_right"), model_of("y ~ 1")
    assert "conservative" in reference(smaller, larger, 1).words
    assert "conservative" not in reference(larger, model_of("y ~ 1", transition="~ x"), 2).words


def test_a_chain_with_such_stays_has_the_same_chances():
    """What is called a special case is one: of size or shape 1, stays are geometric."""
    eta, none = np.array([[-0.5], [1.2]]), np.zeros((2, 1))
    geometric, sized, shaped = map(duration_family, ("geometric", "negative_binomial", "gamma"))
    wanted = geometric.chances(6, eta, none, NUMPY).leave
    np.testing.assert_allclose(sized.chances(6, eta, none, NUMPY).leave, wanted)
    mean = 1 / np.log1p(np.exp(-eta))  # exp(-1 / mean) is the chance of staying
    np.testing.assert_allclose(shaped.chances(6, np.log(mean), none, NUMPY).leave, wanted)


def test_the_order_of_rows_does_not_matter(nested, differing):
    shuffled = PLAIN.fit(differing.sample(frac=1.0, random_state=0), **QUICK)
    again = avem.likelihood_ratio_test(shuffled, nested[1])
    assert again.statistic == pytest.approx(avem.likelihood_ratio_test(*nested).statistic, abs=1e-6)


def test_errors_of_the_likelihood_ratio_test(nested, differing, selection):
    smaller, larger = nested
    test = avem.likelihood_ratio_test
    with pytest.raises(avem.ModelError, match="got a str; two fits are wanted"):
        test("y ~ 1", larger)  # type: ignore[arg-type]
    with pytest.raises(avem.ModelError, match=r"1 and 2 states.*no regular test.*avem\.select"):
        test(selection.fits[1], selection.fits[2])
    clustered = replace(selection.fits[2], model=model_of("y ~ 1", n_clusters=2))
    with pytest.raises(avem.ModelError, match=r"1 and 2 clusters.*avem\.select\(\.\.\., clusters="):
        test(selection.fits[2], clustered)
    with pytest.raises(avem.ModelError, match="has 7 parameters and the smaller one 8; it must"):
        test(larger, smaller)
    with pytest.raises(avem.DataError, match="loaded from a file"):
        test(replace(smaller, panel=None), larger)
    y = differing["y"]
    others = {
        "7 and 8 subjects; only one of them has 0": differing[differing["subject"] > 0],
        "239 and 240 rows": differing.iloc[1:],
        "explain 239 and 240 observed values": differing.assign(y=y.mask(differing.index == 3)),
        "values of the two fits differ": differing.assign(y=y.where(differing.index != 3, 1.0)),
    }
    for words, other in others.items():
        with pytest.raises(avem.DataError, match=words):
            test(PLAIN.fit(other, **QUICK), larger)
    renamed = avem.MixedHMM("z ~ 1", 2).fit(differing.rename(columns={"y": "z"}), **QUICK)
    with pytest.raises(avem.DataError, match="outcomes z and y"):
        test(renamed, larger)
    worse = replace(larger, params={**larger.params, "coef": larger.params["coef"] + 5})
    with pytest.raises(
        avem.ModelError, match=r"(?s)cannot be worse.*more starts:\nlarger = avem\.MixedHMM"
    ):
        test(smaller, worse)


def test_unfinished_fits_are_tested_with_a_warning(nested, differing):
    smaller, larger = nested
    rough = replace(larger, info=replace(larger.info, refined=False))
    with pytest.warns(avem.AvemWarning, match=r"larger model.*not refined.*maximum") as told:
        avem.likelihood_ratio_test(smaller, rough)
    # The advice is code that runs, and does what it says.
    (code,) = re.findall(r"^larger = avem\.MixedHMM.*\)$", str(told[0].message), re.M | re.S)
    found = {"avem": avem, "larger": rough, "data": differing}
    exec(code, found)
    assert found["larger"].info.refined
    assert found["larger"].loglik() == pytest.approx(larger.loglik(), abs=1e-3)
    stopped = replace(smaller, stop=avem.Stop.OUT_OF_STEPS)
    with pytest.warns(avem.AvemWarning, match="smaller model did not converge"):
        avem.likelihood_ratio_test(stopped, larger)
