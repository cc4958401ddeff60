"""An effect of the subject beside exact times of death: the likelihood against a dense grid."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm
from scipy.stats import norm

import avem
from tests.fits.kinds import fit_from

FOLDER = Path(os.environ.get("AVEM_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
MOVES = [("well", "ill"), ("well", "dead"), ("ill", "dead")]
TRUTH = {
    "initial": [1.0, 0.0, 0.0],
    "rate": [[0, 0.25, 0.05], [0, 0, 0.4], [0, 0, 0]],
    "coef": [[[97.0]], [[50.0]], [[0.0]]],
    "variance": [[120.0], [150.0], [1.0]],
    "effect_covariance": [[300.0]],
}


def lung_model(unit):
    moves = avem.rates(moves=MOVES, event="died", unit=unit)
    names = ["well", "ill", "dead"]
    return avem.MixedHMM("fev ~ 1 + (1 | who)", 3, state_names=names, transition=moves)


def on_a_grid(params, frame, n=801, width=8.0):
    """Log likelihood and the effects' posterior means: a forward pass at every node, in NumPy."""
    rate = np.array(params["rate"], float)
    rate -= np.diag(rate.sum(1))
    sd = np.sqrt(np.array(params["variance"])[:2, 0])
    mean = np.array(params["coef"])[:2, 0, 0]
    nodes = np.linspace(-width, width, n)
    weights = norm.pdf(nodes) / norm.pdf(nodes).sum()
    f = nodes * np.sqrt(params["effect_covariance"][0][0])
    total, means = 0.0, []
    for _, own in frame.sort_values(["who", "time"]).groupby("who"):
        now = np.tile(np.array(params["initial"], float)[:, None], (1, n))
        loglik, before = np.zeros(n), None
        for time, fev, died in zip(own["time"], own["fev"], own["died"], strict=True):
            if before is not None:
                now = expm(rate * (time - before)).T @ now
            before = time
            if died:
                now = np.stack([0 * f, 0 * f, now[0] * rate[0, 2] + now[1] * rate[1, 2]])
            elif np.isfinite(fev):
                now[:2] *= norm.pdf(fev, mean[:, None] + f, sd[:, None])
                now[2] = 0.0
            reached = np.maximum(now.sum(0), 1e-300)
            loglik, now = loglik + np.log(reached), now / reached
        top = loglik.max()
        share = weights * np.exp(loglik - top)
        total += top + np.log(share.sum())
        means.append(share @ f / share.sum())
    return total, np.array(means)


def test_the_likelihood_is_that_of_a_dense_grid():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"who": np.repeat(np.arange(24), 12)})
    rows["time"] = rng.gamma(1.5, 0.4, len(rows)) + 0.05
    rows["time"] = rows.groupby("who")["time"].cumsum()
    model = lung_model("years")
    drawn = model.simulate(TRUTH, data=rows, subject="who", time="time", seed=1)
    frame = drawn.frame[drawn.frame["fev"].notna() | drawn.frame["died"]].reset_index(drop=True)
    assert frame["died"].sum() > 5
    fit = fit_from(model, TRUTH, frame, drawn.effects, "time")
    wanted, means = on_a_grid(TRUTH, frame)
    assert float(fit.loglik()) == pytest.approx(wanted, abs=1e-3)
    found = fit.effects(posterior="adaptive")["mean"].to_numpy()
    np.testing.assert_allclose(found, means, atol=0.02 * np.sqrt(300))


@pytest.mark.slow
@pytest.mark.skipif(not (FOLDER / "fev.csv").exists(), reason="the panel is not here")
def test_levels_of_lungs_differ_between_patients():
    """On the panel of msm: what the effect explains, and what it leaves as it was."""
    frame = pd.read_csv(FOLDER / "fev.csv").rename(columns={"ptnum": "who", "days": "time"})
    frame["died"] = frame["fev"] == 999
    frame["fev"] = frame["fev"].where(~frame["died"])
    fit = lung_model("days").fit(frame, "who", "time", fixed={"initial": [1.0, 0.0, 0.0]})
    wanted, means = on_a_grid(fit.params, frame)
    assert float(fit.loglik()) == pytest.approx(wanted, abs=0.01)
    np.testing.assert_allclose(fit.effects_mean[:, 0], means, atol=0.1)
    # Without it -2 log L is 51815.8125, and the noise has sds of 17.2 and 16.8.
    assert -2 * float(fit.loglik()) == pytest.approx(48011.75, abs=0.1)
    assert np.sqrt(fit.params["effect_covariance"][0, 0]) == pytest.approx(17.3, abs=0.1)
    np.testing.assert_allclose(np.sqrt(fit.params["variance"][:2, 0]), [11.06, 12.34], atol=0.05)
    rate = fit.params["rate"]
    found = [rate[0, 1], rate[0, 2], rate[1, 2]]
    np.testing.assert_allclose(found, [5.37e-4, 8.83e-5, 8.86e-4], rtol=0.01)
