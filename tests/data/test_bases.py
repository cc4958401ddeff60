"""bs() and poly() in formulas, and ^, against SciPy and plain linear algebra."""

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import BSpline

import avem
from avem.data import Panel, parse_formula
from avem.data.design import Design
from avem.errors import DataError, ModelError


def panel(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(2.0, 9.0, n)
    frame = pd.DataFrame({"who": np.arange(n) // 10, "x": x, "kind": np.resize(["a", "b"], n)})
    return frame.assign(y=np.sin(x) + 0.1 * rng.standard_normal(n))


def columns(formula, frame, learned_from=None):
    rows = Panel.from_frame(frame, "who")
    source = rows if learned_from is None else Panel.from_frame(learned_from, "who")
    design = Design.build(parse_formula(formula), source)
    return design, design.apply(rows).A[:, list(design.x_cols)]


def test_a_spline_is_scipys_basis_without_its_first():
    frame = panel()
    design, found = columns("y ~ bs(x, df=5)", frame)
    assert design.terms == ("Intercept", *(f"bs(x, df=5)[{j}]" for j in range(1, 6)))
    x = frame["x"].to_numpy()
    inner = np.quantile(x, [1 / 3, 2 / 3])
    knots = np.concatenate([[x.min()] * 4, inner, [x.max()] * 4])
    for j in range(5):
        expected = BSpline(knots, np.eye(6)[j + 1], 3)(x)
        np.testing.assert_allclose(found[:, j + 1], expected, atol=1e-12)


def test_a_spline_of_degree_1_is_broken_lines():
    frame = panel()
    _, found = columns("y ~ bs(x, df=2, degree=1)", frame)
    x = frame["x"].to_numpy()
    at = [x.min(), np.median(x), x.max()]
    for j in (1, 2):
        np.testing.assert_allclose(found[:, j], np.interp(x, at, np.eye(3)[j]), atol=1e-12)


def test_polynomials_are_orthonormal_and_of_rising_degree():
    frame = panel()
    design, found = columns("y ~ poly(x, 3)", frame)
    assert design.terms[1:] == ("poly(x, 3)[1]", "poly(x, 3)[2]", "poly(x, 3)[3]")
    np.testing.assert_allclose(found[:, 1:].T @ found[:, 1:], np.eye(3), atol=1e-10)
    np.testing.assert_allclose(found[:, 1:].sum(0), 0.0, atol=1e-10)
    x = frame["x"].to_numpy()
    for j in range(1, 4):  # a polynomial of degree j, with a positive leading coefficient
        fitted = np.polyfit(x, found[:, j], j)
        np.testing.assert_allclose(np.polyval(fitted, x), found[:, j], atol=1e-9)
        assert fitted[0] > 0


def test_new_data_are_put_on_the_same_basis(tmp_path):
    frame = panel()
    few = frame.iloc[[3, 8, 1]]
    for formula in ("y ~ bs(x, df=4)", "y ~ poly(x, 2)"):
        design, found = columns(formula, frame)
        again = Design.from_state(design.state)
        rows = Panel.from_frame(few, "who")
        np.testing.assert_allclose(
            again.apply(rows).A[:, list(again.x_cols)], found[[3, 8, 1]], atol=1e-14
        )
    beyond = few.assign(x=[3.0, 99.0, 5.0])
    assert np.isfinite(columns("y ~ poly(x, 2)", beyond, frame)[1]).all()
    with pytest.raises(
        DataError, match=r"bs\(x, df=4\) was learned from x between 2.* row.*spline"
    ):
        columns("y ~ bs(x, df=4)", beyond, frame)
    _, unused = columns("y ~ bs(x, df=4)", beyond.assign(y=[1.0, np.nan, 2.0]), frame)
    np.testing.assert_array_equal(unused[1, 1:], 0.0)


def test_bases_multiply_factors_and_have_effects():
    design, found = columns("y ~ poly(x, 2) * kind + (0 + poly(x, 2) | who)", panel())
    assert found.shape[1] == 6
    assert design.terms[-1] == "poly(x, 2)[2]:kind[b]"
    assert design.effect_terms == ("poly(x, 2)[1]", "poly(x, 2)[2]")


def test_a_hat_is_a_power():
    frame = panel()
    np.testing.assert_array_equal(
        columns("y ~ I(x^2)", frame)[1], columns("y ~ I(x ** 2)", frame)[1]
    )
    assert columns("y ~ (x + kind)^2", frame)[0].terms == columns("y ~ x * kind", frame)[0].terms


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ bs(x)", r"bs\(\) takes a column"),
        ("y ~ bs(x, df=2)", r"bs\(\) takes a column"),
        ("y ~ bs(x, df=51)", r"bs\(\) takes a column"),
        ("y ~ bs(x, df=4.5)", r"bs\(\) takes a column"),
        ("y ~ bs(x, df=6, knots=3)", "names no option"),
        ("y ~ poly(x, 11)", r"poly\(\) takes a column"),
        ("y ~ poly(x, 0)", r"poly\(\) takes a column"),
        ("y ~ poly(log(x), 2)", r"poly\(\) takes a column"),
        ("y ~ log(poly(x, 2))", "cannot be inside another"),
        ("y ~ x = 2", "only allowed inside a function"),
        ("y ~ x^9", "would mean interactions|whole number"),
    ],
)
def test_bases_that_cannot_be_read(formula, message):
    with pytest.raises(ModelError, match=message):
        parse_formula(formula)


def test_columns_that_are_too_poor():
    frame = panel().assign(x=np.resize([1.0, 2.0, 3.0], 60))
    with pytest.raises(DataError, match="3 different values; at least 5"):
        columns("y ~ poly(x, 4)", frame)
    frame["x"] = np.where(np.arange(60) < 50, 1.0, np.arange(60.0))
    with pytest.raises(DataError, match="fall together"):
        columns("y ~ bs(x, df=6)", frame)
    with pytest.raises(DataError, match="needs numbers"):
        columns("y ~ poly(kind, 2)", frame)


def test_a_damaged_state_is_refused():
    state = columns("y ~ bs(x, df=5) + poly(x, 2)", panel())[0].state
    for label, change in (
        ("bs(x, df=5)", lambda own: own[:-1]),
        ("bs(x, df=5)", lambda own: own[::-1]),
        ("bs(x, df=5)", lambda own: [*own[:-1], float("nan")]),
        ("poly(x, 2)", lambda own: [own[0], 0.0, *own[2:]]),
        ("poly(x, 2)", lambda own: "12345678"),
    ):
        bases = {**state["bases"], label: change(state["bases"][label])}
        with pytest.raises(ModelError, match="are damaged"):
            Design.from_state({**state, "bases": bases})
    with pytest.raises(ModelError, match="lacks what it learned"):
        Design.from_state({**state, "bases": {}})
    with pytest.raises(ModelError, match="has learned of 'poly"):
        Design.from_state({**state, "formula": "y ~ bs(x, df=5)"})


def test_a_spline_in_a_fit_is_saved_with_it(tmp_path):
    frame = panel()
    model = avem.MixedHMM("y ~ bs(x, df=4)", 1)
    fit = model.fit(frame, "who")
    x = columns("y ~ bs(x, df=4)", frame)[1]
    expected = np.linalg.lstsq(x, frame["y"], rcond=None)[0]
    np.testing.assert_allclose(fit.params["coef"][0, 0], expected, rtol=1e-6)
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem")
    np.testing.assert_allclose(again.loglik(frame.head(30)), fit.loglik(frame.head(30)), rtol=1e-10)
