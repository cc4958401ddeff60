"""The authors' own fits, number by number, and ours from its own start."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import avem

FOLDER = Path(__file__).parents[1] / "reference"
SETS = ("gauss_K3_d2_n100_T80", "gauss_K2_d2_n40_T40")


def load(name):
    with np.load(FOLDER / f"{name}.npz") as arrays:
        arrays = dict(arrays)
    n, n_times, _ = arrays["y"].shape
    frame = pd.DataFrame(arrays["y"].reshape(-1, 2), columns=["y1", "y2"])
    frame["subject"] = np.repeat(np.arange(n), n_times)
    return frame, arrays, json.loads((FOLDER / f"{name}.json").read_text())


def model(reference):
    return avem.MixedHMM(
        "y1 + y2 ~ 1 + (1 | subject)",
        n_states=len(reference["start"]["delta"]),
        family=avem.Gaussian("spherical"),
        effect_covariance="isotropic",
    )


def start(reference):
    given = reference["start"]
    return {
        "initial": given["delta"],
        "transition": given["Gamma"],
        "coef": np.array(given["mu"])[:, :, None],
        "variance": given["sigma2"],
        "effect_covariance": np.eye(2) * given["tau2"],
    }


@pytest.mark.parametrize("which", ["avem", "avem_tight"])
@pytest.mark.parametrize("name", SETS)
def test_plain_iteration_equals_the_authors(name, which):
    frame, arrays, reference = load(name)
    expected = reference["fits"][which]
    fit = model(reference).fit(
        frame, plain=True, init=start(reference), tol=expected["tol"], max_iter=500
    )
    fitted = expected["fitted"]
    assert fit.stop is avem.Stop.CONVERGED
    assert fit.n_iter == expected["iterations"]
    np.testing.assert_allclose(fit.params["coef"][:, :, 0], fitted["mu"], atol=1e-10)
    np.testing.assert_allclose(fit.params["variance"], fitted["sigma2"], atol=1e-10)
    np.testing.assert_allclose(fit.params["transition"], fitted["Gamma"], atol=1e-10)
    np.testing.assert_allclose(fit.params["initial"], fitted["delta"], atol=1e-10)
    tau2 = np.eye(2) * fitted["tau2"]
    np.testing.assert_allclose(fit.params["effect_covariance"], tau2, atol=1e-10)
    np.testing.assert_allclose(fit.loglik_history, expected["objective_trace"], rtol=1e-12)
    effects = arrays[f"effects_{which}"]
    np.testing.assert_allclose(fit.effects_mean, effects[:, :2], atol=1e-10)
    np.testing.assert_allclose(fit.effects_cov[:, 0, 0], effects[:, 2], atol=1e-10)


@pytest.mark.parametrize("name", SETS)
def test_default_fit_reaches_a_higher_bound_from_its_own_start(name):
    frame, _, reference = load(name)
    tight = model(reference).fit(frame, plain=True, init=start(reference), tol=1e-10)
    fit = model(reference).fit(frame)
    assert fit.stop is avem.Stop.CONVERGED
    assert fit.bound >= tight.bound - 1e-6
    assert fit.n_iter <= 60  # the winning start's iterations included
