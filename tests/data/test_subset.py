"""Some of a chunk's subjects as a chunk: the same likelihoods and the same sums."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data.subset import some_of
from avem.inference.fit_hmm import make_e_steps
from avem.inference.on_shard import Subjects
from avem.numerics.precision import in_float64
from tests.panels import prepare_model, start_state

PARAMS = {
    "initial": [0.4, 0.6],
    "transition": [[0.8, 0.2], [0.3, 0.7]],
    "coef": [[[-0.5, 0.2]], [[1.0, -0.1]]],
    "effect_covariance": [[0.3]],
}
NOISE = {"variance": [[1.0], [0.7]]}
KINDS = {
    "one sequence each": ("y ~ x + (1 | who)", "gaussian", 1, NOISE),
    "several sequences": ("y ~ x + (1 | who)", "gaussian", 3, NOISE),
    "patterns": ("b ~ 1 + (1 | who)", "bernoulli", 2, {"coef": [[[-0.5]], [[1.0]]]}),
    "lists of rows": ("g ~ x + (1 | who)", "gamma", 2, {"shape": [[2.0], [3.0]]}),
}


def made(n_sequences):
    rng = np.random.default_rng(3)
    parts = []
    for who in range(11):
        for day in range(rng.integers(1, n_sequences + 1)):
            n = rng.integers(3, 7)
            parts.append(
                pd.DataFrame({"who": who, "day": day, "t": np.arange(n), "x": rng.normal(size=n)})
            )
    frame = pd.concat(parts, ignore_index=True)
    frame["y"] = rng.normal(size=len(frame)) + frame["who"] % 3
    frame["b"] = (rng.random(len(frame)) < 0.5).astype(int)
    frame["g"] = rng.gamma(2.0, size=len(frame))
    frame.loc[rng.random(len(frame)) < 0.1, ["y", "b", "g"]] = np.nan
    return frame


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_a_chunk_is_like_the_whole(kind):
    formula, family, n_sequences, more = KINDS[kind]
    frame = made(n_sequences).rename(columns={"day": "session"})
    check(*prepare_model(avem.MixedHMM(formula, 2, family), frame)[:2], more)


@in_float64
def check(model, data, more):
    n = data.panel.n_subjects
    effects = 0.4 * np.random.default_rng(1).standard_normal((1, n))
    own = {name: np.array(value, float) for name, value in {**PARAMS, **more}.items()}
    state = start_state(model, data, own, effects)
    e = make_e_steps(model, data)
    setting, (chunk,) = e.setting(state), data.chunks
    anchor = np.zeros((model.n_effects, len(chunk.real)))
    anchor[:, :n] = effects
    whole = setting.look(chunk, Subjects(anchor))
    totals = []
    for members in (np.array([4, 1, 5, 9]), np.array([0, 2, 3, 6, 7, 8, 10])):
        part = some_of(chunk, members)
        own = np.zeros((len(anchor), len(part.real)))
        own[:, : len(members)] = anchor[:, members]
        found = setting.look(part, Subjects(own))
        np.testing.assert_allclose(found.loglik[: len(members)], whole.loglik[members], rtol=1e-10)
        np.testing.assert_allclose(
            found.mean[:, : len(members)], whole.mean[:, members], rtol=1e-8, atol=1e-10
        )
        totals.append(found.totals)
    np.testing.assert_allclose(
        totals[0].effect_second + totals[1].effect_second, whole.totals.effect_second, rtol=1e-8
    )


def test_a_chunk_without_a_value_of_an_outcome(monkeypatch):
    """The others, of the same shape, have some."""
    monkeypatch.setattr("avem.models.encoded._LANES", (8, 8))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.repeat(np.arange(24), 4), "t": np.tile(np.arange(4), 24)})
    frame["g"], frame["z"] = rng.gamma(2.0, size=96), rng.normal(size=96)
    frame.loc[frame["who"] >= 16, "g"] = np.nan
    outcomes = [avem.outcome("g ~ 1 + (1 | who)", "exponential"), avem.outcome("z ~ 1")]
    with pytest.warns(avem.AvemWarning, match="limit"):
        fit = avem.MixedHMM(outcomes, 1).fit(frame, time="t", n_starts=1, max_iter=2, refine=None)
    assert np.isfinite(fit.bound)
