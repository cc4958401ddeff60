"""Weights of subjects: two of weight 1 are one of weight 2, and a sandwich for surveys."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data import Panel
from avem.errors import DataError, ModelError
from avem.fits.report.reproduce import reproduce
from tests.chosen import chosen

N = 8
WEIGHT = np.array([1, 2, 1, 3, 1, 1, 2, 1])
OPTIONS = {"n_starts": 1, "tol": 1e-9}


def panel(seed=0, n_times=30):
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(N), n_times)
    state = (np.arange(N * n_times) // 6) % 2
    effect = 0.6 * rng.standard_normal(N)
    x = rng.standard_normal(N * n_times)
    y = 3.0 * state + effect[who] + 0.5 * x + rng.standard_normal(N * n_times)
    count = rng.poisson(np.exp(0.3 + 1.5 * state + 0.5 * effect[who]))
    table = {"who": who, "x": x, "y": y, "count": count, "alike": WEIGHT[who]}
    return pd.DataFrame(table).assign(t=np.tile(np.arange(n_times), N))


def repeated(frame):
    """Every subject as often as its weight says, as so many subjects."""
    parts = [
        rows.assign(who=f"{who}-{copy}")
        for who, rows in frame.groupby("who")
        for copy in range(WEIGHT[who])
    ]
    return pd.concat(parts, ignore_index=True)


MODELS = {
    "closed": (lambda: avem.MixedHMM("y ~ x + (1 | who)", 2), {"refine": None}),
    "integrated": (lambda: avem.MixedHMM("y ~ x + (1 | who)", 2), {"refine": "adaptive"}),
    "newton": (
        lambda: avem.MixedHMM("count ~ 1 + (1 | who)", 2, "poisson", transition="~ x"),
        {"refine": None},
    ),
    "partial": (lambda: avem.MixedHMM("y ~ 1 + (1 | who)", 2), {"method": "partial"}),
    "structured": (lambda: avem.MixedHMM("y ~ 1 + (1 | who)", 2), {"method": "structured"}),
    "quadrature": (lambda: avem.MixedHMM("y ~ 1 + (1 | who)", 2), {"method": "quadrature"}),
    "batches": (
        lambda: avem.MixedHMM("y ~ x + (1 | who)", 2),
        {"method": avem.AVEM(batch_size=4), "refine": None},
    ),
    "latent": (lambda: avem.MixedSSM("y ~ x + (1 | who)", 1), {"refine": None}),
}


@pytest.mark.parametrize("name", chosen(MODELS, ("integrated",)))
def test_frequencies_are_so_many_subjects(name):
    make, more = MODELS[name]
    frame = panel()
    options = OPTIONS | more
    first = make().fit(frame, time="t", n_starts=1, refine=None)
    options |= {"init": first, "time": "t"}
    if "method" in more:
        options.setdefault("refine", None)
    fit = make().fit(frame, weights="alike", weights_kind="frequency", **options)
    many = make().fit(repeated(frame), **options | {"init": dict(first.params)})
    for key, value in fit.params.items():
        np.testing.assert_allclose(value, many.params[key], atol=2e-5, err_msg=key)
    # Both stop within the tolerance, at two places of the ridge of a latent state.
    close = 2e-7 if name == "latent" else 1e-8
    np.testing.assert_allclose(fit.bound, many.bound, rtol=close)
    np.testing.assert_allclose(fit.loglik(), many.loglik(), rtol=1e-7)
    np.testing.assert_allclose(fit.bic(), many.bic(), rtol=1e-7)
    np.testing.assert_allclose(fit.score(), many.score(), rtol=1e-7)
    if name in ("batches", "partial", "structured", "quadrature"):
        return
    for errors in ("observed", "sandwich"):
        one, other = fit.standard_errors(errors), many.standard_errors(errors)
        for column in ("se", "lower", "upper"):
            np.testing.assert_allclose(one[column], other[column], rtol=2e-3, err_msg=column)
    # Not what the subjects themselves would give.
    once = make().fit(frame, **options)
    assert max(np.abs(once.params[key] - fit.params[key]).max() for key in fit.params) > 0.01


def one_mean(frame, **options):
    return avem.MixedHMM("y ~ 1", 1).fit(frame, "who", **options)


def test_survey_weights_of_a_mean():
    """Weighted means, and a sandwich with the subjects as clusters, in closed form."""
    frame = panel()
    fit = one_mean(frame, weights="alike")
    mean = np.average(frame["y"], weights=frame["alike"])
    np.testing.assert_allclose(fit.params["coef"].ravel(), [mean], rtol=1e-8)
    variance = np.average((frame["y"] - mean) ** 2, weights=frame["alike"])
    np.testing.assert_allclose(fit.params["variance"].ravel(), [variance], rtol=1e-6)
    score = (frame["alike"] * (frame["y"] - mean)).groupby(frame["who"]).sum()
    expected = np.sqrt((score**2).sum()) / frame["alike"].sum()
    table = fit.standard_errors()
    found = table.loc[table["parameter"] == "coef", "se"].item()
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    # The inverse of the information is another number.
    assert abs(np.sqrt(variance / len(frame)) / expected - 1) > 0.1


def test_weights_of_a_rate():
    """Where the M-step takes Newton steps."""
    frame = panel()
    fit = avem.MixedHMM("count ~ 1", 1, "poisson").fit(frame, "who", weights="alike")
    rate = np.average(frame["count"], weights=frame["alike"])
    np.testing.assert_allclose(np.exp(fit.params["coef"].item()), rate, rtol=1e-8)
    assert abs(rate - frame["count"].mean()) > 0.05


def test_only_the_ratios_of_survey_weights_count():
    frame = panel()
    one, other = (
        one_mean(frame.assign(w=scale * frame["alike"]), weights="w") for scale in (1.0, 1e4)
    )
    np.testing.assert_allclose(one.loglik(), other.loglik(), rtol=1e-12)
    np.testing.assert_allclose(
        one.standard_errors()["se"].dropna(), other.standard_errors()["se"].dropna(), rtol=1e-6
    )
    equal = one_mean(frame.assign(w=7.0), weights="w")
    plain = one_mean(frame)
    np.testing.assert_allclose(equal.params["coef"], plain.params["coef"], rtol=1e-10)
    np.testing.assert_allclose(equal.loglik(), plain.loglik(), rtol=1e-10)
    np.testing.assert_allclose(
        equal.standard_errors()["se"].dropna(),
        plain.standard_errors("sandwich")["se"].dropna(),
        rtol=1e-6,
    )


def test_weights_stay_with_a_fit_and_are_told(tmp_path):
    frame = panel()
    fit = one_mean(frame, weights="alike")
    assert (fit.info.weights, fit.info.weights_kind) == ("alike", "survey")
    assert "survey weights" in str(fit.summary(errors=False))
    assert "weights=&#x27;alike&#x27;, weights_kind=&#x27;survey&#x27;" in reproduce(fit)
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem").with_data(frame)
    np.testing.assert_allclose(again.loglik(), fit.loglik(), rtol=1e-12)
    np.testing.assert_allclose(again.standard_errors()["se"], fit.standard_errors()["se"])
    plain = one_mean(frame)
    with pytest.raises(DataError, match="different weights"):
        avem.compare({"a": fit, "b": plain})
    with pytest.raises(ModelError, match="survey weights"):
        avem.likelihood_ratio_test(fit, fit)
    with pytest.raises(ModelError, match="has weights"):
        avem.bootstrap(fit, n=2)


def test_a_panel_keeps_its_weights():
    frame = panel()
    rows = Panel.from_frame(frame, "who", "t").weighted("alike", "frequency")
    np.testing.assert_array_equal(rows.subject_weights, WEIGHT)
    part = rows.part(rows.table, np.flatnonzero(frame["who"] > 1))
    np.testing.assert_array_equal(part.subject_weights, WEIGHT[2:])
    gaps = Panel.from_frame(frame[frame["t"] != 3], "who", "t").weighted("alike")
    np.testing.assert_allclose(gaps.fill_gaps().subject_weights, WEIGHT / WEIGHT.mean())
    fit = avem.MixedHMM("y ~ 1", 1).fit(rows)
    np.testing.assert_allclose(
        fit.params["coef"].item(), np.average(frame["y"], weights=WEIGHT[frame["who"]])
    )
    with pytest.raises(ModelError, match="already has weights"):
        avem.MixedHMM("y ~ 1", 1).fit(rows, weights="alike")


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        (lambda f: f["alike"] + (f["t"] == 2), {}, "differ within subject 0"),
        (lambda f: f["alike"] - 1, {}, "must be positive numbers; subject 0 has 0"),
        (lambda f: f["alike"].where(f["who"] != 2), {}, "subject 2 has none"),
        (lambda f: f["alike"] * 1e300, {}, "from 1e-75 to 1e"),
        (lambda f: f["alike"] * 1e-9, {"weights_kind": "frequency"}, "from 0.001 to"),
        (lambda f: "heavy", {}, "numbers are wanted"),
        (lambda f: f["alike"], {"weights_kind": "sample"}, "choose one of survey, frequency"),
        (lambda f: f["alike"], {"weights": None, "weights_kind": "frequency"}, "there are none"),
        (lambda f: f["alike"], {"weights": 3}, "the name of a column is wanted"),
    ],
)
def test_weights_are_checked(weights, options, message):
    frame = panel().assign(w=weights)
    with pytest.raises((DataError, ModelError), match=message):
        one_mean(frame, **{"weights": "w"} | options)
