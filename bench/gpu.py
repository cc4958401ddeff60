"""What a GPU gives: iterations and whole fits, on it and on the processor.

    python bench/gpu.py            # everything; needs a GPU
    python bench/gpu.py iteration  # or: bernoulli, fits, memory

Each line is measured after a first run that compiles; that run is told apart.
"""

from __future__ import annotations

import os
import sys
import time
import warnings

import jax
import numpy as np
import pandas as pd

import avem
from avem.inference.e_steps import state_at
from avem.inference.fit_hmm import make_em
from avem.numerics import devices
from avem.numerics.precision import in_float64

N_TIMES = 100


def gaussian(n: int, seed: int = 0) -> pd.DataFrame:
    """Three states, two outcomes with an effect each."""
    rng = np.random.default_rng(seed)
    states = np.empty((n, N_TIMES), int)
    states[:, 0] = rng.integers(0, 3, n)
    for t in range(1, N_TIMES):
        moves = rng.random(n) < 0.1
        states[:, t] = np.where(moves, rng.integers(0, 3, n), states[:, t - 1])
    mean = np.array([[-2.0, -1.0], [0.0, 1.5], [2.0, -1.0]])
    y = mean[states] + rng.normal(0, 0.7, (n, 1, 2)) + rng.standard_normal((n, N_TIMES, 2))
    return _frame(n, {"y1": y[..., 0], "y2": y[..., 1]})


def bernoulli(n: int, seed: int = 0) -> pd.DataFrame:
    """Two states, one effect."""
    rng = np.random.default_rng(seed)
    states = np.cumsum(rng.random((n, N_TIMES)) < 0.1, axis=1) % 2
    chance = 1 / (1 + np.exp(-(3.0 * states - 1.5 + rng.normal(0, 0.8, (n, 1)))))
    return _frame(n, {"y": (rng.random((n, N_TIMES)) < chance).astype(int)})


def _frame(n: int, outcomes: dict[str, np.ndarray]) -> pd.DataFrame:
    subject, t = np.repeat(np.arange(n), N_TIMES), np.tile(np.arange(N_TIMES), n)
    return pd.DataFrame({"subject": subject, "t": t, **{k: v.ravel() for k, v in outcomes.items()}})


MODELS = {
    "gaussian": (gaussian, avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", n_states=3)),
    "bernoulli": (
        bernoulli,
        avem.MixedHMM("y ~ 1 + (1 | subject)", n_states=2, family="bernoulli"),
    ),
}


@in_float64
def iteration(kind: str, n: int, device: str, start: avem.HMMFit) -> None:
    """One anchored iteration, all of it counted."""
    make, model = MODELS[kind]
    with devices.wanted(device):
        panel = model._panel(make(n), None, "t", None)
        data = start.model.encode(panel)
    em = make_em(start.model, data)
    theta = start.theta
    state = state_at(em.data, theta, np.zeros((len(theta["effect_covariance"]), n)))
    begun = time.perf_counter()
    state = em.step(state).state
    first = time.perf_counter() - begun
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        state = em.step(state).state
        times.append(time.perf_counter() - begun)
    each = min(times) / (n * N_TIMES) * 1e9
    print(f"iteration {kind:9s} {n:>9,d} x {N_TIMES} {device}: {each:7.3f} ns per cell", end="")
    print(
        f" ({min(times):.4f} s, the first {first:.1f} s, {len(em.data.shards)} shards)", flush=True
    )


def whole_fit(kind: str, n: int, device: str, **options) -> avem.HMMFit:
    """A default fit, the second of two."""
    make, model = MODELS[kind]
    frame, fit = make(n), None
    for turn in ("first", "again"):
        begun = time.perf_counter()
        with devices.wanted(device):
            fit = model.fit(frame, time="t", **options)
        took = time.perf_counter() - begun
        print(f"fit {kind:9s} {n:>9,d} x {N_TIMES} {device} {options}: {turn} {took:.2f} s", end="")
        print(f", bound {fit.bound:.6f}, {fit.n_iter} iterations, {peak()}", flush=True)
    assert fit is not None
    return fit


def peak() -> str:
    """The most memory that was used on the device so far."""
    stats = jax.devices()[0].memory_stats() or {}
    return f"peak {stats.get('peak_bytes_in_use', 0) / 1e9:.2f} GB"


def main(wanted: list[str]) -> None:
    """What was asked for, or everything."""
    warnings.simplefilter("ignore")
    print(jax.devices(), os.cpu_count(), "cores", flush=True)
    small = {
        kind: model.fit(make(200), time="t", refine=None) for kind, (make, model) in MODELS.items()
    }
    both = [d for d in ("gpu", "cpu") if d == "cpu" or jax.default_backend() == "gpu"]
    sizes = [int(size) for size in os.environ.get("SIZES", "10000,100000,1000000").split(",")]
    for kind in ("gaussian", "bernoulli"):
        if not wanted or "iteration" in wanted:
            for device in both:
                for n in sizes:
                    if device == "gpu" or n <= 100_000:
                        iteration(kind, n, device, small[kind])
    if not wanted or "fits" in wanted:
        for n in sizes:
            found = {}
            for device in both:
                if device == "gpu" or n <= int(os.environ.get("CPU_UP_TO", "10000")):
                    found[device] = whole_fit("gaussian", n, device)
            if len(found) == 2:
                gpu, cpu = found["gpu"], found["cpu"]
                far = max(float(np.abs(gpu.params[k] - cpu.params[k]).max()) for k in gpu.params)
                print(
                    f"  bounds differ by {abs(gpu.bound / cpu.bound - 1):.1e},",
                    f"parameters by {far:.1e}",
                )


if __name__ == "__main__":
    main(sys.argv[1:])
