"""Rows in, rows out: the caller's kind of frame, in the caller's order, from every method."""

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import avem
from tests.fits.kinds import fit_of, ssm_fit
from tests.ssm_panels import ONE, one

KINDS = {
    "pandas": lambda table: table,
    "polars": pl.from_pandas,
    "pyarrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "narwhals": lambda table: nw.from_native(pl.from_pandas(table), eager_only=True),
}
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.8, 0.2], [0.3, 0.7]],
    "coef": [[[0.0]], [[4.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[0.5]],
}
# What takes rows, or without any those of the fit, and gives something for each of them.
METHODS = {
    "hmm": {
        "decode": lambda fit, data: fit.decode(data),
        "state_probabilities": lambda fit, data: fit.state_probabilities(data),
        "predictions": lambda fit, data: fit.predictions(data),
        "residuals": lambda fit, data: fit.residuals(data),
        "simulate": lambda fit, data: fit.simulate(data, seed=1).frame,
    },
    "ssm": {
        "states": lambda fit, data: fit.states(data),
        "predictions": lambda fit, data: fit.predictions(data),
        "residuals": lambda fit, data: fit.residuals(data),
        "simulate": lambda fit, data: fit.simulate(data, seed=1).frame,
    },
}
# What gives a table that has no row for each row of the data.
TABLES = {
    "hmm": {
        "table": lambda fit: fit.table(),
        "effects": lambda fit: fit.effects(),
        "standard_errors": lambda fit: fit.standard_errors(),
        "predict": lambda fit: fit.predict(horizon=2),
        "whiteness": lambda fit: fit.whiteness(2, effects="fitted"),
        "whiteness by lag": lambda fit: fit.whiteness(2, effects="fitted", by="lag"),
        "occupancy": lambda fit: fit.occupancy(),
        "occupancy by": lambda fit: fit.occupancy(by="id"),
        "occupancy by two": lambda fit: fit.occupancy(by=["time", "id"]),
        "coefficients": lambda fit: fit.coefficients(parameters="fixed"),
        "responses": lambda fit: fit.coefficients(parameters="fixed", scale="response"),
        "transitions": lambda fit: fit.transitions(),
        "transitions by": lambda fit: fit.transitions(by="id"),
        "stationary by": lambda fit: fit.stationary(by="subject", level=None),
        "stationary": lambda fit: fit.stationary(level=None),
        "dwell": lambda fit: fit.dwell(level=None),
        "contrast of subjects": lambda fit: fit.contrast(subjects=["s0", "s1"]),
        "contrast of groups": lambda fit: fit.contrast({f"s{i}": i % 2 for i in range(6)}),
        "contrast of states": lambda fit: fit.contrast(states=(1, 0)),
    },
    "ssm": {
        "table": lambda fit: fit.table(),
        "effects": lambda fit: fit.effects(),
        "predict": lambda fit: fit.predict(horizon=2),
        "whiteness": lambda fit: fit.whiteness(2, effects="fitted"),
        "contrast of subjects": lambda fit: fit.contrast(subjects=["s0", "s1"]),
    },
}


@pytest.fixture(scope="module")
def fits():
    """Fits to shuffled rows with labels of their own, subjects called by words."""
    hmm = avem.MixedHMM("y ~ 1 + (1 | id)", 2)
    made = {}
    for name, model, params in (("hmm", hmm, TRUTH), ("ssm", one(), ONE)):
        table = model.simulate(params, n_subjects=6, n_times=12, seed=2).frame
        table = table.assign(id="s" + table["id"].astype(str), note="n").sample(
            frac=1.0, random_state=1
        )
        table.loc[table.index[3], "y"] = np.nan
        table.index = [f"row {i}" for i in table.index]
        made[name] = (model.fit(table, time="time", init=params, plain=True, tol=0.5), table)
    return made


def as_pandas(found):
    if isinstance(found, pd.Series | pd.DataFrame):
        return found.reset_index(drop=True)
    if isinstance(found, pa.ChunkedArray | pa.Array):
        return pd.Series(found.to_numpy())
    return nw.from_native(found, allow_series=True).to_pandas()


def type_like(kind, is_series):
    return {
        "pandas": pd.Series if is_series else pd.DataFrame,
        "polars": pl.Series if is_series else pl.DataFrame,
        "pyarrow": pa.ChunkedArray if is_series else pa.Table,
        "narwhals": nw.Series if is_series else nw.DataFrame,
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("model", "method"), [(model, name) for model, of in METHODS.items() for name in of]
)
def test_every_method_gives_back_the_callers_kind_in_its_order(fits, model, method, kind):
    fit, table = fits[model]
    call, given = METHODS[model][method], KINDS[kind](table)
    expected = call(fit, None)
    assert list(expected.index) == list(table.index)
    for found in (call(fit, given), call(fit.with_data(given), None)):
        assert isinstance(found, type_like(kind, isinstance(expected, pd.Series)))
        if kind == "pandas":
            assert list(found.index) == list(table.index)
        same, wanted = as_pandas(found), expected.reset_index(drop=True)
        if isinstance(wanted, pd.Series):
            np.testing.assert_array_equal(same, wanted)
        else:
            pd.testing.assert_frame_equal(same, wanted, check_dtype=False)
    # The rows of a part, in another order, get what they had.
    back = table.iloc[::-1]
    if method != "simulate":
        turned = as_pandas(call(fit, KINDS[kind](back))).to_numpy()
        np.testing.assert_allclose(turned[::-1], expected.to_numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", TABLES)
@pytest.mark.parametrize("kind", ["polars", "pyarrow", "narwhals"])
def test_every_table_comes_back_in_the_callers_kind(fits, model, kind):
    fit, table = fits[model]
    other = fit.with_data(KINDS[kind](table))
    for name, call in TABLES[model].items():
        found, expected = call(other), call(fit)
        assert isinstance(found, type_like(kind, False)), name
        same, wanted = as_pandas(found), expected.reset_index(drop=True)
        assert list(same) == list(wanted), name
        for column in wanted:
            if pd.api.types.is_numeric_dtype(wanted[column].dtype):
                numbers = (np.asarray(x[column], float) for x in (same, wanted.fillna(np.nan)))
                np.testing.assert_allclose(*numbers, err_msg=f"{name}, {column}")
            else:
                assert same[column].fillna("").tolist() == wanted[column].fillna("").tolist()
    other.plot.effects(), other.plot.contrast(subjects=["s0", "s1"])  # which read such tables


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", METHODS)
def test_numbers_do_not_depend_on_the_kind(fits, model, kind):
    fit, table = fits[model]
    given = KINDS[kind](table)
    assert fit.loglik(given) == fit.loglik(table)
    found = as_pandas(fit.infer_effects(given))
    pd.testing.assert_frame_equal(found, fit.infer_effects(table), check_dtype=False)


@pytest.mark.parametrize("kind", KINDS)
def test_models_simulate_in_the_callers_kind(fits, kind):
    _, table = fits["hmm"]
    rows = KINDS[kind](table.drop(columns="y"))
    model = avem.MixedHMM("y ~ 1 + (1 | id)", 2)
    drawn = model.simulate(TRUTH, data=rows, time="time", seed=0).frame
    assert isinstance(drawn, type_like(kind, False))
    wanted = model.simulate(TRUTH, data=table.drop(columns="y"), time="time", seed=0).frame
    pd.testing.assert_frame_equal(
        as_pandas(drawn), wanted.reset_index(drop=True), check_dtype=False
    )


@pytest.mark.parametrize("name", ["y1", "x"])
def test_new_rows_beyond_double_precision_are_refused(name):
    fit = fit_of("gaussian")
    with pytest.raises(avem.DataError, match=rf"'{name}' reaches 1e\+200.*Change its unit"):
        fit.decode(fit.panel.table.assign(**{name: 1e200}))


def test_new_rows_of_a_state_space_model_beyond_double_precision_are_refused():
    fit = ssm_fit()
    name = fit.model.outcomes[0]
    with pytest.raises(avem.DataError, match=rf"'{name}' reaches 1e\+308"):
        fit.states(fit.panel.table.assign(**{name: 1e308}))
