"""A diary: 24 persons, ten days, six beeps a day, a slider and a yes-or-no item.

    python examples/first_hour/psychologist.py results

Made by this script, so that the truth is known. Persons are low or content, each with a level of
their own on the slider; on a day that began with stress they get low more readily. One beep in
seven was not answered, and such rows are absent, as most apps leave them.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import avem

MOOD = avem.outcome("mood ~ 1 + (1 | person)")  # a slider from 0 to 100
WORRY = avem.outcome("worried ~ 1", "bernoulli")  # yes or no
MODEL = avem.MixedHMM(
    [MOOD, WORRY], n_states=2, transition="~ stress", state_names=["low", "content"]
)
TRUTH = {
    "initial": [0.4, 0.6],
    "transition_coef": [[[0.0, 0.0], [-1.0, -0.7]], [[-1.6, 0.7], [0.0, 0.0]]],
    "mood.coef": [[[40.0]], [[65.0]]],
    "mood.variance": [[64.0], [64.0]],
    "worried.coef": [[[1.0]], [[-2.0]]],
    "effect_covariance": [[49.0]],
}


def make_diary() -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """The diary as an app stores it, the states behind its rows, and the persons' effects."""
    rng = np.random.default_rng(1)
    beeps = [
        (f"p{person:02d}", day, beep)
        for person in range(24)
        for day in range(1, 11)
        for beep in range(1, 7)
    ]
    rows = pd.DataFrame(beeps, columns=["person", "day", "beep"])
    rows["stress"] = rng.normal(size=240).round(2).repeat(6)  # asked once, in the morning
    made = MODEL.simulate(TRUTH, data=rows, time="beep", sequence="day", seed=3)
    answered = rng.random(len(rows)) > 1 / 7
    diary = made.frame.loc[answered].round(1).reset_index(drop=True)
    return diary, made.states[answered], made.effects


def main(folder: str | Path) -> None:
    """Ask the questions; what there is to look at is printed, or written into the folder."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    diary, *_ = make_diary()  # pd.read_csv("diary.csv")

    # Which states are there? (A beep that was not answered is a step, too.)
    panel = avem.Panel.from_frame(diary, "person", "beep", "day").fill_gaps(constant=["stress"])
    fit = MODEL.fit(panel, n_starts=2)
    print(fit.summary(ratios=True))

    # In which state was each person, beep by beep?
    fit.plot.states(["p00", "p01", "p02"]).savefig(out / "states.png")
    fit.decode(diary).to_csv(out / "states.csv", index=False)

    # Who differs?
    fit.coefficients().to_csv(out / "persons.csv", index=False)
    fit.plot.effects().savefig(out / "persons.png")

    # How long do states last, on an ordinary day?
    fit.dwell(at={"stress": 0}).to_csv(out / "dwell.csv", index=False)

    # Does stress act on the moves between states?
    table = fit.table(errors=True, ratios=True)
    table[table["term"] == "stress"].to_csv(out / "stress.csv", index=False)
    fit.plot.covariate("stress").savefig(out / "stress.png")

    # What would follow on the last day, with much stress?
    last = diary[diary["day"] == 10]
    ahead = fit.predict(last, horizon=3, future={"stress": 1.5})
    ahead.to_csv(out / "forecast.csv", index=False)

    # Is it better with stress than without?
    without = avem.MixedHMM([MOOD, WORRY], n_states=2).fit(panel, n_starts=1)
    print(avem.compare({"stress": fit, "no stress": without}))

    # Does the model hold?
    print(fit.diagnose())
    fit.whiteness().to_csv(out / "whiteness.csv", index=False)
    fit.plot.residuals().savefig(out / "residuals.png")

    # What goes into the paper?
    (out / "table.tex").write_text(fit.to_latex(caption="Mood and stress"), encoding="utf-8")

    # What do I send to others?
    fit.report(out / "report.html", title="Mood and stress of 24 persons")


if __name__ == "__main__":
    main(sys.argv[1])
