"""What no fit can have, or no file of a fit, is refused by name; what fits can have is loaded."""

import json
import stat
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from avem.errors import FileError
from avem.fits.io.saving import load, save
from tests.fits.kinds import fit_of, ssm_fit
from tests.fits.test_saving import assert_same, members_of, npy, write_members
from tests.fits.test_saving_bounded import header


def saved(fit, path):
    save(fit, path)
    return path


def with_param(kind, name, change):
    fit = ssm_fit() if kind == "ssm" else fit_of(kind)
    return replace(fit, params=fit.params | {name: change(fit.params[name].copy())})


def entry(value, *place):
    def change(array):
        array[place] = value
        return array

    return change


IMPOSSIBLE = [
    ("gaussian", "coef", entry(np.nan, 0, 0, 0), "coef.npy.*not finite"),
    ("gaussian", "coef", entry(np.inf, 0, 0, 0), "coef.npy.*not finite"),
    ("gaussian", "coef", entry(1e300, 0, 0, 0), r"'coef' cannot be .*reaches 1e\+300"),
    ("gaussian", "initial", entry(0.9, 0), "'initial' .*do not add up to 1"),
    ("gaussian", "transition", entry(0.9, 0, 0), "'transition' .*do not add up to 1"),
    ("gaussian", "transition", lambda a: a + np.array([1, -1]), "probability below 0"),
    ("gaussian", "covariance", entry(-1.0, 0, 0, 0), "'covariance' .*variance -1"),
    ("gaussian", "covariance", entry(0.0, 0, 0, 0), "'covariance' .*variance 0"),
    ("gaussian", "covariance", lambda a: a + 3 - 3 * np.eye(2), "not positive definite"),
    ("gaussian", "covariance", entry(0.1, 0, 0, 1), "'covariance' .*not symmetric"),
    ("gaussian", "effect_covariance", entry(-0.1, 0, 0), "'effect_covariance' .*variance -0.1"),
    ("gaussian", "effect_covariance", lambda a: a + 9 - 9 * np.eye(4), "not positive definite"),
    ("moving", "variance", entry(-1.0, 0, 0), "'variance' .*has -1, and has to be positive"),
    ("moving", "variance", entry(0.0, 0, 0), "'variance' .*positive"),
    ("zeros", "zero", entry(1.5, 0, 0), "'zero' .*range of its link, logit"),
    ("zeros", "shape", entry(-2.0, 0, 0), "'shape' .*range of its link, log"),
    ("gaussian", "coef", lambda a: a[:, :1], "shape"),
    ("movement", "step.coef", entry(1e75, 0, 0, 0), "'step' would be inf on average"),
    ("ssm", "noise", entry(-1.0, 0), "'noise' .*positive"),
    ("ssm", "transition_mean", entry(1e200, 0, 0), "'transition_mean' .*1e\\+200"),
    ("ssm", "transition_covariance", entry(-1.0, 0, 0), "'transition_covariance' .*variance -1"),
]


@pytest.mark.parametrize(("kind", "name", "change", "match"), IMPOSSIBLE)
def test_parameters_that_no_fit_has_are_refused(tmp_path, kind, name, change, match):
    path = saved(with_param(kind, name, change), tmp_path / "fit.avem")
    with pytest.raises(FileError, match=match):
        load(path)


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("effects_mean", entry(1e200, 0, 0), r"effects_mean reaches 1e\+200"),
        ("effects_cov", entry(-0.5, 3, 0, 0), "effects_cov .*variance -0.5"),
        ("effects_cov", entry(0.5, 7, 0, 1), "effects_cov .*not symmetric"),
        ("effects_cov", lambda a: a + 9 - 9 * np.eye(4), "effects_cov .*positive definite"),
    ],
)
def test_effects_that_no_subject_has_are_refused(tmp_path, name, change, match):
    fit = fit_of("gaussian")
    odd = replace(fit, **{name: change(getattr(fit, name).copy())})
    with pytest.raises(FileError, match=match):
        load(saved(odd, tmp_path / "fit.avem"))


def test_parameters_at_their_limits_are_loaded(tmp_path):
    fits = [
        with_param("zeros", "zero", lambda a: np.array([[0.0], [1.0]])),
        with_param("gaussian", "initial", lambda a: np.array([0.0, 1.0])),
        with_param("gaussian", "initial", lambda a: np.array([1e-300, 1.0])),
        with_param("gaussian", "effect_covariance", lambda a: np.full((4, 4), 0.3)),
        with_param("gaussian", "effect_covariance", lambda a: a * 1e-200),
        with_param("gaussian", "coef", lambda a: a * 1e150),
        replace(fit_of("gaussian"), effects_cov=np.zeros((8, 4, 4))),
        with_param("gaussian", "coef", np.asfortranarray),
    ]
    for fit in fits:
        assert_same(fit, load(saved(fit, tmp_path / "fit.avem")))


def test_what_is_loaded_can_be_written_to(tmp_path):
    loaded = load(saved(fit_of("gaussian"), tmp_path / "fit.avem"))
    assert all(array.flags.writeable for array in loaded.params.values())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"n_rows": -5}, "n_rows = -5"),
        ({"n_rows": 3}, "3 rows in 8 sequences"),
        ({"n_sequences": 2}, "2 sequences, but it has 8 subjects"),
        ({"n_observed": 10**200}, "n_observed = '1000"),
        ({"seed": True}, "seed"),
    ],
)
def test_counts_that_disagree_are_refused(tmp_path, change, match):
    path = saved(fit_of("gaussian"), tmp_path / "fit.avem")
    members = members_of(path)
    record = json.loads(members["fit.json"])
    record["info"] |= change
    write_members(path, members | {"fit.json": json.dumps(record)})
    with pytest.raises(FileError, match=match):
        load(path)


# --- members ------------------------------------------------------------------------------------

COEF = "params/coef.npy"
SIX = bytes(8 * 2 * 2 * 2)
ARRAYS = [
    (header("|O", (2, 2, 2)) + SIX, "no .npy array"),
    (header("<f8", (2, 2, 2)) + SIX[:-1], "damaged: it has 191 bytes, and its header says 192"),
    (header("<f8", (2, 2, 2)) + SIX + b"x", "damaged: it has 193 bytes"),
    (header("<f8", (2, 2, 10**15)) + SIX, "shape"),
    (header("<f8", (-2, 2, 2)) + SIX, "no .npy array"),
    (header("<f8", "x" * 30) + SIX, "no .npy array"),
    (header([("a", "<f8")], (2, 2, 2)) + SIX, "no .npy array"),
    (header(("<f8", (9,)), (2, 2, 2)) + SIX, "no .npy array"),
    (header("<f3", (2, 2, 2)) + SIX, "unknown dtype"),
    (header("<f0", (2, 2, 2)) + SIX, "unknown dtype|no size"),
    (header(">f8", (2, 2, 2)) + SIX, "float64"),
    (header("<U0", (2, 2, 2)), "wanted"),
    (b"\x93NUMPY\x02\x00" + header("<f8", (2, 2, 2))[8:] + SIX, "version 1.0"),
    (b"\x93NUMPY\x01\x00\xff\xff" + header("<f8", (2, 2, 2))[10:] + SIX, "version 1.0"),
    (b"", "version 1.0"),
]


@pytest.mark.parametrize(("content", "match"), ARRAYS)
def test_arrays_are_what_their_headers_say(tmp_path, content, match):
    path = saved(fit_of("gaussian"), tmp_path / "fit.avem")
    write_members(path, members_of(path) | {COEF: content})
    with pytest.raises(FileError, match=match):
        load(path)


LABELS = [
    (npy(np.array([1.0, np.nan, 3, 4, 5, 6, 7, 8])), "no label"),
    (npy(np.array(["NaT"] * 8, "M8[s]")), "no label"),
    (npy(np.zeros(8)), "same label"),
    (header("|b1", (8,)) + bytes(range(8)), "damaged"),
    (header("<U1", (8,)) + struct.pack("<8L", *range(0x110000, 0x110008)), "damaged"),
    (header(">U1", (8,)) + struct.pack(">8L", *range(0x110000, 0x110008)), "damaged"),
    (header("|V8", (8,)) + bytes(64), "no .npy array"),
]


@pytest.mark.parametrize(("content", "match"), LABELS)
def test_labels_that_no_subjects_have(tmp_path, content, match):
    path = saved(fit_of("gaussian"), tmp_path / "fit.avem")
    members = members_of(path)
    record = json.loads(members["fit.json"]) | {"subjects": None}
    write_members(path, members | {"fit.json": json.dumps(record), "subjects.npy": content})
    with pytest.raises(FileError, match=match):
        load(path)


@pytest.mark.parametrize("zone", ["dateutil//etc/localtime", "../../etc/passwd", "/etc/localtime"])
def test_a_time_zone_opens_no_file(tmp_path, zone):
    path = saved(fit_of("gaussian"), tmp_path / "fit.avem")
    members = members_of(path)
    moments = [["Timestamp", [f"2024-01-0{i + 1}T00:00:00+00:00", "s", zone]] for i in range(8)]
    record = json.loads(members["fit.json"]) | {"subjects": moments}
    write_members(path, members | {"fit.json": json.dumps(record)})
    with pytest.raises(FileError):
        load(path)


def test_members_that_are_no_plain_files_are_refused(tmp_path):
    path = saved(fit_of("gaussian"), tmp_path / "fit.avem")
    members = members_of(path)

    def written(**attributes):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                info = zipfile.ZipInfo(name)
                for key, value in attributes.items() if name == COEF else ():
                    setattr(info, key, value)
                archive.writestr(info, content)

    written(external_attr=(stat.S_IFLNK | 0o777) << 16)
    with pytest.raises(FileError, match="no plain file"):
        load(path)
    written()
    content = path.read_bytes()
    for flags, match in ((1, "encrypted"), (0x40, "no plain file"), (0x20, "no plain file")):
        marked = bytearray(content)
        with zipfile.ZipFile(path) as archive:
            start = archive.start_dir
        while (start := content.find(b"PK\1\2", start)) >= 0:
            marked[start + 8] |= flags
            start += 1
        (tmp_path / "odd").write_bytes(marked)
        with pytest.raises(FileError, match=match):
            load(tmp_path / "odd")


def test_a_message_quotes_no_more_than_one_can_read(tmp_path):
    path = saved(fit_of("gaussian"), tmp_path / "fit.avem")
    members = members_of(path)
    columns = {"subject": "x" * 100_000, "time": None, "sequence": None}
    record = json.loads(members["fit.json"]) | {"columns": columns}
    write_members(path, members | {"fit.json": json.dumps(record)})
    with pytest.raises(FileError, match="groups by 'who'") as caught:
        load(path)
    assert len(str(caught.value)) < 3000


def test_the_unit_of_a_constant_is_one(tmp_path):
    path = saved(fit_of("gaussian"), tmp_path / "fit.avem")
    members = members_of(path)
    record = json.loads(members["fit.json"])
    constant = record["model"]["scaling"]["constant"]
    record["model"]["scaling"]["column_centre"][constant] = 1.0
    write_members(path, members | {"fit.json": json.dumps(record).encode()})
    with pytest.raises(FileError, match="its scaling does not belong"):
        load(path)
