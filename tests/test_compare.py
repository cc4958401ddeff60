"""Different models of the same data, side by side."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import t

import avem
from avem.data import Panel
from avem.errors import DataError, ModelError
from avem.workflows.compare import _differences
from tests.fits.kinds import CHAIN, ssm_fit, true_fit
from tests.test_selection import MIXED, OWN, PARAMS, PLAIN

QUICK = {**OWN, "n_starts": 1}
ONE = avem.MixedHMM("y ~ 1", 1)


@pytest.fixture(scope="module")
def frame():
    """Subjects called by words, with a column that says nothing."""
    params = {**PARAMS, "effect_covariance": [[0.5]]}
    made = MIXED.simulate(params, n_subjects=8, n_times=30, seed=2).frame
    return made.assign(subject="s" + made["subject"].astype(str), half=made["time"] % 2)


@pytest.fixture(scope="module")
def fits(frame):
    mixed = MIXED.fit(frame, time="time", n_starts=1, refine="adaptive")
    return {"alike": PLAIN.fit(frame, **QUICK), "mixed": mixed, "one": ONE.fit(frame, **QUICK)}


@pytest.fixture(scope="module")
def found(fits):
    return avem.compare(fits)


@pytest.fixture(scope="module")
def held_out(fits):
    return avem.compare({name: fits[name] for name in ("alike", "one")}, folds=2)


def test_criteria_are_those_of_the_fits(fits, found):
    table = found.table.set_index("model")
    assert list(table.index) == ["alike", "mixed", "one"]
    for name, fit in fits.items():
        row = table.loc[name]
        assert row["n_params"] == fit.n_params
        wanted = [float(fit.loglik()), fit.aic(), fit.bic(), fit.icl()]
        assert row[["loglik", "aic", "bic", "icl"]].tolist() == pytest.approx(wanted)
    assert found.criteria == ["aic", "bic", "icl"]
    assert found.preferred("bic") == min(fits, key=lambda name: fits[name].bic())
    assert found.best is fits[found.preferred("bic")]


def test_differences_are_paired_by_subject(fits, found):
    apart = fits["mixed"].loglik().by_subject - fits["one"].loglik().by_subject
    row = found.differences.query("model == 'mixed' and other == 'one'").iloc[0]
    assert row["difference"] == pytest.approx(apart.sum())
    se = np.sqrt(8) * apart.std(ddof=1)
    assert row["se"] == pytest.approx(se)
    assert row["upper"] == pytest.approx(apart.sum() + t.ppf(0.975, 7) * se)
    assert (row["better"], row["subjects"]) == ((apart > 0).sum(), 8)
    np.testing.assert_allclose(found.by_subject["mixed"] - found.by_subject["one"], apart)
    assert found.by_subject["subject"].tolist() == fits["one"].subjects.tolist()
    assert "in-sample" in repr(found)


def test_subjects_without_a_difference_are_counted_for_neither(found):
    scores = pd.DataFrame({"who": list("abcd"), "alike": -1.0, "one": [-1.0, -1.0, -1.0, 0.5]})
    table = _differences(scores, 0.95)
    assert table[["better", "worse", "subjects"]].to_numpy().tolist() == [[0, 1, 4]]
    tied = replace(found, frames=found.frames._replace(differences=table))
    (words,) = tied._paired("one", "alike")
    assert "one less alike: 1.5" in words
    assert "higher for 1 of 4 subjects" in words


def test_the_order_of_rows_and_subjects_does_not_matter(frame, fits):
    """The same model fitted to shuffled rows: no difference, nor in folds."""
    other = PLAIN.fit(frame.sample(frac=1, random_state=3), **QUICK)
    assert other.subjects.tolist() != fits["alike"].subjects.tolist()
    found = avem.compare({"a": fits["alike"], "b": other}, folds=2)
    np.testing.assert_allclose(found.by_subject["a"], found.by_subject["b"], atol=1e-3)
    found = avem.compare({"a": fits["alike"], "b": other})
    np.testing.assert_allclose(found.by_subject["a"], found.by_subject["b"], atol=1e-3)


def test_held_out_scores_are_those_of_cross_validation(frame, held_out):
    for name, model in {"alike": PLAIN, "one": ONE}.items():
        alone = avem.cross_validate(model, frame, folds=2, **QUICK)
        assert held_out.scores[name].loglik == pytest.approx(alone.loglik, abs=0.01)
        row = held_out.table.set_index("model").loc[name]
        assert row["held_out"] == pytest.approx(alone.per_value, abs=1e-4)
        assert row["held_out_se"] == pytest.approx(alone.se, rel=1e-3)
    apart = held_out.by_subject["alike"] - held_out.by_subject["one"]
    assert held_out.differences["difference"].item() == pytest.approx(apart.sum())
    assert held_out.criterion == "held_out"
    assert held_out.preferred("held_out") == "alike"
    words = repr(held_out)
    assert "Differences of the log score of held-out subjects, 2 folds" in words
    assert "Best by held-out score: alike" in words
    assert "In-sample" not in words


def test_stretches_of_time_can_be_held_out(fits):
    pair = {name: fits[name] for name in ("alike", "one")}
    found = avem.compare(pair, folds=2, by="time", criterion="bic", n_starts=1)
    assert found.criterion == "bic"
    assert "held-out stretches of time" in repr(found)
    assert found.by_subject["alike"].sum() > found.by_subject["one"].sum()


def test_a_degenerate_fit_is_marked_and_never_recommended(fits):
    bad = {name: replace(fit) for name, fit in fits.items()}
    best = avem.compare(fits).preferred("bic")
    bad[best].__dict__["degenerate"] = ("state 1: hardly a row",)
    found = avem.compare(bad)
    assert found.preferred("bic") != best
    assert f"{best}: degenerate, never recommended. state 1: hardly a row." in repr(found)
    assert found.table.set_index("model").loc[best, "degenerate"] == "state 1: hardly a row"
    labels = [label.get_text() for label in found.plot().axes[0].get_yticklabels()]
    assert labels[-1] == f"{best} (degenerate)"
    for fit in bad.values():
        fit.__dict__["degenerate"] = ("state 0 and state 1: alike",)
    found = avem.compare(bad)
    assert found.best is None
    assert found.preferred("aic") is None
    assert "No fit is recommended" in repr(found)
    assert len(found.plot().axes) == 3


def test_fits_of_other_data_are_refused(frame, fits):
    fit, one = fits["alike"], fits["one"]

    def other(rows, model=ONE, **options):
        return model.fit(rows, **{**QUICK, **options})

    def refused(second, words):
        with pytest.raises(DataError, match=rf"'a' and 'b' cannot be compared\. {words}"):
            avem.compare({"a": fit, "b": second})

    refused(other(frame[frame["subject"] != "s3"]), "The fits have 8 and 7 subjects.*'s3'")
    refused(other(frame[frame["time"] < 29]), "The fits have 240 and 232 rows")
    refused(
        other(frame.assign(z=frame["y"]), avem.MixedHMM("z ~ 1", 1)), "The fits have the outcomes"
    )
    refused(other(frame.assign(y=frame["y"] + 1)), "The observed values of the two fits differ")
    refused(other(frame, sequence="half"), "The fits have 8 and 16 sequences")
    refused(other(frame.assign(y=frame["y"].where(frame["time"] > 0))), "The fits explain")
    counted = frame.assign(y=frame["y"].abs().round())
    pair = [other(counted), other(counted, avem.MixedHMM("y ~ 1", 1, "poisson"))]
    with pytest.raises(DataError, match="'y' has a density in one fit and a probability in the"):
        avem.compare(pair)
    with pytest.raises(DataError, match="loaded from a file"):
        avem.compare([fit, replace(one, panel=None)])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda fits: fits["one"], "compare got a HMMFit; two or more fits are wanted"),
        (lambda fits: [fits["one"]], "compare got 1; two or more"),
        (lambda fits: {"a": fits["one"], "b": 3}, "compare got a int among the fits"),
        (lambda fits: {1: fits["one"], "1": fits["alike"]}, "Two fits have the same name"),
    ],
)
def test_what_is_no_set_of_fits_is_said(fits, wrong, words):
    with pytest.raises(ModelError, match=words):
        avem.compare(wrong(fits))


def test_options_that_cannot_be_are_said(fits):
    with pytest.raises(ModelError, match="criterion is 'dic'; available: aic, bic, icl, held_out"):
        avem.compare(fits, criterion="dic")
    with pytest.raises(ModelError, match="'held_out' needs cross-validation"):
        avem.compare(fits, criterion="held_out")
    with pytest.raises(ModelError, match="n_starts: options of fits are for folds="):
        avem.compare(fits, n_starts=3)
    with pytest.raises(DataError, match=r"There are 8 subjects.*Use folds=8"):
        avem.compare(fits, folds=20)
    with pytest.raises(DataError, match="'subject' has the name of another column"):
        avem.compare({"subject": fits["one"], "b": fits["alike"]})
    with pytest.raises(ModelError, match="Not all models have a value of 'held_out'"):
        avem.compare(fits).preferred("held_out")


def test_fits_of_a_list_are_named_by_what_tells_them_apart(fits):
    one, alike, mixed = fits["one"], fits["alike"], fits["mixed"]
    assert list(avem.compare([alike, one]).fits) == ["2 states", "1 state"]
    named = list(avem.compare([alike, mixed]).fits)
    assert named[0] != named[1]
    assert named[1].startswith("y ~ 1 + (1 | subject)")
    assert list(avem.compare([one, replace(one)]).fits) == ["1", "2"]


def test_models_without_icl_are_compared_by_the_others():
    ssm = ssm_fit()
    hmm = avem.MixedHMM(f"{' + '.join(ssm.model.outcomes)} ~ 1", 2)
    p = len(ssm.model.outcomes)
    params = CHAIN | {
        "coef": np.stack([-np.ones((p, 1)), np.ones((p, 1))]),
        "variance": np.ones((2, p)),
        "effect_covariance": np.zeros((0, 0)),
    }
    panel = Panel.from_frame(ssm.panel.table, "id", "t")
    other = true_fit(hmm, params, panel, np.zeros((len(ssm.subjects), 0)))
    found = avem.compare({"ssm": ssm, "hmm": other})
    assert found.criteria == ["aic", "bic"]
    assert np.isnan(found.table.set_index("model").loc["ssm", "icl"])
    with pytest.raises(ModelError, match="for fits of MixedHMM alone"):
        avem.likelihood_ratio_test(ssm, ssm)
    with pytest.raises(ModelError, match="'ssm' has none"):
        avem.compare({"ssm": ssm, "hmm": other}, criterion="icl")
    assert "ssm: fitted by method='avem' and not refined" in repr(found)
    assert "BIC counts 5 subjects" in repr(found)


def test_one_subject_has_no_spread(frame):
    own = frame[frame["subject"] == "s1"]
    found = avem.compare({"two": PLAIN.fit(own, **QUICK), "one": ONE.fit(own, **QUICK)})
    assert found.differences["se"].isna().all()
    assert found.differences["note"].tolist() == ["one subject: no spread to judge by"]
    assert "one subject: no spread to judge by" in repr(found)


def test_tables_come_back_in_the_callers_kind(frame, fits, found):
    for kind, as_kind in ((pl.DataFrame, pl.from_pandas), (pa.Table, pa.Table.from_pandas)):
        others = {name: fit.with_data(as_kind(frame)) for name, fit in fits.items()}
        made = avem.compare(others)
        for name in ("table", "differences", "by_subject"):
            table = getattr(made, name)
            assert isinstance(table, kind)
            back = table.to_pandas()
            wanted = getattr(found, name)
            assert list(back.columns) == list(wanted.columns)
            np.testing.assert_allclose(back.select_dtypes("number"), wanted.select_dtypes("number"))
        assert repr(made) == repr(found)


def test_the_page_of_a_notebook_is_safe(fits):
    found = avem.compare({"<b>one</b>": fits["one"], "alike": fits["alike"]})
    page = found._repr_html_()
    assert "<b>one</b>" not in page
    assert page.count("<table") == 2
    assert "Best by BIC: alike" in page


def test_the_picture(found):
    criteria, scores, subjects = found.plot().axes
    assert {part.get_gid() for part in criteria.collections} >= {"aic", "bic", "icl"}
    assert criteria.get_yticklabels()[0].get_text() == found.preferred("bic")
    best, *rest = [label.get_text() for label in criteria.get_yticklabels()]
    drawn = {line.get_gid(): line.get_xdata()[0] for line in scores.lines if line.get_gid() in rest}
    for name in rest:
        wanted = (found.by_subject[name] - found.by_subject[best]).sum()
        assert drawn[name] == pytest.approx(wanted)
    heights = np.concatenate(
        [ln.get_ydata() for ln in subjects.lines if ln.get_gid() == "subjects"]
    )
    assert len(heights) == 8


def test_an_interruption_keeps_what_was_done(fits, monkeypatch):
    from avem.workflows import compare as module

    usual, calls = module.run_folds, []

    def interrupted(*args, **options):
        calls.append(1)
        done = usual(*args, **options)
        return done if len(calls) == 1 else replace(done, table=done.table.iloc[:1])

    monkeypatch.setattr(module, "run_folds", interrupted)
    found = avem.compare({name: fits[name] for name in ("alike", "one")}, folds=2)
    assert list(found.scores) == ["alike"]
    assert found.best is None
    assert "Interrupted: no held-out score of one." in repr(found)
    assert not len(found.differences)
    calls.clear()
    pair = {name: fits[name] for name in ("alike", "one")}
    assert "Best by BIC: alike" in repr(avem.compare(pair, folds=2, criterion="bic"))
    assert len(found.plot().axes) == 3
