"""Rubin's rules: by hand, where nothing is missing, and on data of which the truth is known."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import t as student

import avem
from avem.errors import ModelError
from avem.fits.uncertainty import quantile
from avem.workflows.pooling import rubin
from tests.fits.kinds import fit_from, fit_of, ssm_fit

MODEL = avem.MixedHMM("y ~ x", 2)
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.85, 0.15], [0.25, 0.75]],
    "coef": [[[0.0, 1.0]], [[4.0, -1.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": np.zeros((0, 0)),
}


def test_the_rules_by_hand():
    estimate, se = np.array([[1.0], [1.4], [0.9], [1.1]]), np.array([[0.5], [0.4], [0.6], [0.5]])
    found = rubin(estimate, se, np.inf)
    w, b = np.mean([0.25, 0.16, 0.36, 0.25]), np.var([1.0, 1.4, 0.9, 1.1], ddof=1)
    total = w + 1.25 * b
    assert found.estimate[0] == pytest.approx(1.1)
    assert found.se[0] == pytest.approx(np.sqrt(total))
    assert found.df[0] == pytest.approx(3 * (1 + w / (1.25 * b)) ** 2)  # as Rubin (1987) has it
    r = 1.25 * b / w
    assert found.fmi[0] == pytest.approx((r + 2 / (found.df[0] + 3)) / (r + 1))
    few = rubin(estimate, se, 20.0)
    assert 1 / few.df[0] == pytest.approx(1 / found.df[0] + 1 / (20 * w / total))


@pytest.mark.parametrize("kind", ["counts", "ssm"])
def test_identical_fits_give_the_ordinary_errors(kind):
    fit = ssm_fit() if kind == "ssm" else fit_of(kind)
    own, found = fit.standard_errors(), avem.pool([fit, fit, fit]).standard_errors()
    for name in ("parameter", "estimate", "se", "lower", "upper"):
        if name == "parameter":
            assert (own[name] == found[name]).all()
        else:
            np.testing.assert_allclose(found[name], own[name], rtol=1e-9, atol=1e-12)
    known = found["se"].notna()
    assert known.sum() > 3
    assert (found.loc[known, "fmi"] == 0).all()
    np.testing.assert_allclose(found.loc[known, "df"], len(fit.subjects) - 1)
    assert quantile(fit, 0.95) == pytest.approx(student.ppf(0.975, len(fit.subjects) - 1))


def complete(n_subjects=12, n_times=60, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "who": np.repeat(np.arange(n_subjects), n_times),
            "t": np.tile(np.arange(n_times), n_subjects),
        }
    )
    frame["x"] = rng.standard_normal(len(frame))
    drawn = MODEL.simulate(TRUTH, data=frame, subject="who", time="t", seed=seed + 1)
    return drawn.frame


def imputed(frame, gone, rng):
    """x of some rows drawn from what it may be, given the outcome: the states' own regressions.

    The posterior of the truth, on a grid, is what proper imputation would draw from.
    """
    x, y = frame["x"].to_numpy().copy(), frame["y"].to_numpy()
    grid = np.linspace(-4, 4, 161)
    share = np.array([0.625, 0.375])  # of the states in the long run
    mean = np.array([0.0, 4.0])[:, None] + np.array([1.0, -1.0])[:, None] * grid
    for row in np.flatnonzero(gone):
        weight = (share[:, None] * np.exp(-0.5 * (y[row] - mean) ** 2)).sum(0)
        weight = weight * np.exp(-0.5 * grid**2)
        x[row] = rng.choice(grid, p=weight / weight.sum())
    return frame.assign(x=x)


def slopes_of(table):
    return table[(table["parameter"] == "coef") & (table["term"] == "x")]


@pytest.fixture(scope="module")
def three():
    """Fits to the whole, pooled ones to completed tables, and one with gaps filled by the mean."""
    frame = complete()
    rng = np.random.default_rng(5)
    gone = rng.random(len(frame)) < 0.4
    keys = {"subject": "who", "time": "t"}
    whole = MODEL.fit(frame, n_starts=1, **keys)
    tables = [imputed(frame, gone, rng) for _ in range(5)]
    fits = [MODEL.fit(one, init=whole, n_starts=1, **keys) for one in tables]
    mean = MODEL.fit(frame.assign(x=frame["x"].where(~gone, 0.0)), init=whole, n_starts=1, **keys)
    return whole, avem.pool(fits), mean


def test_what_is_missing_widens_the_errors_and_shifts_nothing(three):
    whole, pooled, _ = three
    table, own = slopes_of(pooled.standard_errors()), slopes_of(whole.standard_errors())
    assert (table["se"].to_numpy() > own["se"].to_numpy()).all()
    assert ((table["fmi"] > 0.02) & (table["fmi"] < 0.9)).all()
    off = (table["estimate"].to_numpy() - [1.0, -1.0]) / table["se"].to_numpy()
    assert np.abs(off).max() < 3.0
    assert np.isfinite(table["df"]).all()
    assert ((table["lower"] < [1.0, -1.0]) & (table["upper"] > [1.0, -1.0])).all()
    estimates = [slopes_of(fit.standard_errors())["estimate"].to_numpy() for fit in pooled.fits]
    np.testing.assert_allclose(table["estimate"], np.mean(estimates, axis=0))
    assert "5 fits of 'y ~ x', pooled by Rubin's rules" in repr(pooled)
    assert pooled.notes == ()


def test_filling_in_the_mean_claims_too_much(three):
    """The control: one completed table takes what was filled in as known."""
    _, pooled, mean = three
    table, own = slopes_of(pooled.standard_errors()), slopes_of(mean.standard_errors())
    variance = mean.params["variance"]
    assert (variance > 1.15).any()  # what x explained has become noise
    assert (table["se"].to_numpy() > 0).all()
    assert len(own) == len(table) == 2


def test_variances_are_pooled_by_their_logarithms(three):
    _, pooled, _ = three
    table = pooled.standard_errors()
    row = table[table["parameter"] == "variance"].iloc[0]
    own = [fit.params["variance"][0, 0] for fit in pooled.fits]
    assert row["estimate"] == pytest.approx(np.exp(np.mean(np.log(own))))
    assert row["lower"] > 0
    by_hand = [fit.standard_errors() for fit in pooled.fits]
    rows = [one[one["parameter"] == "variance"].iloc[0] for one in by_hand]
    logs = np.array([[r["se"] / r["estimate"]] for r in rows])
    found = rubin(np.log(own)[:, None], logs, np.inf)
    assert row["se"] == pytest.approx(found.se[0] * row["estimate"])


def test_what_cannot_be_pooled_is_refused(three):
    whole, pooled, _ = three
    fits = list(pooled.fits)
    for wrong in ([whole], whole, [whole, "b"]):
        with pytest.raises(ModelError, match="a list of at least two fits"):
            avem.pool(wrong)
    with pytest.raises(ModelError, match="has other parameters"):
        avem.pool([whole, fit_of("counts")])
    frame = whole.panel.table
    some = frame[frame["who"] < 10]
    keys = {"subject": "who", "time": "t", "n_starts": 1}
    with pytest.raises(ModelError, match="it has other subjects"):
        avem.pool([whole, MODEL.fit(some, init=whole, **keys)])
    turned = {name: value[::-1] for name, value in whole.params.items()}
    turned["transition"] = turned["transition"][:, ::-1]
    other = MODEL.fit(frame, init=turned, **keys)
    with pytest.raises(ModelError, match=r"Fit 1 is not like fit 0: its states are in another ord"):
        avem.pool([whole, other])
    held = MODEL.fit(frame, init=whole, fixed={"initial": [0.5, 0.5]}, **keys)
    with pytest.raises(ModelError, match="other parameters were held"):
        avem.pool([whole, held])
    assert len(avem.pool([held, held]).standard_errors()) == len(fits[0].standard_errors())
    note = avem.pool([held, held]).standard_errors().query("parameter == 'initial'")["note"]
    assert (note == "held").all()


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({}, False),
        ({"constraints": ["variance[0] >= 0.9"]}, True),
        ({"duration": ["geometric", "shifted_poisson"]}, True),
        ({"transition": [(0, 1)]}, True),
    ],
)
def test_states_in_another_order_are_refused_unless_something_tells_them_apart(told, kept):
    moves = [[0.0, 1.0], [1.0, 0.0]] if "duration" in told else [[0.9, 0.1], [0.0, 1.0]]
    stays = {"duration_coef": [[1.0], [1.0]]} if "duration" in told else {}
    params = TRUTH | {"coef": [[[0.0]], [[4.0]]], "transition": moves, **stays}
    rows = pd.DataFrame({"who": np.repeat([0, 1], 4), "t": np.tile(np.arange(4), 2), "y": 1.0})
    rows["y"] += rows["t"]
    hmm = avem.MixedHMM("y ~ 1", 2, **told)
    turned = params | {"coef": [[[4.0]], [[0.0]]]}
    if not told:
        turned["transition"] = [[1.0, 0.0], [0.1, 0.9]]
    fit, other = (fit_from(hmm, own, rows, np.zeros((2, 0))) for own in (params, turned))
    if kept:
        assert len(avem.pool([fit, other]).fits) == 2
    else:
        with pytest.raises(ModelError, match="its states are in another order, 1, 0 as fit 0"):
            avem.pool([fit, other])


def test_types_in_another_order_are_refused():
    fit = fit_of("types")
    own = {"clusters", "initial", "transition"}
    turned = {name: v[::-1] if name in own else v for name, v in fit.params.items()}
    hmm = avem.MixedHMM.from_spec(fit.model.spec)
    other = fit_from(hmm, turned, fit.panel.table, np.zeros((8, 1)))
    with pytest.raises(ModelError, match="its types are in another order, 1, 0 as fit 0 has them"):
        avem.pool([fit, other])
    avem.pool([fit, fit])


def test_states_by_name_and_in_the_users_kind_of_frame():
    fit = fit_of("counts")
    named = fit.rename_states(["low", "high"])
    found = avem.pool([named, named]).standard_errors()
    assert set(found["state"].dropna()) == {"low", "high"}
    frame = pl.from_pandas(fit.panel.table)
    other = avem.MixedHMM.from_spec(fit.model.spec).fit(
        frame, time="t", init=fit, n_starts=1, refine=None
    )
    assert isinstance(avem.pool([other, other]).standard_errors(), pl.DataFrame)
