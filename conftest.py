"""What examples in docstrings share; `tests/test_examples.py` runs them all.

`pytest --doctest-modules avem/fits/fit.py` runs those of one file.
"""

import warnings
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def example_names():
    """What examples may name without making it.

    A few small fits on the bundled diary, and what is made of them: compiling dominates the cost of
    an example, so that a new one should do with these.
    """
    import numpy as np

    import avem

    diary = avem.load_affect()
    made = {"avem": avem, "np": np, "diary": diary}
    columns = {"time": "beep", "sequence": "day"}
    once = {"n_starts": 1, "refine": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avem.AvemWarning)  # some stop early
        hmm = avem.MixedHMM("valence ~ 1 + (1 | person)", 2)
        made["fit"] = hmm.fit(diary, **columns, **once)
        stressed = avem.MixedHMM("valence ~ stress + (1 | person)", 2)
        made["stressed"] = stressed.fit(diary, **columns, **once, max_iter=10)
        two = avem.MixedHMM("valence ~ 1 + (1 | person)", 2, n_clusters=2)
        made["typed"] = two.fit(diary, **columns, **once, max_iter=10)
        moves = avem.rates(moves=[(0, 1), (1, 0), (1, 2)], event="left")
        clinic = avem.MixedHMM("valence ~ 1", 3, transition=moves)
        truth = {"initial": [0.5, 0.5, 0.0], "rate": [[0, 0.3, 0], [0.4, 0, 0.2], [0, 0, 0.0]]}
        truth |= {"coef": [[[-2.0]], [[2.0]], [[0.0]]], "variance": [[1.0]] * 3}
        seen = clinic.simulate(truth, n_subjects=12, n_times=12, seed=1).frame
        made["visits"] = clinic.fit(seen, "subject", "time", **once)
        ssm = avem.MixedSSM(["valence", "arousal"], 1, subject="person", random="transition")
        made["ssm_fit"] = ssm.fit(diary, **columns, **once, max_iter=10)
        alike = avem.MixedHMM("valence ~ 1", 1)
        made["selection"] = avem.select(alike, diary, [1, 2], subject="person", **columns)
        made["boot"] = avem.bootstrap(made["selection"].fits[1], n=2)
        if find_spec("sklearn"):
            from avem.sklearn import HMMEstimator, SSMEstimator

            of_hmm = HMMEstimator("valence ~ 1 + (1 | person)", **columns, fit_options=once)
            made["estimator"] = of_hmm.fit(diary)
            of_ssm = SSMEstimator(
                ["valence", "arousal"],
                random="transition",
                subject="person",
                **columns,
                fit_options=once,
            )
            made["ssm_estimator"] = of_ssm.fit(diary)
    return made


@pytest.fixture(autouse=True)
def _examples(request, doctest_namespace):
    """The names, and a `folder` to write to, in examples that pytest itself collects."""
    if type(request.node).__name__ == "DoctestItem":
        doctest_namespace.update(request.getfixturevalue("example_names"))
        doctest_namespace["folder"] = request.getfixturevalue("tmp_path")
