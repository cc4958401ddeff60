"""Names of states: in all that a user sees, and nothing else changes."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import avem
from avem.errors import FileError, ModelError
from tests.chosen import chosen
from tests.fits.kinds import fit_of, ssm_fit

NAMES = {0: "low", 1: "high"}
WORDS = list(NAMES.values())
MODEL = avem.MixedHMM("y ~ 1 + (1 | id)", 2)


@pytest.fixture(scope="module")
def plain():
    return fit_of("moving")  # effects on the transitions


@pytest.fixture(scope="module")
def named(plain):
    plain.standard_errors()  # computed once: other names have the same
    return plain.rename_states(NAMES)


TABLES = {
    "table": lambda fit: fit.table(),
    "effects": lambda fit: fit.effects(),
    "infer_effects": lambda fit: fit.infer_effects(fit.panel.table.query("who == 's1'")),
    "coefficients": lambda fit: fit.coefficients(parameters="fixed"),
    "dwell": lambda fit: fit.dwell(level=None),
    "dwell by subject": lambda fit: fit.dwell("subject", level=None),
    "dwell by length": lambda fit: fit.dwell("length"),
    "occupancy": lambda fit: fit.occupancy(),
    "stationary": lambda fit: fit.stationary(level=None),
    "covariate": lambda fit: fit.covariate("x", points=3, level=None),
    "contrast": lambda fit: fit.contrast(states=True),
    "standard_errors": lambda fit: fit.standard_errors(),
    "predict": lambda fit: fit.predict(horizon=1, future={"x": 0.0}, of="states"),
}


@pytest.mark.parametrize("what", chosen(TABLES, set(TABLES) - {"infer_effects"}))
def test_tables_have_names_where_they_had_numbers(plain, named, what):
    before, after = TABLES[what](plain), TABLES[what](named)
    assert list(before.columns) == list(after.columns)
    for column in before.columns:
        if column in ("state", "to_state", "minus"):
            wanted = [
                None if pd.isna(k) else WORDS[int(str(k).removeprefix("state_"))]
                for k in before[column]
            ]
            assert after[column].tolist() == wanted
        elif column in ("effect", "other"):
            said = dict(zip(plain.model.effect_names, named.model.effect_labels, strict=True))
            assert after[column].tolist() == [said.get(x, x) for x in before[column]]
        else:
            pd.testing.assert_series_equal(before[column], after[column])


def test_rows_have_names(plain, named):
    for method in ("decode", "most_probable_states"):
        wanted = getattr(plain, method)().map(NAMES)
        assert getattr(named, method)().tolist() == wanted.tolist()
    np.testing.assert_array_equal(named.state_probabilities(), plain.state_probabilities())
    assert list(named.state_probabilities().columns) == WORDS
    drawn = plain.simulate(seed=1).states
    assert named.simulate(seed=1).states.tolist() == [NAMES[k] for k in drawn]
    assert plain.state_probabilities().columns.tolist() == ["state_0", "state_1"]
    assert plain.decode().dtype == int


def test_words_have_names(plain, named):
    assert named.state_labels == ("low", "high")
    assert plain.state_labels == ("state 0", "state 1")
    assert plain.state_names == ()
    text = str(named.summary(errors=False))
    assert "low -> high" in text
    assert "high->low: Intercept" in text
    assert "state 0" not in text
    assert "state 1" not in text


@pytest.mark.parametrize("kind", [pl.from_pandas, pa.Table.from_pandas])
def test_names_come_in_the_users_kind_of_frame(named, kind):
    fit = named.with_data(kind(named.panel.table))
    decoded = fit.decode()
    assert set(decoded.to_pylist() if kind is not pl.from_pandas else decoded) <= set(WORDS)
    table = fit.table()
    assert type(table) is type(kind(named.panel.table))
    assert set(table["state"].drop_nulls().to_list() if kind is pl.from_pandas else WORDS) == {
        "low",
        "high",
    }


def test_pictures_take_the_names_that_tables_have(named):
    effect = named.effects()["effect"].iloc[1]
    assert effect == "low->high: Intercept"
    (ax,) = named.plot.effects(effect).axes
    assert ax.get_title() == effect
    assert len(named.plot.covariate("x", level=None).axes) == 2
    named.plot.contrast(states=True)
    named.plot.dwell(level=None)
    named.plot.occupancy()


def test_states_are_chosen_by_name(plain, named):
    one, other = plain.contrast(states=(1, 0)), named.contrast(states=("high", "low"))
    np.testing.assert_array_equal(one["difference"], other["difference"])
    pd.testing.assert_frame_equal(named.contrast(states=(1, 0)), other)
    with pytest.raises(ModelError, match=r"no state 'hihg'.*'low', 'high'"):
        named.contrast(states=("hihg", "low"))


def test_a_subject_column_called_state_keeps_its_labels():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"state": np.repeat([0, 1, 5], 8), "y": rng.normal(size=24)})
    model = avem.MixedHMM("y ~ 1 + (1 | state)", 1, state_names=["only"])
    fit = model.fit(frame, n_starts=1, refine=None)
    assert fit.effects()["state"].tolist() == [0, 1, 5]


def test_a_model_names_the_states_of_its_fits():
    params = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": [[[0.0]], [[4.0]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": [[0.5]],
    }
    model = avem.MixedHMM("y ~ 1 + (1 | id)", 2, state_names=WORDS)
    drawn = model.simulate(params, n_subjects=6, n_times=12, seed=0)
    assert set(drawn.states) == set(WORDS)
    fit = model.fit(drawn.frame, time="time", n_starts=2, refine=None)
    coef = fit.table().query("parameter == 'coef'").set_index("state")["estimate"]
    assert coef["low"] < coef["high"]  # the order of the fit: lowest mean first
    assert (fit.decode() == drawn.states).mean() > 0.9
    again = avem.MixedHMM.from_spec(fit.model.spec).fit(drawn.frame, time="time", init=fit)
    assert again.state_names == ("low", "high")
    assert MODEL.fit(drawn.frame, time="time", init=fit, refine=None).state_names == ()
    assert model.with_states(3).spec.state_names == ()
    assert model.with_states(2).spec.state_names == ("low", "high")


def test_a_warning_has_names():
    frame = pd.DataFrame({"id": np.repeat(np.arange(6), 10), "y": np.tile([0.0, 0, 5, 6, 7], 12)})
    model = avem.MixedHMM("y ~ 1", 2, state_names=["none", "some"])
    with pytest.warns(avem.AvemWarning, match="variance of none, y fell"):
        fit = model.fit(frame, "id", n_starts=1)
    assert any("variance of none, y fell" in note for note in fit.notes)
    assert any("variance of state 0, y fell" in note for note in fit.rename_states(None).notes)
    assert fit.degenerate == ("none: a variance at its floor",)
    assert "variance of none, y fell" in str(fit.summary(errors=False))


def test_names_survive_a_file(named, plain, tmp_path):
    named.save(tmp_path / "named.avem")
    plain.save(tmp_path / "plain.avem")
    assert avem.load(tmp_path / "named.avem").state_names == ("low", "high")
    assert avem.load(tmp_path / "plain.avem").state_names == ()
    assert avem.load(tmp_path / "named.avem").table()["state"].iloc[0] in WORDS


def test_a_file_without_a_word_of_names_loads(plain, tmp_path):
    import json
    import zipfile

    def rewritten(edit, path):
        with zipfile.ZipFile(tmp_path / "new.avem") as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                data = old.read(name)
                if name == "fit.json":
                    found = json.loads(data)
                    edit(found["model"])
                    data = json.dumps(found).encode()
                new.writestr(name, data)
        return path

    plain.save(tmp_path / "new.avem")
    old = rewritten(lambda model: model.pop("state_names"), tmp_path / "old.avem")
    assert avem.load(old).state_names == ()
    bad = rewritten(lambda model: model.update(state_names=["a", "a"]), tmp_path / "bad.avem")
    with pytest.raises(FileError, match="'a' twice"):
        avem.load(bad)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["low"], "1 names.*2 states"),
        (["low", "low"], "'low' twice"),
        (["low", " low"], "'low' twice"),
        (["low", ""], "'' for state 1"),
        (["low", "  "], "text is wanted"),
        (["low", 3], "3 for state 1; text is wanted"),
        (["low", "a\nb"], "in one line"),
        (["1", "0"], "'1' for state 0, which reads like the number of state 1"),
        (["State 1", "x"], "reads like the number of state 1"),
        ("lowhigh", "a list with a name for each"),
        ({0: "low", 2: "high"}, "no state 2; the states are 0 to 1"),
        ({0: "state 1"}, "'state 1' twice"),
        ({"low": "x", 1: "y"}, "no state 'low'"),
        ({True: "low", 0: "y"}, "no state True"),
    ],
)
def test_names_that_cannot_be(plain, names, message):
    with pytest.raises(ModelError, match=message):
        plain.rename_states(names)
    if not isinstance(names, dict):
        with pytest.raises(ModelError, match=message):
            avem.MixedHMM("y ~ 1", 2, state_names=names)


def test_a_state_may_have_its_own_number_as_name(plain):
    assert plain.rename_states(["0", "state 1"]).state_names == ("0", "state 1")
    assert plain.rename_states(["2", "10"]).state_names == ("2", "10")


def test_states_without_names_go_by_what_tables_call_them(plain):
    by_label = dict(zip(plain.state_labels, WORDS, strict=True))
    assert plain.rename_states(by_label).state_names == tuple(WORDS)
    found = plain.contrast(states=("state 1", "state 0"))
    pd.testing.assert_frame_equal(found, plain.contrast(states=(1, 0)))


def test_one_state_can_be_named_alone(plain):
    half = plain.rename_states({1: "high"})
    assert half.state_names == half.state_labels == ("state 0", "high")
    assert set(half.decode()) == {"state 0", "high"}
    assert half.table()["state"].dropna().unique().tolist() == ["state 0", "high"]
    assert half.rename_states({"state 0": "low"}).state_names == tuple(WORDS)
    assert half.rename_states({}).state_names == half.state_names
    assert plain.rename_states({}).state_names == ()


def test_some_names_can_be_changed(named):
    assert named.rename_states({"low": "calm"}).state_names == ("calm", "high")
    assert named.rename_states({"low": "high", "high": "low"}).state_names == ("high", "low")
    with pytest.raises(ModelError, match="names state 0 twice"):
        named.rename_states({"low": "a", 0: "b"})
    with pytest.raises(ModelError, match="'high' twice"):
        named.rename_states({"low": "high"})


def test_nothing_is_computed_again(plain):
    plain.loglik()
    named = plain.rename_states(NAMES)
    assert named._marginal is plain._marginal
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert named.loglik() == plain.loglik()


def test_latent_states_have_names(tmp_path):
    fit = ssm_fit()
    n = fit.model.n_latent
    names = [f"factor {'abc'[k]}" for k in range(n)]
    named = fit.rename_states(names)
    columns = [column for column in named.states().columns if not column.endswith(("sd", "er"))]
    assert columns == names
    np.testing.assert_array_equal(named.states(), fit.states())
    assert set(named.table()["state"].dropna()) == set(names)
    assert "state 0" not in str(named.summary(errors=False))
    effects = named.effects()["effect"].unique().tolist()
    assert effects[0] == fit.model.effect_names[0].replace("0", names[0]).replace("1", names[-1])
    table = named.table()
    assert set(table.loc[table["parameter"] == "initial_covariance", "other"]) == set(names)
    named.save(tmp_path / "latent.avem")
    assert avem.load(tmp_path / "latent.avem").state_names == tuple(names)
    model = avem.MixedSSM(["a", "b"], 2, subject="id", state_names=["x", "y"])
    assert model.spec.state_names == ("x", "y")
