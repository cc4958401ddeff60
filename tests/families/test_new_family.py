"""A family written outside the package, in one file: everything that a fit can do knows it."""

from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd
import pytest

import avem
from avem.errors import FileError
from avem.families import FAMILIES, Univariate, register
from avem.families.base import LOG, Parameter

MEANS = np.array([0.6, 9.0])


@dataclass(frozen=True)
class Geometric(Univariate):
    """A count whose probabilities fall by the same ratio: P(y) = mean^y / (1 + mean)^(y + 1)."""

    name = "geometric"
    wanted = "counts (0, 1, 2, ...)"
    discrete = True

    @property
    def parameters(self):
        return (Parameter("mean", LOG),)

    def valid(self, y):
        return np.isfinite(y[0]) & (y[0] >= 0) & (y[0] == np.floor(y[0]))

    def log_density(self, y, eta):
        return y[0] * eta[0] - (y[0] + 1.0) * jax.nn.softplus(eta[0])

    def start(self, y):
        return (float(np.log(y[0].mean() + 0.1)),)

    def features(self, y):
        return np.sqrt(y[0])[:, None]

    def mean(self, eta):
        return np.exp(eta[0])

    def cdf(self, y, eta, extras=()):
        mean = self.mean(eta)
        return np.where(y < 0, 0.0, 1.0 - (mean / (1.0 + mean)) ** (np.floor(y) + 1.0))

    def variance(self, eta, extras=()):
        return self.mean(eta) * (1.0 + self.mean(eta))

    def draw(self, rng, eta, extras):
        return rng.geometric(1.0 / (1.0 + self.mean(eta))) - 1.0


@pytest.fixture(scope="module", autouse=True)
def registered():
    register(Geometric)
    yield
    del FAMILIES["geometric"]


@pytest.fixture(scope="module")
def data():
    rng, n_subjects, n_times = np.random.default_rng(0), 8, 60
    state = (np.arange(n_subjects * n_times) // 15) % 2
    mean = MEANS[state]
    return pd.DataFrame(
        {
            "id": np.repeat(np.arange(n_subjects), n_times),
            "visits": rng.geometric(1 / (1 + mean)) - 1,
        }
    )


@pytest.fixture(scope="module")
def fit(data):
    return avem.MixedHMM("visits ~ 1 + (1 | id)", 2, "geometric").fit(data, n_starts=2, refine=None)


def test_it_fits_and_is_described(fit):
    np.testing.assert_allclose(np.exp(fit.params["coef"].ravel()), MEANS, rtol=0.35)
    text = str(fit.summary(errors=False))
    assert "2 states, geometric" in text
    assert "Coefficients (log scale)" in text
    assert "Mean at effect 0" in text


def test_it_saves_and_loads_where_it_is_registered(fit, tmp_path):
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem")
    assert again.model.spec.outcomes[0].family == Geometric()
    np.testing.assert_array_equal(again.params["coef"], fit.params["coef"])
    del FAMILIES["geometric"]
    try:
        with pytest.raises(FileError, match="its family is 'geometric'; this avem knows gaussian"):
            avem.load(tmp_path / "fit.avem")
    finally:
        register(Geometric)


def test_it_simulates(fit):
    drawn = fit.simulate(seed=0).frame["visits"]
    assert Geometric().valid((drawn.to_numpy(),)).all()
    assert abs(drawn.mean() - MEANS.mean()) < 2.5


def test_it_predicts(fit):
    ahead = fit.predict(horizon=2)
    assert ahead["mean"].between(0.3, 15).all()
    assert (ahead["upper"] == ahead["upper"].round()).all()
    residuals = fit.residuals()["visits"]
    assert abs(residuals.mean()) < 0.2
    assert abs(residuals.std() - 1) < 0.2


@pytest.mark.usefixtures("blank_pictures")
def test_it_is_reported(fit, tmp_path):
    fit.report(tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text()
    assert "geometric; each state has its own mean" in page
    assert "family=Geometric()" in page


def test_its_values_are_checked(data):
    with pytest.raises(avem.DataError, match=r"a geometric outcome takes counts \(0, 1, 2"):
        avem.MixedHMM("visits ~ 1", 2, "geometric").fit(data.assign(visits=-1.0), subject="id")
