"""What people write instead of the word that is meant: taken, or told with what was meant."""

import pandas as pd
import pytest

import avem
from avem.components.outcome import find_family
from avem.errors import did_you_mean
from avem.inference.methods.names import as_method, as_refinement

FRAME = pd.DataFrame({"who": [1, 1, 2, 2], "valence": [0.5, 1.0, 2.0, 1.5]})
MODEL = avem.MixedHMM("valence ~ 1 + (1 | who)", n_states=2)


@pytest.mark.parametrize(
    ("given", "available", "hint"),
    [
        ("gama", ["gamma", "beta"], " Did you mean 'gamma'?"),
        ("GAMMA", ["gamma", "beta"], " Did you mean 'gamma'?"),
        ("stress", ["daily_stress_level", "x"], " Did you mean 'daily_stress_level'?"),
        ("banana", ["gamma", "beta"], ""),
        ("", ["gamma"], ""),
        ("gamma" * 50, ["gamma"], ""),
        (None, ["gamma"], ""),
        ("1", [1, 2], " Did you mean 1?"),
    ],
)
def test_near_words_are_found(given, available, hint):
    assert did_you_mean(given, available) == hint


def test_a_class_stands_for_the_object_with_its_defaults():
    assert find_family(avem.Gaussian) == avem.Gaussian()
    assert avem.MixedHMM("y ~ 1", 2, avem.Poisson).spec.outcomes[0].family == avem.Poisson()
    assert as_method(avem.Adaptive) == avem.Adaptive()
    assert as_refinement(avem.Adaptive) == (avem.Adaptive(), False)


@pytest.mark.parametrize("family", [avem.families.Univariate, avem.families.Family, avem.Adaptive])
def test_other_classes_are_refused(family):
    with pytest.raises(avem.ModelError, match=r"family is .*; available: gaussian"):
        find_family(family)


@pytest.mark.parametrize(
    ("family", "words"), [(avem.Binomial, "trials"), (avem.Custom, "log_prob")]
)
def test_a_class_without_defaults_says_what_it_needs(family, words):
    with pytest.raises(avem.ModelError, match=words):
        find_family(family)


def test_the_base_of_all_methods_is_no_method():
    with pytest.raises(avem.ModelError, match="available: avem"):
        as_method(avem.Method)


def test_refinement():
    assert as_refinement(False) == as_refinement(None) == (None, False)
    assert as_refinement("auto") == (avem.Adaptive(), True)
    for other in (True, "never", 0, ["auto"]):
        with pytest.raises(avem.ModelError, match="None or False"):
            as_refinement(other)


@pytest.mark.parametrize(
    ("make", "error", "hint"),
    [
        (lambda: avem.MixedHMM("y ~ 1", 2, "possion"), avem.ModelError, "'poisson'"),
        (lambda: avem.outcome("y ~ 1", "gamma", shap="~ x"), avem.ModelError, "'shape'"),
        (lambda: avem.MixedHMM("y ~ sqr(x)", 2), avem.ModelError, "'sqrt'"),
        (
            lambda: avem.MixedHMM("y ~ 1", 2, effect_covariance="diag"),
            avem.ModelError,
            "'diagonal'",
        ),
        (lambda: avem.MixedHMM("y ~ 1", 2, initial="statonary"), avem.ModelError, "'stationary'"),
        (lambda: avem.MixedHMM("y ~ 1", 2, transition="lefttoright"), avem.ModelError, "'left_to"),
        (lambda: avem.MixedHMM("y ~ 1", n_state=2), TypeError, "'n_states'"),
        (lambda: avem.MixedSSM(["y"], latent=2), TypeError, "'n_latent'"),
        (lambda: avem.selekt, AttributeError, "'select'"),
        (lambda: MODEL.fit(FRAME, method="adaptiv"), avem.ModelError, "'adaptive'"),
        (lambda: MODEL.fit(FRAME, n_start=2), TypeError, "'n_starts'"),
        (lambda: MODEL.fit(FRAME, maxiter=2), TypeError, "'max_iter'"),
        (lambda: MODEL.fit(FRAME, time="Valense"), avem.DataError, "'valence'"),
        (lambda: MODEL.simulate({"transitions": 0}, 2, 2), avem.ModelError, "'transition'"),
        (lambda: avem.Gaussian("diag"), avem.ModelError, "'diagonal'"),
        (lambda: avem.AVEM("laplacian"), avem.ModelError, "'laplace'"),
        (lambda: avem.AVEM(anchor="means"), avem.ModelError, "'mean'"),
        (lambda: avem.MixedSSM(["y"], 1, random="loadings"), avem.ModelError, "'loading'"),
        (lambda: avem.select(MODEL, FRAME, criterion="bicc"), avem.ModelError, "'bic'"),
        (
            lambda: avem.MixedSSM(["valence"], 1, subject="who").fit(FRAME, maxradius=0.9),
            TypeError,
            "'max_radius'",
        ),
    ],
)
def test_what_was_meant_is_said(make, error, hint):
    with pytest.raises(error, match=f"Did you mean {hint}"):
        make()


def test_all_options_are_listed():
    with pytest.raises(TypeError, match="It takes data, subject, time, sequence, method, refine"):
        MODEL.fit(FRAME, banana=1)
