"""The report is one valid page that holds every number of the fit and loads nothing."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import avem
from avem.cli import app
from avem.fits.plots.figures import state_colors
from avem.fits.questions import diagnosis
from avem.fits.report import report_html, write_report
from avem.fits.report.estimates import error_table
from avem.fits.report.hmm_words import model_code, model_words, reading
from avem.fits.report.numbers import chance, fixed, numbers
from avem.fits.report.reproduce import reproduce
from avem.fits.report.ssm_words import ssm_model_code, ssm_model_words
from tests.fits.kinds import CUSTOM, KINDS, fit_of, log_prob, model_of, ssm_fit

VOID = {"meta", "img", "br", "hr", "link", "input"}
NASTY = "</script><script>alert('&\"')</script> $title <!-- \u2028"


class Checker(HTMLParser):
    """Complains about tags that do not balance; collects what a reader meets."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.images, self.text = [], [], [], []
        self.rows = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "svg":
            self.images.append(dict(attrs))
        if tag == "tr":
            self.rows.append([])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open or "style" in self.open:
            return
        self.text.append(data)
        if "tr" in self.open:
            self.rows[-1].append(data)


def read(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def fit():
    model = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", 2)
    params = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.15, 0.85]],
        "coef": [[[0.0], [1.0]], [[3.0], [-1.0]]],
        "variance": [[0.5, 0.3], [0.8, 0.4]],
        "effect_covariance": [[0.6, 0.2], [0.2, 0.4]],
    }
    frame = model.simulate(params, n_subjects=8, n_times=40, seed=1).frame
    # Shaped like the data of test_plots.py, so that one compilation serves both.
    frame = frame[frame["time"] < 20 + 2 * frame["subject"]].reset_index(drop=True)
    frame["subject"] = [NASTY if i == 0 else f"s{i}" for i in frame["subject"]]
    frame.loc[frame["time"] == 5, ["y1", "y2"]] = np.nan
    fit = model.fit(frame, time="time", n_starts=1)
    told = {"notes": ("Mind the <b>gap</b>.",), "start_gaps": (0.5, 0.0), "starts_agreeing": 1}
    return dataclasses.replace(fit, info=dataclasses.replace(fit.info, **told))


@pytest.fixture(scope="module")
def page(fit):
    return report_html(fit, thorough=False)


def embedded(page):
    """What the page's script reads."""
    (text,) = re.findall(r'id="page-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def same_spec(one, other):
    """Two specifications of the same model; outcomes have no equality of their own."""
    assert one[0] == other[0]
    assert one[2:] == other[2:]
    for a, b in zip(one.outcomes, other.outcomes, strict=True):
        assert vars(a) == vars(b)


def row(checker, name):
    (found,) = [cells for cells in checker.rows if cells and cells[0] == name]
    return found[1:]


def test_the_page_is_balanced_and_has_its_parts(page):
    checker = read(page)
    assert page.startswith("<!DOCTYPE html>")
    assert checker.tags.count("h1") == 1
    assert checker.tags.count("main") == 1
    assert checker.tags.count("table") == checker.tags.count("caption")
    assert len(checker.images) == 8
    assert all(len(image["aria-label"]) > 20 for image in checker.images)


def test_the_page_loads_nothing(page):
    assert "://" not in page
    assert "data:image" not in page
    checker = read(page)
    assert not {"link", "iframe", "object", "base"} & set(checker.tags)
    assert checker.tags.count("script") == 2
    assert not {"img", "image", "use"} & set(checker.tags)
    assert 'src="' not in page
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)', page))
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'" in page


def test_contents_lead_to_sections(page):
    targets = re.findall(r'href="#([^"]*)', page)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(targets) <= set(ids)
    assert len(targets) > 10


def test_every_parameter_is_there(fit, page):
    checker, params = read(page), fit.params
    for j, outcome in enumerate(("y1", "y2")):
        coef = [r for r in checker.rows if r[:1] == [f"{outcome}: Intercept"]]
        assert coef[0][1:] == numbers(params["coef"][:, j, 0])
        assert [outcome, *numbers(np.sqrt(params["variance"][:, j]))] in checker.rows
    sd = np.sqrt(np.diagonal(params["effect_covariance"]))
    correlation = params["effect_covariance"][1, 0] / sd.prod()
    for name, text in zip(("level of y1", "level of y2"), numbers(sd), strict=True):
        assert [name, text] in checker.rows
    assert ["level of y2", *numbers([correlation])] in checker.rows
    assert row(checker, "at the start") == [chance(p) for p in params["initial"]]
    moves = [[f"state {k}", *map(chance, p)] for k, p in enumerate(params["transition"])]
    assert all(move in checker.rows for move in moves)


def test_a_state_that_is_never_left(fit):
    params = fit.params | {"transition": np.array([[0.5, 0.5], [0.0, 1.0]])}
    text = "".join(read(report_html(dataclasses.replace(fit, params=params, panel=None))).text)
    assert "lasts on average2 rows" in text
    assert "never leftfor ever" in text


def test_the_fit_is_told_in_words(fit, page):
    text = " ".join("".join(read(page).text).split())
    assert "8 subjects, 8 sequences, 216 rows; 416 observed values, 16 values missing" in text
    assert fit.stop.value in text
    assert fixed(fit.bound, 3) in text
    assert "2 starting points were tried: 1 found the best solution" in text
    assert "ended up to 0.500 below it." in text
    assert "2 effects of its own" in text
    assert f"avem {avem.__version__}, jax " in text
    assert "Mind the <b>gap</b>." in text
    for color in state_colors(2):
        assert color in page


def test_the_code_makes_the_model_again(fit, page):
    code = "".join(read(page).text)
    code = code[code.index("avem.MixedHMM(\n") :]
    code = code[: code.index(".fit(")]
    again = eval(code, {"avem": avem})
    same_spec(again.spec, fit.model.spec)


def test_labels_are_escaped(fit, page):
    assert NASTY not in page
    assert page.count("<script") == 2
    assert "alert('" not in page.replace("alert(&#x27;", "")[: page.index("page-data")]
    assert "<b>gap" not in page
    assert NASTY in embedded(page)["subjects"]
    assert any(cells[:1] == [NASTY] for cells in read(page).rows)


def test_effects_are_listed_up_to_a_limit(fit, page):
    table = fit.effects()
    mean, low, high = table.loc[2, ["mean", "lower", "upper"]]
    told = numbers([mean, low, high])
    assert row(read(page), "s1")[0] == "{} ({} to {})".format(*told)
    n = 2500
    rng = np.random.default_rng(0)
    many = dataclasses.replace(
        fit,
        panel=None,
        subjects=np.array([f"person {i}" for i in range(n)]),
        effects_mean=rng.normal(size=(n, 2)),
        effects_cov=np.tile(0.1 * np.eye(2), (n, 1, 1)),
        info=dataclasses.replace(fit.info, lost=()),
    )
    large = report_html(many)
    assert "100 of 2,500 subjects" in large
    people = [cells[0] for cells in read(large).rows if cells and cells[0].startswith("person")]
    assert people == [f"person {i}" for i in range(100)]
    assert len(large) < 1e6


@pytest.mark.usefixtures("blank_pictures")
def test_a_fit_without_data_has_the_rest(fit):
    checker = read(report_html(dataclasses.replace(fit, panel=None)))
    assert len(checker.images) == 5
    text = "".join(checker.text)
    assert "without these data" in text
    share = re.findall(r"state \d([\d.]+)% of the time in the long run", text)
    assert sum(map(float, share)) == pytest.approx(100, abs=0.2)


@pytest.mark.usefixtures("blank_pictures")
def test_a_model_without_effects(fit):
    plain = dataclasses.replace(
        fit,
        panel=None,
        model=model_of(avem.MixedHMM("y1 + y2 ~ 1", 2), fit.panel),
        params=fit.params | {"effect_covariance": np.zeros((0, 0))},
        effects_mean=np.zeros((8, 0)),
        effects_cov=np.zeros((8, 0, 0)),
    )
    checker = read(report_html(plain))
    assert len(checker.images) == 3
    assert "There are no effects" in "".join(checker.text)


@pytest.mark.usefixtures("blank_pictures")
def test_a_full_noise_covariance_shows_correlations(fit):
    covariance = np.array([[[0.5, 0.1], [0.1, 0.3]], [[0.8, -0.2], [-0.2, 0.4]]])
    hmm = avem.MixedHMM(fit.model.spec.text, 2, avem.Gaussian("full"))
    full = dataclasses.replace(
        fit,
        panel=None,
        model=model_of(hmm, fit.panel),
        params={k: v for k, v in fit.params.items() if k != "variance"}
        | {"covariance": covariance},
    )
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    checker = read(report_html(full))
    assert row(checker, "y2 with y1") == numbers(covariance[:, 1, 0] / sd.prod(1))
    assert ["y1", *numbers(sd[:, 0])] in checker.rows


@pytest.mark.usefixtures("blank_pictures")
def test_write_report_writes_the_page(fit, tmp_path):
    path = write_report(dataclasses.replace(fit, panel=None), str(tmp_path / "fit.html"))
    assert path == tmp_path / "fit.html"
    text = path.read_text(encoding="utf-8")
    assert NASTY in "".join(read(text).text)


# --- every kind of model ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_of_every_kind_makes_the_model_again(kind):
    spec = fit_of(kind).model.spec
    again = eval(model_code(spec), {"avem": avem, "log_prob": log_prob}).spec
    if kind == "custom":  # the family is the user's own
        family = again.outcomes[0].family
        assert (family.params, family.effects) == (CUSTOM.params, CUSTOM.effects)
        again = again._replace(
            outcomes=(dataclasses.replace(again.outcomes[0], family=CUSTOM), again.outcomes[1])
        )
    same_spec(again, spec)


def test_the_code_has_no_words_that_only_numpy_knows():
    family = avem.Categorical(levels=(np.int64(1), np.str_("a")))
    code = model_code(avem.MixedHMM("y ~ 1", 2, family).spec)
    assert "family=avem.Categorical(levels=(1, 'a'))" in code


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("kind", ["choice", "movement", "moving", "by_state", "custom"])
def test_pages_of_other_kinds_are_balanced_and_complete(kind):
    fit = fit_of(kind) if kind == "movement" else dataclasses.replace(fit_of(kind), panel=None)
    checker = read(report_html(fit, thorough=False))
    n = len(fit.model.outcomes)  # densities, the bound, effects; with data, residuals and states
    assert len(checker.images) == n + 1 + fit.model.n_effects + (n + 1) * (fit.panel is not None)
    assert checker.tags.count("table") == checker.tags.count("caption")
    shown = {cell for cells in checker.rows for cell in cells}
    for name, value in fit.params.items():
        if not name.endswith(("variance", "transition")):  # shown as sd, or in words
            assert set(numbers(value[value != 0])) <= shown, name


WORDS = {
    "gaussian": ["y1 and y2 are Gaussian", "a mean that depends on x in its own way", "correlated"],
    "spread": ["y is Gaussian", "its own mean and a sd that depends on x"],
    "choice": ["choice is Bernoulli (right or left)", "probability of left that depends on x and"],
    "labels": ["a and b are categorical", "its own distribution of levels", "all with the same"],
    "trials": ["wins is binomial", "its own probability"],
    "movement": ["There are several formulas", "angle is von Mises", "a shape that depends on x"],
    "moving": ["depend on x and the subject", "stationary", "within a formula, correlations"],
    "by_state": ["The first state depends on kind[b]", "of its own: y: Intercept [0] and"],
    "custom": ["c is of a custom density; each state has its own bias"],
}


@pytest.mark.parametrize(("kind", "words"), WORDS.items())
def test_models_in_words(kind, words):
    text = "".join(read(" ".join(model_words(fit_of(kind).model, "who"))).text)
    for part in words:
        assert part in text
    alike = "the same in all states"
    assert (alike in text) == (kind not in ("moving", "by_state"))


def test_what_effects_are_depends_on_the_model():
    text = {kind: reading(fit_of(kind)) for kind in ("choice", "moving", "by_state", "zeros")}
    assert "with the same probabilities." in text["choice"]
    assert "with probabilities of their own." in text["moving"]
    assert "at the same covariates." in text["by_state"]
    assert "in every state alike" in text["choice"]
    assert "in every state alike" not in text["by_state"]
    assert "An effect" not in text["zeros"]


def test_words_are_explained_where_they_are_linked():
    page = report_html(fit_of("counts"), timelines=1, thorough=False)
    linked = set(re.findall(r'href="#(word-[a-z]+)"', page))
    assert {"word-bound", "word-anchor"} <= linked
    for word in (*linked, "word-gap"):
        assert page.count(f'id="{word}"') == 1
    assert "word-anchor" not in reading(fit_of("zeros"))


# --- what takes long ----------------------------------------------------------------------------


def test_standard_errors_in_words():
    rows = [
        ("initial", 0, None, None, None, None, 0.4, 0.1, 0.2, 0.6, ""),
        ("transition", 0, 1, None, None, None, 0.1, 0.03, 0.05, 0.2, ""),
        ("coef", 1, None, "<y>", "x", None, -2.0, np.nan, np.nan, np.nan, "held"),
        ("effect_covariance", None, None, "y", "x", "y: Intercept", 0.3, 0.1, 0.1, 0.7, ""),
        ("effect_covariance", None, None, "y", "x", "y: x", 0.5, 0.1, 0.3, 0.8, ""),
    ]
    places = ["state", "to_state", "outcome", "term", "other"]
    names = ["parameter", *places, "estimate", "se", "lower", "upper", "note"]
    frame = pd.DataFrame(rows, columns=names).astype({"state": "Int64", "to_state": "Int64"})
    found = read(error_table(frame, ["calm", "<tense>"])).rows
    assert found == [
        ["estimate", "standard error", "95% interval", "note"],
        ["initial: calm", "0.400", "0.100", "0.200 to 0.600"],
        ["transition: calm to <tense>", "0.100", "0.0300", "0.0500 to 0.200"],
        ["coef: <y>, x, <tense>", "\u22122", "held"],
        ["effect_covariance: y, x, with y: Intercept", "0.300", "0.100", "0.100 to 0.700"],
        ["effect_covariance: y, x", "0.500", "0.100", "0.300 to 0.800"],
    ]


@pytest.mark.usefixtures("blank_pictures")
def test_what_takes_long_is_left_out_of_large_pages(fit, page, monkeypatch):
    text = "".join(read(page).text)
    assert "fit.report(path, thorough=True)" in text
    asked = []
    table = fit.table().assign(se=0.25, lower=0.0, upper=1.0, note="")
    monkeypatch.setattr(avem.HMMFit, "_standard_errors", lambda self: asked.append("se") or table)
    effects = pd.DataFrame({"effect": fit.model.effect_names, "lost": 0.25, "sd": 0.5})
    gaps = ["loglik", "bound", "anchoring_gap", "gaussian_gap"]
    each = pd.DataFrame({"subject": fit.subjects, **{name: 1.0 for name in gaps}})
    found = diagnosis.Diagnosis(each, effects, "Anchoring <holds>.")
    monkeypatch.setattr(avem.HMMFit, "diagnose", lambda self: asked.append("gap") or found)
    checker = read(report_html(fit))  # small: unasked
    assert set(asked) == {"se", "gap"}
    assert asked.count("gap") == 1
    assert row(checker, "lost by anchoring") == ["8.000"]
    assert any(cells[2:3] == ["0.250"] for cells in checker.rows)


@pytest.mark.usefixtures("blank_pictures")
def test_a_part_that_fails_does_not_take_the_page_along(fit, monkeypatch):
    def fails(fit, *chosen):
        raise avem.DataError("no <luck>")

    monkeypatch.setattr("avem.fits.report.residuals.whiteness_table", fails)
    said = "".join(read(report_html(fit, thorough=False)).text)
    assert "could not be computed: no <luck>" in said


def test_options_are_told_as_they_were_recorded():
    fit = fit_of("gaussian")
    early = reproduce(fit)  # an earlier avem kept no tolerance
    assert "saved by an earlier avem" in early
    kept = {"tol": 1e-7, "max_iter": 60, "n_starts": 3, "refine": None}
    told = reproduce(dataclasses.replace(fit, info=dataclasses.replace(fit.info, **kept)))
    assert "refine=None, n_starts=3, max_iter=60, tol=1e-07, seed=0)" in told
    assert "earlier avem" not in told
    given = kept | {"refine": "auto", "init": ("coef", "initial"), "fixed": ("initial",)}
    told = reproduce(dataclasses.replace(fit, info=dataclasses.replace(fit.info, **given)))
    assert "refine" not in told
    assert "Held (fixed=), at the values that fit.params has: initial." in told
    assert "It began at given values (init=) of coef, initial, which are not kept" in told


# --- state-space models -------------------------------------------------------------------------


@pytest.mark.usefixtures("blank_pictures")
def test_the_page_of_a_state_space_model(tmp_path):
    fit = ssm_fit()
    fit.save(tmp_path / "fit.avem")
    fit.panel.table.to_csv(tmp_path / "data.csv", index=False)
    out = tmp_path / "report.html"
    words = ["report", tmp_path / "fit.avem", tmp_path / "data.csv", "--quick", "--out", out]
    result = CliRunner().invoke(app, [str(word) for word in words], env={"AVEM_NO_CACHE": "1"})
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(str(out))
    page = out.read_text(encoding="utf-8")
    checker = read(page)
    text = "".join(checker.text)
    assert "Mixed-effects state-space model" in text
    # states, loadings, the first effects, residuals, the bound
    assert len(checker.images) == 2 + 4 + 3 + 1
    loading = fit.params["loading_mean"]
    assert ["y3", *numbers(loading[2])] in checker.rows
    assert row(checker, "population") == numbers(
        [np.abs(np.linalg.eigvals(fit.params["transition_mean"])).max()]
    )
    assert embedded(page)["kind"] == "ssm"
    again = eval(text[text.index("avem.MixedSSM(\n") : text.index(".fit(data")], {"avem": avem})
    assert again.spec == fit.model.spec


def test_state_space_models_in_words_and_code():
    model = avem.MixedSSM(
        "a + b ~ x + (1 | who)",
        1,
        state="~ 0 + dose",
        random="loading",
        effect_covariance={"loading": "diagonal"},
    )
    again = eval(ssm_model_code(model.spec), {"avem": avem})
    assert again.spec == model.spec
    plain = avem.MixedSSM(["a", "b"], 2, random="none")
    assert eval(ssm_model_code(plain.spec), {"avem": avem}).spec == plain.spec
    words = "".join(read(" ".join(ssm_model_words(ssm_fit().model, "who"))).text)
    assert "reflect 2 latent states through the loadings" in words
    assert "transitions (not correlated) and loadings (not correlated) of its own" in words


@pytest.mark.slow
def test_thorough_pages(fit):
    for one in (fit, ssm_fit()):
        checker = read(report_html(one, thorough=True))
        assert "could not be computed" not in "".join(checker.text)
