"""An app's log in Parquet files: how often each of 200 users opened it, day by day for four weeks.

    python examples/first_hour/data_scientist.py results

Made by this script, so that the truth is known. Users are idle or active, and have rates of their
own; a push message wakes them up. They joined on different days, and there is a file for each week.
The command `avem` fits all rows, from Parquet to Parquet; Python asks for what is small.
"""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import avem

COUNTS = "sessions ~ 1 + (1 | user)"
NAMES = ["idle", "active"]
MODEL = avem.MixedHMM(COUNTS, 2, family="poisson", transition="~ push", state_names=NAMES)
TRUTH = {
    "initial": [0.3, 0.7],
    "transition_coef": [[[0.0, 0.0], [-2.2, 1.2]], [[-1.8, 0.0], [0.0, 0.0]]],
    "coef": [[[-1.6]], [[1.6]]],  # log of the rate: 0.2 and 5 sessions a day
    "effect_covariance": [[0.15]],
}
FIT_COMMAND = f"""avem fit log.parquet '{COUNTS}' --family poisson --transition '~ push' --states 2
    --state-names idle,active --time day --starts 2 --no-plots --out fit"""


def make_log(folder: Path) -> tuple[Any, np.ndarray, np.ndarray]:
    """Write a file per week, and one with the pushes that are planned; give what is behind them."""
    rng = np.random.default_rng(7)
    joined = rng.integers(1, 15, 200)
    days = [(user, day) for user in range(200) for day in range(joined[user], 36)]
    rows = pl.DataFrame(days, schema=["user", "day"], orient="row")
    rows = rows.with_columns(push=pl.Series(rng.random(len(rows)) < 0.2).cast(pl.Int8))
    past, ahead = rows.filter(pl.col("day") <= 28), rows.filter(pl.col("day") > 28)
    made = MODEL.simulate(TRUTH, data=past, time="day", seed=9)
    for week in range(4):
        part = made.frame.filter((pl.col("day") - 1) // 7 == week)
        part.write_parquet(folder / f"week_{week + 1}.parquet")
    ahead.write_parquet(folder / "planned.parquet")
    return made.frame, made.states, made.effects


def shell(command: str, folder: Path) -> None:
    """What you would type, run in a folder by the Python that runs this script."""
    subprocess.run([sys.executable, "-m", *shlex.split(command)], cwd=folder, check=True)


def main(folder: str | Path) -> None:
    """Ask the questions; what there is to look at is printed, or written into the folder."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    make_log(out)

    # Which states are there, and in which is every user on every day? (Tables come as Parquet.)
    pl.scan_parquet(out / "week_*.parquet").sink_parquet(out / "log.parquet")
    shell(FIT_COMMAND, out)

    # How many are active, day by day? (Of a table that need not fit into memory.)
    states = pl.scan_parquet(out / "fit" / "states.parquet")
    print(states.group_by("day").agg(pl.col("active").mean()).sort("day").collect())

    # What was found?
    fit: Any = avem.load(out / "fit" / "fit.avem")
    fit = fit.with_data(pl.read_parquet(out / "log.parquet"))
    print(fit.summary(ratios=True))

    # Which users differ most from others? (Sessions a day, in each state.)
    fit.coefficients(scale="response").write_parquet(out / "users.parquet")
    print(fit.effects().sort("mean", descending=True).head())

    # How long do states last, on days without and with a push?
    fit.dwell(at={"push": 0}).write_parquet(out / "dwell.parquet")
    print(fit.dwell(at={"push": 0}), fit.dwell(at={"push": 1}), sep="\n")

    # Does a push act on the moves between states?
    table = fit.table(errors=True, ratios=True)
    table.filter(pl.col("term") == "push").write_parquet(out / "push.parquet")
    fit.plot.covariate("push").savefig(out / "push.png")

    # What comes next, with the pushes that are planned?
    ahead = fit.predict(horizon=7, future=pl.read_parquet(out / "planned.parquet"))
    ahead.write_parquet(out / "forecast.parquet")

    # Is it better with pushes than without?
    without = avem.MixedHMM(COUNTS, 2, family="poisson").fit(fit.panel, n_starts=1)
    print(avem.compare({"pushes": fit, "no pushes": without}))

    # Does the model hold?
    print(fit.diagnose(), fit.check(["mean", "zeros"], n=20), sep="\n")
    fit.plot.residuals().savefig(out / "residuals.png")

    # What goes into the slides?
    (out / "table.md").write_text(fit.to_markdown(caption="200 users"), encoding="utf-8")

    # What do I send to others?
    fit.report(out / "report.html", title="Idle and active users", timelines=[0, 1, 2])


if __name__ == "__main__":
    main(sys.argv[1])
