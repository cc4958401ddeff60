"""Every kind of model comes back from its file as it was."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data import Panel
from avem.errors import FileError
from avem.fits.io.saving import load, save
from tests.fits.kinds import CUSTOM, KINDS, fit_of, log_prob, model_of, rows, ssm_fit
from tests.fits.test_saving import assert_same, members_of

SAVED = [kind for kind in KINDS if kind != "custom"]


@pytest.mark.parametrize("kind", SAVED)
def test_the_round_trip_is_exact(kind, tmp_path):
    fit = fit_of(kind)
    save(fit, tmp_path / "fit.avem")
    loaded = load(tmp_path / "fit.avem")
    assert_same(fit, loaded)
    assert str(loaded.summary(errors=False)) == str(fit.summary(errors=False))
    pd.testing.assert_frame_equal(loaded.table(), fit.table(), check_exact=True)
    save(loaded, tmp_path / "again.avem")
    assert (tmp_path / "again.avem").read_bytes() == (tmp_path / "fit.avem").read_bytes()


def test_the_kind_that_is_expected(tmp_path):
    fits = {avem.HMMFit: fit_of("counts"), avem.SSMFit: ssm_fit()}
    for number, (kind, fit) in enumerate(fits.items()):
        path = tmp_path / f"{number}.avem"
        fit.save(path)
        assert type(avem.load(path, expect=kind)) is type(avem.load(path)) is kind
        (other,) = set(fits) - {kind}
        with pytest.raises(FileError, match=f"Write expect=avem.{kind.__name__}, or leave it out"):
            avem.load(path, expect=other)
    with pytest.raises(avem.ModelError, match=r"avem\.HMMFit or avem\.SSMFit is wanted"):
        avem.load(path, expect="hmm")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "kind",
    ["gaussian", "choice", "movement", "by_state", pytest.param("moving", marks=pytest.mark.slow)],
)
def test_a_loaded_fit_says_the_same_of_new_data(kind, tmp_path):
    fit = fit_of(kind)
    save(fit, tmp_path / "fit.avem")
    loaded = load(tmp_path / "fit.avem")
    new = fit.simulate(fit.panel.table, seed=9).frame
    new = new.assign(who=[label if label < "s4" else f"new {label}" for label in new["who"]])
    pd.testing.assert_series_equal(loaded.decode(new), fit.decode(new))
    pd.testing.assert_frame_equal(
        loaded.state_probabilities(new), fit.state_probabilities(new), check_exact=True
    )
    effects = fit.infer_effects(new)
    assert effects["mean"].abs().max() > 0.05
    pd.testing.assert_frame_equal(loaded.infer_effects(new), effects, check_exact=True)
    one, other = (f.simulate(rows(), seed=3).frame for f in (fit, loaded))
    pd.testing.assert_frame_equal(one, other, check_exact=True)


@pytest.mark.parametrize(
    ("family", "levels"),
    [
        ("bernoulli", [False, True]),
        ("bernoulli", ["no", "yes"]),
        ("bernoulli", [1.5, 2.5]),
        ("categorical", [1, 2, 3]),
        ("categorical", ["ä", "b c", "1"]),
        (avem.Categorical(levels=(np.int64(3), np.int64(1))), [1, 3]),
        (avem.Bernoulli(levels=(True, False)), [True, False]),
    ],
)
def test_levels_keep_their_types(family, levels, tmp_path):
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 2, family)
    frame = rows().assign(y=np.resize(np.array(levels, dtype=object), len(rows())))
    model = model_of(hmm, Panel.from_frame(frame, "who", time="t"))
    d = model.n_effects
    coef = np.zeros((2, d, 1))
    fit = replace(
        fit_of("choice"),
        model=model,
        params=fit_of("choice").params | {"coef": coef, "effect_covariance": np.eye(d)},
        effects_mean=np.zeros((8, d)),
        effects_cov=np.zeros((8, d, d)),
    )
    save(fit, tmp_path / "fit.avem")
    loaded = load(tmp_path / "fit.avem").model
    ((wanted,),) = model.families
    ((found,),) = loaded.families
    assert found == wanted
    plain = [v.item() if isinstance(v, np.generic) else v for v in wanted.levels]
    assert [type(level) for level in found.levels] == [type(level) for level in plain]
    assert found.levels == tuple(plain)
    panel = Panel.from_frame(frame, "who", time="t")
    np.testing.assert_array_equal(loaded.read(panel).Y, model.read(panel).Y)


def test_levels_that_cannot_be_saved_are_refused(tmp_path):
    fit = fit_of("choice")
    ((family,),) = fit.model.families
    odd = replace(fit.model, families=((replace(family, levels=((1, 2), (3, 4))),),))
    with pytest.raises(FileError, match=r"level \(1, 2\) is a tuple, which cannot be saved"):
        save(replace(fit, model=odd), tmp_path / "fit.avem")
    odd = replace(fit.model, families=((replace(family, levels=(None, "a")),),))
    with pytest.raises(FileError, match="None is a NoneType, which cannot be saved"):
        save(replace(fit, model=odd), tmp_path / "fit.avem")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def custom(tmp_path):
    """A saved fit with a custom family."""
    fit = fit_of("custom")
    fit.save(tmp_path / "fit.avem")
    return fit, tmp_path / "fit.avem"


@pytest.mark.parametrize("given", [CUSTOM, {"c": CUSTOM}], ids=["one", "by name"])
def test_a_custom_family_is_given_again(custom, given):
    fit, path = custom
    loaded = avem.load(path, custom=given)
    assert_same(fit, loaded)
    assert loaded.model.spec.outcomes[0].family is CUSTOM
    assert str(loaded.summary(errors=False)) == str(fit.summary(errors=False))
    frame = fit.panel.table
    pd.testing.assert_series_equal(loaded.decode(frame), fit.decode(frame))


def test_a_file_names_functions_and_never_imports_them(custom, monkeypatch):
    _, path = custom
    about = members_of(path)["fit.json"].decode()
    assert '"tests.fits.kinds:log_prob"' in about
    for module in list(sys.modules):
        if module.startswith("tests.fits.kinds"):
            monkeypatch.delitem(sys.modules, module)
    words = r"outcome 'c' has a custom family.*tests\.fits\.kinds:log_prob.*custom=\{'c': family\}"
    with pytest.raises(FileError, match=words):
        avem.load(path)
    assert not [module for module in sys.modules if module.startswith("tests.fits.kinds")]


def steeper(y, x, history, params, effect):
    return 2 * log_prob(y, x, history, params, effect)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (avem.Custom(steeper, {"bias": 0.0}, ["bias"]), FileError, "other log probabilities"),
        (avem.Custom(log_prob, {"bais": 0.0}, ["bias"]), FileError, "the params bais where the fi"),
        (avem.Custom(log_prob, {"bias": 0.0}), FileError, "the effects none where the fit"),
        ({"d": CUSTOM}, FileError, r"custom=\{'c': family\}"),
        ({"c": CUSTOM, "y": CUSTOM}, FileError, "custom is for 'y'; custom families have c"),
        (log_prob, avem.ModelError, "the avem.Custom that was fitted is wanted"),
        ({"c": log_prob}, avem.ModelError, r"custom\['c'\] is"),
    ],
)
def test_another_family_than_was_fitted_is_refused(custom, given, error, words):
    with pytest.raises(error, match=words):
        avem.load(custom[1], custom=given)


def test_a_fit_without_custom_families_takes_none(tmp_path):
    fit_of("choice").save(tmp_path / "fit.avem")
    with pytest.raises(FileError, match=r"custom is for a family; .* none of its outcomes"):
        avem.load(tmp_path / "fit.avem", custom=CUSTOM)


def test_outcomes_may_have_any_name(tmp_path):
    """Names of outcomes are part of the names of parameters, and so of the file's members."""
    hmm, params = KINDS["movement"]
    names = {"step": "../a/b\\c d%", "angle": "ä:*?"}
    listed = [
        avem.outcome(f"`{names['step']}` ~ 1 + (1 | who)", "gamma", shape="~ x"),
        avem.outcome(f"`{names['angle']}` ~ 1", "von_mises"),
    ]
    fit = fit_of("movement")
    frame = fit.panel.table.rename(columns=names)
    panel = Panel.from_frame(frame, "who", time="t")
    renamed = {
        next(
            (new + name.removeprefix(old) for old, new in names.items() if name.startswith(old)),
            name,
        ): value
        for name, value in fit.params.items()
    }
    assert len(renamed) == len(params)
    odd = replace(
        fit,
        model=model_of(avem.MixedHMM(listed, hmm.spec.n_states), panel),
        params=renamed,
        panel=panel,
    )
    save(odd, tmp_path / "fit.avem")
    assert_same(odd, load(tmp_path / "fit.avem"))
    assert not any(
        ".." in name.split("/") or "\\" in name for name in members_of(tmp_path / "fit.avem")
    )
