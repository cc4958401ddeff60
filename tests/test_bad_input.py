"""Bad input through the public API: the right error, naming what is wrong and what to try."""

import datetime
import re

import numpy as np
import pandas as pd
import pytest

import avem
from avem.errors import DataError, ModelError

MIXED = "y ~ 1 + (1 | id)"
QUICK = {"n_starts": 1, "max_iter": 3}


def make_frame(n_subjects: int = 4, n_times: int = 8) -> pd.DataFrame:
    """A small sound data set, rows labelled r0, r1, ..."""
    rng = np.random.default_rng(0)
    n = n_subjects * n_times
    time = np.tile(np.arange(n_times), n_subjects)
    level = np.repeat(rng.normal(size=n_subjects), n_times)
    return pd.DataFrame(
        {
            "id": np.repeat([f"s{i}" for i in range(n_subjects)], n_times),
            "time": time,
            "day": np.where(time < n_times // 2, "mon", "tue"),
            "y": 4.0 * (time // 2 % 2) + level + rng.normal(size=n),
            "reward": rng.normal(size=n),
            "age": np.repeat(20.0 + np.arange(n_subjects), n_times),
        },
        index=[f"r{i}" for i in range(n)],
    )


def fit(frame, formula: str = MIXED, n_states: int = 2, **options):
    made = {name: options.pop(name) for name in ("family", "effect_covariance") if name in options}
    return avem.MixedHMM(formula, n_states, **made).fit(frame, **{**QUICK, **options})


def refused(error: type[Exception], *words: str):
    """Expect `error` with all of these words in its message, in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(word) for word in words))


def changed(column: str, values, rows=slice(None)) -> pd.DataFrame:
    """The sound frame with some cells of a column replaced."""
    frame = make_frame()
    if rows == slice(None):
        frame[column] = values
    else:
        frame.loc[rows, column] = values
    return frame


def test_the_sound_frame_fits():
    with pytest.warns(avem.AvemWarning, match="max_iter"):
        assert np.isfinite(fit(make_frame()).bound)


# --- too little data ------------------------------------------------------------------------------


def test_an_empty_frame():
    with refused(DataError, "no rows"):
        fit(make_frame().iloc[:0])


def test_a_frame_without_columns():
    with refused(DataError, "no column 'id'", "the subject"):
        fit(pd.DataFrame(index=range(5)))


def test_one_subject_with_effects():
    with refused(ModelError, "1 subject ('s0' in column 'id')", "at least 2", "subject='id'"):
        fit(make_frame(n_subjects=1))


def test_one_time_point_per_subject():
    with refused(DataError, "1 time point", "subject 's0'", "at least 2", "subject="):
        fit(make_frame(n_subjects=30, n_times=1))


def test_one_time_point_per_sequence():
    with refused(DataError, "1 time point", "subject 's0'", "sequence="):
        fit(make_frame(), sequence="time")


def test_more_states_than_the_data_carry():
    with refused(ModelError, "10 states have", "32 observed values", "fewer states"):
        fit(make_frame(), n_states=10)


def test_more_states_than_distinct_values():
    frame = changed("y", np.tile([0.0, 1.0], 16))
    with refused(ModelError, "2 distinct values", "3 states", "at most 2"):
        fit(frame, n_states=3)


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 3.5, -1e9])
def test_a_constant_outcome(value):
    with refused(DataError, "'y' is constant", f"{value:g}", "leave it out"):
        fit(changed("y", value))


@pytest.mark.parametrize("value", [np.nan, None, pd.NA])
def test_an_outcome_that_is_all_missing(value):
    with refused(DataError, "'y' has no observed value", "Leave it out"):
        fit(changed("y", value))


def test_an_infinite_outcome():
    with refused(DataError, "'y' is infinite at rows 'r3', 'r7'", "missing value"):
        fit(changed("y", [np.inf, -np.inf], rows=["r3", "r7"]))


@pytest.mark.parametrize(
    "value", ["high", pd.Timestamp("2020-01-01"), datetime.date(2020, 1, 1), 1 + 2j]
)
def test_an_outcome_that_is_no_number(value):
    with refused(DataError, "'y' is", "numbers or booleans are wanted"):
        fit(changed("y", [value] * 32))


@pytest.mark.parametrize(
    ("labels", "family"), [("no yes", "bernoulli"), ("low middle high", "categorical")]
)
def test_an_outcome_of_labels(labels, family):
    words = (labels.split() * 16)[:32]
    with refused(DataError, "'y' is", f"takes labels with family='{family}'"):
        fit(changed("y", words))


@pytest.mark.parametrize("size", [1e200, 1.7e308, 1e-200, 1e-300])
def test_an_outcome_of_extreme_size(size):
    with refused(DataError, "Outcome 'y' reaches", "Change its unit"):
        fit(changed("y", np.linspace(-1, 1, 32) * size))


# --- covariates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "word"), [(np.nan, "missing"), (np.inf, "infinite")])
@pytest.mark.parametrize(
    "formula", ["y ~ reward + (1 | id)", "y ~ 1 + (reward | id)", "y ~ I(reward ** 2) + (1 | id)"]
)
def test_a_covariate_with_holes(value, word, formula):
    frame = changed("reward", value, rows=["r2", "r9"])
    with refused(DataError, f"'reward' is {word} at rows 'r2', 'r9'", "Fill it in", "drop"):
        fit(frame, formula)


def test_a_transform_that_is_not_finite():
    frame = changed("reward", -1.0, rows=["r5"])
    frame.loc[frame.index != "r5", "reward"] = 2.0
    with refused(DataError, "'log(reward)' is not a finite number at row 'r5'"):
        fit(frame, "y ~ log(reward) + (1 | id)")


def test_a_date_as_a_covariate():
    frame = changed("reward", pd.date_range("2020", periods=32))
    with refused(DataError, "'reward' is datetime64", "Convert dates to numbers"):
        fit(frame, "y ~ reward + (1 | id)")


def test_lists_as_a_covariate():
    with refused(DataError, "'reward' is object", "numbers, booleans, text or categories"):
        fit(changed("reward", [[1.0]] * 32), "y ~ reward + (1 | id)")


@pytest.mark.parametrize("column", ["y", "reward"])
def test_whole_numbers_beyond_double_precision(column):
    with refused(DataError, f"'{column}' holds whole numbers beyond double", "Change its unit"):
        fit(changed(column, [10**400 + i for i in range(32)]), "y ~ reward + (1 | id)")


def test_a_categorical_covariate_with_one_level():
    with refused(DataError, "'reward' has 1 level", "Drop it"):
        fit(changed("reward", "same"), "y ~ reward + (1 | id)")


def test_collinear_terms():
    frame = make_frame()
    frame["twice"] = 2 * frame["reward"] + 1
    with refused(ModelError, "'twice' is a combination", "Intercept, reward", "Leave one of them"):
        fit(frame, "y ~ reward + twice + (1 | id)")


def test_a_constant_covariate():
    with refused(ModelError, "'reward' is a combination", "Intercept", "Leave one of them out"):
        fit(changed("reward", 3.0), "y ~ reward + (1 | id)")


def test_a_covariate_of_zeros():
    with refused(ModelError, "'reward' is 0 where the outcome 'y' is observed", "Leave it out"):
        fit(changed("reward", 0.0), "y ~ reward + (1 | id)")


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_a_covariate_of_extreme_size(size):
    frame = changed("reward", np.linspace(-size, size, 32))
    with refused(DataError, "'reward'", "Change its unit"):
        fit(frame, "y ~ reward + (1 | id)")


# --- effects --------------------------------------------------------------------------------------


def test_a_slope_on_a_covariate_constant_within_subjects():
    with refused(ModelError, "not identified", "Intercept, age", "vary over time"):
        fit(make_frame(), "y ~ 1 + (1 + age | id)")


def test_too_few_rows_per_subject_for_the_effects():
    with refused(ModelError, "not identified", "2 effect term(s)", "Use fewer effect terms"):
        fit(make_frame(n_subjects=20, n_times=2), "y ~ 1 + (1 + reward | id)")


def test_effects_where_one_subject_has_data():
    frame = make_frame()
    frame.loc[frame["id"] != "s0", "y"] = np.nan
    with refused(ModelError, "not identified", "on 'y'", "1 of 4 subjects have that many"):
        fit(frame)


def test_effects_of_one_outcome_that_one_subject_has():
    frame = make_frame()
    frame["z"] = np.where(frame["id"] == "s0", frame["reward"], np.nan)
    with refused(ModelError, "not identified", "on 'z'", "1 of 4 subjects"):
        fit(frame, "y + z ~ 1 + (1 | id)")


def test_a_covariate_that_hardly_varies_within_subjects():
    frame = changed("reward", 1e6 + make_frame()["reward"])
    with refused(ModelError, "'y' are not identified", "Intercept, reward", "center(x)"):
        fit(frame, "y ~ 1 + (1 + reward | id)")


def test_a_term_that_one_outcome_never_shows():
    frame = make_frame()
    frame["z"] = np.where(frame["day"] == "mon", frame["y"], np.nan)
    with refused(ModelError, "'day[tue]' is 0 where the outcome 'z' is observed", "Leave it out"):
        fit(frame, "y + z ~ day + (1 | id)")


@pytest.mark.parametrize(
    ("transition", "words"),
    [
        (
            "~ C(time)",
            ["The first level of 'C(time)'", "no step leads into", "another of its levels"],
        ),
        ("~ 0 + reward + C(time)", ["'C(time)[0]' is 0", "no step leads into"]),
        ("~ reward + C(time)", ["The first level of 'C(time)'"]),
        ("~ time + C(time)", ["'C(time)[6]' is a combination"]),
        ("~ day + C(day)", ["'C(day)[tue]' is a combination", "Leave one of them out"]),
        ("~ 0 + age + C(age)", ["'C(age)[23.0]' is a combination"]),
    ],
)
def test_a_level_that_no_step_leads_into(transition, words):
    with refused(ModelError, *words):
        avem.MixedHMM("y ~ 1", 2, transition=transition).fit(make_frame(), "id", "time")


def test_states_of_a_level_that_no_step_leads_into():
    model = avem.MixedSSM(["y", "reward"], 1, subject="id", state="~ 0 + C(time)", random="none")
    with refused(ModelError, "'C(time)[0]' is 0 where the states move", "no step leads into"):
        model.fit(make_frame(), time="time")


def test_an_outcome_with_too_few_values_for_the_states():
    frame = make_frame()
    frame["z"] = frame["reward"].where(frame["time"] == 0)
    with refused(ModelError, "'z' has 4 observed value(s)", "3 states need at least 6", "fewer"):
        fit(frame, "y + z ~ 1", n_states=3, subject="id")


# --- columns and labels ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "options", "words"),
    [
        ("Y ~ 1 + (1 | id)", {}, ("no column 'Y'", "an outcome", "Did you mean 'y'?")),
        ("y ~ rewrad + (1 | id)", {}, ("no column 'rewrad'", "covariate", "mean 'reward'?")),
        ("y ~ 1 + (rewrad | id)", {}, ("no column 'rewrad'", "covariate", "mean 'reward'?")),
        ("y ~ 1 + (1 | idd)", {}, ("no column 'idd'", "the subject", "mean 'id'?")),
        (MIXED, {"time": "tme"}, ("no column 'tme'", "the time", "mean 'time'?")),
        (MIXED, {"sequence": "dya"}, ("no column 'dya'", "the sequence", "mean 'day'?")),
        ("war ~ 1 + (1 | id)", {}, ("no column 'war'", "an outcome", "mean 'reward'?")),
        ("y ~ 1", {"subject": "ID"}, ("no column 'ID'", "the subject", "mean 'id'?")),
        (MIXED, {"time": 3}, ("no column 3", "the time", "The columns are 'id'")),
        (MIXED, {"time": ["time"]}, ("no column ['time']", "the time")),
        ("y ~ 1", {"subject": ["id"]}, ("no column ['id']", "the subject")),
        (MIXED, {"time": "id"}, ("must be different columns",)),
    ],
)
def test_unknown_columns(formula, options, words):
    with refused(DataError, *words):
        fit(make_frame(), formula, **options)


@pytest.mark.parametrize("column", ["id", "time", "day"])
def test_missing_labels(column):
    frame = make_frame()
    frame[column] = frame[column].astype(object)
    frame.loc[["r1", "r4"], column] = None
    with refused(DataError, f"'{column}'", "is missing at rows 'r1', 'r4'", "drop these rows"):
        fit(frame, time="time", sequence="day")


def test_an_infinite_time():
    frame = make_frame().astype({"time": float})
    frame.loc["r2", "time"] = np.inf
    with refused(DataError, "'time', the time, is infinite at row 'r2'"):
        fit(frame, time="time")


def test_repeated_times():
    frame = make_frame()
    frame.loc["r3", "time"] = 2
    with refused(DataError, "subject 's0' has two rows at time 2", "sequence=", "drop"):
        fit(frame, time="time")


def test_repeated_columns():
    frame = make_frame()
    frame.columns = ["id", "time", "day", "y", "y", "age"]
    with refused(DataError, "more than one column named 'y'", "rename"):
        fit(frame)


def test_unsorted_rows_give_the_same_fit_in_the_callers_order():
    frame = make_frame(n_subjects=20, n_times=20)
    shuffled = frame.sample(frac=1, random_state=1)
    options = {"time": "time", "n_starts": 4, "max_iter": 500}
    one, other = (fit(data, **options) for data in (frame, shuffled))
    assert other.bound == pytest.approx(one.bound, rel=1e-6)
    np.testing.assert_allclose(other.params["coef"], one.params["coef"], atol=1e-4)
    states = other.decode()
    assert list(states.index) == list(shuffled.index)
    pd.testing.assert_series_equal(states.loc[frame.index], one.decode())
    probabilities = other.state_probabilities()
    assert list(probabilities.index) == list(shuffled.index)
    pd.testing.assert_frame_equal(
        probabilities.loc[frame.index], one.state_probabilities(), atol=1e-4
    )


def test_labels_that_are_lists():
    frame = make_frame()
    frame["id"] = [[label] for label in frame["id"]]
    with refused(DataError, "'id', the subject, holds values that cannot be labels", "['s0']"):
        fit(frame)


# --- what is not a frame or a Panel ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], "list"),
        ({"id": [1, 1], "y": [1.0, 2.0]}, "dict"),
        (np.ones((5, 2)), "ndarray"),
        ("data.csv", "str"),
        (None, "NoneType"),
        (pd.Series([1.0, 2.0]), "Series"),
    ],
)
def test_data_that_are_no_frame(data, kind):
    then = "Read the file first" if kind == "str" else "Panel.from_arrays"
    with refused(DataError, kind, "pandas, polars or pyarrow frame", then):
        fit(data)


def test_a_panel_with_time():
    panel = avem.Panel.from_frame(make_frame(), "id", time="time")
    for option in ({"time": "time"}, {"sequence": "day"}):
        with refused(ModelError, "Panel already knows its time and sequence", "leave them out"):
            fit(panel, **option)


def test_a_panel_with_another_subject():
    panel = avem.Panel.from_frame(make_frame(), "day")
    with refused(ModelError, "groups by 'id'", "subject column is 'day'"):
        fit(panel)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ([], ("empty list", "one array per subject")),
        (np.ones((3, 4)), ("ndarray", "a list with one", "Wrap")),
        ([["a", "b"]], ("array of subject 0", "numbers are wanted")),
        ([np.ones((2, 2)), np.ones((2, 3))], ("subject 1 has 3 columns", "subject 0 has 2")),
        ([np.ones(3), np.ones(0)], ("at least one row", "subject 1")),
        ([np.ones((2, 2, 2))], ("shape (2, 2, 2)", "(times, outcomes)")),
        ([[1.0, [2.0]]], ("array of subject 0", "ragged")),
        ([np.ones((3, 0))], ("array of subject 0", "no columns")),
    ],
)
def test_bad_arrays(arrays, words):
    with refused(DataError, *words):
        avem.Panel.from_arrays(arrays)


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([2, 2], ("sum to 4", "5 rows")),
        ([2.0, 3.0], ("lengths is float64", "whole numbers")),
        ([6, -1], ("at least one row", "subject 1")),
        (5, ("shape ()", "whole numbers")),
        ("five", ("lengths", "whole numbers")),
    ],
)
def test_bad_lengths(lengths, words):
    with refused(DataError, *words):
        avem.Panel.from_lengths(np.arange(5.0), lengths)


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_states", [0, -1, 2.5, 2.0, True, "2", None, [2], np.nan])
def test_bad_numbers_of_states(n_states):
    with refused(ModelError, f"n_states is {n_states!r}", "whole number of at least 1"):
        avem.MixedHMM(MIXED, n_states)


def test_a_family_under_another_name():
    with refused(ModelError, "family is 'normal'", "Here that is 'gaussian'."):
        avem.MixedHMM(MIXED, 2, "normal")


@pytest.mark.parametrize("family", ["gauss", "Gaussian", None, 3, avem.Panel, ["gaussian"]])
def test_bad_families(family):
    with refused(ModelError, "family is", "gaussian"):
        avem.MixedHMM(MIXED, 2, family)


@pytest.mark.parametrize("covariance", ["foo", None, 3, ["full"]])
def test_bad_noise_covariances(covariance):
    with refused(ModelError, f"covariance is {covariance!r}", "spherical, diagonal, full"):
        avem.Gaussian(covariance)


@pytest.mark.parametrize("structure", ["foo", None, True, ["full"]])
def test_bad_effect_covariances(structure):
    with refused(
        ModelError, f"effect_covariance is {structure!r}", "full, block, diagonal, isotropic"
    ):
        avem.MixedHMM(MIXED, 2, effect_covariance=structure)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (3, ("first argument is 3", "a formula or a list of avem.outcome")),
        (None, ("first argument is None", "a formula or a list of avem.outcome")),
        ([], ("first argument is []", "a formula or a list of avem.outcome")),
        (["y ~ x"], ("list of outcomes has 'y ~ x'", "avem.outcome('y ~ ...', family)")),
        ("", ("0 tildes", "'y ~ x'")),
        ("y", ("0 tildes", "'y ~ x'")),
        ("y ~ x ~ z", ("2 tildes", "'y ~ x'")),
        ("~ x + (1 | id)", ("no outcome", "'y ~ ...'")),
        ("y ~", ("term is missing", "~ 1")),
        ("log(y) ~ 1", ("left side", "as a column first")),
        ("y + y ~ 1", ("names an outcome twice",)),
        ("y ~ 1 + (1 | id) + (1 | day)", ("'id', 'day'", "same column")),
        ("y ~ 1 + (1 || id)", ("'||'", "separate terms")),
        ("y ~ foo(x) + (1 | id)", ("foo() is not available", "log")),
    ],
)
def test_bad_formulas(formula, words):
    with refused(ModelError, *words):
        avem.MixedHMM(formula, 2)


def test_a_group_term_without_effects():
    with refused(ModelError, "has no effects"):
        fit(make_frame(), "y ~ 1 + (0 | id)")


@pytest.mark.filterwarnings("ignore::avem.AvemWarning")
def test_states_that_differ_in_variance_only():
    assert np.isfinite(fit(make_frame(), "y ~ 0 + (1 | id)").bound)


@pytest.mark.filterwarnings("ignore::avem.AvemWarning")
@pytest.mark.parametrize("formula", ["y ~ 1", "y ~ reward"])
def test_no_effects(formula):
    assert np.isfinite(fit(make_frame(), formula, subject="id").bound)


def test_no_group_and_no_subject():
    with refused(ModelError, "no (... | subject) term", "subject="):
        fit(make_frame(), "y ~ 1")


def test_subject_against_the_formula():
    with refused(ModelError, "subject='day'", "groups by 'id'", "Leave subject= out"):
        fit(make_frame(), subject="day")


# --- options of fit -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["n_starts", "max_iter"])
@pytest.mark.parametrize("value", ["5", 0, -3, 2.5, True, None, np.inf])
def test_bad_counts(name, value):
    with refused(ModelError, f"{name} is {value!r}", "whole number of at least 1"):
        fit(make_frame(), **{name: value})


@pytest.mark.parametrize(
    "value",
    [
        -1e-6,
        np.nan,
        -np.inf,
        "small",
        [1e-3],
        True,
    ],
)
def test_bad_tolerances(value):
    with refused(ModelError, f"tol is {value!r}", "not negative"):
        fit(make_frame(), tol=value)


@pytest.mark.parametrize("value", ["foo", "AVEM", None, 3, ["avem"]])
def test_bad_methods(value):
    with refused(ModelError, f"method is {value!r}", "available: avem"):
        fit(make_frame(), method=value)


@pytest.mark.parametrize("value", ["a", -1, 1.5])
def test_bad_seeds(value):
    with refused(ModelError, f"seed is {value!r}", "whole number"):
        fit(make_frame(), seed=value)


GOOD = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.1, 0.9]],
    "coef": [[[0.0]], [[4.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[1.0]],
}


@pytest.mark.parametrize("where", ["init", "fixed"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"means": [0.0, 1.0]}, ("['means']", "initial, transition, coef, variance")),
        ({3: [0.0, 1.0]}, ("[3]", "initial, transition, coef, variance")),
        ({3: 0.0, "means": 0.0}, ("'means'", "initial, transition, coef, variance")),
        ([0.5, 0.5], ("is a list", "a dict with some of initial")),
        ("kmeans", ("is a str", "a dict with some of initial")),
        ({"initial": [1.0]}, ("['initial'] has shape (1,)", "(2,)", "states")),
        ({"initial": 1.0}, ("['initial'] has shape ()", "(2,)", "states")),
        ({"transition": [0.5, 0.5]}, ("['transition'] has shape (2,)", "from state x to state")),
        ({"coef": [0.0, 4.0]}, ("['coef'] has shape (2,)", "(2, 1, 1)", "outcomes (y)")),
        ({"variance": [1.0, 1.0]}, ("['variance'] has shape (2,)", "(2, 1)")),
        ({"coef": [[[0.0]], [[np.inf]]]}, ("['coef']", "missing or infinite")),
        ({"coef": [[["a"]], [["b"]]]}, ("['coef']", "not an array of numbers")),
        ({"coef": [[[0.0]], [[1j]]]}, ("['coef']", "not an array of numbers")),
        ({"coef": [[[0.0]], [4.0]]}, ("['coef']", "not an array of numbers")),
        ({"coef": None}, ("['coef']",)),
        ({"initial": [0.5, 0.6]}, ("['initial']", "probabilities", "sum to 1")),
        ({"initial": [1.5, -0.5]}, ("['initial']", "probabilities", "sum to 1")),
        ({"transition": [[0.9, 0.2], [0.1, 0.9]]}, ("['transition']", "sum to 1 in each row")),
        ({"variance": [[1.0], [0.0]]}, ("['variance'] must be positive",)),
        ({"variance": [[1.0], [-1.0]]}, ("['variance'] must be positive",)),
        ({"effect_covariance": [[0.0]]}, ("['effect_covariance']", "positive definite")),
        ({"effect_covariance": [[-1.0]]}, ("['effect_covariance']", "positive definite")),
    ],
)
def test_bad_parameters(where, given, words):
    with refused(ModelError, where, *words):
        fit(make_frame(), **{where: given})


def test_a_start_with_a_gap():
    """In `fixed=`, NaN is what is free."""
    with refused(ModelError, "init['coef']", "missing or infinite"):
        fit(make_frame(), init={"coef": [[[0.0]], [[np.nan]]]})


@pytest.mark.parametrize("value", [0, [], "", False])
@pytest.mark.parametrize("where", ["init", "fixed"])
def test_parameters_that_are_empty_but_no_dict(where, value):
    with refused(ModelError, where, "a dict with some of initial"):
        fit(make_frame(), **{where: value})


def test_a_matrix_that_is_not_symmetric():
    frame, bad = make_frame(), [[1.0, 0.5], [0.0, 1.0]]
    with refused(ModelError, "init['effect_covariance']", "symmetric"):
        fit(frame, "y + reward ~ 1 + (1 | id)", init={"effect_covariance": bad})
    with refused(ModelError, "init['covariance']", "symmetric"):
        fit(
            frame,
            "y + reward ~ 1 + (1 | id)",
            family=avem.Gaussian("full"),
            init={"covariance": [bad, bad]},
        )


def test_an_init_from_another_model():
    with pytest.warns(avem.AvemWarning):
        other = fit(make_frame(), n_states=1)
    with refused(ModelError, "init is a fit of", "other parameters", "Give a dict"):
        fit(make_frame(), init=other)


def test_an_init_under_which_the_data_are_impossible():
    frame = make_frame()
    never = {**GOOD, "initial": [1.0, 0.0], "transition": [[1.0, 0.0], [0.0, 1.0]]}
    never["coef"], never["variance"] = [[[1e200]], [[0.0]]], [[1e-9], [1.0]]
    with refused(avem.AvemError, "some sequence is impossible", "init=", "fixed="):
        fit(frame, init=never)
