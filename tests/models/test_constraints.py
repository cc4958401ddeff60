"""Constraints: what they say, and that fits keep to them, at the maximum among what is allowed."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime, minimize
from typer.testing import CliRunner

import avem
from avem.cli import app
from avem.errors import ModelError
from avem.models.constraints import as_constraints
from avem.numerics.polyhedron import Polyhedron

TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "coef": [[[10.0, 1.0]], [[13.0, 1.0]]],
    "variance": [[1.0], [0.5]],
}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    # Far from 0, and of another size: slopes and intercepts are not those on the scale of the fit.
    table = pd.DataFrame({"who": np.repeat(np.arange(8), 30), "x": 5 + 3 * rng.normal(size=240)})
    model = avem.MixedHMM("y ~ x", n_states=2)
    return model.simulate(TRUTH, data=table, subject="who", seed=1).frame


def fitted(frame, *constraints, **options):
    model = avem.MixedHMM("y ~ x", n_states=2, constraints=list(constraints))
    return model.fit(frame, subject="who", n_starts=3, **options)


@pytest.fixture(scope="module")
def free(frame):
    return fitted(frame)


# --- the likelihood, anew -------------------------------------------------------------------------


def loglik(frame, initial, transition, coef, variance):
    """Of a two-state model without effects, by the forward recursion of all subjects at once."""
    x, y = (frame[name].to_numpy().reshape(-1, 30).T[:, :, None] for name in ("x", "y"))
    z = (y - coef[:, 0] - x * coef[:, 1]) / np.sqrt(variance)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi * variance)
    total, alpha = 0.0, initial * density[0]
    for rows in density[1:]:
        seen = alpha.sum(-1, keepdims=True)
        total += np.log(seen).sum()
        alpha = (alpha / seen) @ transition * rows
    return total + np.log(alpha.sum(-1)).sum()


def expit(v):
    return 1 / (1 + np.exp(-v))


CASES = {
    # By name: sentences, and all parameters from a vector that is free.
    "slopes": (
        ["coef[:, 'x'] equal"],
        lambda v: (v[0], v[1:3], [[v[3], v[4]], [v[5], v[4]]], np.exp(v[6:8])),
        [0.0, -2, -1.5, 10, 1, 13, 0, -0.5],
    ),
    "noise": (
        ["variance[0] == variance[1]", "coef[1, 'x'] == 0.9"],
        lambda v: (v[0], v[1:3], [[v[3], v[4]], [v[5], 0.9]], np.exp(v[[6, 6]])),
        [0.0, -2, -1.5, 10, 1, 13, 0],
    ),
    "moves": (
        ["transition[0, 0] == transition[1, 1]", "initial[0] == 0.3"],
        lambda v: (np.log(0.7 / 0.3), v[[0, 0]], [v[1:3], v[3:5]], np.exp(v[5:7])),
        [-2, 10, 1, 13, 1, 0, -0.5],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_maximum_is_that_of_another_optimiser(frame, name):
    sentences, unpack, begin = CASES[name]

    def negative(v):
        start, leave, coef, variance = unpack(np.asarray(v))
        first = np.array([1 - expit(start), expit(start)])
        a, b = expit(leave)
        own = first, np.array([[1 - a, a], [b, 1 - b]]), np.array(coef), variance
        return -loglik(frame, *own)

    best = minimize(negative, begin, method="BFGS", options={"gtol": 1e-5})
    fit = fitted(frame, *sentences, init={"coef": TRUTH["coef"]})
    assert fit.n_params == len(begin)
    assert float(fit.loglik()) == pytest.approx(-best.fun, abs=1e-5)
    _, leave, coef, variance = unpack(best.x)
    np.testing.assert_allclose(fit.params["coef"][:, 0], coef, rtol=2e-3)
    np.testing.assert_allclose(fit.params["variance"][:, 0], variance, rtol=2e-3)
    np.testing.assert_allclose(fit.params["transition"][[0, 1], [1, 0]], expit(leave), rtol=5e-3)
    # Standard errors of the means of state 0, from differences of the other likelihood.
    hessian = np.array(
        [
            (approx_fprime(best.x + step, negative, 1e-5) - approx_fprime(best.x, negative, 1e-5))
            / 1e-3
            for step in 1e-3 * np.eye(len(begin))
        ]
    )
    at = {"slopes": 3, "noise": 3, "moves": 1}[name]
    table = fit.standard_errors()
    own = table[(table["parameter"] == "coef") & (table["state"] == 0)]
    wanted = np.sqrt(np.linalg.inv((hessian + hessian.T) / 2)[at, at])
    assert own["se"].iloc[0] == pytest.approx(wanted, rel=0.02)


# --- identities -----------------------------------------------------------------------------------


def test_a_tie_of_all_outcomes_is_one_state(frame):
    fit = fitted(frame, "coef[0] == coef[1]", "variance[:] equal")
    one = avem.MixedHMM("y ~ x", n_states=1).fit(frame, subject="who")
    assert float(fit.loglik()) == pytest.approx(float(one.loglik()), abs=1e-6)
    np.testing.assert_allclose(fit.params["coef"], np.repeat(one.params["coef"], 2, 0), rtol=1e-6)


def test_what_is_so_anyway_changes_nothing(frame, free):
    fit = fitted(frame, "variance[:] >= 0.01", "coef[0, 'Intercept'] <= 1e3")
    assert float(fit.loglik()) == pytest.approx(float(free.loglik()), abs=1e-6)
    assert fit.n_params == free.n_params
    mine, theirs = fit.standard_errors(), free.standard_errors()
    np.testing.assert_allclose(mine["se"], theirs["se"], rtol=1e-3)


def test_single_numbers_held_are_a_whole_parameter_held(frame):
    whole = [[0.85, 0.15], [0.3, 0.7]]
    held = fitted(frame, fixed={"transition": whole})
    sentences = ["transition[0, 1] == 0.15", "transition[1, 0] == 0.3"]
    init = {"coef": TRUTH["coef"]}
    fit = fitted(frame, *sentences, init=init)
    some = fitted(frame, fixed={"transition": [[np.nan, 0.15], [0.3, np.nan]]}, init=init)
    assert float(fit.loglik()) == pytest.approx(float(held.loglik()), abs=1e-6)
    assert float(some.loglik()) == pytest.approx(float(held.loglik()), abs=1e-6)
    assert fit.n_params == some.n_params == held.n_params
    assert some.model.spec.constraints == tuple(sentences)
    assert set(fit.standard_errors()["note"].iloc[2:6]) == {"held by a constraint"}


def test_the_unit_of_the_data_does_not_matter(frame):
    sentence = "coef[0, 'x'] == 0.8"
    other = frame.assign(x=frame["x"] * 1000 + 4e4, y=frame["y"] / 50 - 7)
    fit = fitted(frame, sentence)
    again = fitted(other, f"coef[0, 'x'] == {0.8 / 50 / 1000}")
    shift = len(frame) * np.log(50)
    assert float(again.loglik()) - shift == pytest.approx(float(fit.loglik()), abs=1e-5)


def test_a_bound_that_is_reached_is_held_there(frame, free):
    assert free.params["variance"][0, 0] < 1.6
    fit = fitted(frame, "variance[0] >= 1.6", init={"coef": TRUTH["coef"]})
    assert fit.params["variance"][0, 0] == pytest.approx(1.6, rel=1e-6)
    assert fit.n_params == free.n_params  # a bound is no equation
    note = fit.standard_errors().query("parameter == 'variance'")["note"].tolist()
    assert note == ["at its boundary: no standard error", ""]
    at_it = fitted(frame, "variance[0] == 1.6", init={"coef": TRUTH["coef"]})
    assert float(at_it.loglik()) == pytest.approx(float(fit.loglik()), abs=1e-6)


def test_a_true_tie_is_not_rejected_and_a_false_one_is(frame, free):
    true, false = fitted(frame, "coef[:, 'x'] equal"), fitted(frame, "coef[:, 'Intercept'] equal")
    kept, lost = (avem.likelihood_ratio_test(fit, free) for fit in (true, false))
    assert kept.df == lost.df == 1
    assert kept.p_value > 0.01
    assert lost.p_value < 1e-6


# --- effects, other families, Newton steps --------------------------------------------------------


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"who": np.repeat(np.arange(12), 30), "x": rng.normal(size=360)})
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.2, 0.8]],
        "coef": [[[0.0, 0.4]], [[2.0, 0.4]]],
        "effect_covariance": [[0.2]],
    }
    model = avem.MixedHMM("n ~ x + (1 | who)", n_states=2, family="poisson")
    return model.simulate(truth, data=table, seed=1).frame


def of_counts(counts, *constraints, **options):
    model = avem.MixedHMM("n ~ x + (1 | who)", 2, "poisson", constraints=list(constraints))
    return model.fit(counts, n_starts=2, refine="adaptive", **options)


def test_ties_by_newton_steps_are_at_their_maximum(counts):
    """The profile over the tie has its top there, and its curvature is the information."""
    fit = of_counts(counts, "coef[:, 'x'] equal")
    slope = fit.params["coef"][0, 0, 1]
    assert fit.params["coef"][1, 0, 1] == pytest.approx(slope, abs=1e-12)
    levels = [
        float(
            of_counts(
                counts,
                f"coef[0, 'x'] == {value}",
                f"coef[1, 'x'] == {value}",
                init=fit.params,
            ).loglik()
        )
        for value in (slope - 0.02, slope, slope + 0.02)
    ]
    assert levels[1] == pytest.approx(float(fit.loglik()), abs=1e-5)
    assert max(levels[0], levels[2]) < levels[1]
    # A parabola's curvature is the information on the tie.
    curvature = (2 * levels[1] - levels[0] - levels[2]) / 0.02**2
    table = fit.standard_errors().query("parameter == 'coef' and term == 'x'")
    np.testing.assert_allclose(table["se"], 1 / np.sqrt(curvature), rtol=0.03)


def test_the_variance_of_effects_is_held(counts):
    held = of_counts(counts, fixed={"effect_covariance": [[0.5]]})
    fit = of_counts(counts, "effect_covariance['Intercept', 'Intercept'] == 0.5")
    assert float(fit.loglik()) == pytest.approx(float(held.loglik()), abs=1e-5)
    assert fit.n_params == held.n_params


def test_an_intercept_that_is_held_is_not_recentred(counts):
    fit = of_counts(
        counts, "coef[0, 'Intercept'] == -0.5", init={"coef": [[[-0.5, 0.4]], [[2, 0.4]]]}
    )
    assert fit.params["coef"][0, 0, 0] == pytest.approx(-0.5, abs=1e-10)
    assert fit.effects_mean.mean() > 0.05  # the subjects lie above it


def test_covariances_tied_over_states_and_made_zero():
    rng = np.random.default_rng(4)
    model = avem.MixedHMM("a + b ~ 1", 2, avem.Gaussian("full"))
    noise = np.array([[1.0, 0.6], [0.6, 2.0]])
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": [[[0.0], [0.0]], [[3.0], [-3.0]]],
        "covariance": [noise, noise],
    }
    frame = model.simulate(truth, 10, 40, seed=int(rng.integers(100))).frame
    tied = avem.MixedHMM("a + b ~ 1", 2, avem.Gaussian("full"), constraints="covariance[:] equal")
    fit = tied.fit(frame, subject="subject", n_starts=2)
    one, two = fit.params["covariance"]
    np.testing.assert_allclose(one, two, atol=1e-10)
    assert fit.n_params == 1 + 2 + 4 + 3
    # At its maximum it is the pooled covariance of residuals, weighed by the states.
    weight = fit.state_probabilities().filter(like="state_").to_numpy()
    y = frame[["a", "b"]].to_numpy()
    total = np.zeros((2, 2))
    for k in (0, 1):
        residual = y - fit.params["coef"][k, :, 0]
        total += (weight[:, k, None] * residual).T @ residual
    np.testing.assert_allclose(one, total / len(y), rtol=1e-4)
    apart = avem.MixedHMM(
        "a + b ~ 1", 2, avem.Gaussian("full"), constraints="covariance[:, 'b', 'a'] equal"
    )
    between = apart.fit(frame, subject="subject", n_starts=2)
    matrix = between.params["covariance"]
    assert matrix[0, 0, 1] == pytest.approx(matrix[1, 0, 1], abs=1e-9)
    assert float(fit.loglik()) < float(between.loglik())
    zero = ["covariance[0, 'a', 'b'] == 0", "covariance[1, 'a', 'b'] == 0"]
    without = avem.MixedHMM("a + b ~ 1", 2, avem.Gaussian("full"), constraints=zero)
    plain = avem.MixedHMM("a + b ~ 1", 2).fit(frame, subject="subject", n_starts=2)
    found = without.fit(frame, subject="subject", n_starts=2)
    assert float(found.loglik()) == pytest.approx(float(plain.loglik()), abs=1e-5)
    assert found.n_params == plain.n_params


def test_structures_of_effects_are_constraints_of_their_covariance(frame):
    """Covariances of 0 are a diagonal, and equal variances beside it an isotropic one."""

    def fit(structure, *sentences):
        model = avem.MixedHMM(
            "y ~ x + (1 + x | who)", 2, effect_covariance=structure, constraints=list(sentences)
        )
        return model.fit(frame, n_starts=1, refine="adaptive")

    zero = fit("full", "effect_covariance['x', 'Intercept'] == 0")
    diagonal = fit("diagonal")
    assert float(zero.loglik()) == pytest.approx(float(diagonal.loglik()), abs=1e-3)
    assert zero.n_params == diagonal.n_params
    with pytest.raises(ModelError, match="a variance can never be 0"):
        fit("full", "effect_covariance['x', 'x'] == 0")
    with pytest.raises(ModelError, match="positive definite"):
        fit(
            "full",
            "effect_covariance['x', 'x'] == 0.1",
            "effect_covariance['Intercept', 'Intercept'] == 0.1",
            "effect_covariance['x', 'Intercept'] == 0.5",
        )


# --- states ---------------------------------------------------------------------------------------


def test_states_that_constraints_tell_apart_are_not_permuted(frame):
    """The state with the held slope is state 1, though its mean is the lower one."""
    one = fitted(frame, "coef[1, 'Intercept'] == 9.5")
    other = fitted(frame, "coef[0, 'Intercept'] == 9.5")
    assert one.model.keeps_order
    assert one.params["coef"][1, 0, 0] == pytest.approx(9.5, abs=1e-9)
    assert float(one.loglik()) == pytest.approx(float(other.loglik()), abs=1e-4)
    np.testing.assert_allclose(one.params["coef"][::-1], other.params["coef"], rtol=1e-3)
    assert not fitted(frame, "coef[:, 'x'] equal").model.keeps_order


def test_states_are_called_by_name(frame):
    model = avem.MixedHMM(
        "y ~ x", 2, state_names=["low", "high"], constraints=["coef['high', 'x'] == 1.1"]
    )
    fit = model.fit(frame, subject="who", n_starts=2)
    assert fit.params["coef"][1, 0, 1] == pytest.approx(1.1, abs=1e-9)
    again = fit.rename_states(["low", "top"])
    assert again.model.spec.constraints == ("coef['top', 'x'] == 1.1",)
    assert again.n_params == fit.n_params
    assert fit.rename_states(None).model.spec.constraints == ("coef[1, 'x'] == 1.1",)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("coef[0, 'x'] = 1", "not understood"),
        ("coef[0, 'x']", "not understood"),
        ("__import__('os') == 1", "not understood"),
        ("coef equal", "does not say over what"),
        ("coef[:, 'x'] equal over moons", "not understood"),
        ("coef[0, 'x'] >= 1e200", "no parameter comes near 1e200"),
        (3, "a list of sentences|a sentence is wanted"),
    ],
)
def test_a_sentence_that_says_nothing_is_refused_at_once(sentence, words):
    with pytest.raises(ModelError, match=words):
        avem.MixedHMM("y ~ x", n_states=2, constraints=sentence)


@pytest.mark.parametrize(
    ("sentences", "words"),
    [
        (["coeff[0, 'x'] == 1"], "no parameter of this model.*coef"),
        (["coef[2, 'x'] == 1"], "2 is nothing that 'coef' has.*state \\(0, 1\\)"),
        (["coef[0, 'z'] == 1"], "'z' is nothing.*Intercept, x"),
        (["coef[0, 'x'] == 1", "coef[0, 'x'] == 2"], "== 2. cannot hold: it contradicts"),
        (["variance[0] == -1"], "can never be -1"),
        (["transition[0, 0] == 0.7", "transition[0, 1] == 0.7"], "contradicts"),
        (["transition[0, 1] >= 1.5"], "can never be 1.5"),
        (["coef[0, 'x'] == variance[0]"], "another kind"),
        (["coef[0] == coef[1, 'x']"], "2 numbers on its left and 1 on its right"),
        (["coef[0, 'x'] == coef[0, 'x']"], "ties a number to itself"),
        (["coef[0, :] equal over states"], "stands for outcome, not for states"),
        (["coef[0, :] equal"], "says nothing: its ':' stands for outcome"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(frame, sentences, words):
    with pytest.raises(ModelError, match=words):
        fitted(frame, *sentences)


def test_more_that_cannot_be(frame):
    with pytest.raises(ModelError, match="fixed= holds at another"):
        fitted(frame, "variance[0] == 2", fixed={"variance": [[1.0], [1.0]]})
    model = avem.MixedHMM("y ~ x", 2, initial="stationary", constraints=["transition[0, 1] == 0.1"])
    with pytest.raises(ModelError, match="stationary"):
        model.fit(frame, subject="who")
    batches = avem.MixedHMM("y ~ x", 2, constraints="coef[:, 'x'] equal")
    with pytest.raises(ModelError, match="batch_size"):
        batches.fit(frame, subject="who", method=avem.AVEM(batch_size=4))
    with pytest.raises(ModelError, match=r"shape \(2,\)"):
        fitted(frame, fixed={"transition": [0.1, np.nan]})
    with pytest.raises(ModelError, match="has inf; finite numbers"):
        fitted(frame, fixed={"variance": [[np.inf], [np.nan]]})


def test_a_sentence_is_read_without_running_it():
    (one,) = as_constraints('  coef[0,"x"]  >=  -1.5e-3 ')
    assert one.text == 'coef[0,"x"] >= -1.5e-3'
    assert one.second == -0.0015


# --- what goes with a model -----------------------------------------------------------------------


def test_constraints_are_saved_reported_and_kept_by_replicates(frame, tmp_path):
    fit = fitted(frame, "coef[:, 'x'] equal")
    assert "constraints=[\"coef[:, 'x'] equal\"]" in repr(fit)
    assert "Constraints: coef[:, 'x'] equal" in str(fit.summary())
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem").with_data(frame)
    assert again.model.spec.constraints == fit.model.spec.constraints
    assert again.n_params == fit.n_params
    np.testing.assert_allclose(again.standard_errors()["se"], fit.standard_errors()["se"])
    fit.report(tmp_path / "page.html", thorough=False)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Constraints: <code>coef[:, &#x27;x&#x27;] equal</code>" in page
    boot = avem.bootstrap(fit, 2, seed=1, progress=False)
    for replicate in boot.done:
        slopes = replicate.params["coef"][:, 0, 1]
        assert slopes[0] == pytest.approx(slopes[1], abs=1e-10)


def test_sentences_on_the_command_line(frame, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    own = ["fit", tmp_path / "rows.csv", "y ~ x", "--states", 2, "--subject", "who"]
    own += ["--starts", 1, "--no-plots", "--out", tmp_path / "out"]
    told = ["--constraint", "coef[:, 'x'] equal", "--constraint", "variance[0] >= 0.1"]
    said = CliRunner().invoke(app, [str(word) for word in (*own, *told, "--priors", "weak")])
    assert said.exit_code == 0, said.output
    spec = avem.load(tmp_path / "out" / "fit.avem").model.spec
    assert spec.constraints == ("coef[:, 'x'] equal", "variance[0] >= 0.1")
    assert spec.options["priors"] == "'weak'"
    wrong = [*own, "--force", "--constraint", "coef[0"]
    assert CliRunner().invoke(app, [str(word) for word in wrong]).exit_code != 0


def test_numbers_of_states_are_compared_where_the_sentences_fit(frame):
    model = avem.MixedHMM("y ~ x", 2, constraints=["coef[:, 'x'] equal"])
    table = avem.select(model, frame, [1, 2], subject="who", n_starts=2, progress=False).table
    assert table["n_params"].tolist() == [3, 8]


@pytest.mark.filterwarnings("ignore:The iteration limit")
@pytest.mark.parametrize("method", ["structured", "mean_field", "quadrature"])
def test_every_method_keeps_to_constraints(counts, method):
    model = avem.MixedHMM("n ~ x + (1 | who)", 2, "poisson", constraints="coef[:, 'x'] equal")
    fit = model.fit(counts, method=method, n_starts=2, max_iter=5, tol=1e-2)
    assert np.ptp(fit.params["coef"][:, 0, 1]) < 1e-9
    assert fit.params["coef"][0, 0, 1] == pytest.approx(0.4, abs=0.1)


# --- the solver -----------------------------------------------------------------------------------


def test_steps_among_inequalities_are_those_of_another_solver():
    rng = np.random.default_rng(5)
    for _ in range(20):
        n = 5
        root = rng.normal(size=(n, n))
        curvature, slope = root @ root.T + 0.1 * np.eye(n), rng.normal(size=n) * 3
        equal = rng.normal(size=(1, n))
        x = np.abs(rng.normal(size=n))
        above = np.concatenate([np.eye(n), rng.normal(size=(2, n))])
        least = np.concatenate([np.zeros(n), above[n:] @ x - rng.uniform(0, 0.5, 2)])
        sides = Polyhedron(equal, equal @ x, above, least)
        step = sides.step(x, slope, curvature)
        best = minimize(
            lambda d, h=curvature, g=slope: 0.5 * d @ h @ d - g @ d,
            np.zeros(n),
            method="SLSQP",
            constraints=[
                {"type": "eq", "fun": lambda d, a=equal: a @ d},
                {"type": "ineq", "fun": lambda d, a=above, b=least, x=x: a @ (x + d) - b},
            ],
            options={"ftol": 1e-12, "maxiter": 500},
        )
        np.testing.assert_allclose(step, best.x, atol=1e-5)


def test_there_is_no_nearest_point_of_nothing():
    nothing = Polyhedron(np.array([[1.0, 1.0]]), np.array([1.0]), np.eye(2), np.array([0.8, 0.8]))
    assert nothing.nearest(np.zeros(2)) is None
    some = Polyhedron(np.array([[1.0, 1.0]]), np.array([1.0]), np.eye(2), np.array([0.8, 0.0]))
    np.testing.assert_allclose(some.nearest(np.zeros(2)), [0.8, 0.2])


def test_with_another_number_of_states_sentences_speak_of_numbers():
    model = avem.MixedHMM(
        "y ~ x",
        2,
        state_names=["low", "high"],
        constraints="coef['high', 'x'] == 1.1",
        priors={"coef['low', 'x']": avem.priors.Normal(0, 1)},
    )
    spec = model.with_states(3).spec
    assert spec.state_names == ()
    assert spec.constraints == ("coef[1, 'x'] == 1.1",)
    assert spec.priors[0][0] == "coef[0, 'x']"
    assert model.with_states(2).spec == model.spec
