"""A stranger's file is refused in a moment, and in little memory, before anything is built."""

import io
import json
import re
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from avem.fits.io.saving import load, save
from tests.chosen import chosen
from tests.fits.kinds import fit_of
from tests.fits.test_saving import members_of, write_members

linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="counts as Linux does"
)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The file of a fit, and its members."""
    path = tmp_path_factory.mktemp("good") / "choice"
    save(fit_of("choice"), path)
    return {"path": path, "choice": members_of(path)}


def of_many(members, n, **changes):
    """The members with a record of n subjects."""
    info = json.loads(members["fit.json"])["info"] | {"n_rows": n, "n_sequences": n}
    return changed(members, n_subjects=n, info=info, **changes)


def changed(members, **changes):
    """The members with another record; `model` is changed key by key."""
    record = json.loads(members["fit.json"])
    record["model"] |= changes.pop("model", {})
    return members | {"fit.json": json.dumps(record | changes)}


def lying(members, name, n, says):
    """A zip in which one member unpacks to n zeros while its two headers speak of fewer bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for other, content in members.items():
            if other != name:
                archive.writestr(other, content)
        with archive.open(name, "w") as file:
            for _ in range(n // 1_000_000):
                file.write(bytes(1_000_000))
    return stream.getvalue().replace(struct.pack("<L", n), struct.pack("<L", says))


def alike(members, n, labels):
    """The members of a fit of n subjects that are all alike, their labels in an array."""
    record = json.loads(members["fit.json"])["model"]
    item = record["outcomes"][0]
    item["formula"] = item["formula"].replace(" + (1 | who)", "")
    return of_many(members, n, subjects=None, model=record) | {
        "effects_mean.npy": header("<f8", (n, 0)),
        "effects_cov.npy": header("<f8", (n, 0, 0)),
        "params/effect_covariance.npy": header("<f8", (0, 0)),
        "subjects.npy": labels,
    }


def header(descr, shape, fortran=False):
    text = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
    text += " " * (117 - len(text)) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def _formula(members, formula, levels=()):
    """Another formula of the outcome, with the same levels for some of its covariates."""
    record = json.loads(members["fit.json"])["model"]
    item, learned = record["outcomes"][0], record["learned"]
    own = {"levels": {name: levels for name in "ghkl" if name in formula}, "moments": {}}
    return {"outcomes": [item | {"formula": formula}], "learned": [own, *learned[1:]]}


def _many_formulas(members, n):
    record = json.loads(members["fit.json"])["model"]
    item, (own, *rest) = record["outcomes"][0], record["learned"]
    items = [item | {"formula": item["formula"].replace("choice", f"c{i}")} for i in range(n)]
    return {"outcomes": items, "learned": [own] * n + rest}


LEVELS = [f"level {i}" for i in range(30)]
TEXT = "x" * 1_000_000
BOMBS = {
    "empty strings": lambda m: (
        alike(m, 10**8, header("<U0", (10**8,))),
        "subjects.npy' is damaged",
    ),
    "equal strings": lambda m: (
        alike(m, 10**7, header("<U1", (10**7,)) + bytes(4 * 10**7)),
        "labels would take",
    ),
    "equal numbers": lambda m: (
        alike(m, 8 * 10**6, header("<i8", (8 * 10**6,)) + bytes(64 * 10**6)),
        "labels would take",
    ),
    "covariances": lambda m: (
        of_many(m, 4 * 10**6)
        | {
            "effects_mean.npy": header("<f8", (4 * 10**6, 1)) + bytes(32 * 10**6),
            "effects_cov.npy": header("<f8", (4 * 10**6, 1, 1)) + bytes(32 * 10**6),
        },
        "8 labels for 4000000 subjects",
    ),
    "empty objects": lambda m: (m | {"fit.json": b"[" + b"{}," * 80_000_000 + b"{}]"}, "at most"),
    "fewer objects": lambda m: (m | {"fit.json": b"[" + b"{}," * 15_000_000 + b"{}]"}, "memory"),
    "nested objects": lambda m: (m | {"fit.json": b'{"a":' * 10_000_000}, "memory"),
    "short lists": lambda m: (m | {"fit.json": b"[" + b"[1]," * 10_000_000 + b"1]"}, "memory"),
    "numbers": lambda m: (m | {"fit.json": b"[" + b"1.5," * 15_000_000 + b"1]"}, "memory"),
    "deep": lambda m: (m | {"fit.json": b"[" * 50_000 + b"]" * 50_000}, "nested too deeply"),
    "not so deep": lambda m: (changed(m, info=json.loads("[" * 90 + "]" * 90)), "nested"),
    "wide text": lambda m: (m | {"fit.json": b'["' + b"\\ud83d\\ude00" + b"a" * 70_000_000}, "mem"),
    "levels": lambda m: (changed(m, model=_formula(m, "choice ~ g*h*k*l", LEVELS)), "columns"),
    "sides": lambda m: (
        changed(m, model=_formula(m, "choice ~ 1" + "+ (0 + g | who)" * 600, LEVELS)),
        "columns",
    ),
    "many levels": lambda m: (
        changed(m, model=_formula(m, "choice ~ g", [str(i) for i in range(300_000)])),
        "levels of 'g'",
    ),
    "long levels": lambda m: (
        changed(m, model=_formula(m, "choice ~ g*h", [f"{i}{TEXT}" for i in range(9)])),
        "characters",
    ),
    "terms": lambda m: (
        changed(m, model=_formula(m, "choice ~ " + ":".join(["(a+b+c+d+e+f+x+y+z)"] * 9))),
        "too many",
    ),
    "sums": lambda m: (
        changed(
            m,
            model=_formula(m, "choice ~ ({0}):({0})".format("+".join(f"x{i}" for i in range(650)))),
        ),
        "422,500",
    ),
    "parentheses": lambda m: (
        changed(m, model=_formula(m, "choice ~ " + "(" * 4000 + "x" + ")" * 4000)),
        "deeply",
    ),
    "calls": lambda m: (
        changed(m, model=_formula(m, "choice ~ " + "I(" * 3000 + "x" + ")" * 3000)),
        "deeply",
    ),
    "formulas": lambda m: (changed(m, model=_many_formulas(m, 5_000)), "5,000 formulas"),
    "states": lambda m: (changed(m, model={"n_states": 10**9}), "more than avem saves"),
    "moves": lambda m: (
        changed(m, model={"n_states": 2000, "transition": "~ x"}),
        "8,000,000 coefficients",
    ),
    "many effects": lambda m: (
        changed(m, model={"n_states": 50, "transition": "~ 1 + (1 | who)"}),
        "2,451 effects",
    ),
    "outcome levels": lambda m: (
        changed(
            m,
            model={
                "outcomes": [
                    json.loads(m["fit.json"])["model"]["outcomes"][0]
                    | {
                        "family": {"name": "categorical", "levels": []},
                        "levels": [[f"{i}" for i in range(200_000)]],
                    }
                ]
            },
        ),
        "levels",
    ),
    "subjects": lambda m: (of_many(m, 10**9), "effects_mean.npy"),
    "iterations": lambda m: (changed(m, n_iter=10**12), "bound_history"),
    "long label": lambda m: (
        changed(m, subjects=None) | {"subjects.npy": header("<U90000000", (8,))},
        "damaged",
    ),
    "members": lambda m: (
        m | {f"{i}": b"" for i in range(30_000)},
        "members",
    ),
    "long names": lambda m: (m | {"x" * 60_000 + str(i): b"" for i in range(20)}, "HMMFit"),
    "lie, small": lambda m: (lying(m, "effects_mean.npy", 400_000_000, 192), "damaged"),
    "lie, json": lambda m: (lying(m, "fit.json", 400_000_000, 5_000), "damaged"),
}


DEAR = {"empty objects", "fewer objects", "numbers", "wide text", "covariances", "members"}
DEAR |= {"lie, json", "outcome levels", "equal numbers", "short lists"}
"""To make or to read; each has a cheaper one of its kind."""


def large(n, labels, path):
    """Save a fit of n subjects with effects, as avem does and with all members compressed."""
    rng = np.random.default_rng(0)
    fit, d = fit_of("gaussian"), 4
    root = rng.normal(size=(n, d, d))
    save(
        replace(
            fit,
            subjects=labels,
            effects_mean=rng.normal(size=(n, d)),
            effects_cov=root @ np.swapaxes(root, 1, 2),
            info=replace(fit.info, n_rows=9 * n, n_sequences=n),
        ),
        path,
    )
    packed = path.with_name(f"{path.name}, packed")
    write_members(packed, members_of(path))
    return [path, packed]


def measure(paths):
    """What loading each file said, how long it took, and its share of the memory it may take."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fits.measured_load", *map(str, paths)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def measured(request, good, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    wanted, asked = {}, {item.name for item in request.session.items}
    for name, make in BOMBS.items():
        if not any(item.endswith(f"[{name}]") for item in asked):
            continue
        content, wanted[name] = make(good["choice"])
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            write_members(folder / name, content)
        assert (folder / name).stat().st_size < 10_000_000
    found = measure([good["path"], *(folder / name for name in wanted)])
    return {name: found[name] | {"wanted": wanted[name]} for name in wanted}


@linux
@pytest.mark.parametrize("n", chosen((5_000, 20_000, 100_000), (5_000,)))
def test_large_fits_are_loaded_within_the_same_limits(good, tmp_path, n):
    names = np.array([f"participant {i:06}" for i in range(n)], dtype=object)
    paths = large(n, names, tmp_path / "names")
    paths += large(3 * n, np.arange(3 * n), tmp_path / "numbers")
    for name, found in measure([good["path"], *paths]).items():
        assert found["said"] == "HMMFit", name
        assert found["share"] < 1, name
        assert found["seconds"] < 15, name


def test_labels_of_alike_subjects_are_loaded_too(tmp_path):
    """Nothing but labels, which compress well."""
    fit, n = fit_of("zeros"), 150_000
    many = replace(
        fit,
        subjects=np.array([f"s{i}" for i in range(n)], dtype=object),
        effects_mean=np.zeros((n, 0)),
        effects_cov=np.zeros((n, 0, 0)),
        info=replace(fit.info, n_rows=n, n_sequences=n),
    )
    save(many, tmp_path / "fit.avem")
    write_members(tmp_path / "packed", members_of(tmp_path / "fit.avem"))
    for name in ("fit.avem", "packed"):
        assert load(tmp_path / name).subjects[-1] == f"s{n - 1}"


@linux
@pytest.mark.parametrize("name", chosen(BOMBS, set(BOMBS) - DEAR))
def test_what_is_meant_to_exhaust_takes_little_time_and_memory(measured, name):
    found = measured[name]
    assert re.search(found["wanted"], found["said"])
    assert "MemoryError" not in found["said"]
    assert found["share"] < 1
    assert found["seconds"] < 5
    assert len(found["said"]) < 12_000
