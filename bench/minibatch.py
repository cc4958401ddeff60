"""All subjects at once against batches of 2,000: n=20,000, T=100, K=2, Bernoulli, one start.

Gains are measured from the bound of the full fit's first iteration. Times are of fits in a process
that has compiled before, from table to fit.
"""

from __future__ import annotations

import sys
import time

import avem

N, T, BATCH = 20_000, 100, 2_000
WARM_UP = 4_000
"""Subjects of the fits that compile: enough for chunks of full size."""
NEEDED = 0.99
"""The share of the full fit's gain that batches must reach."""
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.92, 0.08], [0.08, 0.92]],
    "coef": [[[-1.5]], [[1.5]]],
    "effect_covariance": [[1.0]],
}

if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else N
    model = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, "bernoulli")
    frame = model.simulate(TRUTH, n, T, seed=0).frame
    few = frame[frame["subject"] < WARM_UP]
    ways = {"all subjects at once": None, f"batches of {BATCH:,}": BATCH}
    fits, seconds = [], []
    for batch_size in ways.values():
        options = {"method": avem.AVEM(batch_size=batch_size), "n_starts": 1, "refine": None}
        model.fit(few, time="time", **options)
        began = time.perf_counter()
        fits.append(model.fit(frame, time="time", **options))
        seconds.append(time.perf_counter() - began)
    base = fits[0].bound_history[0]
    gains = [fit.bound - base for fit in fits]
    print(f"Bernoulli mixed HMM, n={n:,}, T={T}, K=2, one start")
    print(f"{'':24}{'bound':>15}{'gain':>13}{'iterations':>12}{'seconds':>9}  end")
    for name, fit, gain, wall in zip(ways, fits, gains, seconds, strict=True):
        print(f"{name:24}{fit.bound:15.2f}{gain:13.2f}{fit.n_iter:12}{wall:9.1f}  {fit.stop.name}")
    share = gains[1] / gains[0]
    print(
        f"gain of batches / all: {share:.5f}; time of batches / all: {seconds[1] / seconds[0]:.2f}"
    )
    if share < NEEDED:
        sys.exit(f"Batches reach less than {NEEDED} of the gain.")
