"""One word, one meaning: the vocabulary of options, and old words that still work."""

import numpy as np
import pytest

import avem
from tests.fits.kinds import fit_of, ssm_fit


def test_kind_of_standard_errors_is_now_errors():
    fit = fit_of("counts")
    with pytest.warns(avem.AvemWarning, match="kind='observed' is now called errors='observed'"):
        old = fit.dwell(level=None, kind="observed")
    new = fit.dwell(level=None, errors="observed")
    np.testing.assert_array_equal(old["expected"], new["expected"])
    for method in (fit.stationary, fit.dwell, fit.standard_errors):
        with pytest.raises(avem.ModelError, match="errors is 'hessian'; choose one of 'observed'"):
            method(errors="hessian")
        with (
            pytest.warns(avem.AvemWarning, match="errors='hessian'") as seen,
            pytest.raises(avem.ModelError, match="errors is 'hessian'"),
        ):
            method(kind="hessian")
        assert seen[0].filename == __file__


@pytest.mark.parametrize("make", [lambda: fit_of("counts"), ssm_fit], ids=["hmm", "ssm"])
def test_effects_have_one_vocabulary(make):
    fit = make()
    for call, choices in (
        (lambda word: fit.check("mean", 2, effects=word), "'new', 'fitted', 'drawn'"),
        (lambda word: fit.simulate(effects=word), "'new', 'fitted'"),
        (lambda word: fit.residuals(effects=word), "'fitted', 'drawn'"),
        (lambda word: fit.predictions(effects=word), "'integrated', 'fitted'"),
    ):
        words = set(choices.replace("'", "").split(", "))
        assert words <= set(avem.fits.words.EFFECTS)
        with pytest.raises(avem.ModelError) as error:
            call("mean")
        listed = str(error.value).partition("choose one of ")[2].rstrip(".")
        assert set(listed.replace("'", "").split(", ")) == words


def test_effects_from_the_posterior_are_drawn():
    fit = fit_of("counts")
    with pytest.warns(avem.AvemWarning, match="effects='posterior' is now called effects='drawn'"):
        old = fit.check("mean", 3, effects="posterior")
    new = fit.check("mean", 3, effects="drawn")
    np.testing.assert_array_equal(old.simulated, new.simulated)
    assert old.effects == "drawn"


def test_the_most_probable_state_of_each_row_is_not_the_path():
    fit = fit_of("moving")
    found, probabilities = fit.most_probable_states(), fit.state_probabilities()
    np.testing.assert_array_equal(found, probabilities.to_numpy().argmax(axis=1))
    assert found.name == "state"
    path = fit.decode()
    assert (found == path).mean() > 0.9
    new = fit.panel.table.head(30)
    assert fit.most_probable_states(new).index.equals(new.index)
