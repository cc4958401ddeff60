"""Saved fits: the round trip is exact, and no file, however damaged or hostile, does harm."""

import datetime as dt
import io
import json
import os
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import avem
from avem.components.scaling import Scaling
from avem.errors import FileError
from avem.fits.io.saving import VERSION, load, save
from avem.models.hmm import HMMModel

FORMULA = "y1 + y2 ~ scale(x) + kind + (1 | who)"


def make_data(n_subjects=6, n_times=25):
    rng = np.random.default_rng(1)
    n = n_subjects * n_times
    who = np.repeat([f"s{i}" for i in range(n_subjects)], n_times)
    state = np.repeat(rng.random(n // 5) < 0.5, 5)
    level = np.repeat(rng.normal(size=n_subjects), n_times) + 4 * state
    frame = pd.DataFrame(
        {
            "who": who,
            "t": np.tile(np.arange(n_times), n_subjects),
            "x": rng.normal(3, 2, n),
            "kind": rng.choice(["a", "b"], n),
            "y1": level + rng.normal(size=n),
            "y2": rng.normal(size=n) - level,
        }
    )
    return frame.mask(rng.random(frame.shape) < [0, 0, 0, 0, 0.05, 0.05])


@pytest.fixture(scope="module")
def data():
    return make_data()


@pytest.fixture(scope="module")
def fit(data):
    return avem.MixedHMM(FORMULA, n_states=2).fit(data, time="t", n_starts=1)


@pytest.fixture
def saved(fit, tmp_path):
    save(fit, tmp_path / "fit.avem")
    return tmp_path / "fit.avem"


def assert_same(one, other):
    """Every field is equal to the last bit, in type too; only the data are left behind."""
    assert other.panel is None
    assert one.params.keys() == other.params.keys()
    for name, value in one.params.items():
        np.testing.assert_array_equal(other.params[name], value, strict=True)
    arrays = ("effects_mean", "effects_cov", "bound_history", "loglik_history", "subjects")
    for name in arrays:
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name), strict=True)
    kinds = [type(label) for label in one.subjects]
    assert [type(label) for label in other.subjects] == kinds
    for name in ("bound", "n_iter", "stop", "info"):
        assert getattr(other, name) == getattr(one, name)
    assert dict(other.columns) == dict(one.columns)
    assert_same_model(one.model, other.model)


def assert_same_model(one, other):
    for name in ("n_states", "transition", "initial", "effect_covariance"):
        assert getattr(other.spec, name) == getattr(one.spec, name)
    for a, b in zip(one.spec.outcomes, other.spec.outcomes, strict=True):
        assert vars(a) == vars(b)
    assert other.families == one.families
    for a, b in zip(one.designs.parts, other.designs.parts, strict=True):
        assert (a.state, a.terms, a.effect_terms) == (b.state, b.terms, b.effect_terms)
    assert other.structure == one.structure
    assert other.scaling.to_json() == one.scaling.to_json()
    np.testing.assert_array_equal(other.averages, one.averages, strict=True)


def test_round_trip_is_exact(fit, saved, data):
    loaded = load(saved)
    assert_same(fit, loaded)
    assert str(loaded.summary(errors=False)) == str(fit.summary(errors=False))
    pd.testing.assert_frame_equal(loaded.table(), fit.table(), check_exact=True)
    pd.testing.assert_frame_equal(loaded.effects(), fit.effects(), check_exact=True)
    pd.testing.assert_series_equal(loaded.decode(data), fit.decode())
    pd.testing.assert_frame_equal(
        loaded.state_probabilities(data), fit.state_probabilities(), check_exact=True
    )
    one, other = (f.simulate(data, seed=3).frame for f in (fit, loaded))
    pd.testing.assert_frame_equal(one, other, check_exact=True)
    with pytest.raises(avem.DataError, match="holds no data"):
        loaded.decode()


def test_new_subjects_get_the_same_states(fit, saved, data):
    new = data.assign(who=data["who"].replace("s0", "nobody"))
    pd.testing.assert_series_equal(load(saved).decode(new), fit.decode(new))


def test_a_saved_file_can_be_saved_again_to_the_same_bytes(saved, tmp_path):
    save(load(saved), tmp_path / "again.avem")
    assert (tmp_path / "again.avem").read_bytes() == saved.read_bytes()


def test_a_fit_without_effects_that_did_not_converge(fit, tmp_path):
    spec = avem.MixedHMM("y1 ~ 1", 1, avem.Gaussian("full"), effect_covariance="isotropic").spec
    units = {"centre": [1 / 3], "scale": [0.1], "constant": 0}
    units |= {"column_centre": [0.0], "column_scale": [1.0]}
    model = replace(HMMModel.learn(spec, fit.panel), scaling=Scaling.from_json(units))
    params = {
        "initial": np.ones(1),
        "transition": np.ones((1, 1)),
        "coef": np.full((1, 1, 1), 0.1),
        "covariance": np.full((1, 1, 1), 0.2),
        "effect_covariance": np.zeros((0, 0)),
    }
    plain = replace(
        fit,
        model=model,
        params=params,
        effects_mean=np.zeros((6, 0)),
        effects_cov=np.zeros((6, 0, 0)),
        stop=avem.Stop.BOUND_FELL,
        bound_history=np.array([np.nan, -np.inf]),
        loglik_history=np.array([-0.0, np.inf]),
        n_iter=2,
        bound=-np.inf,
        columns={"subject": "who", "time": None, "sequence": "day"},
    )
    plain.save(str(tmp_path / "plain"))
    assert_same(plain, load(str(tmp_path / "plain")))


DAY = dt.date(2024, 2, 29)
LABELS = {
    "int64": np.arange(6),
    "int8": np.arange(6, dtype=np.int8),
    "uint64": np.arange(6, dtype=np.uint64) + (1 << 63),
    "float": np.array([0.1, 1 / 3, 1e300, -2.0, 5e-324, 0.0]),
    "datetime": np.arange("2024-02-28", "2024-03-05", dtype="datetime64[D]").astype("M8[us]"),
    "timedelta": np.arange(6).astype("m8[s]"),
    "str": np.array(["ä", "0", "", "a b", "\U0001f426", "nan"], dtype=object),
    "object": np.array([1, 2.5, "1", 1 << 80, DAY, dt.datetime(2024, 1, 1, 9)], dtype=object),
    "timestamp": np.array(
        [
            *pd.date_range("2024-03-30", periods=3, freq="12h", tz="Europe/Berlin", unit="us"),
            *pd.date_range("2024-03-30", periods=3, freq="7ns", tz="UTC"),
        ],
        dtype=object,
    ),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_labels_keep_their_type(fit, tmp_path, labels):
    relabelled = replace(fit, subjects=labels)
    save(relabelled, tmp_path / "fit.avem")
    assert_same(relabelled, load(tmp_path / "fit.avem"))


def test_bool_labels_keep_their_type(fit, tmp_path):
    two = replace(
        fit,
        subjects=np.array([True, False]),
        effects_mean=fit.effects_mean[:2],
        effects_cov=fit.effects_cov[:2],
    )
    save(two, tmp_path / "fit.avem")
    assert_same(two, load(tmp_path / "fit.avem"))


def test_labels_that_cannot_be_saved_are_refused(fit, tmp_path):
    labels = np.empty(6, dtype=object)
    labels[:] = [(i, i) for i in range(6)]
    with pytest.raises(FileError, match=r"\(0, 0\) is a tuple"):
        save(replace(fit, subjects=labels), tmp_path / "fit.avem")
    assert list(tmp_path.iterdir()) == []


# --- where to save --------------------------------------------------------------------------------


def test_a_missing_folder_is_named(fit, tmp_path):
    with pytest.raises(FileError, match=r"no folder .*nowhere"):
        save(fit, tmp_path / "nowhere" / "fit.avem")
    with pytest.raises(FileError, match="is a folder"):
        save(fit, tmp_path)


def test_a_crash_leaves_the_old_file(fit, saved, monkeypatch):
    before = saved.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FileError, match="No space left"):
        save(fit, saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


# --- files that are not what avem wrote -----------------------------------------------------------


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def npy(array, allow_pickle=False):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=allow_pickle)
    return stream.getvalue()


def test_rewritten_members_still_load(fit, saved):
    """What the tests below change is what makes them fail, not the rewriting."""
    write_members(saved, members_of(saved))
    assert_same(fit, load(saved))


def test_a_missing_file(tmp_path):
    with pytest.raises(FileError, match=r"no file .*absent"):
        load(tmp_path / "absent.avem")
    with pytest.raises(FileError, match="Cannot read"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "is empty"),
        (b"who,t,y\n1,2,3\n", "not a saved fit"),
        (b"\x80\x04\x95", "not a saved fit"),
        (b"PK\x03\x04 and then nothing", "damaged"),
    ],
)
def test_a_foreign_file(tmp_path, content, match):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(FileError, match=match):
        load(tmp_path / "f")


def test_a_foreign_zip(tmp_path):
    write_members(tmp_path / "f", {"word/document.xml": b"<x/>"})
    with pytest.raises(FileError, match=r"of word/document.xml\) without fit.json"):
        load(tmp_path / "f")
    write_members(tmp_path / "f", {"fit.json": b'{"format": "something else"}'})
    with pytest.raises(FileError, match="does not say"):
        load(tmp_path / "f")
    write_members(tmp_path / "f", {"fit.json": b"[" * 100_000})
    with pytest.raises(FileError, match="damaged"):
        load(tmp_path / "f")


def test_a_truncated_file(saved):
    content = saved.read_bytes()
    for size in np.linspace(1, len(content) - 1, 60).astype(int):
        saved.write_bytes(content[:size])
        with pytest.raises(FileError):
            load(saved)


def test_a_flipped_byte_is_found_or_harmless(fit, saved):
    content = saved.read_bytes()
    refused = 0
    for place in np.random.default_rng(0).choice(len(content), 250, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        saved.write_bytes(damaged)
        try:
            loaded = load(saved)
        except FileError:
            refused += 1
        else:  # in a date or an attribute of the zip, which nobody reads
            assert_same(fit, loaded)
    assert refused > 200


@pytest.mark.parametrize(
    "name", ["params/coef.npy", "effects_cov.npy", "bound_history.npy", "params/variance.npy"]
)
def test_missing_and_misshapen_members(saved, name):
    members = members_of(saved)
    write_members(saved, {k: v for k, v in members.items() if k != name})
    with pytest.raises(FileError, match=f"{name}' is missing"):
        load(saved)
    good = np.load(io.BytesIO(members[name]))
    for bad in (good[:-1], good[..., None], good.astype(np.int64)):
        write_members(saved, members | {name: npy(bad)})
        with pytest.raises(FileError, match=r"is wanted|bytes"):
            load(saved)
    write_members(saved, members | {name: members[name][:-8]})
    with pytest.raises(FileError, match="damaged"):
        load(saved)
    write_members(saved, members | {name: npy(good.astype(np.float32))})
    with pytest.raises(FileError, match="float64"):
        load(saved)


def test_numbers_that_are_not_finite(saved):
    members = members_of(saved)
    write_members(saved, members | {"params/initial.npy": npy(np.array([np.nan, 1.0]))})
    with pytest.raises(FileError, match="not finite"):
        load(saved)


CHANGES = [
    ({"version": VERSION + 1, "avem": "9.9"}, r"written by avem 9\.9.*Update avem"),
    ({"version": VERSION - 1, "avem": "0.0"}, r"written by avem 0\.0.*Fit the model again"),
    ({"version": "1"}, "format version is '1'"),
    ({"version": True}, "format version is True"),
    ({"n_subjects": 7}, "7 subjects"),
    ({"n_subjects": 0}, "no subjects"),
    ({"n_iter": -1}, "negative number of iterations"),
    ({"stop": "NEVER"}, "NEVER"),
    ({"bound": "high"}, "bound"),
    ({"subjects": [["str", "a"]] * 6}, "same label"),
    ({"subjects": [["tuple", [1, 2]]] * 6}, "unknown kind"),
    ({"subjects": [["int", "1"]] * 6}, "unknown kind"),
    ({"subjects": [["eval", "exit()"]] * 6}, "unknown kind"),
    ({"subjects": [5] * 6}, "damaged"),
    ({"subjects": None}, "subjects.npy"),
    ({"columns": {"subject": 1, "time": None, "sequence": None}}, "subject"),
    ({"columns": {"subject": "x", "time": None, "sequence": None}}, "groups by 'who'"),
    ({"columns": {}}, "lacks 'subject'"),
    ({"info": {}}, "lacks 'method'"),
    ({"model": {}}, "model lacks 'n_states'"),
    ({"model": []}, "model"),
]


@pytest.mark.parametrize(("change", "match"), CHANGES)
def test_wrong_values_in_the_json(saved, change, match):
    members = members_of(saved)
    changed = json.dumps(json.loads(members["fit.json"]) | change)
    write_members(saved, members | {"fit.json": changed})
    with pytest.raises(FileError, match=match):
        load(saved)


MODEL_CHANGES = [
    ({"n_states": 10**9}, "more than avem saves"),
    ({"n_states": 0}, "no states"),
    ({"n_states": True}, "n_states"),
    ({"n_states": None}, "n_states"),
    ({"effect_covariance": "odd"}, "odd"),
    ({"outcomes": []}, "no outcomes"),
    ({"outcomes": [5]}, "damaged"),
    ({"transition": "y1 ~ 1"}, "has an outcome"),
    ({"initial": "~ 1 + offset(t)"}, "first state has an offset"),
    ({"initial": 1}, "initial"),
    ({"transition": "~ 1 + (1 | x)"}, "groups by 'x'"),
    ({"learned": []}, "0 designs for 4 formulas"),
    ({"learned": [{}] * 4}, "saved design"),
    ({"scaling": {"centre": [0], "scale": [1], "column_scale": [1], "constant": 0}}, "scaling"),
    ({"averages": [1.0]}, "scaling does not belong"),
    ({"averages": [float("nan")] * 3}, "scaling does not belong"),
]
KEPT = ("functions", "params", "effects", "values")
OUTCOME_CHANGES = [
    ({"family": {"name": "banana"}}, "family is 'banana'; this avem knows gaussian, bernoulli"),
    ({"family": {"name": "custom"}}, "family lacks 'functions'"),
    (
        {"family": {"name": "custom"} | {key: ["a"] for key in KEPT}},
        "family is damaged: a log probability is no number",
    ),
    (
        {"family": {"name": "custom"} | {key: ["os:system"] for key in KEPT} | {"values": []}},
        r"outcome 'y1\+y2' has a custom family, made of your functions os:system",
    ),
    ({"family": {"name": "__class__"}}, "family is '__class__'"),
    ({"family": {"name": "gaussian", "covariance": "banded"}}, "banded"),
    ({"family": {"name": "gaussian", "covariance": "full"}}, "covariance.npy' is missing"),
    ({"family": {"name": "binomial"}}, "lacks 'trials'"),
    ({"family": {"name": "binomial", "trials": True}}, "trials = 'True'"),
    ({"family": {"name": "bernoulli", "levels": []}, "levels": [[0, 1], [0, 1, 2]]}, "the levels"),
    ({"family": {"name": "bernoulli", "levels": []}, "levels": [None, None]}, "levels"),
    ({"family": {"name": "categorical"}, "levels": [["a", "a"], ["b", "c"]]}, "the levels"),
    ({"family": {"name": "categorical"}, "levels": [["a", [1]], ["b", "c"]]}, "levels"),
    ({"levels": []}, "damaged"),
    ({"formula": "y1 + y2"}, "tildes"),
    ({"formula": "~ 1"}, "no outcome"),
    ({"parameters": {"rate": "~ 1"}}, "'rate' is no parameter"),
    ({"parameters": {"formula": "~ 1"}}, "damaged"),
    ({"effects_by_state": 1}, "effects_by_state"),
]


@pytest.mark.parametrize(("change", "match"), MODEL_CHANGES)
def test_wrong_values_in_the_model(saved, change, match):
    members = members_of(saved)
    record = json.loads(members["fit.json"])
    record["model"] |= change
    write_members(saved, members | {"fit.json": json.dumps(record)})
    with pytest.raises(FileError, match=match):
        load(saved)


@pytest.mark.parametrize(("change", "match"), OUTCOME_CHANGES)
def test_wrong_values_in_an_outcome(saved, change, match):
    members = members_of(saved)
    record = json.loads(members["fit.json"])
    record["model"]["outcomes"][0] |= change
    write_members(saved, members | {"fit.json": json.dumps(record)})
    with pytest.raises(FileError, match=match):
        load(saved)


@pytest.mark.parametrize(
    ("name", "value"),
    [("scale", 0.0), ("scale", float("nan")), ("constant", 99), ("column_scale", -1.0)],
)
def test_wrong_units(saved, name, value):
    members = members_of(saved)
    record = json.loads(members["fit.json"])
    units = record["model"]["scaling"]
    units[name] = [value] * len(units[name]) if isinstance(units[name], list) else value
    write_members(saved, members | {"fit.json": json.dumps(record)})
    with pytest.raises(FileError, match="scaling does not belong"):
        load(saved)


# --- files that mean harm -------------------------------------------------------------------------


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize(
    "formula",
    [
        "y1 + y2 ~ open('{path}', 'w') + (1 | who)",
        "y1 + y2 ~ I(__import__('os').system('touch {path}')) + (1 | who)",
        "y1 + y2 ~ `open('{path}', 'w')` + (1 | who)",
        "y1 + y2 ~ {{open('{path}', 'w')}} + (1 | who)",
    ],
)
def test_a_hostile_formula_is_not_run(saved, tmp_path, formula):
    target = tmp_path / "harm"
    members = members_of(saved)
    record = json.loads(members["fit.json"])
    record["model"]["outcomes"][0]["formula"] = formula.format(path=target)
    write_members(saved, members | {"fit.json": json.dumps(record)})
    with pytest.raises(FileError):
        load(saved)
    assert not target.exists()


@pytest.mark.parametrize("name", ["params/coef.npy", "subjects.npy"])
def test_a_pickle_is_not_opened(saved, tmp_path, name):
    target = tmp_path / "harm"
    members = members_of(saved)
    record = json.loads(members["fit.json"]) | ({"subjects": None} if "subjects" in name else {})
    bomb = np.array([Bomb(target)] * 6, dtype=object)
    hostile = {"fit.json": json.dumps(record), name: npy(bomb, allow_pickle=True)}
    write_members(saved, members | hostile)
    with pytest.raises(FileError, match="wanted"):
        load(saved)
    assert not target.exists()


def test_a_zip_bomb_is_refused_unread(saved):
    members = members_of(saved)
    write_members(saved, members | {"effects_mean.npy": bytes(50_000_000)})
    assert saved.stat().st_size < 100_000
    with pytest.raises(FileError, match="50,000,000 bytes; at most"):
        load(saved)


def test_a_shape_that_needs_much_memory_is_refused(saved):
    members = members_of(saved)
    record = json.loads(members["fit.json"])
    for n_states in (900, 10**6):
        record["model"]["n_states"] = n_states
        write_members(saved, members | {"fit.json": json.dumps(record)})
        with pytest.raises(FileError, match=r"wanted|more than"):
            load(saved)


def test_unused_compression_and_doubled_members_are_refused(saved):
    members = members_of(saved)
    write_members(saved, members, zipfile.ZIP_BZIP2)
    with pytest.raises(FileError, match="compressed in a way"):
        load(saved)
    write_members(saved, members)
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(saved, "a") as archive,
    ):
        archive.writestr("fit.json", members["fit.json"])
    with pytest.raises(FileError, match="there twice"):
        load(saved)
