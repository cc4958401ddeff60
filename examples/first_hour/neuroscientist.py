"""Choices: ten mice, four sessions each, 100 trials a session, a stimulus on the left or right.

    python examples/first_hour/neuroscientist.py results

Made by this script, so that the truth is known. A mouse is engaged, and goes by the stimulus, or
biased to the right, whatever it sees: a logistic regression in every state (a GLM-HMM). Mice have a
bias of their own, and late in a session they are engaged less and less.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import avem

CHOICE = "choice ~ stimulus + (1 | mouse)"  # 1: right
NAMES = ["engaged", "biased"]
MODEL = avem.MixedHMM(CHOICE, 2, family="bernoulli", transition="~ late", state_names=NAMES)
TRUTH = {
    "initial": [0.9, 0.1],
    "transition_coef": [[[0.0, 0.0], [-4.2, 2.0]], [[-1.8, -2.0], [0.0, 0.0]]],
    "coef": [[[0.0, 6.0]], [[1.8, 0.6]]],  # bias, stimulus
    "effect_covariance": [[0.16]],
}


def make_trials() -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """The trials, the states behind them, and the effects of the mice."""
    rng = np.random.default_rng(3)
    trials = [
        (f"m{mouse:02d}", session, trial)
        for mouse in range(10)
        for session in range(1, 5)
        for trial in range(1, 101)
    ]
    rows = pd.DataFrame(trials, columns=["mouse", "session", "trial"])
    rows["stimulus"] = rng.choice([-1.0, -0.5, -0.25, 0.25, 0.5, 1.0], len(rows))
    rows["late"] = rows["trial"] / 100
    made = MODEL.simulate(TRUTH, data=rows, time="trial", sequence="session", seed=4)
    return made.frame, made.states, made.effects


def main(folder: str | Path) -> None:
    """Ask the questions; what there is to look at is printed, or written into the folder."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    trials, *_ = make_trials()  # pd.read_csv("trials.csv")

    # Which states are there?
    fit = MODEL.fit(trials, time="trial", sequence="session", n_starts=2)
    print(fit.summary(ratios=True))
    fit.plot.covariate("stimulus", on="choice").savefig(out / "psychometric.png")

    # How probable is each state, trial by trial?
    trials.join(fit.state_probabilities()).to_csv(out / "trials.csv", index=False)
    fit.plot.states(["m00", "m01"]).savefig(out / "states.png")

    # And session by session?
    fit.occupancy(by=["mouse", "session"]).to_csv(out / "sessions.csv", index=False)

    # Which mice have a bias of their own?
    fit.coefficients().to_csv(out / "mice.csv", index=False)
    fit.plot.effects().savefig(out / "mice.png")

    # How long do states last, early and late in a session?
    fit.dwell(at={"late": 0}).to_csv(out / "dwell_early.csv", index=False)
    fit.dwell(at={"late": 1}).to_csv(out / "dwell_late.csv", index=False)

    # Do mice disengage as a session goes on?
    table = fit.table(errors=True, ratios=True)
    table[table["term"] == "late"].to_csv(out / "late.csv", index=False)
    fit.plot.covariate("late", on="stationary").savefig(out / "late.png")

    # What would follow, if the session went on with strong stimuli on the left?
    ahead = fit.predict(horizon=10, future={"stimulus": -1.0, "late": 1.0})
    ahead.to_csv(out / "forecast.csv", index=False)

    # Are two states better than one, a psychometric curve without lapses?
    one = avem.MixedHMM(CHOICE, 1, family="bernoulli")
    one_fit = one.fit(trials, time="trial", sequence="session", n_starts=1)
    print(avem.compare({"one state": one_fit, "two states": fit}))

    # Does the model hold?
    print(fit.diagnose())
    print(fit.check(["mean", "autocorrelation"], n=50))
    fit.plot.residuals().savefig(out / "residuals.png")

    # What goes into the paper?
    (out / "table.tex").write_text(fit.to_latex(caption="Ten mice"), encoding="utf-8")

    # What do I send to others?
    fit.report(out / "report.html", title="Engaged and biased mice")


if __name__ == "__main__":
    main(sys.argv[1])
