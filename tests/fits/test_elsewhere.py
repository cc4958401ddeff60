"""Names that a fit does not have: the error says what there is in their place."""

import copy
import pickle
import re

import pytest

import avem
from avem.fits import elsewhere
from tests.fits.kinds import fit_of, ssm_fit

KINDS = {
    "hmm": (avem.HMMFit, elsewhere.HMM_FIT),
    "ssm": (avem.SSMFit, elsewhere.SSM_FIT),
    "hmm plots": (avem.Plots, elsewhere.HMM_PLOTS),
    "ssm plots": (avem.SSMPlots, elsewhere.SSM_PLOTS),
}
FITS = {avem.HMMFit: avem.Plots, avem.SSMFit: avem.SSMPlots}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_sentence_names_is_there_and_what_it_is_for_is_not(kind):
    of, sentences = KINDS[kind]
    fit = avem.SSMFit if "ssm" in kind else avem.HMMFit
    for name, words in sentences.items():
        assert not hasattr(of, name)
        assert words.endswith(".")
        for plot, method in re.findall(r"(?:fit\.)?\b(plot\.)?(\w+)\(\)", words):
            assert hasattr(FITS[fit] if plot else fit, method), words
    # All that the other kind has, and this one has not, is told.
    other = {avem.HMMFit: avem.SSMFit, avem.SSMFit: avem.HMMFit}
    other |= {avem.Plots: avem.SSMPlots, avem.SSMPlots: avem.Plots}
    lacking = {
        name for name in dir(other[of]) if not name.startswith("_") and not hasattr(of, name)
    }
    assert lacking <= set(sentences)


def test_a_state_space_fit_says_what_it_has_instead_of_decoded_states():
    with pytest.raises(
        AttributeError, match=r"numbers that vary.*fit\.states\(\) has their values"
    ):
        ssm_fit().decode()
    with pytest.raises(AttributeError, match=r"fit\.plot\.loadings\(\)"):
        ssm_fit().plot.emissions()
    with pytest.raises(AttributeError, match=r"fit\.decode\(\) has the most probable path"):
        fit_of("counts").states()


def test_near_words_and_names_of_python():
    fit = fit_of("counts")
    with pytest.raises(AttributeError, match=r"no attribute 'decoded'\. Did you mean 'decode'\?$"):
        fit.decoded  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'subject'\. Did you mean 'subjects'"):
        fit.subject  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute '_nothing'$"):
        fit._nothing  # noqa: B018
    assert not hasattr(fit, "zzz")
    assert copy.copy(fit).subjects is fit.subjects
    again = pickle.loads(pickle.dumps(ssm_fit()))
    assert again.bound == ssm_fit().bound


def test_an_error_inside_a_property_is_not_hidden(monkeypatch):
    fit = copy.copy(fit_of("counts"))
    monkeypatch.setattr(
        type(fit), "bound_name", property(lambda self: self.model.no_such_thing), raising=True
    )
    with pytest.raises(AttributeError, match="no_such_thing"):
        fit.bound_name  # noqa: B018
