"""Random panels, sane and insane: a fit is finite and coherent, or an AvemError says why not."""

import warnings
from dataclasses import dataclass
from itertools import product
from random import Random

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import avem

# Compiling is what takes time, once for each model, pattern of missing cells and padded shape: so
# the default run has few models and one shape, the slow one a fixed sample of all models.
# A model: outcomes, right side of the formula, states, noise covariance, effect covariance.
MODELS = [(2, "1 + (1 | who)", 2, "full", "full")]
LATER_MODELS = [
    (1, "x + (1 + x | who)", 2, "diagonal", "diagonal"),
    (1, "1 + (1 | who)", 3, "diagonal", "full"),
    (3, "x + (1 | who)", 2, "spherical", "isotropic"),
]
PLAIN_MODELS = [(1, "1", 3, "spherical", "full")]
LATER_PLAIN_MODELS = [(2, "x", 1, "diagonal", "full")]


def some_models(right_sides: list[str], n_models: int) -> list[tuple]:
    """A fixed sample of all models with these right sides."""
    noises, effects = ["spherical", "diagonal", "full"], ["full", "diagonal", "isotropic"]
    every = list(product([1, 2, 3], right_sides, [1, 2, 3], noises, effects))
    return Random(0).sample(every, n_models)


GROUP_TERMS = ["1 + (1 | who)", "x + (1 | who)", "x + (1 + x | who)", "0 + x + (1 | who)"]
MANY_MODELS = some_models([*GROUP_TERMS, "x + (1 | who) + (0 + x | who)"], 24)
MANY_MODELS += [(2, "x + (1 | who)", 3, "full", "diagonal")]
MANY_PLAIN_MODELS = some_models(["1", "x", "0 + x"], 6)
SIZES = st.integers(-8, 8).map(lambda power: 10.0**power)


@dataclass(frozen=True)
class Case:
    """One data set and one model; prints as the code that makes it again."""

    outcomes: int
    right: str
    n_states: int
    noise: str
    effects: str
    seed: int
    lengths: tuple[tuple[int, ...], ...]
    missing: float
    missing_rows: bool
    scales: tuple[float, ...]
    offset: float
    x_scale: float
    x_offset: float
    shape: str

    @property
    def formula(self) -> str:
        return " + ".join(f"y{j}" for j in range(self.outcomes)) + f" ~ {self.right}"

    def frame(self) -> pd.DataFrame:
        """Shuffled rows of all sequences of all subjects."""
        rng = np.random.default_rng(self.seed)
        frames = [
            pd.DataFrame({"who": f"s{i}", "session": s, "time": np.arange(length)})
            for i, sequences in enumerate(self.lengths)
            for s, length in enumerate(sequences)
        ]
        frame = pd.concat(frames, ignore_index=True)
        n = len(frame)
        state = rng.integers(3, size=n).repeat(3)[:n]
        level = dict(zip(frame["who"].unique(), rng.normal(size=len(self.lengths)), strict=True))
        frame["x"] = self.x_scale * (rng.normal(size=n) + self.x_offset)
        for j in range(self.outcomes):
            own = frame["who"].map(level).to_numpy()
            y = 3.0 * state + own + rng.normal(size=n)
            if self.shape == "copies" and j:
                y = frame["y0"].to_numpy() / self.scales[0] - self.offset
            y = {"exact": frame["x"].to_numpy(), "levels": own}.get(self.shape, y)
            y = self.scales[j] * (self.distort(y, rng) + self.offset)
            frame[f"y{j}"] = y
            if self.shape == "integers" and np.abs(y).max() < 1e15:
                frame[f"y{j}"] = y.round().astype(int)
        names = [f"y{j}" for j in range(self.outcomes)]
        hole = rng.random((n, self.outcomes)) < self.missing
        if self.missing_rows:
            hole = np.repeat(hole[:, :1], self.outcomes, axis=1)
        if self.shape == "silent":
            hole |= frame["who"].isin(["s0", "s1", "s2"]).to_numpy()[:, None]
        if hole.any():
            frame[names] = frame[names].astype(float).mask(hole)
        return frame.sample(frac=1, random_state=self.seed % 1000)

    def distort(self, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The chosen kind of trouble, in units of the noise."""
        n = len(y)
        match self.shape:
            case "ties":
                return rng.choice(y, size=n)
            case "rounded":
                return y.round()
            case "binary":
                return (y > 3.0).astype(float)
            case "stretches":
                return np.where(np.arange(n) % 10 < 7, y[0], y)
            case "outliers":
                return np.where(rng.random(n) < 0.1, 1e6 * y, y)
            case "one outlier":
                return np.where(np.arange(n) == n // 2, 1e12, y)
            case "two values":
                return np.where(np.arange(n) == n // 2, 1.0, 0.0)
            case "trend":
                return y + np.linspace(0.0, 1e3, n)
        return y


SHAPES = ["normal", "ties", "rounded", "binary", "stretches", "outliers", "one outlier"]
SHAPES += ["two values", "trend", "integers", "copies", "exact", "levels", "silent"]


@st.composite
def cases(draw, models: list[tuple], wide: bool) -> Case:
    """A case of one of the models: up to 8 subjects and sequences, 12 and 24 when `wide`."""
    model = draw(st.sampled_from(models))
    most, most_lanes = draw(st.sampled_from([(8, 8), (12, 24)] if wide else [(8, 8)]))
    sequences = st.lists(st.integers(1, 12), min_size=1, max_size=3)
    least = draw(st.sampled_from([1, 4, 6]))
    lengths = draw(st.lists(sequences, min_size=least, max_size=most - 1))
    while sum(map(len, lengths)) >= most_lanes:
        max(lengths, key=len).pop()
    if not wide or draw(st.integers(0, 9)):
        lengths.append([12])
    if most == 12:  # pad to the same 24 lanes and 16 subjects
        lengths += [[1]] * (9 - len(lengths))
        lengths[0] = lengths[0] + [1] * (17 - sum(map(len, lengths)))
    return Case(
        *model,
        seed=draw(st.integers(0, 2**32 - 1)),
        lengths=tuple(map(tuple, lengths)),
        missing=draw(st.sampled_from([0.0, 0.0, 0.3, 0.6, 0.9])),
        missing_rows=draw(st.booleans()),
        scales=tuple(draw(SIZES) for _ in range(model[0])),
        offset=draw(st.sampled_from([0.0, 0.0, 1.0, -1e3, 1e6])),
        x_scale=draw(SIZES),
        x_offset=draw(st.sampled_from([0.0, 0.0, 1.0, 1e3, -1e6])),
        shape=draw(st.sampled_from(SHAPES)),
    )


def check(case: Case) -> None:
    """Fit; then nothing but AvemError and AvemWarning, and nothing that is not finite."""
    frame = case.frame()
    model = avem.MixedHMM(
        case.formula,
        case.n_states,
        avem.Gaussian(case.noise),
        effect_covariance=case.effects,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avem.AvemWarning)
        try:
            fit = model.fit(
                frame, "who", time="time", sequence="session", n_starts=2, max_iter=30, refine=None
            )
        except avem.AvemError:
            return
        coherent(fit, frame, case)


def coherent(fit: avem.HMMFit, frame: pd.DataFrame, case: Case) -> None:
    """All that a fit of any data must satisfy."""
    for name, value in fit.params.items():
        assert np.isfinite(value).all(), name
    assert np.isfinite(fit.bound)
    assert np.isfinite(fit.bound_history).all()
    assert np.isfinite(fit.effects_mean).all()
    assert np.isfinite(fit.effects_cov).all()
    for name in ("initial", "transition"):
        assert (fit.params[name] >= 0).all()
        np.testing.assert_allclose(fit.params[name].sum(-1), 1.0, atol=1e-9)
    if "variance" in fit.params:
        assert (fit.params["variance"] > 0).all()
    else:
        assert_positive_definite(fit.params["covariance"])
    assert_positive_definite(fit.params["effect_covariance"])
    assert_positive_definite(fit.effects_cov)
    states = fit.decode()
    assert states.index.equals(frame.index)
    assert states.between(0, case.n_states - 1).all()
    probabilities = fit.state_probabilities()
    assert probabilities.index.equals(frame.index)
    assert ((probabilities >= 0) & (probabilities <= 1 + 1e-9)).all(axis=None)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-9)
    assert np.isfinite(fit.effects()[["mean", "sd", "lower", "upper"]]).all(axis=None)


def assert_positive_definite(matrix: np.ndarray) -> None:
    """Judged on the correlation scale, so that units do not matter."""
    size = np.sqrt(np.diagonal(matrix, axis1=-2, axis2=-1))
    assert (size > 0).all()
    if matrix.size:
        correlation = matrix / size[..., :, None] / size[..., None, :]
        np.testing.assert_allclose(correlation, np.swapaxes(correlation, -1, -2), atol=1e-9)
        np.linalg.cholesky(correlation)


def try_many(strategy: st.SearchStrategy[Case], n_examples: int) -> None:
    """Check cases; the same ones in every run."""

    @given(strategy)
    @settings(
        max_examples=n_examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Case) -> None:
        check(case)

    run()


def test_random_panels():
    try_many(cases(MODELS, wide=False), 8)


def test_random_panels_without_effects():
    try_many(cases(PLAIN_MODELS, wide=False), 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "models", [MODELS + LATER_MODELS, PLAIN_MODELS + LATER_PLAIN_MODELS], ids=["effects", "plain"]
)
def test_more_random_panels(models):
    try_many(cases(models, wide=False), 60)


@pytest.mark.slow
def test_a_covariate_far_from_zero():
    check(
        Case(
            *(2, "x + (1 | who)", 3, "full", "diagonal"),
            seed=1073741825,
            lengths=((1, 6, 4), (4, 10, 1), (1,), (1,), (8, 5), (4, 10, 1), (1,)),
            missing=0.1,
            missing_rows=True,
            scales=(1e6, 1e6),
            offset=1e6,
            x_scale=1e6,
            x_offset=-1e6,
            shape="integers",
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", [*MANY_MODELS, *MANY_PLAIN_MODELS], ids=str)
def test_many_random_panels(model):
    try_many(cases([model], wide=True), 67)
    jax.clear_caches()  # thousands of compiled functions exhaust the process's memory maps
