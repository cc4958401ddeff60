"""Small fits that examples in docstrings share; `pytest --doctest-modules avem` runs these."""

import warnings

import pytest


@pytest.fixture(scope="session")
def _example_fits():
    import avem

    data = avem.load_affect()
    made = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avem.AvemWarning)  # they stop early
        quick = {"time": "beep", "sequence": "day", "refine": None, "progress": False}
        hmm = avem.MixedHMM("valence ~ 1 + (1 | person)", 2)
        made["fit"] = hmm.fit(data, **quick, n_starts=1)
        stressed = avem.MixedHMM("valence ~ stress + (1 | person)", 2)
        made["stressed"] = stressed.fit(data, **quick, n_starts=1, max_iter=10)
        ssm = avem.MixedSSM(["valence", "arousal"], 1, subject="person", random="transition")
        made["ssm_fit"] = ssm.fit(data, **quick, n_starts=1, max_iter=10)
    return made


@pytest.fixture(autouse=True)
def _examples(request, doctest_namespace):
    """What examples may name without making it: `avem`, `np`, the fits, and a `folder`."""
    if type(request.node).__name__ != "DoctestItem":
        return
    import numpy as np

    import avem

    doctest_namespace.update(avem=avem, np=np, folder=request.getfixturevalue("tmp_path"))
    doctest_namespace.update(request.getfixturevalue("_example_fits"))
