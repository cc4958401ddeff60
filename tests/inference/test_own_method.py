"""Methods written outside avem, in this file alone: all that a fit can do works with them."""

from dataclasses import dataclass

import numpy as np
import pytest

import avem
from avem.inference.methods.anchored import TO_THE_END, anchored_pass
from avem.inference.methods.base import EStep
from avem.inference.methods.prior_nodes import PriorNodes


@dataclass(frozen=True)
class EvenGrid(avem.Method):
    """Maximum likelihood with an even grid over the prior of a single effect."""

    n_points: int = 21
    width: float = 4.0

    word = "even_grid"
    likelihood = True

    def check(self, effect_names, plain):
        if len(effect_names) != 1:
            raise avem.ModelError("An even grid is for one effect.")

    def bind(self, em, effect_names, plain, rng):
        points = np.linspace(-self.width, self.width, self.n_points)
        weights = np.exp(-0.5 * points**2)
        return PriorNodes(points[:, None], np.log(weights / weights.sum()))


@dataclass(frozen=True)
class AtPriorMean(avem.Method):
    """AVEM with every subject's local pass at the prior's mean, whatever its own effects are."""

    word = "at_prior_mean"

    def bind(self, em, effect_names, plain, rng):
        return _PassAtZero()


@dataclass(frozen=True)
class _PassAtZero(EStep):
    def e_step(self, kernel, theta, anchor, around, chunk, form):
        zero = np.zeros(anchor.shape)
        return anchored_pass(kernel, theta, zero, None, chunk, form, "laplace", TO_THE_END)


HMM = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "coef": [[[-2.0]], [[2.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[0.3]],
}


@pytest.fixture(scope="module")
def frame():
    return HMM.simulate(TRUTH, 20, 20, seed=1).frame


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("method", [EvenGrid(31), AtPriorMean()], ids=lambda m: m.word)
def test_all_that_a_fit_can_do(frame, method, tmp_path):
    fit = HMM.fit(frame, time="time", method=method, refine=None, n_starts=2)
    assert fit.stop is avem.Stop.CONVERGED
    assert fit.info.method == method.word
    assert fit.info.options == method.options()
    assert fit.bound_name == ("log likelihood" if method.likelihood else "bound")
    np.testing.assert_allclose(fit.params["coef"], TRUTH["coef"], atol=0.5)
    assert fit.bound_name in str(fit.summary(errors=False))
    path = tmp_path / "fit.avem"
    fit.save(path)
    loaded = avem.load(path).with_data(frame)
    assert loaded.info == fit.info
    np.testing.assert_array_equal(loaded.effects_mean, fit.effects_mean)
    assert len(loaded.predict(horizon=2, effects="fitted")) == 2 * 20
    assert len(loaded.simulate(seed=0).frame) == 400
    page = tmp_path / "report.html"
    loaded.report(page, thorough=False)
    text = page.read_text(encoding="utf-8")
    assert f"method={method.code() if method.options() else repr(method.word)}" in (
        text.replace("&#x27;", "'")
    )


def test_it_finds_what_it_should(frame):
    """A fine grid is Gauss-Hermite quadrature; a bound from elsewhere is below the anchored one."""
    options = {"time": "time", "n_starts": 2, "refine": None}
    grid = HMM.fit(frame, method=EvenGrid(41, 5.0), **options)
    adaptive = HMM.fit(frame, method="adaptive", **options)
    np.testing.assert_allclose(grid.bound, adaptive.bound, atol=0.01)
    np.testing.assert_allclose(grid.params["coef"], adaptive.params["coef"], atol=0.02)
    at_zero = HMM.fit(frame, method="at_prior_mean", **options)
    assert at_zero.bound < HMM.fit(frame, **options).bound


def test_its_own_checks_and_words(frame):
    with pytest.raises(avem.ModelError, match="for one effect"):
        avem.MixedHMM("y ~ 1", 2).fit(frame, "who", "time", method="even_grid")
    with pytest.raises(avem.ModelError, match="'even_grid' maximises it already"):
        HMM.fit(frame, time="time", method=EvenGrid(), refine="adaptive")
    with pytest.raises(avem.ModelError, match="available: avem, partial"):
        HMM.fit(frame, time="time", method="uneven_grid")


def test_state_space_models_take_it_too():
    ssm = avem.MixedSSM(["a", "b"], 1, subject="who", random="transition")
    truth = {
        "initial_mean": [0.0],
        "initial_covariance": [[1.0]],
        "transition_mean": [[0.5]],
        "transition_covariance": [[0.02]],
        "loading_mean": [[1.0], [0.7]],
        "coef": [[0.0], [0.0]],
        "noise": [0.5, 0.5],
    }
    frame = ssm.simulate(truth, 15, 20, seed=2).frame
    fit = ssm.fit(frame, time="time", method=EvenGrid(21), n_starts=1, tol=1e-3)
    assert fit.info.method == "even_grid"
    assert fit.bound_name == "log likelihood"
