"""Ordinary HMMs against depmixS4 on panels that are not part of the project.

The data come from R packages and are read from a folder beside the repository, or the one that
AVEM_TEST_DATA names; without it these tests are skipped. The expected numbers are depmixS4's.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import avem

FOLDER = Path(os.environ.get("AVEM_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def read(name):
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"{name} is not here; set AVEM_TEST_DATA to the folder that has it")
    return pd.read_csv(path)


def test_two_states_of_a_simulated_series():
    frame = read("hmmTMB_5x200_sim.csv")
    fit = avem.MixedHMM("Z ~ 1", 2).fit(frame, subject="ID", time="time")
    assert round(fit.bound, 3) == -2287.146  # without effects the bound is the log likelihood
    np.testing.assert_allclose(fit.params["coef"].ravel(), [1.012, 9.291], atol=1.5e-3)
    np.testing.assert_allclose(np.sqrt(fit.params["variance"]).ravel(), [1.017, 4.673], atol=1e-3)
    expected = [[0.907, 0.093], [0.171, 0.829]]
    np.testing.assert_allclose(fit.params["transition"], expected, atol=1e-3)
    np.testing.assert_allclose(fit.params["initial"], [0.185, 0.815], atol=1e-3)


def test_two_states_of_response_times():
    frame = read("speed.csv")
    fit = avem.MixedHMM("rt ~ 1", 2).fit(frame, subject="series")
    np.testing.assert_allclose(fit.bound, -84.34171, atol=2e-5)
    np.testing.assert_allclose(fit.params["coef"].ravel(), [5.511, 6.385], atol=1e-3)
    np.testing.assert_allclose(np.sqrt(fit.params["variance"]).ravel(), [0.193, 0.244], atol=1e-3)
    expected = [[0.895, 0.105], [0.084, 0.916]]
    np.testing.assert_allclose(fit.params["transition"], expected, atol=1e-3)
