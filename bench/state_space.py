"""One AVEM iteration of a mixed-effects state-space model beside EM without effects elsewhere.

p = 4 outcomes, q = 2 states, T = 100. Ours estimates 11 effects of every subject besides; dynamax
(float32) and statsmodels (its smoother alone, series by series) have one set of matrices for all.
In dynamax all series then share one recursion of covariances, which is most of the work; with
matrices of their own every subject needs its own. Where there is a C++ compiler, ours is a native
kernel.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import numpy as np
import pandas as pd

import avem

TRUTH = {
    "initial_mean": [0.0, 0.0],
    "initial_covariance": np.eye(2),
    "transition_mean": [[0.7, -0.1], [0.1, 0.6]],
    "loading_mean": [[1.0, 0.0], [0.2, 0.9], [0.3, 0.4], [0.4, 0.2]],
    "noise": np.full(4, 0.25),
    "transition_covariance": 0.05 * np.eye(4),
    "loading_covariance": 0.05 * np.eye(7),
}
"""The paper's Scenario III."""
ITERATIONS, REPEATS = 100, 5
SECONDS_IN_R = 2.5
"""Of one iteration of the authors' script at n=50, T=100, on their machine."""


def model(p: int = 4, q: int = 2) -> avem.MixedSSM:
    """The paper's model: no intercepts."""
    names = " + ".join(f"y{j + 1}" for j in range(p))
    return avem.MixedSSM(f"{names} ~ 0", q, subject="subject")


def simulated(n: int, n_times: int, p: int = 4, q: int = 2) -> tuple[pd.DataFrame, dict]:
    """A panel, and parameters to start from."""
    truth = dict(TRUTH)
    if (p, q) != (4, 2):
        d = sum(p - k for k in range(q))
        truth = {
            "initial_mean": np.zeros(q),
            "initial_covariance": np.eye(q),
            "transition_mean": 0.6 * np.eye(q),
            "loading_mean": np.tril(np.full((p, q), 0.5)) + 0.5 * np.eye(p, q),
            "noise": np.full(p, 0.25),
            "transition_covariance": 0.02 * np.eye(q * q),
            "loading_covariance": 0.02 * np.eye(d),
        }
    made = model(p, q).simulate(truth, n, n_times, max_radius=0.98, seed=1)
    return made.frame, truth


def ours(n: int, n_times: int, p: int = 4, q: int = 2) -> float:
    """Wall seconds of an iteration: a long run less a short one."""
    frame, truth = simulated(n, n_times, p, q)

    def run(iterations: int) -> float:
        began = time.perf_counter()
        model(p, q).fit(frame, time="time", plain=True, init=truth, tol=0.0, max_iter=iterations)
        return time.perf_counter() - began

    run(2)
    short = median(run(1) for _ in range(REPEATS))
    return (median(run(1 + ITERATIONS) for _ in range(REPEATS)) - short) / ITERATIONS


def timed(function: Callable[[], object]) -> float:
    """Median wall seconds, after a first call that compiles."""
    function()
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        function()
        taken.append(time.perf_counter() - began)
    return median(taken)


def dynamax(n: int, n_times: int) -> float:
    """One EM iteration of its linear-Gaussian model on the same series."""
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    frame, _ = simulated(n, n_times)
    y = frame[["y1", "y2", "y3", "y4"]].to_numpy().reshape(n, n_times, 4)
    lgssm = LinearGaussianSSM(2, 4)
    params, props = lgssm.initialize()
    memory = lgssm.initialize_m_step_state(params, props)

    @jax.jit
    def step(params, series):
        sums, _ = jax.vmap(lambda one: lgssm.e_step(params, one))(series)
        return lgssm.m_step(params, props, sums, memory)[0]

    series = jax.device_put(y)
    return timed(lambda: jax.block_until_ready(step(params, series)))


def statsmodels(n: int, n_times: int) -> float:
    """Its smoother on all series, one after the other."""
    from statsmodels.tsa.statespace.mlemodel import MLEModel

    frame, _ = simulated(n, n_times)
    y = frame[["y1", "y2", "y3", "y4"]].to_numpy().reshape(n, n_times, 4)
    models = []
    for one in y:
        made = MLEModel(one, k_states=2)
        made.ssm.initialize_known(np.zeros(2), np.eye(2))
        made["design"] = np.array(TRUTH["loading_mean"])
        made["obs_cov"], made["state_cov"] = 0.25 * np.eye(4), np.eye(2)
        made["transition"] = np.array(TRUTH["transition_mean"])
        made["selection"] = np.eye(2)
        models.append(made)
    return timed(lambda: [made.ssm.smooth() for made in models])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("State space, p=4, q=2, T=100: wall seconds of one iteration, all subjects")
    for n in (50, 2000):
        mine = ours(n, 100)
        print(f"n={n}: avem, 11 effects per subject {mine:9.4f}")
        print(f"  dynamax, no effects             {dynamax(n, 100) / mine:9.1f} times as long")
        if n == 50:
            ratio = statsmodels(n, 100) / mine
            print(f"  statsmodels' smoother alone     {ratio:9.1f} times as long")
    frame, _ = simulated(50, 100)
    kinds: dict[str, dict[str, Any]] = {
        "AVEM, converged": {"refine": None},
        "default, refined": {},
    }
    for name, options in kinds.items():
        taken = timed(lambda options=options: model().fit(frame, time="time", **options))
        print(f"n=50, whole fit from its own start, warm: {name} {taken:.2f} s")
    print(f"  the authors' R script: about {SECONDS_IN_R} s for one iteration, on their machine")
    print("growth of an iteration, from n=200, T=50, p=4, q=2:")
    base = ours(200, 50)
    for name, size in {
        "n x 4": (800, 50, 4, 2),
        "T x 4": (200, 200, 4, 2),
        "p x 2": (200, 50, 8, 2),
        "q x 2": (200, 50, 8, 4),
    }.items():
        print(f"  {name} {ours(*size) / base:5.1f} times")
