"""Collars: the positions of eight animals, hour by hour for six days, and the temperature.

    python examples/first_hour/ecologist.py results

Made by this script, so that the truth is known. Animals rest (short steps, any turn) or travel
(long steps, straight on), with step lengths of their own; where it is warm they set off more
readily and travel longer. One fix in fifty was lost.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import avem

STEP = avem.outcome("step ~ 1 + (1 | animal)", "gamma")  # metres, between two fixes
TURN = avem.outcome("angle ~ 1", "von_mises")
MODEL = avem.MixedHMM(
    [STEP, TURN], n_states=2, transition="~ temperature", state_names=["rests", "travels"]
)
TRUTH = {
    "initial": [0.5, 0.5],
    "transition_coef": [[[0.0, 0.0], [-3.4, 0.1]], [[-0.4, -0.1], [0.0, 0.0]]],  # per degree
    "step.coef": [[[3.0]], [[5.5]]],  # log of the mean: 20 m and 245 m
    "step.shape": [[1.2], [2.5]],
    "angle.coef": [[[3.1]], [[0.0]]],
    "angle.concentration": [[0.3], [2.5]],
    "effect_covariance": [[0.09]],
}


def make_tracks() -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Positions as collars send them, the states behind their rows, and the animals' effects."""
    rng = np.random.default_rng(5)
    fixes = [(f"deer {animal}", hour) for animal in range(8) for hour in range(144)]
    rows = pd.DataFrame(fixes, columns=["animal", "hour"])
    by_hour = 15 + 8 * np.sin(2 * np.pi * np.arange(144) / 24) + rng.normal(0, 2, 144)
    rows["temperature"] = np.tile(by_hour.round(1), 8)
    made = MODEL.simulate(TRUTH, data=rows, time="hour", seed=9)
    heading = made.frame.groupby("animal")["angle"].cumsum()
    for name, part in (("x", np.cos(heading)), ("y", np.sin(heading))):
        way = (made.frame["step"] * part).groupby(rows["animal"])
        rows[name] = way.transform(lambda each: each.cumsum().shift(fill_value=0.0)).round(3)
    rows.loc[rng.random(len(rows)) < 1 / 50, ["x", "y"]] = np.nan
    return rows, made.states, made.effects


def main(folder: str | Path) -> None:
    """Ask the questions; what there is to look at is printed, or written into the folder."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    positions, *_ = make_tracks()  # pd.read_csv("collars.csv")

    # How far does each animal go, and where does it turn?
    tracks = avem.steps_and_turns(positions, subject="animal", time="hour")
    print(tracks[["step", "angle"]].describe())

    # Which states are there?
    fit = MODEL.fit(tracks, time="hour", n_starts=2)
    print(fit.summary(ratios=True))
    fit.plot.emissions().savefig(out / "emissions.png")

    # Where do they rest, and where do they travel?
    fit.plot.map(["deer 0", "deer 1"]).savefig(out / "map.png")
    tracks.assign(state=fit.decode()).to_csv(out / "states.csv", index=False)

    # Who goes further than others? (Mean steps, in metres.)
    fit.coefficients(scale="response").to_csv(out / "animals.csv", index=False)
    fit.plot.effects().savefig(out / "animals.png")

    # How long do states last, in cool and in warm hours?
    fit.dwell(at={"temperature": 10}).to_csv(out / "dwell_cool.csv", index=False)
    fit.dwell(at={"temperature": 20}).to_csv(out / "dwell_warm.csv", index=False)

    # Does temperature act on the moves between states?
    table = fit.table(errors=True, ratios=True)
    table[table["term"] == "temperature"].to_csv(out / "temperature.csv", index=False)
    fit.plot.covariate("temperature").savefig(out / "temperature.png")

    # What comes next, in six warm hours?
    ahead = fit.predict(horizon=6, future={"temperature": 25}, of="states")
    ahead.to_csv(out / "forecast.csv", index=False)

    # Is it better with temperature than without?
    without = avem.MixedHMM([STEP, TURN], n_states=2).fit(tracks, time="hour", n_starts=1)
    print(avem.compare({"temperature": fit, "no temperature": without}))

    # Does the model hold?
    print(fit.diagnose())
    fit.whiteness().to_csv(out / "whiteness.csv", index=False)
    fit.plot.residuals().savefig(out / "residuals.png")

    # What goes into the paper?
    (out / "table.md").write_text(fit.to_markdown(caption="Eight deer"), encoding="utf-8")

    # What do I send to others?
    fit.report(out / "report.html", title="Eight deer, six days")


if __name__ == "__main__":
    main(sys.argv[1])
