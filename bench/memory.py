"""Peak memory of whole fits on n=100,000 subjects, T=100, K=3, d=2 (10 million rows).

AVEM alone, and the default, each in a process of its own. `python bench/memory.py 20000` takes
another number of subjects.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from typing import Any

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


def measure(n: int, alone: bool) -> None:
    """A fit, its peak and its seconds."""
    options: dict[str, Any] = {"refine": None} if alone else {}
    frame = big_panel(n, 100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    began, worked = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", 3).fit(frame, time="time", **options)
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    words = "AVEM alone" if alone else "the default"
    print(f"n={n:,}, T=100, K=3, d=2, {words}: peak {peak:.2f} GB (the table: {before:.2f} GB)")
    print(
        f"{fit.stop.name} after {fit.n_iter} iterations; {seconds:.1f} s from table to fit, "
        f"{cpu:.1f} s of processors",
        flush=True,
    )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measure(int(sys.argv[1]), sys.argv[2] == "alone")
    else:
        n = sys.argv[1] if len(sys.argv) > 1 else "100000"
        for which in ("alone", "default"):
            subprocess.run([sys.executable, __file__, n, which], check=True)
