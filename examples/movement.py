"""Tracks of animals: step lengths and turning angles, with heat acting on the transitions.

    python examples/movement.py                # fits them
    python examples/movement.py tracks.csv     # writes them to a file instead

Simulated, so that the truth is known: an animal rests (state 0: short steps, many turns back) or
travels (state 1: long steps, straight on). Animals differ in their step length and in how readily
they set off and stop; heat makes all of them set off. The fit is printed, then the truth beside it.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

import avem

N_ANIMALS, N_HOURS = 30, 300
MODEL = avem.MixedHMM(
    [
        avem.outcome("step ~ 1 + (1 | animal)", "gamma", shape="~ heat"),
        avem.outcome("angle ~ 1", "von_mises"),
    ],
    n_states=2,
    transition="~ heat + (1 | animal)",
    initial="stationary",
    effect_covariance="block",
)
TRUTH = {
    # from state x to state x (intercept, heat); 0 for staying
    "transition_coef": [[[0.0, 0.0], [-2.0, 0.8]], [[-2.0, -0.8], [0.0, 0.0]]],
    "step.coef": [[[0.0]], [[2.0]]],  # log of the mean
    "step.shape_coef": [[[0.5, 0.0]], [[1.5, 0.3]]],  # log of the shape: intercept, heat
    "angle.coef": [[[3.1]], [[0.0]]],
    "angle.concentration": [[0.5], [3.0]],
    "effect_covariance": np.diag([0.2, 0.4, 0.4]),  # step, 0 -> 1, 1 -> 0
}


def make_tracks(seed: int = 1) -> avem.Simulation:
    """The tracks, with the states and effects behind them."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {
            "animal": np.repeat([f"a{number:02d}" for number in range(N_ANIMALS)], N_HOURS),
            "hour": np.tile(np.arange(N_HOURS), N_ANIMALS),
        }
    )
    day = np.sin(2 * np.pi * rows["hour"] / 24)
    rows["heat"] = (day + rng.normal(0, 0.5, len(rows))).round(3)
    return MODEL.simulate(TRUTH, data=rows, time="hour", seed=seed)


def main() -> None:
    """Fit the tracks and compare with the truth, or write them to the file that was named."""
    tracks = make_tracks()
    if len(sys.argv) > 1:
        tracks.frame.to_csv(sys.argv[1], index=False, lineterminator="\n")
        return
    fit = MODEL.fit(tracks.frame, time="hour")
    print(fit.summary(), "\n")
    for name, value in TRUTH.items():
        print(f"{name}: truth {np.ravel(value)}, estimate {np.ravel(fit.params[name]).round(2)}")
    right = np.mean(fit.decode().to_numpy() == tracks.states)
    print(f"rows decoded to the right state: {right:.3f}")


if __name__ == "__main__":
    main()
