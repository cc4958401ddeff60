"""Estimates on their way to infinity: named, without intervals, and kept by a prior."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.fits.uncertainty import at_boundary


@pytest.fixture(scope="module")
def frame():
    """In one of two states a label is never seen."""
    rng = np.random.default_rng(0)
    state = np.repeat(rng.integers(0, 2, 60), 5)
    chances = np.array([[0.7, 0.3, 0.0], [0.1, 0.3, 0.6]])[state]
    label = [rng.choice(["rest", "walk", "run"], p=p) for p in chances]
    z = rng.normal(np.where(state == 0, -6, 6), 1)
    return pd.DataFrame({"id": np.repeat(np.arange(20), 15), "label": label, "z": z})


def fitted(frame, **options):
    levels = avem.Categorical(levels=("rest", "walk", "run"))
    outcomes = [avem.outcome("label ~ 1", levels), avem.outcome("z ~ 1")]
    return avem.MixedHMM(outcomes, 2, **options).fit(frame, subject="id", n_starts=1)


def test_a_label_that_never_occurs_in_a_state_is_named(frame):
    fit = fitted(frame)
    (note,) = [note for note in fit.info.notes if "ran away" in note]
    assert "'Intercept' of label[run] of state 0" in note
    table = fit.standard_errors()
    rows = table[(table["outcome"] == "label[run]") & (table["parameter"] == "label.coef")]
    assert rows["estimate"].iloc[0] < -8
    assert rows["se"].isna().tolist() == [True, False]
    assert rows["note"].iloc[0]
    name = "label.coef[:, 'Intercept']"
    assert f'priors={{"{name}": avem.priors.Normal(0, 3)}}' in note
    kept = fitted(frame, priors={name: avem.priors.Normal(0, 3)})
    assert not any("ran away" in note for note in kept.info.notes)
    assert -8 < kept.params["label.coef"][0, 1, 0] < -2
    assert kept.standard_errors().query("parameter == 'label.coef'")["se"].notna().all()


def test_an_interval_of_thousands_is_none_but_a_wide_one_is():
    estimate, se = np.array([-22.4, -22.4, 0.01, 500.0]), np.array([2000.0, 9.0, 1.0, 100.0])
    none = at_boundary(estimate, se, np.array([""] * 4, dtype=object))
    assert none.tolist() == [True, False, False, False]
