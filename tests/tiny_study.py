"""A study without fits, for the tests of the runner; a replicate takes long enough to be killed."""

import time

import numpy as np

from studies.study import Study


def replicate(cell, seed):
    time.sleep(0.1)
    value = np.random.default_rng(seed).normal(cell["size"])
    return [{"method": "a", "value": float(value), "seconds": time.perf_counter()}]


def tables(frame):
    means = frame.groupby(["size", "method"], sort=False, as_index=False)["value"].mean()
    return {"rows": frame, "means": means}


STUDY = Study(
    "tests.tiny_study", "Which?", ({"size": 1}, {"size": 2}), {"paper": replicate}, tables
)
