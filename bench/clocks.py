"""One iteration under other clocks, beside that of a model in steps on the same panel.

A chain whose stays last up to D = 50 steps; a chain in continuous time with 1,000 different
intervals; a state-space model in continuous time, with equal intervals, with 1,000 different ones,
and with drifts of the subjects' own. All from parameters that are near the truth, without effects
unless it is said. Numbers are ratios of CPU time.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

import avem

ITERATIONS, REPEATS = 40, 5


def iteration(fit: Callable[[int], Any]) -> Callable[[], float]:
    """A measurement of the CPU seconds of one iteration: a long run less a short one."""

    def run(iterations: int) -> tuple[float, int]:
        """The seconds, and how many there were: a fit may end before."""
        began = time.process_time()
        found = fit(iterations)
        return time.process_time() - began, found.n_iter

    run(3)

    def measured() -> float:
        (long, many), (short, few) = run(3 + ITERATIONS), run(3)
        return (long - short) / (many - few)

    return measured


def ratio(ours: Callable[[int], Any], other: Callable[[int], Any]) -> tuple[float, float]:
    """How many times as long ours takes, and the seconds of the other; in turns, so that what
    else the machine does meets both."""
    mine, theirs = iteration(ours), iteration(other)
    pairs = [(mine(), theirs()) for _ in range(REPEATS)]
    return median(a for a, _ in pairs) / median(b for _, b in pairs), median(b for _, b in pairs)


def fitting(model: Any, frame: pd.DataFrame, init: dict[str, Any]) -> Callable[[int], Any]:
    """A fit that makes so many iterations."""

    def fit(iterations: int) -> Any:
        options: dict[str, Any] = {"refine": None, "tol": 1e-300, "max_iter": iterations}
        return model.fit(frame, subject="subject", time="time", init=init, **options)

    return fit


def panel(n: int, length: int, n_intervals: int = 1) -> pd.DataFrame:
    """Rows of subjects at times that are so many different intervals apart."""
    rng = np.random.default_rng(0)
    gaps = np.arange(1, n_intervals + 1) * (2.0 / (n_intervals + 1))
    frame = pd.DataFrame({"subject": np.repeat(np.arange(n), length)})
    frame["time"] = rng.permutation(np.resize(gaps, len(frame)))
    return frame.assign(time=frame.groupby("subject")["time"].cumsum())


CHAIN = {
    "initial": [0.4, 0.3, 0.3],
    "coef": [[[-2.0]], [[0.0]], [[2.0]]],
    "variance": [[1.0], [1.0], [1.0]],
}
STEPS = CHAIN | {"transition": [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]]}


def stays(n: int = 200, length: int = 200) -> tuple[float, float]:
    """Stays of up to 50 steps against a chain of three states."""
    chain = avem.MixedHMM("y ~ 1", 3)
    longer = avem.MixedHMM("y ~ 1", 3, duration=avem.Duration("negative_binomial", max=50))
    frame = chain.simulate(STEPS, data=panel(n, length), time="time", seed=1).frame
    began = longer.fit(frame, subject="subject", time="time", refine=None, n_starts=2)
    return ratio(fitting(longer, frame, began.params), fitting(chain, frame, STEPS))


def intervals(n: int = 200, length: int = 200, family: str = "gaussian") -> tuple[float, float]:
    """1,000 different intervals against a chain of three states in steps."""
    chain = avem.MixedHMM("y ~ 1", 3, family)
    rates = avem.MixedHMM("y ~ 1", 3, family, time_scale="continuous")
    outcome = CHAIN
    if family == "student_t":
        outcome = {"initial": CHAIN["initial"], "coef": CHAIN["coef"]}
        outcome |= {"scale": [[1.0]] * 3, "df": [[5.0]] * 3}
    truth = outcome | {"rate": [[0.0, 0.05, 0.05], [0.05, 0.0, 0.05], [0.05, 0.05, 0.0]]}
    frame = rates.simulate(truth, data=panel(n, length, 1000), time="time", seed=1).frame
    steps = outcome | {"transition": STEPS["transition"]}
    return ratio(fitting(rates, frame, truth), fitting(chain, frame, steps))


def drifts(n: int = 200, length: int = 100) -> dict[str, float]:
    """State-space models in continuous time against the one in steps."""
    common = {
        "initial_mean": np.zeros(2),
        "initial_covariance": np.eye(2),
        "loading_mean": [[1.0, 0.0], [0.2, 0.9], [0.3, 0.4], [0.4, 0.2]],
        "coef": np.zeros((4, 1)),
        "noise": np.full(4, 0.25),
    }
    drift = common | {"drift_mean": [[-0.4, -0.1], [0.1, -0.5]]}
    step = common | {"transition_mean": [[0.7, -0.1], [0.1, 0.6]]}
    own = {"own": 0.02 * np.eye(4)}
    found = {}
    for name, n_intervals, random in (
        ("one interval", 1, "none"),
        ("1,000 intervals", 1000, "none"),
        ("one interval, drifts of the subjects' own", 1, "drift"),
        ("1,000 intervals, drifts of the subjects' own", 1000, "drift"),
    ):
        outcomes, frame = ["y1", "y2", "y3", "y4"], panel(n, length, n_intervals)
        ours = avem.MixedSSM(outcomes, 2, random=random, time_scale="continuous", subject="subject")
        others = "transition" if random == "drift" else "none"
        other = avem.MixedSSM(outcomes, 2, random=others, subject="subject")
        here = drift | ({"drift_covariance": own["own"]} if random == "drift" else {})
        there = step | ({"transition_covariance": own["own"]} if random == "drift" else {})
        radius = 0.95 if random == "drift" else None
        made = ours.simulate(here, data=frame, time="time", max_radius=radius, seed=1).frame
        found[name], _ = ratio(fitting(ours, made, here), fitting(other, made, there))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("An iteration under other clocks: times the CPU of one in steps on the same panel")
    size = "HMM, 200 x 200, 3 states"
    for words, limit, measure in (
        (f"{size}: stays of up to 50 steps", 12, stays),
        (f"{size}: 1,000 different intervals", 3, intervals),
        (
            f"{size}, Student t: 1,000 different intervals",
            3,
            partial(intervals, family="student_t"),
        ),
    ):
        found, seconds = measure()
        print(f"{words} {found:.1f} (wanted: at most {limit}); in steps {1e3 * seconds:.2f} ms")
    for name, found in drifts().items():
        print(f"state-space model, 200 x 100, 2 states, 4 outcomes: {name} {found:.1f}")
