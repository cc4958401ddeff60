"""What a prompt and a notebook show of models, fits and results: enough to tell them apart."""

from html.parser import HTMLParser

import pandas as pd
import pytest

import avem
import avem.sklearn
from tests.fits.kinds import fit_of, ssm_fit

MODELS = [
    avem.MixedHMM("y ~ 1", 2),
    avem.MixedHMM("y ~ 1", 3),
    avem.MixedHMM("y ~ 1", 2, "poisson"),
    avem.MixedHMM("y ~ 1", 2, transition="~ x"),
    avem.MixedHMM("y ~ 1", 2, transition="~ x + (1 | id)"),
    avem.MixedHMM("y ~ 1", 2, initial="~ x"),
    avem.MixedHMM("y ~ 1", 2, initial="stationary"),
    avem.MixedHMM("y ~ 1 + (1 | id)", 2),
    avem.MixedHMM("y ~ 1 + (1 | id)", 2, effects_by_state=True),
    avem.MixedHMM("y ~ 1 + (1 | id)", 2, effect_covariance="diagonal"),
    avem.MixedHMM("y ~ 1", 2, state_names=["low", "high"]),
    avem.MixedHMM([avem.outcome("y ~ 1", "gamma", shape="~ x")], 2),
    avem.MixedHMM([avem.outcome("y ~ 1", "gamma"), avem.outcome("z ~ 1")], 2),
    avem.MixedSSM(["a", "b"], 1),
    avem.MixedSSM(["a", "b"], 2),
    avem.MixedSSM(["a", "b"], 1, random="none"),
    avem.MixedSSM(["a", "b"], 1, random="loading"),
    avem.MixedSSM(["a", "b"], 1, state="~ 0 + x"),
    avem.MixedSSM(["a", "b"], 1, effect_covariance="diagonal"),
    avem.MixedSSM(["a", "b"], 1, effect_covariance={"loading": "diagonal"}),
    avem.MixedSSM(["a", "b"], 1, state_names=["tension"]),
]


def test_different_models_look_different():
    assert len({repr(model) for model in MODELS}) == len(MODELS)
    assert len({model._repr_html_() for model in MODELS}) == len(MODELS)
    assert all(len(repr(model)) < 200 for model in MODELS)


@pytest.mark.parametrize("number", [0, 3, 6, 9, 10, 13, 15, 18, 19])
def test_what_is_shown_makes_the_same_model(number):
    names = {name: getattr(avem, name) for name in avem.__all__}
    again = eval(repr(MODELS[number]), {}, names)
    assert repr(again.spec) == repr(MODELS[number].spec)


@pytest.mark.parametrize("family", [avem.Bernoulli, avem.Categorical, avem.Ordinal])
def test_levels_that_the_data_tell_are_not_shown_as_none(family):
    assert repr(family()) == f"{family.__name__}()"
    given = family(levels=("no", "yes"))
    assert eval(repr(given), vars(avem)) == given != family()


class Balanced(HTMLParser):
    """Fails where tags are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def results():
    fit = fit_of("moving")
    table = pd.DataFrame(
        {"fold": [0, 1], "n_values": [5, 5], "log_score": [-1.0, -2.0], "stop": ["CONVERGED"] * 2}
    )
    return {
        "fit": fit,
        "latent": ssm_fit(),
        "summary": fit.summary(errors=False),
        "plain summary": avem.Summary("a < b"),
        "check": fit.check("mean", n=3),
        "columns": table,
    }


@pytest.mark.parametrize("which", ["fit", "latent", "summary", "plain summary", "check"])
def test_html_is_well_formed_and_has_no_colours_of_its_own(results, which):
    html = results[which]._repr_html_()
    assert Balanced(html).tags
    assert "color" not in html.replace("border", "")
    assert "<script" not in html
    assert "background" not in html


def test_a_fit_shows_its_model_and_its_end(results):
    fit = results["fit"]
    for text in (repr(fit), fit._repr_html_().replace("&#x27;", "'")):
        assert "y ~ 1 + (1 | who)" in text
        assert "~ x + (1 | who)" in text
        assert "8 subjects" in text
        assert "CONVERGED" in text
    assert "0-&gt;1: Intercept" in fit._repr_html_()
    named = fit.rename_states(["<b>", "c"])
    assert "<b>" not in named._repr_html_()
    assert "&lt;b&gt;-&gt;c: Intercept" in named._repr_html_()


def test_summary_html_is_escaped(results):
    assert "a &lt; b" in results["plain summary"]._repr_html_()


def test_public_modules_show_what_is_theirs():
    assert set(avem.__all__) <= set(dir(avem))
    for module in (avem, avem.families, avem.sklearn):
        own = [name for name in dir(module) if not name.startswith("_")]
        assert set(own) - {"families", "priors"} == set(module.__all__)
