"""Errors, tests, ratios and tables for papers, against computations that do not use them."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import avem
from avem.data import Panel
from avem.errors import ModelError
from avem.fits.estimates import estimates
from avem.fits.paper import fixed, p_value
from avem.fits.uncertainty import errors_are_cheap
from tests.fits.kinds import fit_from, fit_of, true_fit

PARAMS = {
    "initial": [0.5, 0.5],
    "transition_coef": [[[0.0, 0.0], [-1.5, 0.6]], [[-1.2, -0.5], [0.0, 0.0]]],
    "coef": [[[0.3, 0.4]], [[2.2, -0.2]]],
    "effect_covariance": [[0.3, 0.05], [0.05, 0.2]],
}


@pytest.fixture(scope="module")
def fit():
    """Counts, with a covariate everywhere; at its true parameters, which is near the maximum."""
    model = avem.MixedHMM(
        "n ~ x + (1 + x | id)", 2, "poisson", transition="~ x", state_names=["few", "many"]
    )
    rows = pd.DataFrame({"id": np.repeat(np.arange(40), 20), "t": np.tile(np.arange(20), 40)})
    rows["x"] = np.random.default_rng(3).normal(size=800)
    drawn = model.simulate(PARAMS, data=rows, time="t", seed=1)
    panel = Panel.from_frame(drawn.frame, "id", "t")
    return true_fit(model, PARAMS, panel, drawn.effects)


@pytest.fixture(scope="module")
def wide(fit):
    return fit.table(errors=True, ratios=True, spread="sd")


def test_errors_are_those_of_standard_errors(fit):
    wanted = fit.standard_errors(level=0.9)
    found = fit.table(errors=True, level=0.9)
    pd.testing.assert_frame_equal(found.drop(columns=["z", "p"]), wanted)
    pd.testing.assert_frame_equal(fit.table(), wanted[fit.table().columns])
    assert "are from the sandwich" in str(fit.summary(errors="sandwich"))
    assert "are from the curvature" in str(fit.summary(errors=True))
    sandwich = fit.table(errors="sandwich")["se"]
    pd.testing.assert_series_equal(sandwich, fit.standard_errors("sandwich")["se"])


def test_z_and_p_go_with_the_intervals(fit, wide):
    coef = wide[wide["parameter"].isin(["coef", "transition_coef"])]
    np.testing.assert_allclose(coef["z"], coef["estimate"] / coef["se"])
    np.testing.assert_allclose(coef["p"], 2 * stats.t.sf(np.abs(coef["z"]), 39), rtol=1e-9)
    away = (coef["lower"] > 0) | (coef["upper"] < 0)
    assert (away == (coef["p"] < 0.05)).all()
    assert away.any()
    assert wide.loc[~wide.index.isin(coef.index), ["z", "p"]].isna().all(axis=None)


def test_without_effects_p_is_normal():
    found = fit_of("zeros").table(errors=True)
    coef = found[found["parameter"] == "coef"]
    np.testing.assert_allclose(coef["p"], 2 * stats.norm.sf(np.abs(coef["z"])), rtol=1e-9)
    assert found.loc[found["parameter"] == "shape", "z"].isna().all()


def test_spread_in_standard_deviations(fit, wide):
    """Against the delta method by hand, from the errors of the covariances."""
    errors = fit.standard_errors().query("parameter == 'effect_covariance'")
    sigma = fit.params["effect_covariance"]
    sd = wide[wide["parameter"] == "effect_sd"]
    size = np.sqrt(np.diagonal(sigma))
    np.testing.assert_allclose(sd["estimate"], size)
    own = errors.iloc[[0, 2]]
    np.testing.assert_allclose(sd["se"], own["se"].to_numpy() / (2 * size), rtol=1e-5)
    half = stats.t.ppf(0.975, 39) * sd["se"].to_numpy() / size
    np.testing.assert_allclose(sd["upper"], size * np.exp(half), rtol=1e-9)
    # The interval of the variance is made on the same scale, but for the factor 2.
    np.testing.assert_allclose(sd["upper"] ** 2, own["upper"].to_numpy(), rtol=1e-5)
    (r,) = wide[wide["parameter"] == "effect_correlation"].itertuples()
    assert r.estimate == pytest.approx(sigma[0, 1] / size.prod())
    ends = np.arctanh([r.lower, r.upper])
    assert np.mean(ends) == pytest.approx(np.arctanh(r.estimate))
    assert np.ptp(ends) / 2 == pytest.approx(stats.t.ppf(0.975, 39) * r.se / (1 - r.estimate**2))
    assert -1 < r.lower < r.upper < 1


def test_the_error_of_a_correlation_follows_from_the_covariance_of_the_estimates(fit, wide):
    from avem.fits.uncertainty import covariance_of_estimates, parameter_slope

    rows = np.flatnonzero(fit._table()["parameter"] == "effect_covariance")

    def values(theta):
        return fit.values_of(fit.model.params_out(theta))[rows]

    slope = parameter_slope(values, fit.theta, fit._curvature)
    cov = slope @ covariance_of_estimates(fit) @ slope.T
    a, c, b = fit._table()["estimate"].to_numpy()[rows]
    r = c / np.sqrt(a * b)
    gradient = np.array([-r / (2 * a), 1 / np.sqrt(a * b), -r / (2 * b)])
    (found,) = wide.loc[wide["parameter"] == "effect_correlation", "se"]
    assert found == pytest.approx(np.sqrt(gradient @ cov @ gradient), rel=1e-5)


def test_ratios(wide):
    known = wide[wide["ratio"].notna()]
    assert set(known["term"]) == {"x"}
    kinds = dict(zip(known["parameter"], known["ratio_kind"], strict=True))
    assert kinds == {"transition_coef": "odds ratio", "coef": "rate ratio"}
    np.testing.assert_allclose(known["ratio"], np.exp(known["estimate"]))
    np.testing.assert_allclose(known["ratio_lower"], np.exp(known["lower"]))
    np.testing.assert_allclose(known["ratio_upper"], np.exp(known["upper"]))


@pytest.mark.parametrize(
    ("kind", "parameter", "word"),
    [
        ("choice", "coef", "odds ratio"),
        ("counts", "coef", "rate ratio"),
        ("movement", "step.shape_coef", "ratio of shapes"),
        ("by_state", "initial_coef", "odds ratio"),
        ("gaussian", "coef", None),
        ("spread", "sd_coef", "ratio of sds"),
    ],
)
def test_a_ratio_is_called_what_it_is(kind, parameter, word):
    found = fit_of(kind).table(ratios=True)
    found = found[(found["parameter"] == parameter) & (found["term"] != "Intercept")]
    kinds = [kind for kind in found["ratio_kind"] if kind is not None]
    assert set(kinds) == ({word} - {None})
    if kind == "by_state":  # state 0 is what the other is compared with
        assert found["ratio"].isna().sum() == found["ratio"].notna().sum() == 1


def test_levels_without_an_intercept_are_no_ratios():
    frame = pd.DataFrame({"id": np.repeat([0, 1], 8), "y": [0, 1] * 8, "g": list("aabb") * 4})
    params = {"initial": [1.0], "transition": [[1.0]], "coef": [[[0.1, 0.2]]]}
    model = avem.MixedHMM("y ~ 0 + g", 1, "bernoulli")
    fit = model.fit(frame, "id", fixed=params, n_starts=1)
    assert fit.table(ratios=True)["ratio"].isna().all()


# --- the summary --------------------------------------------------------------------------------


def test_every_cell_of_the_summary_has_the_errors_of_the_table(fit, wide):
    told = estimates(fit, True, 0.95)
    cells = {cell.where: cell for part in told.parts if part.section.tested for cell in part.cells}
    coef = wide.query("parameter == 'coef'")
    for row in coef.itertuples():
        cell = cells[row.state, row.outcome, row.term]
        found = (cell.estimate, cell.se, cell.lower, cell.upper, cell.z, cell.p)
        wanted = (row.estimate, row.se, row.lower, row.upper, row.z, row.p)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    moves = wide.query("parameter == 'transition_coef' and state != to_state")
    for row in moves.itertuples():
        assert cells[f"{row.state} -> {row.to_state}", row.term].se == pytest.approx(row.se)
    (effects,) = [p for p in told.parts if p.section.title.startswith("Effects")]
    wanted = wide[wide["parameter"].isin(["effect_sd", "effect_correlation"])]
    found = sorted(cell.upper for cell in effects.cells)
    np.testing.assert_allclose(found, sorted(wanted["upper"]), rtol=1e-5)


def test_probabilities_have_intervals_inside_0_and_1(fit):
    told = estimates(fit, True, 0.95)
    (moves,) = [p for p in told.parts if p.section.title.startswith("Transition prob")]
    table = fit.covariate("x", grid=[fit.panel.table["x"].mean()])
    by_place = table.set_index(["state", "to_state"])
    for cell in moves.cells:
        wanted = by_place.loc[cell.where]
        assert cell.estimate == pytest.approx(wanted["estimate"], rel=1e-6)
        assert cell.se == pytest.approx(wanted["se"], rel=1e-4)
        assert 0 < cell.lower < cell.estimate < cell.upper < 1
        assert np.isnan(cell.z)


def test_the_summary_says_what_it_has(fit):
    text = str(fit.summary(ratios=True))
    assert "95% interval" in text
    assert "rate ratio" in text
    assert "odds ratio" in text
    bare = str(fit.summary(errors=False))
    assert "interval" not in bare
    assert "z" not in bare.split()
    assert "90% interval" in str(fit.summary(level=0.9))


def test_errors_are_left_out_where_they_take_long(fit, monkeypatch, tmp_path):
    fit.save(tmp_path / "fit.avem")
    loaded = avem.load(tmp_path / "fit.avem")
    assert "Standard errors need the data" in str(loaded.summary())
    assert "Standard errors need the data" in loaded.to_markdown()
    again = loaded.with_data(fit.panel.table)
    assert errors_are_cheap(again)
    monkeypatch.setattr("avem.fits.uncertainty.CHEAP", 100)
    assert not errors_are_cheap(again)
    assert "summary(errors=True) computes them" in str(again.summary())
    assert "interval" in str(fit.summary())  # known already
    with pytest.raises(avem.DataError, match="loaded from a file"):
        loaded.summary(errors=True)
    with pytest.raises(ModelError, match="errors is 'yes'; choose one of True, False, 'observed'"):
        fit.summary(errors="yes")


@pytest.mark.parametrize(
    ("n_rows", "n_effects", "cheap"),
    [
        (len(avem.load_affect()), 4, True),  # the first example of the README
        (60_000, 3, True),
        (60_000, 4, False),
        (2_000, 7, False),
        (500, 7, True),
    ],
)
def test_errors_are_shown_by_rows_times_effects(n_rows, n_effects, cheap):
    fit: Any = SimpleNamespace(
        panel=True, info=SimpleNamespace(n_rows=n_rows), model=SimpleNamespace(n_effects=n_effects)
    )
    assert errors_are_cheap(fit) == cheap


# --- papers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "text"),
    [(1.005, "1.00"), (-0.5, "\u22120.50"), (-0.001, "0.00"), (1234.5, "1234.50")],
)
def test_numbers_have_fixed_decimals_and_one_minus(x, text):
    assert fixed(x, 2) == text


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0004, "< .001"), (0.0006, ".001"), (0.034, ".034"), (1.0, "1.000"), (np.nan, "")],
)
def test_p_values_are_as_papers_have_them(p, text):
    assert p_value(p) == text


class Cells(HTMLParser):
    """The rows of a table."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_the_three_kinds_of_text_hold_the_same(fit, wide):
    html = Cells(fit.to_html(ratios=True)).rows
    marked = [line.strip("|").split("|") for line in fit.to_markdown(ratios=True).splitlines()]
    marked = [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in row] for row in marked]
    marked = [[cell.strip("*") for cell in row] for row in marked if len(row) > 3]
    del marked[1]  # the rule
    same = [row if len(row) > 1 else [*row, *[""] * (len(html[0]) - 1)] for row in html[:-1]]
    assert same == marked
    row = wide.query("parameter == 'coef' and state == 'many' and term == 'x'").iloc[0]
    place = html.index(["Coefficients (log scale): many, n"]) + 2
    assert html[place][:2] == ["x", fixed(row["estimate"], 2)]
    assert html[place][4] == p_value(row["p"])
    assert html[place][5] == f"[{fixed(row['lower'], 2)}, {fixed(row['upper'], 2)}]"
    shown = html[0].index("Rate ratio")
    assert html[place][shown] == fixed(row["ratio"], 2)
    latex = fit.to_latex(ratios=True)
    body = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len(body) == len(html) - 1  # without the note
    wanted = html[place][5].replace("\u2212", "$-$")
    assert wanted in body[place]
    assert all(line.count("&") in (0, len(html[0]) - 1) for line in body)
    assert latex.count("{") == latex.count("}")


def test_names_are_escaped(fit):
    evil = fit.rename_states(["<script>alert(1)</script>", "50%_of & {more} $ ~^\\"])
    html = evil.to_html() + evil.summary()._repr_html_() + evil._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    latex = evil.to_latex(caption="100% # sure")
    assert r"50\%\_of \& \{more\} \$ \textasciitilde{}\textasciicircum{}\textbackslash{}" in latex
    assert r"\caption{100\% \# sure}" in latex
    assert r"\<script>alert(1)\</script>" in evil.to_markdown()
    linked = fit.rename_states(["[a](b)", "c"]).to_markdown()
    assert r"[a\](b)" in linked
    piped = fit.rename_states(["a|b", "c"]).to_markdown()
    assert r"a\|b" in piped
    priced = fit.rename_states(["$x_1$", "`c`"])
    assert r"\$x\_1\$" in priced.to_markdown()
    assert r"\$x\_1\$" in priced.to_latex()
    assert r"\textasciigrave{}c\textasciigrave{}" in priced.to_latex()


def test_small_numbers_have_more_decimals():
    panel = fit_of("counts").panel
    assert panel is not None
    frame = panel.table
    fit = fit_from(
        avem.MixedHMM("y ~ 1 + (1 | who)", 1),
        {
            "initial": [1.0],
            "transition": [[1.0]],
            "coef": [[[0.00123]]],
            "variance": [[0.0004]],
            "effect_covariance": [[1e-6]],
        },
        frame.assign(y=1e-3 * np.arange(len(frame)) % 0.01),
        np.zeros((8, 1)),
    )
    text = fit.to_markdown(errors=False)
    assert "| 0.0012 |" in text
    nothing = replace(fit, params=fit.params | {"effect_covariance": np.array([[1e-24]])})
    assert "Intercept | 0.00 |" in nothing.to_markdown(errors=False)
    with pytest.raises(ModelError, match="digits is -1"):
        fit.to_latex(digits=-1)


def test_pandas_writes_latex_out_of_the_box(fit):
    assert r"\begin{tabular}" in fit.table().to_latex()
