"""Makes avem/data/bundled/affect.csv, the diary of mood that comes with avem.

    python examples/make_affect.py [OUTPUT.csv]

Simulated, so that the truth is known; avem/data/bundled/affect.md says what it is.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import avem

SEED = 20240607
N_PEOPLE = 60
UNANSWERED, SKIPPED = 0.15, 0.01
"""Share of prompts without any answer, and of single sliders left out."""
OUTPUT = Path(__file__).resolve().parents[1] / "avem" / "data" / "bundled" / "affect.csv"

FORMULA = "valence + arousal ~ stress + (1 + stress | person)"
# States: tense, calm, lively. Outcomes: valence, arousal. Terms: intercept, stress.
SPREAD = np.array([6.0, 1.5, 5.0, 1.2])  # between people: valence: 1, stress; arousal: 1, stress
CORRELATION = np.array(
    [
        [1.0, 0.3, -0.4, 0.0],
        [0.3, 1.0, 0.0, -0.3],
        [-0.4, 0.0, 1.0, 0.2],
        [0.0, -0.3, 0.2, 1.0],
    ]
)
TRUTH = {
    "initial": np.array([0.2, 0.5, 0.3]),
    "transition": np.array([[0.70, 0.22, 0.08], [0.10, 0.75, 0.15], [0.05, 0.25, 0.70]]),
    "coef": np.array(
        [
            [[38.0, -4.0], [60.0, 3.0]],
            [[53.0, -2.5], [39.0, 1.5]],
            [[66.0, -1.5], [57.0, 1.0]],
        ]
    ),
    "variance": np.array([[36.0, 36.0], [25.0, 25.0], [25.0, 36.0]]),
    "effect_covariance": CORRELATION * np.outer(SPREAD, SPREAD),
}


def prompts(rng: np.random.Generator) -> pd.DataFrame:
    """Who was prompted when, with the stress at that moment."""
    rows = []
    for number in range(1, N_PEOPLE + 1):
        usual = rng.normal(0.0, 0.5)
        for day in range(1, rng.integers(5, 9, endpoint=True) + 1):
            today = rng.normal(usual, 0.4)
            stress = rng.normal(today, 0.8, rng.integers(6, 10, endpoint=True))
            rows += [(f"p{number:02d}", day, beep, x) for beep, x in enumerate(stress, start=1)]
    frame = pd.DataFrame(rows, columns=["person", "day", "beep", "stress"])
    return frame.round({"stress": 2})


def make() -> pd.DataFrame:
    """The data set."""
    rng = np.random.default_rng(SEED)
    model = avem.MixedHMM(FORMULA, n_states=3)
    simulated = model.simulate(
        TRUTH, data=prompts(rng), time="beep", sequence="day", seed=SEED
    ).frame
    outcomes = ["valence", "arousal"]
    answers = simulated[outcomes].round(1)
    if answers.min(axis=None) < 0 or answers.max(axis=None) > 100:
        raise ValueError("an answer is off the slider; choose another seed")
    missing = (rng.random((len(answers), 1)) < UNANSWERED) | (rng.random(answers.shape) < SKIPPED)
    return simulated.assign(**answers.mask(missing))


if __name__ == "__main__":
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    made = make()
    made.to_csv(output, index=False, lineterminator="\n")
    print(f"{output}: {len(made)} rows of {made['person'].nunique()} people")
