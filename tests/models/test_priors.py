"""Priors: maximum a posteriori against closed forms, identities, and words that say so."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.stats import invwishart, multivariate_normal, wishart

import avem
from avem.components.priors import prior_from_json
from avem.errors import ModelError
from avem.priors import Dirichlet, HalfNormal, InverseWishart, Normal, Sticky, Wishart

CHAIN = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "coef": [[[0.0]], [[3.0]]],
    "variance": [[1.0], [0.5]],
}


@pytest.fixture(scope="module")
def line():
    rng = np.random.default_rng(1)
    x = 20 + 4 * rng.normal(size=60)
    y = 3 + 0.5 * x + rng.normal(size=60)
    return pd.DataFrame({"who": np.repeat(np.arange(6), 10), "x": x, "y": y})


@pytest.fixture(scope="module")
def chain():
    drawn = avem.MixedHMM("y ~ 1", 2).simulate(CHAIN, 8, 25, seed=2)
    return drawn.frame.assign(state=drawn.states)


def one_state(frame, priors, **options):
    model = avem.MixedHMM("y ~ x", 1, priors=priors)
    return model.fit(frame, subject="who", n_starts=1, **options)


def two_states(frame, priors=None, **options):
    model = avem.MixedHMM("y ~ 1", 2, priors=priors)
    return model.fit(frame, subject="subject", n_starts=2, **options)


# --- closed forms ---------------------------------------------------------------------------------


def test_a_normal_prior_is_ridge(line):
    """(X'X / s2 + P) b = X'y / s2 + P m, in the user's units; its inverse are the errors."""
    priors = {"coef[:, 'x']": Normal(0.2, 0.05), "coef[:, 'Intercept']": Normal(0, 2)}
    fit = one_state(line, priors, fixed={"variance": [[1.3]]})
    x = np.column_stack([np.ones(60), line["x"]])
    prior = np.diag([1 / 2**2, 1 / 0.05**2])
    information = x.T @ x / 1.3 + prior
    wanted = np.linalg.solve(information, x.T @ line["y"] / 1.3 + prior @ [0, 0.2])
    np.testing.assert_allclose(fit.params["coef"][0, 0], wanted, rtol=1e-6)
    errors = fit.standard_errors().query("parameter == 'coef'")["se"]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(np.linalg.inv(information))), rtol=1e-3)
    z = (wanted - [0, 0.2]) / [2, 0.05]
    assert fit.log_prior == pytest.approx(-0.5 * (z**2).sum())


def test_an_inverse_wishart_prior_of_a_variance(line):
    fit = one_state(line, {"variance": InverseWishart(4, 10)})
    x = np.column_stack([np.ones(60), line["x"]])
    rest = np.linalg.lstsq(x, line["y"])[1][0]
    assert fit.params["variance"][0, 0] == pytest.approx((rest + 10) / (60 + 4 + 2), rel=1e-6)


@pytest.mark.parametrize(
    ("prior", "more"),
    [
        (Dirichlet(3), np.full((2, 2), 2.0)),
        (Dirichlet([[5, 1], [2, 8]]), np.array([[4.0, 0], [1, 7]])),
        (Sticky(20), np.diag([20.0, 20])),
        (Sticky(6, moves=1), np.array([[6.0, 1], [1, 6]])),
    ],
)
def test_pseudo_counts_are_counts(chain, prior, more):
    """With all states known, the transitions are counts, and counts of the prior beside them."""
    model = avem.MixedHMM(
        "y ~ 1", 2, known="state", state_names=["0", "1"], priors={"transition": prior}
    )
    fit = model.fit(chain, subject="subject", n_starts=1)
    counts = more.copy()
    for _, own in chain.groupby("subject"):
        np.add.at(counts, (own["state"][:-1], own["state"][1:]), 1)
    wanted = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(fit.params["transition"], wanted, atol=1e-7)
    assert fit.log_prior == pytest.approx((more * np.log(wanted)).sum())


def test_densities_and_slopes_are_those_of_scipy():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(2, 2))
    one, other = root @ root.T + np.eye(2), np.diag([0.5, 2.0])
    mine = InverseWishart(4, [[2, 0.3], [0.3, 1]])
    theirs = [invwishart(4, [[2, 0.3], [0.3, 1]]).logpdf(m) for m in (one, other)]
    found = [mine.log_density(m, "covariance") for m in (one, other)]
    assert np.diff(found) == pytest.approx(np.diff(theirs))
    wide = [Wishart(5, 3).log_density(m, "covariance") for m in (one, other)]
    assert np.diff(wide) == pytest.approx(
        np.diff([wishart(5, 3 * np.eye(2)).logpdf(m) for m in (one, other)])
    )
    cases = [
        (mine, one, "covariance"),
        (Wishart(5, 3), one, "covariance"),
        (HalfNormal(0.7), one, "covariance"),
        (HalfNormal(0.7), np.array([0.4, 2.0]), "positive"),
        (HalfNormal(0.7), np.array([0.4, 2.0]), "natural"),
        (InverseWishart(3, 2), np.array([[0.4], [2.0]]), "positive"),
        (Normal(1, 2), np.array([0.4, -3.0]), "free"),
        (Sticky(4, 1), np.array([[0.7, 0.3], [0.4, 0.6]]), "simplex"),
    ]
    for prior, value, kind in cases:
        slope, curvature = prior.terms(value, kind)

        def density(flat, prior=prior, value=value, kind=kind):
            return prior.log_density(flat.reshape(value.shape), kind)

        wanted = approx_fprime(value.ravel(), density, 1e-7)
        np.testing.assert_allclose(slope.ravel(), wanted, rtol=1e-4, atol=1e-5)
        assert np.linalg.eigvalsh(curvature).min() > -1e-12
        assert prior_from_json(prior.to_json()) == prior


@pytest.mark.parametrize("prior", [InverseWishart(3, 2), Wishart(4), HalfNormal(0.3)])
def test_a_prior_of_the_effects_is_at_the_maximum_of_the_posterior(prior):
    """One state and Gaussian outcomes: every subject is a multivariate normal, in closed form."""
    rng = np.random.default_rng(5)
    level = rng.normal(size=7)
    y = level[:, None] + rng.normal(size=(7, 6))
    frame = pd.DataFrame({"who": np.repeat(np.arange(7), 6), "y": y.ravel()})
    model = avem.MixedHMM("y ~ 1 + (1 | who)", 1, priors={"effect_covariance": prior})
    fit = model.fit(frame, n_starts=1, refine="adaptive")

    def negative(v):
        mean, noise, between = v[0], np.exp(v[1]), np.exp(v[2])
        covariance = noise * np.eye(6) + between
        height = multivariate_normal(np.full(6, mean), covariance).logpdf(y).sum()
        return -height - prior.log_density(np.array([[between]]), "covariance")

    best = minimize(negative, [0.0, 0, 0], method="BFGS", options={"gtol": 1e-7}).x
    found = fit.params["effect_covariance"][0, 0]
    assert found == pytest.approx(np.exp(best[2]), rel=1e-4)
    assert fit.params["variance"][0, 0] == pytest.approx(np.exp(best[1]), rel=1e-4)
    second = [
        (negative(best + step) + negative(best - step) - 2 * negative(best)) / 1e-6
        for step in 1e-3 * np.eye(3)
    ]
    error = fit.standard_errors().query("parameter == 'coef'")["se"].iloc[0]
    assert error == pytest.approx(1 / np.sqrt(second[0]), rel=1e-2)


# --- identities -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "priors",
    [{"coef": Normal(0, np.inf)}, {"transition": Dirichlet(1), "variance": HalfNormal(1e9)}],
)
def test_a_flat_prior_is_maximum_likelihood(chain, priors):
    plain, fit = two_states(chain), two_states(chain, priors)
    assert float(fit.loglik()) == pytest.approx(float(plain.loglik()), abs=1e-7)
    mine, theirs = fit.standard_errors(), plain.standard_errors()
    np.testing.assert_allclose(mine["estimate"], theirs["estimate"], atol=1e-5)
    np.testing.assert_allclose(mine["se"], theirs["se"], rtol=1e-3)


def test_the_posterior_is_at_its_maximum_and_the_likelihood_is_not(chain):
    """Moving a parameter lowers likelihood times prior, and raises one of the two."""
    fit, plain = two_states(chain, {"variance": InverseWishart(3, 40)}), two_states(chain)
    assert float(fit.loglik()) < float(plain.loglik()) - 0.5
    top = float(fit.loglik()) + fit.log_prior
    assert fit.bound + fit.log_prior == pytest.approx(fit.bound_history[-1], abs=1e-5)
    for factor in (0.97, 1.03):
        moved = {**fit.params, "variance": fit.params["variance"] * factor}
        fixed = two_states(chain, fixed=moved)
        prior = InverseWishart(3, 40).log_density(moved["variance"], "positive")
        assert float(fixed.loglik()) + prior < top - 0.005


def test_priors_tell_states_apart_where_they_differ(chain):
    alike = two_states(chain, {"coef[:, 'Intercept']": Normal(0, 5)})
    assert not alike.model.keeps_order
    apart = two_states(chain, {"coef[0, 'Intercept']": Normal(3, 0.1)})
    assert apart.model.keeps_order
    assert apart.params["coef"][0, 0, 0] > apart.params["coef"][1, 0, 0]


def test_constraints_and_priors_together(chain):
    model = avem.MixedHMM(
        "y ~ 1",
        2,
        constraints="variance[:] equal",
        priors={"variance": InverseWishart(3, 40), "transition": Sticky(10)},
    )
    fit = model.fit(chain, subject="subject", n_starts=2)
    assert fit.params["variance"][0] == pytest.approx(fit.params["variance"][1])
    assert fit.n_params == 6
    assert (fit.standard_errors()["note"] == "").all()


# --- weak priors ----------------------------------------------------------------------------------


def test_weak_priors_keep_a_variance_from_0():
    """Repeated values: without priors a state closes in on them."""
    rng = np.random.default_rng(7)
    y = np.where(np.arange(120) % 12 == 0, 5.0, rng.normal(size=120))
    frame = pd.DataFrame({"subject": np.repeat(np.arange(4), 30), "y": y})
    with pytest.warns(avem.AvemWarning, match="priors='weak'"):
        two_states(frame)
    fit = two_states(frame, "weak")
    assert fit.params["variance"].min() > 1e-3
    assert "priors='weak'" in repr(fit)


def test_weak_priors_say_little_where_data_say_much(chain):
    plain, fit = two_states(chain), two_states(chain, "weak")
    assert 0 <= float(plain.loglik()) - float(fit.loglik()) < 0.5
    scaled = two_states(chain.assign(y=chain["y"] * 1e4 + 3), "weak")
    np.testing.assert_allclose(scaled.params["variance"], fit.params["variance"] * 1e8, rtol=1e-3)


def test_weak_priors_keep_variances_of_effects_and_log_odds_inside():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"who": np.repeat(np.arange(5), 20), "x": rng.normal(size=100)})
    frame["y"] = (frame["x"] > 0).astype(int)  # separated
    model = avem.MixedHMM("y ~ x + (1 | who)", 1, "bernoulli", priors="weak")
    fit = model.fit(frame, n_starts=1)
    assert fit.params["effect_covariance"][0, 0] > 1e-3
    assert 0 < fit.params["coef"][0, 0, 1] < 100


# --- words ----------------------------------------------------------------------------------------


def test_a_fit_says_that_it_is_no_maximum_likelihood(chain, tmp_path):
    fit = two_states(chain, {"transition": Sticky(10), "coef": Normal(0, np.inf)})
    assert "maximum a posteriori" in fit.ended
    text = str(fit.summary())
    assert "Maximum a posteriori, not maximum likelihood" in text
    assert "transition: Sticky(stays=10, moves=0)" in text
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem")
    assert again.model.spec.priors == fit.model.spec.priors
    assert again.log_prior == pytest.approx(fit.log_prior)
    fit.report(tmp_path / "page.html", thorough=False)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "maximum a posteriori" in page
    assert "priors={&#x27;transition&#x27;: avem.priors.Sticky" in page
    plain = two_states(chain, {"coef": Normal(0, np.inf)})
    with pytest.raises(ModelError, match="priors"):
        avem.likelihood_ratio_test(plain, fit)


def test_priors_are_told_with_rounded_numbers():
    assert InverseWishart(1, np.array([25.831000377986232])).describe() == (
        "InverseWishart(df=1, scale=25.83)"
    )
    assert InverseWishart(2, [[1.0, 0.5], [0.5, 1 / 3]]).describe() == (
        "InverseWishart(df=2, scale=[[1, 0.5], [0.5, 0.3333]])"
    )
    assert Wishart(3).describe() == "Wishart(df=3)"  # any scale
    assert Normal(0, 1).describe() == "Normal(mean=0, sd=1)"


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        ("strong", "'weak'"),
        (3, "a dict"),
        ({"coef": 2}, "see avem.priors"),
        ({"coef[0": Normal()}, "no name of a parameter"),
        ({"coefs": Normal()}, "no parameter of this model"),
        ({"transition": Normal()}, "prior of coefficients"),
        ({"coef": Dirichlet(2)}, "prior of probabilities"),
        ({"transition[0]": Dirichlet(2)}, "all of them together"),
        ({"transition": Dirichlet([[1, 2, 3]])}, "shape"),
        ({"variance[0, 'z']": HalfNormal(1)}, "'z' is nothing"),
    ],
)
def test_a_prior_that_does_not_fit_is_refused(chain, priors, words):
    with pytest.raises(ModelError, match=words):
        two_states(chain, priors)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Normal(0, -1), "sd must be positive"),
        (lambda: Normal(0, "a"), "numbers are wanted"),
        (lambda: Dirichlet(0.5), "no maximum inside"),
        (lambda: Sticky(-1), "not < 0"),
        (lambda: Sticky(np.inf), "at most 1e"),
        (lambda: Dirichlet(1e300), "at most 1e"),
        (lambda: InverseWishart(0), "df is > 0"),
    ],
)
def test_a_prior_that_cannot_be_is_refused(make, words):
    with pytest.raises(ModelError, match=words):
        make()


def test_a_prior_of_what_is_held_is_refused(chain):
    with pytest.raises(ModelError, match="fixed= holds"):
        two_states(chain, {"variance": HalfNormal(1)}, fixed={"variance": [[1.0], [1.0]]})
