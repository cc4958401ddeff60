"""What operators make of columns: every design against plain arithmetic, or a clear refusal."""

import itertools
import logging
import time
import warnings

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data import Design, Panel, parse_formula
from avem.data.design import has_intercept
from avem.errors import AvemError, DataError, ModelError

N = 48
_RNG = np.random.default_rng(3)
ROWS = pd.DataFrame(
    {
        "s": np.repeat(list("abcd"), N // 4),
        "y": _RNG.normal(size=N),
        **{name: _RNG.uniform(0.5, 2, N) for name in ("x", "z", "w", "v", "lag", "log", "a b")},
        "x:z": _RNG.normal(size=N),
        "x + z": _RNG.normal(size=N),
        "Intercept": _RNG.normal(size=N),
        "big": _RNG.uniform(0.5, 1, N) * 1e300,
        "g": np.tile(list("pqr"), N // 3),
        "h": np.tile(list("uuvv"), N // 4),
        "k": np.tile(list("mmmmnnnn"), N // 8),
    }
)
NUMBERS = {name: ROWS[name].to_numpy() for name in ("x", "z", "w", "v", "lag", "log", "a b", "big")}
LEVELS = {name: sorted(set(ROWS[name])) for name in ("g", "h", "k")}


def make(side):
    panel = Panel.from_frame(ROWS, "s")
    design = Design.build(parse_formula(f"y ~ {side}"), panel)
    return design, design.apply(panel)


def columns(side):
    """Each fixed column by its name."""
    design, data = make(side)
    assert len(set(design.terms)) == len(design.terms)
    return dict(zip(design.terms, data.A[:, list(design.x_cols)].T, strict=True))


def by_hand(name):
    """A column from its name alone: factors and numbers multiplied."""
    found = np.ones(N)
    for part in name.split(":") if name != "Intercept" else []:
        if part.endswith("]"):
            factor, level = part[:-1].split("[")
            found = found * (ROWS[factor] == level)
        else:
            found = found * NUMBERS[part]
    return np.asarray(found)


SAME = [  # a side, and its columns
    ("x", "1 x"),
    ("x - 1", "x"),
    ("-1 + x", "x"),
    ("0 + x", "x"),
    ("x + 0", "x"),
    ("1 + x - 1", "x"),
    ("(0 + x) + z", "x z"),
    ("(x - 1) + z", "x z"),
    ("+x + (+z)", "1 x z"),
    ("x + x", "1 x"),
    ("((x))", "1 x"),
    ("x:z + z:x", "1 x:z"),
    ("x*z + z*x", "1 x z x:z"),
    ("x*z", "1 x z x:z"),
    ("x*z*w", "1 x z x:z w x:w z:w x:z:w"),
    ("x*z:w", "1 x z:w x:z:w"),
    ("x:z*w", "1 x:z w x:z:w"),
    ("x + z:w", "1 x z:w"),
    ("(x + z):(w + v)", "1 x:w x:v z:w z:v"),
    ("(x + z)*(w + v)", "1 x z w v x:w x:v z:w z:v"),
    ("x/z", "1 x x:z"),
    ("x/z/w", "1 x x:z x:z:w"),
    ("x/(z + w)", "1 x x:z x:w"),
    ("(x + z)/w", "1 x z x:z:w"),
    ("(x + z)/(w:v + lag)", "1 x z x:z:w:v x:z:lag"),
    ("(x + z)**2", "1 x z x:z"),
    ("(x + z + w)**2", "1 x z w x:z x:w z:w"),
    ("(x + z + w)**3", "1 x z w x:z x:w z:w x:z:w"),
    ("(x + z)**6", "1 x z x:z"),
    ("x*z - x:z", "1 x z"),
    ("x*z - z:x", "1 x z"),
    ("x*z - (x + z)", "1 x:z"),
    ("x - x", "1"),
    ("0", ""),
    ("lag + log", "1 lag log"),
    ("g", "1 g[q] g[r]"),
    ("0 + g", "g[p] g[q] g[r]"),
    ("g - 1 + h", "g[p] g[q] g[r] h[v]"),
    ("g*x", "1 g[q] g[r] x g[q]:x g[r]:x"),
    ("g:x", "1 g[p]:x g[q]:x g[r]:x"),
    ("g:x + x", "1 g[q]:x g[r]:x x"),
    ("g/x", "1 g[q] g[r] g[p]:x g[q]:x g[r]:x"),
    ("g/h", "1 g[q] g[r] g[p]:h[v] g[q]:h[v] g[r]:h[v]"),
    ("g*h - h", "1 g[q] g[r] g[p]:h[v] g[q]:h[v] g[r]:h[v]"),
    ("g:h", "1 h[v] g[q]:h[u] g[q]:h[v] g[r]:h[u] g[r]:h[v]"),
    ("h:g + g:h + h", "1 h[u]:g[q] h[u]:g[r] h[v]:g[q] h[v]:g[r] h[v]"),
]


@pytest.mark.parametrize(("side", "names"), SAME)
def test_columns_are_what_the_formula_says(side, names):
    found = columns(side)
    assert list(found) == [{"1": "Intercept"}.get(name, name) for name in names.split()]
    for name, values in found.items():
        np.testing.assert_allclose(values, by_hand(name), rtol=1e-14)
    assert has_intercept(parse_formula(f"y ~ {side}")) == ("Intercept" in found)


def span(*columns):
    return np.linalg.matrix_rank(np.stack(columns, axis=1))


FACTORED = [
    "g:h:k",
    "g + g:h:k",
    "x:g:h + g",
    "0 + g:h:k",
    "g*h*k",
    "g:h + h:k",
    "x:g:h:k",
    "g:h/k",
]


@pytest.mark.parametrize("side", FACTORED)
def test_factors_span_every_combination_of_their_levels_and_no_column_is_redundant(side):
    found = columns(side)
    for name, values in found.items():
        np.testing.assert_array_equal(values, by_hand(name))
    assert span(*found.values()) == len(found)
    # Of the highest term, all cells are in the space of the columns.
    highest = ["x"] * ("x" in side) + [name for name in "ghk" if name in side]
    if side not in ("g:h + h:k",):
        cells = itertools.product(*(LEVELS.get(name, [None]) for name in highest))
        for cell in cells:
            pairs = zip(highest, cell, strict=True)
            name = ":".join(n if level is None else f"{n}[{level}]" for n, level in pairs)
            assert span(*found.values(), by_hand(name)) == len(found)


POWERS = [
    ("I(x)**2", "I(x ** 2)", lambda x, z: x**2),
    ("(x)**2", "I(x ** 2)", lambda x, z: x**2),
    ("x**3", "I(x ** 3)", lambda x, z: x**3),
    ("{x}**2", "I(x ** 2)", lambda x, z: x**2),
    ("(x + x)**2", "I(x ** 2)", lambda x, z: x**2),
    ("log(abs(x))**2", "I(log(abs(x)) ** 2)", lambda x, z: np.log(x) ** 2),
    ("I(x + z)**2", "I(I(x + z) ** 2)", lambda x, z: (x + z) ** 2),
    ("(x:z)**2", "I((x * z) ** 2)", lambda x, z: (x * z) ** 2),
    ("x:x", "I(x ** 2)", lambda x, z: x**2),
    ("z + x*x", "I(x ** 2)", lambda x, z: x**2),
    ("log(x)/log(x)", "I(log(x) ** 2)", lambda x, z: np.log(x) ** 2),
]


@pytest.mark.parametrize(("side", "advice", "wanted"), POWERS)
@pytest.mark.parametrize("place", ["{}", "1 + ({} | s)"])
def test_a_power_of_one_column_is_refused_with_what_to_write(side, advice, wanted, place):
    with pytest.raises(ModelError) as error:
        make(place.format(side))
    assert f"write {advice}" in str(error.value)
    (made,) = list(columns(advice).values())[1:]
    np.testing.assert_allclose(made, wanted(NUMBERS["x"], NUMBERS["z"]))


REFUSED = [
    ("C(g)**2", "categorical"),
    ("(1 + x)**2", "would mean interactions"),
    ("(x + z)**1", "from 2 to 6"),
    ("(x + z)**23", "from 2 to 6"),
    ("(x + z)**z", "from 2 to 6"),
    ("(x + z)**", "from 2 to 6"),
    ("(x + z)**2**2", "Two powers"),
    ("x - z", r"takes away 'z', which is not there.*I\(x - z\)"),
    ("-x", "which is not there"),
    ("(x - z | s)", "which is not there"),
    ("log(x) - x", "which is not there"),
    ("x - 0", "takes nothing away"),
    ("0 + x + 1", "takes the intercept away and adds it again"),
    ("1:x", "0 or 1 is multiplied"),
    ("0*x", "0 or 1 is multiplied"),
    ("1/x", r"I\(1 / x\)"),
    ("(1 + x)*z", "0 or 1 is multiplied"),
    ("x*", "term is missing at the end"),
    ("x * / z", "term is missing before '/'"),
    ("()", r"term is missing before '\)'"),
    ("x * -z", "term is missing before '-'"),
    ("01 + x", "number 01"),
    ("1e0 + x", "number 1e0"),
    ("I(2)", "names no column"),
    ("log(2) + x", "names no column"),
    ("log(x, 2)", r"log\(\) takes one argument"),
    ("I(0 < x < 2)", r"\(x > 1\) \* \(x < 2\)"),
    ("I(x z)", "missing or one too many"),
    ("I((x, z))", "only columns, numbers"),
    ("I(x * 1e999)", "too large"),
    ("I(x + " + "9" * 5000 + ")", "too large"),
    ("lag(x, 99999999999999999999)", "from 1 to 1,000,000"),
    ("lag(x, 0)", "from 1 to 1,000,000"),
    ("lag(x, 1.5)", "from 1 to 1,000,000"),
    ("0 + Intercept", "same name"),
    ("I(`x + z` * w) + I(x + z * w)", "both two functions"),
    ("I(`x + z` * w) + (0 + I(x + z * w) | s)", "both two functions"),
    ("(" * 2000 + "x" + ")" * 2000, "nested too deeply"),
    ("(" + "+".join(f"x{i}" for i in range(99)) + ")**2", "4,950"),
    ("(" + "+".join(f"x{i}" for i in range(600)) + "):(x + z)", "1,200"),
    ("x:z:w:v:g:h:k:y1:y2:y3", "at most 9"),
]


@pytest.mark.parametrize(("side", "message"), REFUSED)
def test_formulas_that_would_do_something_else_are_refused(side, message):
    with pytest.raises(ModelError, match=message):
        make(side)


def test_numbers_may_have_exponents_and_zeros_in_front():
    x = NUMBERS["x"]
    for text, value in (("1e3", 1e3), ("2.5E-2", 0.025), ("007", 7), ("1e+2", 100), ("00", 0)):
        (made,) = list(columns(f"I(x + {text})").values())[1:]
        np.testing.assert_array_equal(made, x + value)


def test_a_long_sum_is_read():
    side = "+".join(f"x{i}" for i in range(1400))  # longer than 10,000 with spaces
    levels = {"levels": {}, "moments": {}}
    assert len(Design.from_state({"formula": f"y~{side}", **levels}).terms) == 1401


def test_columns_of_one_name_in_two_formulas_are_not_confused():
    """`x:z` is a column here and a product there."""
    hmm = avem.MixedHMM("y ~ `x:z` + (1 | s)", 2, transition="~ x:z")
    model = avem.models.hmm.HMMModel.learn(hmm.spec, panel := Panel.from_frame(ROWS, "s"))
    A = model.read(panel).A
    np.testing.assert_array_equal(A[:, model.designs.x_cols(0)[1]], ROWS["x:z"])
    np.testing.assert_array_equal(A[:, model.designs.x_cols(1)[1]], ROWS["x"] * ROWS["z"])


def test_moments_of_huge_numbers_do_not_overflow():
    for name in ("scale", "center", "standardize"):
        (made,) = list(columns(f"{name}(big)").values())[1:]
        assert abs(made.mean()) < 1e-9 * max(1.0, np.abs(made).max())
    assert columns("scale(big)")["scale(big)"].std() == pytest.approx(1)


def test_a_product_beyond_double_precision_is_refused():
    with pytest.raises(DataError, match="'big:I\\(-big\\)' reaches inf"):
        columns("big:I(-big)")


def test_a_lag_beyond_every_sequence_is_named():
    with pytest.raises(DataError, match=r"lag\(\) in its formula looks back to nothing"):
        avem.MixedHMM("y ~ lag(x, 500) + (1 | s)", 2).fit(ROWS)


def test_levels_are_counted_before_columns_are_made():
    thirty = [f"level {i}" for i in range(30)]
    long = [f"{i}" * 3000 for i in range(50)]
    begun = time.perf_counter()
    for formula, levels, message in (
        ("y ~ g*h*k*l", dict.fromkeys("ghkl", thirty), "923,521 columns"),
        (
            "y ~ g",
            {"g": [str(i) for i in range(300_000)]},
            "levels of 'g' are none",
        ),
        ("y ~ g:h", dict.fromkeys("gh", long), "characters"),
    ):
        with pytest.raises(ModelError, match=message):
            Design.from_state({"formula": formula, "levels": levels, "moments": {}})
    assert time.perf_counter() - begun < 3


def test_what_was_learned_must_belong_to_the_formula():
    state = {"formula": "y ~ g", "levels": {"g": ["a", "b"]}, "moments": {}}
    for extra in (
        {"levels": {"g": ["a", "b"], "h": ["c", "d"]}},
        {"moments": {"scale(x)": [0, 1]}},
    ):
        with pytest.raises(ModelError, match="which its formula does not have"):
            Design.from_state(state | extra)
    for levels in (["a"], ["a", float("nan")], [str(i) for i in range(1001)]):
        with pytest.raises(ModelError, match="levels of 'g' are none"):
            Design.from_state(state | {"levels": {"g": levels}})


PIECES = ["x", "z", "g", "h", "0", "1", "2", "log(x)", "I(x)", "C(h)", "lag(z)", "(", ")", "`a b`"]
OPERATORS = ["+", "-", "*", "/", ":", "**", "+", "^", "%", "|", "~", ",", "."]


def test_whatever_is_written_is_done_or_refused_in_silence(capfd, caplog):
    rng = np.random.default_rng(0)
    n_made = 0
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        for _ in range(600):
            n = int(rng.integers(1, 5))
            words = [word for _ in range(n) for word in (rng.choice(PIECES), rng.choice(OPERATORS))]
            try:
                found = columns(" ".join(words[:-1]))
            except AvemError:
                continue
            n_made += 1
            for name, values in found.items():
                if "(" not in name:
                    np.testing.assert_allclose(values, by_hand(name), rtol=1e-14)
    assert n_made > 60
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
