"""What the exact answer costs: the default beside AVEM alone, on the same data in one run.

CPU seconds of the second of two fits, so without compiling. Three states, two Gaussian outcomes
with an effect each, or with two that are all correlated, and the Bernoulli model of `bernoulli.py`;
then, of the bundled diary with four effects, what follows a fit. `python bench/default.py
10000x100` takes other sizes.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
import pandas as pd

import avem

SIZES = ("100x80", "300x200", "1000x100", "20x5000")
MODEL = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", 3)
TRUTH = {
    "initial": np.full(3, 1 / 3),
    "transition": np.full((3, 3), 0.05) + 0.85 * np.eye(3),
    "coef": np.array([[[-2.0], [1.0]], [[0.0], [-1.0]], [[2.0], [0.5]]]),
    "variance": np.ones((3, 2)),
    "effect_covariance": np.array([[1.0, 0.3], [0.3, 0.5]]),
}
SLOPES = avem.MixedHMM("y1 + y2 ~ x + (1 + x | subject)", 3)
TRUE_SLOPES = {
    **TRUTH,
    "coef": np.array(
        [[[-2.0, 0.3], [1.0, 0.0]], [[0.0, 0.0], [-1.0, 0.3]], [[2.0, -0.3], [0.5, 0.3]]]
    ),
    "effect_covariance": np.array(
        [[1.0, 0.3, 0.3, 0.1], [0.3, 0.5, 0.1, 0.2], [0.3, 0.1, 0.5, 0.2], [0.1, 0.2, 0.2, 0.4]]
    ),
}
CHOICES = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, "bernoulli")
TRUE_CHOICES = {
    "initial": [0.5, 0.5],
    "transition": [[0.92, 0.08], [0.08, 0.92]],
    "coef": [[[-1.5]], [[1.5]]],
    "effect_covariance": [[1.0]],
}


def warm(model: avem.MixedHMM, frame: pd.DataFrame, **options) -> tuple[avem.HMMFit, float]:
    """The second of two fits, and its CPU seconds."""
    for _ in range(2):
        began = time.process_time()
        fit = model.fit(frame, time="time", **options)
        seconds = time.process_time() - began
    return fit, seconds


def compare(name: str, model: avem.MixedHMM, frame: pd.DataFrame) -> None:
    """A line: both fits, their ratio, and why the default did what it did."""
    _, anchored = warm(model, frame, refine=None)
    fit, default = warm(model, frame)
    said = "refined" if fit.info.refined else "anchoring stands"
    print(
        f"{name:>20}: AVEM alone {anchored:6.2f} s, default {default:6.2f} s, ratio "
        f"{default / anchored:4.1f} ({said}: {fit.info.bias:.2g} standard errors)",
        flush=True,
    )


def with_covariate(n: int, n_times: int) -> pd.DataFrame:
    """Data of the model with four correlated effects."""
    subject, times = np.repeat(np.arange(n), n_times), np.tile(np.arange(n_times), n)
    x = np.random.default_rng(1).normal(size=n * n_times)
    rows = pd.DataFrame({"subject": subject, "time": times, "x": x})
    return SLOPES.simulate(TRUE_SLOPES, data=rows, time="time", seed=0).frame


def diary() -> None:
    """The bundled diary: a fit, its likelihood and its standard errors."""
    model = avem.MixedHMM("valence + arousal ~ stress + (1 + stress | person)", 3)
    frame = avem.load_affect().rename(columns={"beep": "time"})
    for _ in range(2):
        began = time.process_time()
        fit = model.fit(frame, time="time", sequence="day")
        fitted = time.process_time() - began
        fit.loglik()
        likelihood = time.process_time() - began - fitted
        fit.standard_errors()
        errors = time.process_time() - began - fitted - likelihood
    print(
        f"{'diary, 4 effects':>20}: fit {fitted:.2f} s, loglik() {likelihood:.2f} s, "
        f"standard_errors() {errors:.2f} s"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for size in sys.argv[1:] or SIZES:
        n, n_times = map(int, size.split("x"))
        compare(size, MODEL, MODEL.simulate(TRUTH, n, n_times, seed=0).frame)
    if not sys.argv[1:]:
        for n, n_times in ((100, 80), (300, 200)):
            name = f"{n}x{n_times}, 4 effects"
            compare(name, SLOPES, with_covariate(n, n_times))
        compare("Bernoulli 40x200", CHOICES, CHOICES.simulate(TRUE_CHOICES, 40, 200, seed=0).frame)
        diary()
