"""Formulas: taken apart by hand, designs against NumPy, missing values, and hostile input."""

import json
import os

import numpy as np
import pandas as pd
import polars as pl
import pytest

from avem.data import TRANSFORMS, Design, Formula, Panel, parse_formula
from avem.errors import DataError, ModelError


def make(formula: str, frame, subject: str = "s"):
    panel = Panel.from_frame(frame, subject)
    design = Design.build(parse_formula(formula), panel)
    return design, design.apply(panel)


def frame(**columns) -> pd.DataFrame:
    base = {
        "s": [1, 1, 2, 2, 3],
        "y": [1.0, 2.0, np.nan, 4.0, 5.0],
        "x": [3, 1, 4, 1, 5],
        "age": [20.0, 30.0, 40.0, 50.0, 90.0],
        "g": ["b", "a", "c", "a", "b"],
    }
    return pd.DataFrame({**base, **columns})


X = np.array([3.0, 1, 4, 1, 5])
AGE = np.array([20.0, 30, 40, 50, 90])


@pytest.mark.parametrize(
    ("text", "outcomes", "fixed", "groups"),
    [
        (
            "y1 + y2 ~ x + scale(age) + (1 + x | mouse)",
            ("y1", "y2"),
            "x + scale(age)",
            (("1 + x", "mouse"),),
        ),
        ("y~(1|s)", ("y",), "1", (("1", "s"),)),
        ("~ x", (), "x", ()),
        ("~ 0 + x", (), "0 + x", ()),
        ("y ~ (1|s) - 1", ("y",), "- 1", (("1", "s"),)),
        ("y ~ -1 + x", ("y",), "- 1 + x", ()),
        ("y ~ x + -1", ("y",), "x - 1", ()),
        ("y ~ (1|s) + x + (0 + log(x + 1)|s)", ("y",), "x", (("1", "s"), ("0 + log(x + 1)", "s"))),
        (
            "`reaction time` ~ `my x` + (1 | `the | mouse`)",
            ("reaction time",),
            "`my x`",
            (("1", "the | mouse"),),
        ),
        ("y ~ (x + z)*g", ("y",), "(x + z) * g", ()),
    ],
)
def test_formulas_are_taken_apart(text, outcomes, fixed, groups):
    assert parse_formula(text) == Formula(text, outcomes, fixed, groups)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y", "0 tildes"),
        ("y ~ x ~ z", "2 tildes"),
        ("y ~", "term is missing"),
        ("y ~ x +", "term is missing"),
        ("y ~ x + + z", "term is missing"),
        ("y ~ - - x", "term is missing"),
        ("y ~ (x", "not closed"),
        ("y ~ x)", "no partner"),
        ("y ~ {x)", "no partner"),
        ("y ~ x z", "operator is missing before 'z'"),
        ("y ~ x {z}", "operator is missing"),
        ("y ~ (x)(z)", "operator is missing"),
        ("y ~ `log`(x)", "operator is missing"),
        ("log(y) ~ x", "column names joined by"),
        ("y + ~ x", "column names joined by"),
        ("y + y ~ x", "twice"),
        ("y ~ (1 | a) + (1 | b)", "groups by 'a', 'b'.*same column"),
        ("y ~ (x || s)", r"\(1 \| g\) \+ \(0 \+ x \| g\)"),
        ("y ~ (1 | a/b)", "Nested"),
        ("y ~ (1 | a:b)", "crossed"),
        ("y ~ (1 | a | b)", "not supported as a group"),
        ("y ~ x | s", "in parentheses"),
        ("y ~ x * (1 | s)", "in parentheses"),
        ("y ~ (x + (1 | s))", "in parentheses"),
        ("y ~ x - (1 | s)", "cannot be taken away"),
        ("y ~ ( | s)", "in parentheses"),
        ("y ~ x + 2", "inside I"),
        ("y ~ x ** 2", r"write I\(x \*\* 2\)"),
        ("y ~ x > 2", "only allowed inside a function"),
        ("y ~ scale(log(x))", "takes a column name"),
        ("y ~ log(C(x))", "cannot be inside"),
        ("y ~ log()", "one argument"),
        ("y ~ " + "log(" * 150 + "x" + ")" * 150, "Cannot read"),
        ("y ~ I(" + "x + " * 500 + "x)", "nested too deeply"),
        ("y ~ " + "x" * 10_001, "characters"),
        (3, "is a int"),
    ],
)
def test_bad_formulas_are_refused(text, message):
    with pytest.raises(ModelError, match=message):
        parse_formula(text)


@pytest.mark.parametrize(
    "side",
    [
        "__import__('os').system('touch pwned')",
        '__import__("os").system("touch pwned")',
        "__import__(x)",
        "{__import__('os')}",
        "{__import__(x)}",
        "I(__import__(x))",
        "np.load(x)",
        "np.log(x)",
        "os.system(x)",
        "pd.read_pickle(x)",
        "open(x)",
        "eval(x)",
        "exec(x)",
        "x.__class__",
        "x.__class__.__mro__",
        "I(x.__class__)",
        "x['a']",
        "x[0]",
        "I(x[0])",
        "f'{x}'",
        "(lambda: 1)()",
        "I(lambda: x)",
        "I(y := x)",
        "I(x for x in x)",
        "I(x if x else x)",
        "log(x, y)",
        "log(x, out=y)",
        "log(*x)",
        "log(**x)",
        "C(x, Treatment)",
        "scale(x)(x)",
        "I(log(x)(x))",
        "I(1(x))",
        "I(x; y)",
        "I(x\\n)",
        "I(x and y)",
        "I(x @ y)",
        "I(x // y)",
        "I(x % y)",
        "I(x < y < x)",
        "I(True.real)",
        "I(1 .real)",
        "I(1e5)",
        "bs(x)",
        "poly(x)",
        "hsgp(x)",
        "offset(y)",
        "getattr(x)",
        "lag(x, -1)",
        "lag(x, 1.5)",
        "lag(lag(x))",
        "lag(x, y)",
        "lag()",
        "\uff45\uff56\uff41\uff4c(x)",
        "I(9 ** " + "9" * 5000 + ")",
    ],
)
@pytest.mark.parametrize("place", ["y ~ {}", "y ~ ({} | s)", "{} ~ x"])
def test_hostile_formulas_never_run(side, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = place.replace("{}", side)
    with pytest.raises(ModelError):
        parse_formula(text)
    with pytest.raises(ModelError):
        Design.from_state({"formula": text, "levels": {}, "moments": {}})
    assert os.listdir(tmp_path) == []


def test_a_refused_name_lists_what_is_available():
    with pytest.raises(ModelError, match=r"open\(\) is not available.*log.*standardize.*C"):
        parse_formula("y ~ open(x)")
    assert "log10" in TRANSFORMS


def test_names_resolve_only_to_columns():
    os_ = os  # in this scope, and in globals, yet not a column
    assert os_
    for name in ("os", "os_", "np", "make", "__builtins__", "log", "scale", "Treatment"):
        with pytest.raises(DataError, match=f"no column '{name}'"):
            make(f"y ~ {name}", frame())
    # A column may be called like a function.
    assert make("y ~ log + log(log)", frame(log=AGE))[1].A[:, 2] == pytest.approx(np.log(AGE))


def test_huge_powers_do_not_hang():
    with pytest.raises(DataError, match="not a finite number"):
        make("y ~ I(x + 9 ** (9 ** (9 ** 9)))", frame())


def test_columns_match_numpy():
    design, data = make(
        "y ~ x + scale(age) + center(x) + standardize(x) + log(x + 1) + {x ** 2} + I(x > 2)"
        " + I(-scale(age) / 2) + abs(center(x)) + x:age",
        frame(),
    )
    scaled = (AGE - AGE.mean()) / AGE.std()
    wanted = {
        "Intercept": np.ones(5),
        "x": X,
        "scale(age)": scaled,
        "center(x)": X - X.mean(),
        "standardize(x)": (X - X.mean()) / X.std(),
        "log(x + 1)": np.log(X + 1),
        "I(x ** 2)": X**2,
        "I(x > 2)": X > 2,
        "I(-scale(age) / 2)": -scaled / 2,
        "abs(center(x))": np.abs(X - X.mean()),
        "x:age": X * AGE,
    }
    assert design.columns == design.terms == tuple(wanted)
    assert design.x_cols == tuple(range(11))
    np.testing.assert_allclose(data.A, np.column_stack(list(wanted.values())), rtol=1e-14)
    assert data.A.dtype == data.Y.dtype == np.float64
    np.testing.assert_array_equal(data.Y[:, 0], frame()["y"])


@pytest.mark.parametrize("name", ["log", "log1p", "log2", "log10", "exp", "expm1", "sqrt", "sin"])
def test_functions(name):
    data = make(f"y ~ 0 + {name}(x)", frame())[1]
    np.testing.assert_array_equal(data.A[:, 0], getattr(np, name)(X))


def test_categories_are_indicators():
    b, c = (np.array(list("bacab")) == level for level in "bc")
    a = ~(b | c)
    design, data = make("y ~ g", frame())
    assert design.columns == ("Intercept", "g[b]", "g[c]")
    np.testing.assert_array_equal(data.A, np.column_stack([a | True, b, c]))
    design, data = make("y ~ 0 + g:x", frame())
    assert design.columns == ("g[a]:x", "g[b]:x", "g[c]:x")
    np.testing.assert_array_equal(data.A, np.column_stack([a * X, b * X, c * X]))
    assert make("y ~ C(x)", frame())[0].columns == ("Intercept", "C(x)[3]", "C(x)[4]", "C(x)[5]")

    ordered = pd.Categorical(list("bacab"), ["z", "c", "b", "a"], ordered=True)
    assert make("y ~ g", frame(g=ordered))[0].columns == ("Intercept", "g[b]", "g[a]")
    unordered = pd.Categorical(list("bacab"), ["z", "c", "b", "a"])
    assert make("y ~ g", frame(g=unordered))[0].columns == ("Intercept", "g[b]", "g[c]")
    flag = [True, False, True, True, False]
    design, data = make("y ~ 0 + flag", frame(flag=flag))
    np.testing.assert_array_equal(data.A[:, 0], flag)
    assert make("y ~ C(flag)", frame(flag=flag))[0].columns == ("Intercept", "C(flag)[True]")


def test_effect_columns_share_the_fixed_ones():
    design, data = make("y ~ x + (1 + x | s)", frame())
    assert design.columns == ("Intercept", "x")
    assert design.x_cols == design.z_cols == (0, 1)
    assert design.effect_terms == ("Intercept", "x")
    assert design.effect_blocks == (0, 0)

    design, data = make("y ~ 0 + x + (1 | s) + (0 + g + x | s)", frame())
    assert design.terms == ("x",)
    assert design.columns == ("x", "Intercept", "g[a]", "g[b]", "g[c]")
    assert design.effect_terms == ("Intercept", "g[a]", "g[b]", "g[c]", "x")
    assert design.effect_blocks == (0, 1, 1, 1, 1)
    assert design.z_cols == (1, 2, 3, 4, 0)
    np.testing.assert_array_equal(data.A[:, :2], np.column_stack([X, np.ones(5)]))

    # Same label, different numbers: a column that is called like an indicator.
    tricky = frame(**{"g[b]": AGE})
    design, data = make("y ~ g + (0 + `g[b]` | s)", tricky)
    assert design.z_cols == (3,)
    np.testing.assert_array_equal(data.A[:, 3], AGE)

    assert make("y ~ 0 + (1 | s)", frame())[0].terms == ()
    assert make("y ~ (1 | s) - 1", frame())[0].terms == ()
    assert make("y ~ -1 + x", frame())[0].terms == ("x",)
    assert make("~ x", frame())[1].Y.shape == (5, 0)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("y ~ (1 | s) + (x | s)", ModelError, r"'Intercept' is in two.*\(0 \+ x \| subject\)"),
        ("y ~ (0 | s)", ModelError, "no effects"),
        ("y ~ (1 | g)", ModelError, "subject column is 's'"),
        ("y ~ agee", DataError, "Did you mean 'age'"),
        ("z ~ x", DataError, "'z', wanted as an outcome"),
        ("g ~ x", DataError, "outcome 'g' is (str|object);.*Not numbers: 'b'"),
        ("y ~ log(g)", DataError, "'g' is (str|object), but log"),
        ("y ~ scale(one)", DataError, "constant"),
        ("y ~ scale(tenth)", DataError, "constant"),
        ("y ~ word", DataError, r"1 level\(s\)"),
        ("y ~ when", DataError, "datetime64.*Convert dates"),
        ("y ~ log(center(x))", DataError, r"'log\(center\(x\)\)' is not a finite number"),
        ("huge ~ x", DataError, "outcome 'huge' is infinite at row 0"),
        ("y ~ Intercept", ModelError, "same name"),
        ("y ~ x:age + `x:age`", ModelError, "same name"),
        ("y ~ scale(x) + `scale(x)`", ModelError, "both a column and a function"),
    ],
)
def test_bad_designs_are_refused(text, error, message):
    extra = {
        "one": 1,
        "tenth": 0.1,
        "word": "w",
        "when": pd.date_range("2024", periods=5),
        "huge": [np.inf, 1, 2, 3, 4],
        "Intercept": X,
        "x:age": X,
        "scale(x)": X,
    }
    with pytest.raises(error, match=message):
        make(text, frame(**extra))


def test_state_goes_through_json_and_gives_the_same_numbers():
    text = "y ~ scale(age) + g + C(x) + (1 + center(x) | s)"
    design, data = make(text, frame())
    again = Design.from_state(json.loads(json.dumps(design.state)))
    for name in ("columns", "terms", "effect_terms", "effect_blocks", "x_cols", "z_cols"):
        assert getattr(again, name) == getattr(design, name)
    whole = Panel.from_frame(frame(), "s")
    np.testing.assert_array_equal(again.apply(whole).A, data.A)
    # New data, with other means and not all levels, must not change what was learned.
    part = Panel.from_frame(frame().iloc[[4, 1]], "s")
    np.testing.assert_array_equal(again.apply(part).A, data.A[[4, 1]])


def test_new_data():
    design, _ = make("y ~ g + x", frame())
    new = frame()[["s", "x", "g"]]
    with pytest.raises(DataError, match="no column 'y'"):
        design.apply(Panel.from_frame(new, "s"))
    data = design.apply(Panel.from_frame(new, "s"), outcomes=False)
    assert np.isnan(data.Y).all()
    assert data.Y.shape == (5, 1)
    with pytest.raises(DataError, match=r"does not know: 'd'\. It knows 'a', 'b', 'c'"):
        design.apply(Panel.from_frame(frame(g=list("abcda")), "s"))
    with pytest.raises(DataError, match=r"'x' is (str|object)"):
        design.apply(Panel.from_frame(frame(x=list("abcda")), "s"))


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"formula": "y ~ scale(x)", "levels": {}, "moments": {}},
        {"formula": "y ~ C(x)", "levels": {}, "moments": {}},
        {"formula": "y ~ scale(x)", "levels": {}, "moments": {"scale(x)": [0, 0]}},
        {"formula": "y ~ scale(x)", "levels": {}, "moments": {"scale(x)": ["a", "b"]}},
        {"formula": "y ~ g", "levels": {"g": ["a", "a"]}, "moments": {}},
        {"formula": "y ~ g", "levels": {"g": [{}]}, "moments": {}},
        {"formula": 3, "levels": {}, "moments": {}},
    ],
)
def test_damaged_states_are_refused(state):
    with pytest.raises(ModelError):
        Design.from_state(state)


def test_missing_covariates_matter_only_where_needed():
    # Row 2 has no outcome, so its covariates may be missing: their columns are 0, others stand.
    gaps = frame(x=[3, 1, np.nan, 1, 5], g=["b", "a", None, "a", "b"], age=[20, 30, np.inf, 50, 90])
    design, data = make("y ~ g + x + scale(age) + I(x > 2) + g:x", gaps)
    row = dict(zip(design.columns, data.A[2], strict=True))
    assert row.pop("Intercept") == 1
    assert set(row.values()) == {0.0}
    # With all levels coded there is no reference level to hide behind.
    assert make("y ~ 0 + g", gaps)[1].A[2].tolist() == [0, 0]
    assert make("y ~ 0 + g:x", gaps)[1].A[2].tolist() == [0, 0]
    known = AGE[[0, 1, 3, 4]]
    np.testing.assert_allclose(
        data.A[[0, 1, 3, 4], design.columns.index("scale(age)")],
        (known - known.mean()) / known.std(),
    )
    index = gaps.set_index(pd.Index(list("pqrst")))
    index["y"] = 1.0
    for text, name in (("y ~ x", "x"), ("y ~ g", "g"), ("y ~ I(x > 2)", "x")):
        with pytest.raises(DataError, match=f"'{name}' is missing at row 'r'"):
            make(text, index)
    with pytest.raises(DataError, match="'age' is infinite at row 'r'"):
        make("y ~ age", index)
    with pytest.raises(DataError, match="'x' is missing at row 2"):
        make("~ x", gaps)
    panel = Panel.from_frame(gaps, "s")
    needed = np.array([True, True, False, True, True])
    design = Design.build(parse_formula("~ x"), panel)
    np.testing.assert_array_equal(design.apply(panel, needed=needed).A[:, 1], [3, 1, 0, 1, 5])


def test_two_outcomes_need_covariates_where_either_is_seen():
    gaps = frame(x=[3, 1, np.nan, 1, 5], y2=[1.0, 1, 1, 1, 1])
    with pytest.raises(DataError, match="'x' is missing at row 2"):
        make("y + y2 ~ x", gaps)


def test_many_missing_rows_are_counted():
    with pytest.raises(DataError, match=r"rows 0, 1, 2, 3, 4, ... \(8 in all\)"):
        make("y ~ x", pd.DataFrame({"s": range(9), "y": 1, "x": [np.nan] * 8 + [1]}))


def test_filled_gaps_go_through():
    data = frame(t=[1, 4, 1, 2, 1], flag=[True, False, True, False, True])
    panel = Panel.from_frame(data, "s", time="t").fill_gaps()
    design = Design.build(parse_formula("y ~ x + g + flag"), panel)
    made = design.apply(panel)
    assert np.isnan(made.Y[:, 0]).tolist() == [False, True, True, False, True, False, False]
    np.testing.assert_array_equal(made.A[:, 1], [3, 0, 0, 1, 4, 1, 5])
    np.testing.assert_array_equal(made.A[:, design.columns.index("flag")], [1, 0, 0, 0, 1, 0, 1])


@pytest.mark.parametrize("kind", ["nullable", "polars", "pyarrow", "object", "arrow-backed"])
def test_every_kind_of_column_gives_the_same_design(kind):
    columns = {
        "s": ["u", "u", "v"],
        "y": [1, None, 3],
        "hit": [True, None, False],
        "x": [1, None, 4],
        "flag": [False, None, True],
        "g": ["b", None, "a"],
    }
    if kind == "polars":
        data = pl.DataFrame(columns)
    elif kind == "pyarrow":
        data = pl.DataFrame(columns).to_arrow()
    elif kind == "object":
        data = pd.DataFrame(columns, dtype=object)
    elif kind == "arrow-backed":
        data = pl.DataFrame(columns).to_pandas(use_pyarrow_extension_array=True)
    else:
        data = pd.DataFrame(columns).convert_dtypes()
    design, made = make("y + hit ~ x + flag + g + (1 | s)", data)
    assert design.columns == ("Intercept", "x", "flag", "g[b]")
    np.testing.assert_array_equal(made.Y, [[1, 1], [np.nan, np.nan], [3, 0]])
    np.testing.assert_array_equal(made.A, [[1, 1, 0, 1], [1, 0, 0, 0], [1, 4, 1, 0]])


def test_polars_categoricals():
    base = {"s": [1, 1, 2], "y": [1.0, 2, 3]}
    for dtype, wanted in ((pl.Categorical, "g[b]"), (pl.Enum(["b", "a"]), "g[a]")):
        data = pl.DataFrame({**base, "g": pl.Series(["b", "a", "b"], dtype=dtype)})
        assert make("y ~ g", data)[0].columns == ("Intercept", wanted)


def test_backquoted_names_and_odd_column_names():
    data = pd.DataFrame({"s": [1, 2], "reaction time": [1.0, 2], "my x": [3.0, 7], "_z": [1.0, 2]})
    design, made = make("`reaction time` ~ `my x` + log(`my x`) + _z + (1 | s)", data)
    assert design.outcomes == ("reaction time",)
    assert design.columns == ("Intercept", "my x", "log(my x)", "_z")
    np.testing.assert_allclose(made.A[:, 2], np.log([3, 7]))


def test_row_order_moves_with_the_panel():
    rng = np.random.default_rng(1)
    order = rng.permutation(5)
    text = "y ~ scale(age) * g + (x | s)"
    design, data = make(text, frame())
    moved, moved_data = make(text, frame().iloc[order])
    assert moved.columns == design.columns
    np.testing.assert_allclose(moved_data.A, data.A[order], rtol=1e-14)
    np.testing.assert_array_equal(moved_data.Y, data.Y[order])
