"""A Bernoulli mixed HMM, n=40, T=200, K=2: cold, warm, and iteration by iteration.

Cold: a fresh process that imports, compiles and fits, with no compiled code kept on disk. Warm: CPU
time of later fits in one process. A fit tries 8 starts; the default goes on from AVEM's solution to
maximum likelihood, as the states of these data overlap. The paper's iteration is timed
from the start of the authors' scripts, for as many iterations as they report.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from statistics import median

import pandas as pd

import avem

N, T = 40, 200
FORMULA = "y ~ 1 + (1 | subject)"
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.92, 0.08], [0.08, 0.92]],
    "coef": [[[-1.5]], [[1.5]]],
    "effect_covariance": [[1.0]],
}
START = {
    "initial": [0.5, 0.5],
    "transition": [[0.85, 0.15], [0.15, 0.85]],
    "coef": [[[-0.4]], [[0.4]]],
    "effect_covariance": [[0.7]],
}
REPEATS = 7
AUTHORS_SECONDS, AUTHORS_ITERATIONS = 18.7, 29
"""Of the AVEM iterations on their own data of this size, from the output of their R script."""

COLD = """
import sys, pandas, avem
avem.MixedHMM(sys.argv[1], 2, "bernoulli").fit(pandas.read_csv(sys.argv[2]), time="time")
"""


def cold(frame: pd.DataFrame) -> float:
    """Wall seconds of a fresh process, from its start to its end."""
    env = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data.csv")
        frame.to_csv(path, index=False)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", COLD, FORMULA, path], env=env, check=True)
        return time.perf_counter() - began


def warm(frame: pd.DataFrame, **options) -> tuple[avem.HMMFit, float, float]:
    """A fit, and the median CPU and wall seconds of such fits after the first."""
    model = avem.MixedHMM(FORMULA, 2, "bernoulli")
    cpu, wall = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avem.AvemWarning)  # the iteration limit is meant
        fit = model.fit(frame, time="time", **options)
        for _ in range(REPEATS):
            began = time.perf_counter(), time.process_time()
            fit = model.fit(frame, time="time", **options)
            wall.append(time.perf_counter() - began[0])
            cpu.append(time.process_time() - began[1])
    return fit, median(cpu), median(wall)


def all_iterations(fit: avem.HMMFit) -> int:
    """Those of all starts, then those from the best one to the end."""
    starts = fit.info.start_iterations
    best = fit.info.start_gaps.index(0.0)
    return sum(starts) + fit.n_iter - starts[best]


if __name__ == "__main__":
    model = avem.MixedHMM(FORMULA, 2, "bernoulli")
    frame = model.simulate(TRUTH, N, T, seed=0).frame
    print(f"Bernoulli mixed HMM, n={N}, T={T}, K=2; warm: median of {REPEATS} fits")
    print(f"default fit, cold (import, compile, fit)   {cold(frame):8.2f} s wall")
    _, cpu, wall = warm(frame)
    print(f"default fit, warm                          {cpu:8.3f} s CPU, {wall:.3f} s wall")
    fit, cpu, wall = warm(frame, refine=None)
    n_iter = all_iterations(fit)
    print(f"AVEM alone, warm                           {cpu:8.3f} s CPU, {wall:.3f} s wall")
    print(
        f"  {fit.stop.name}; {fit.n_iter} iterations from the best of {len(fit.info.start_gaps)} "
        f"starts, {n_iter} with those of the other starts: "
        f"{cpu / n_iter * 1e3:.1f} ms CPU each, searches for modes included"
    )
    _, cpu, wall = warm(frame, plain=True, init=START, tol=0.0, max_iter=AUTHORS_ITERATIONS)
    print(f"the paper's iteration, {AUTHORS_ITERATIONS} times, warm      {cpu:8.3f} s CPU")
    print(f"  {cpu / AUTHORS_ITERATIONS * 1e3:.1f} ms CPU each")
    print(
        f"the authors' R script, {AUTHORS_ITERATIONS} iterations      {AUTHORS_SECONDS:8.1f} s\n"
        f"  {AUTHORS_SECONDS / AUTHORS_ITERATIONS * 1e3:.0f} ms each; for orientation: from their "
        "reference output, on their data of the same size and their machine"
    )
