"""Panels in files, for the tests of scans."""

from __future__ import annotations

import numpy as np
import pandas as pd

import avem

TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "coef": [[[-2.0]], [[2.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[1.0]],
}
MODEL = avem.MixedHMM("y ~ 1 + (1 | subject)", 2)


def uneven(n=60, seed=1):
    """Subjects with sequences of several lengths, their rows in no order, with gaps and letters."""
    rng = np.random.default_rng(seed)
    frame = MODEL.simulate(TRUTH, n_subjects=n, n_times=20, seed=seed).frame
    frame = frame[frame["time"] < 9 + frame["subject"] % 12]
    frame["group"] = np.where(frame["subject"] % 3 == 0, "a", "b")
    frame["x"] = rng.standard_normal(len(frame)).round(2)
    frame["y"] = frame["y"].mask(rng.random(len(frame)) < 0.05)
    frame["right"] = (frame["y"] > 0).astype(float).mask(frame["y"].isna())
    frame["subject"] = "p" + frame["subject"].astype(str)
    return frame.sample(frac=1.0, random_state=seed).reset_index(drop=True)


def write_files(frame, folder, n_files=4):
    """The rows dealt out to files in turn, so that every subject is in all of them."""
    folder.mkdir(exist_ok=True)
    size = -(-len(frame) // n_files)
    for number in range(n_files):
        part = frame.iloc[number * size : (number + 1) * size]
        part.to_parquet(folder / f"part-{number:02}.parquet", index=False)
    return folder


def assert_same_fit(found, wanted, close=1e-8):
    """The same parameters, iterations and effects."""
    assert found.n_iter == wanted.n_iter
    for name, value in wanted.params.items():
        np.testing.assert_allclose(found.params[name], value, atol=close, err_msg=name)
    np.testing.assert_array_equal(found.subjects, wanted.subjects)
    np.testing.assert_allclose(found.effects_mean, wanted.effects_mean, atol=close)
    assert abs(found.bound - wanted.bound) <= 1e-8 * abs(wanted.bound)


def assert_equal_fit(found, wanted):
    """The same to the last bit."""
    assert found.n_iter == wanted.n_iter
    assert found.bound == wanted.bound
    for name, value in wanted.params.items():
        np.testing.assert_array_equal(found.params[name], value, err_msg=name)
    np.testing.assert_array_equal(found.subjects, wanted.subjects)
    np.testing.assert_array_equal(found.effects_mean, wanted.effects_mean)


def as_frame(table):
    """Any kind of frame as pandas."""
    return table.to_pandas() if hasattr(table, "to_pandas") else pd.DataFrame(table)
