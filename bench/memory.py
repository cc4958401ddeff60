"""Peak memory of a whole fit on n=100,000 subjects, T=100, K=3, d=2 (10 million rows)."""

from __future__ import annotations

import resource
import sys
import time
import warnings

import numpy as np
import pandas as pd

import avem


def big_panel(n: int, n_times: int) -> pd.DataFrame:
    """Drawn directly, so that the draw itself does not set the peak."""
    rng = np.random.default_rng(0)
    state = np.empty((n_times, n), np.int8)
    state[0] = rng.integers(3, size=n)
    for t in range(1, n_times):
        jump = rng.random(n) < 0.08
        state[t] = np.where(jump, (state[t - 1] + rng.integers(1, 3, size=n)) % 3, state[t - 1])
    mean = np.array([-1.5, 0.0, 1.5])[state.T]
    frame = pd.DataFrame({"subject": np.repeat(np.arange(n), n_times)})
    frame["time"] = np.tile(np.arange(n_times), n)
    for name in ("y1", "y2"):
        own = rng.standard_normal((n, 1))
        frame[name] = (mean + own + rng.standard_normal((n, n_times))).ravel()
    return frame


if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    frame = big_panel(n, 100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", 3).fit(frame, time="time", refine=None)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"n={n:,}, T=100, K=3, d=2: peak {peak:.2f} GB (the table alone: {before:.2f} GB)")
    print(f"{fit.stop.name} after {fit.n_iter} iterations; {seconds:.1f} s from table to fit")
