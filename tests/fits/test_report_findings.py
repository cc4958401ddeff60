"""What a report says first is what the fit's tables say, in numbers for people."""

import dataclasses
import re
from html import unescape

import numpy as np
import pytest
from scipy import stats

import avem
from avem.errors import ModelError
from avem.fits.notes import REFINED
from avem.fits.questions.diagnosis import HARD_TO_TELL
from avem.fits.report import report_html
from avem.fits.report.about import approximation, ending, lead
from avem.fits.report.findings import (
    NO_INTERVAL,
    Influence,
    acts,
    explained,
    influence_table,
    spread,
    two_sided,
)
from avem.fits.report.hmm_findings import effect_words, influences, state_cards, state_means
from avem.fits.report.numbers import chance, interval, number, p_value, percent
from avem.fits.report.ssm_findings import half_life, latent_cards, ssm_findings
from avem.fits.report.ssm_findings import influences as ssm_influences
from tests.fits.kinds import fit_of, ssm_fit

NASTY = "</script><b onload=alert(1)>&'\" \x0b"


def texts(html):
    """The text of every element that has some."""
    return [unescape(part).strip() for part in re.split(r"<[^>]*>", html) if part.strip()]


def cards(html):
    """Per card: name, lead, and (name, value, interval) of its lines."""
    found = []
    for card in re.findall(r"<article.*?</article>", html, re.DOTALL):
        name, first = (texts(re.findall(f"<{tag}.*?</", card)[0] + ">")[0] for tag in ("h3", "p "))
        lines = [texts(line) for line in re.findall(r"<div>.*?</div>", card)]
        found.append((name, first, lines))
    return found


def rows(html):
    return [texts(row) for row in re.findall(r"<tr>.*?</tr>", html)]


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (3.0, "3"),
        (-1234567.0, "\u22121,234,567"),
        (0.12345, "0.123"),
        (-0.05, "\u22120.0500"),
        (9.996, "10.0"),
        (999.6, "1,000"),
        (12345.6, "12,346"),
        (1.5e-5, "1.50 \u00d7 10⁻⁵"),
        (-2.345e9 + 0.5, "\u22122.34 \u00d7 10⁹"),
        (np.nan, ""),
        (-np.inf, "\u2212∞"),
    ],
)
def test_numbers_are_rounded_for_people(value, told):
    assert number(value) == told


def test_probabilities_shares_and_p_values():
    assert [chance(p) for p in (0.0, 1e-9, 0.0625, 0.99999, 1.0)] == [
        "0",
        "< 0.001",
        "0.062",
        "> 0.999",
        "1",
    ]
    assert [p_value(p) for p in (1e-9, 0.0011, 0.5, 0.9999)] == ["< .001", ".001", ".500", "> .999"]
    assert [percent(s) for s in (0.0, 1e-6, 0.1234, 1.0)] == ["0.0%", "< 0.1%", "12.3%", "100%"]
    assert interval(np.nan, 1.0) == ""
    assert interval(-1.0, 0.5) == "\u22121 to 0.500"


# --- hidden Markov models -----------------------------------------------------------------------


def test_cards_say_what_the_tables_say():
    fit = fit_of("counts")
    share, dwell = fit.occupancy(), fit.dwell()
    seen = fit.panel.table.dropna(subset="n")["x"].mean()
    by_hand = np.exp(fit.params["coef"][:, 0] @ [1.0, seen])
    means = fit.covariate("x", grid=[seen])
    html = state_cards(fit, 0.95)
    for k, (name, first, lines) in enumerate(cards(html)):
        assert name == fit.state_labels[k]
        assert first == f"{percent(share['share'][k])} of the rows"
        ends = interval(dwell["lower"][k], dwell["upper"][k])
        assert lines[0] == ["lasts on average", f"{number(dwell['expected'][k])} rows", ends]
        ends = interval(means["lower"][k], means["upper"][k])
        assert lines[1] == ["n: mean", number(by_hand[k]), ends]
    assert "of an average subject at average covariates" in html
    without = cards(state_cards(fit, None))
    assert all(len(line) == 2 for _, _, lines in without for line in lines)


@pytest.mark.parametrize(
    ("kind", "what", "first"),
    [
        ("choice", ["choice: probability of left"], None),
        (
            "labels",
            [f"{name}: probability of {level}" for name in "ab" for level in ("1", "2.5", "4")],
            np.exp([0, 0.5, -1]) / np.exp([0, 0.5, -1]).sum(),
        ),
        ("movement", ["step: mean", "angle: mean direction"], [1.0, 3.0]),
        ("trials", ["wins: share of trials"], 1 / (1 + np.exp([1.0]))),
        ("custom", ["y: mean"], [0.0]),
    ],
)
def test_every_family_has_its_words(kind, what, first):
    found = state_means(fit_of(kind), None)
    assert found[found["state"] == 0]["what"].tolist() == what
    if first is not None:
        own = found[found["state"] == 0]["estimate"].to_numpy()
        np.testing.assert_allclose(own[: len(first)], first)


def test_covariates_are_told_as_ratios_with_p_values():
    fit = fit_of("counts")
    table = fit.standard_errors()
    slopes = table[(table["parameter"] == "coef") & (table["term"] == "x")]
    slopes = slopes.assign(z=slopes["estimate"] / slopes["se"]).sort_values("z", ascending=False)
    found = rows(influence_table(fit, influences(fit, 0.95), 0.95))[1:]
    assert len(found) == 2
    for cells, (_, row) in zip(found, slopes.iterrows(), strict=True):
        p = 2 * stats.t.sf(row["z"], df=7)
        assert cells == [
            "x",
            f"rate of n in state {row['state']}",
            f"rate \u00d7 {number(np.exp(row['estimate']))}",
            interval(*np.exp([row["lower"], row["upper"]])),
            p_value(p),
        ]
        assert (p < 0.05) == (row["lower"] > 0)  # as the interval has it
    assert two_sided(fit, 0.0) == 1.0
    bare = dataclasses.replace(fit, panel=None)
    assert rows(influence_table(bare, influences(bare, None), None))[1] == [
        "x",
        "rate of n in state 0",
        f"rate \u00d7 {number(np.exp(0.3))}",
    ]


def test_no_interval_is_missing_without_a_word():
    fit = fit_of("counts")
    row = {"parameter": "coef", "term": "x", "estimate": 800.0, "se": np.nan}
    bare = Influence("x", "rate of n in state 0", "rate", row | {"lower": np.nan, "upper": np.nan})
    html = influence_table(fit, [bare], 0.95)
    assert rows(html)[1] == ["x", "rate of n in state 0", "rate \u00d7 \u221e", NO_INTERVAL]
    assert "says why some intervals are missing" in explained(html)
    assert explained("all there") == "all there"


def test_terms_that_are_levels_are_no_effects():
    level, covariate = {"term": "kind[b]"}, {"term": "x"}
    assert acts(level, ["Intercept", "kind[b]"])
    assert not acts(level, ["kind[a]", "kind[b]"])
    assert acts(covariate, ["x"])
    assert not acts({"term": None}, ["Intercept"])
    assert not acts({"term": "Intercept"}, ["Intercept"])


def test_moves_and_first_states_are_told_as_odds():
    fit = fit_of("by_state")
    said = {(one.covariate, one.on): one for one in influences(fit, None)}
    moved = said["x", "moving from state 0 to state 1 instead of staying"]
    assert (moved.measure, moved.row["estimate"]) == ("odds", 0.5)
    first = said["kind[b]", "starting in state 1 instead of state 0"]
    assert (first.measure, first.row["estimate"]) == ("odds", -0.5)
    assert said["scale(x)", "mean of y in state 1"].measure == ""
    assert len(said) == 5  # what is 0 by definition is left out
    choice = {one.on: one.measure for one in influences(fit_of("choice"), None)}
    assert choice["choice being left instead of right in state 0"] == "odds"


def test_how_much_subjects_differ():
    fit = fit_of("counts")
    variance = fit.standard_errors().query("parameter == 'effect_covariance'").iloc[0]
    found = spread(fit, 0.95).iloc[0]
    told = found[["estimate", "lower", "upper"]].to_numpy(float)
    np.testing.assert_allclose(
        told, np.sqrt(variance[["estimate", "lower", "upper"]].to_numpy(float)), rtol=1e-4
    )
    kinds = ("gaussian", "moving", "by_state", "counts", "choice", "labels", "custom")
    words = {kind: fit_of(kind) for kind in kinds}
    said = {
        kind: [effect_words(e, one) for e in one.model.structure.effects]
        for kind, one in words.items()
    }
    assert said["gaussian"][:2] == ["level of y1", "effect of x on y1"]
    assert said["moving"][1] == "moving from state 0 to state 1 (log odds)"
    assert said["by_state"] == ["level of y in state 0", "level of y in state 1"]
    assert said["counts"] == ["level of n (log scale)"]
    assert said["choice"] == ["level of choice (log odds)"]
    assert said["labels"][1] == "level of a[4] (log odds)"
    assert said["custom"] == ["bias of c"]


# --- state-space models -------------------------------------------------------------------------


def test_cards_of_latent_states():
    fit = ssm_fit()
    a, loading = fit.params["transition_mean"], fit.params["loading_mean"]
    table = fit._table().assign(lower=np.nan, upper=np.nan)
    for k, (name, first, lines) in enumerate(cards(latent_cards(fit, table, None))):
        assert name == f"state {k}"
        rows_left = np.log(2) / -np.log(a[k, k])
        assert first == f"half of it has faded after {number(rows_left)} rows"
        seen = [j for j in range(3) if j >= k]
        assert lines == [
            ["carried over per row", number(a[k, k])],
            [f"moved by state {1 - k}", number(a[k, 1 - k])],
            *([f"loading of y{j + 1}", number(loading[j, k])] for j in seen),
        ]
    assert "loading of y3 on state 1" in ssm_findings(fit, None)
    assert ssm_influences(fit, table) == []
    assert half_life(0.5) == 1.0
    assert np.isnan(half_life(-0.5))
    assert np.isnan(half_life(1.0))


# --- notes, titles, names -----------------------------------------------------------------------


def told(fit, **info):
    return dataclasses.replace(fit, info=dataclasses.replace(fit.info, **info))


def test_a_log_likelihood_that_falls_is_explained():
    fit = dataclasses.replace(
        told(fit_of("counts"), refined=True), bound_history=np.array([-12.0, -10.0, -10.4, -10.3])
    )
    assert "it can fall by a little" in ending(fit)
    rising = dataclasses.replace(fit, bound_history=np.array([-12.0, -10.0, -9.9]))
    assert "it can fall" not in ending(rising)


def test_the_rule_for_refining_is_the_rule_of_the_fit():
    fit = told(fit_of("counts"), bias=0.05)
    assert "by 0.1 standard errors or more" in approximation(fit)
    assert "Here it would move one by 0.0500 standard errors" in approximation(fit)
    early = approximation(told(fit, bias=0.05, bias_at="on the way"))
    assert "some iterations before the end, it would have moved one by 0.0500" in early
    assert "So anchors are good enough here" in approximation(fit)
    assert "was not refined" in approximation(told(fit, bias=0.4))
    assert "This fit is refined" in approximation(told(fit, bias=0.4, refined=True))
    assert "more than 10 standard errors" in approximation(told(fit, bias=50.0))


def test_states_are_hard_to_tell_apart_only_where_they_are(monkeypatch):
    note = f"{HARD_TO_TELL}: estimates would be off. {REFINED}"
    fit = told(fit_of("counts"), notes=(note, "Mind the gap."), refined=True)
    assert HARD_TO_TELL not in lead(fit)
    assert "Mind the gap." in lead(fit)
    certain = fit.state_probabilities().max(axis=1).mean()
    assert f"a probability of {chance(certain)}." in approximation(fit)
    assert "hard to tell apart" not in approximation(fit)
    vague = np.full((fit.panel.n_rows, 2), 0.5)
    monkeypatch.setattr(avem.HMMFit, "_state_probabilities", lambda self, data: vague)
    assert "a probability of 0.500: the states are hard to tell apart" in approximation(fit)


@pytest.mark.usefixtures("blank_pictures")
def test_hostile_names_and_titles_stay_text(monkeypatch):
    names = (NASTY, "calm")
    monkeypatch.setattr(avem.HMMFit, "state_labels", property(lambda self: names))
    page = report_html(fit_of("by_state"), title=f" Moods {NASTY}", thorough=False)
    assert page.count("<script") == 2
    assert not re.search(r"<b\b", page)
    assert "onload=alert" in page  # but as text
    assert "<h1>Moods &lt;/script&gt;" in page
    assert "Mixed hidden Markov model: <code>" in page
    for wrong in ("", "  ", 3):
        with pytest.raises(ModelError, match="some text is wanted"):
            report_html(fit_of("by_state"), title=wrong)
