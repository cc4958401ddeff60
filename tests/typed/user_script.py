# pyright: strict, reportMissingTypeStubs=false
"""What a user's type checker sees of avem; `make lint` checks this file, and nothing runs it."""

from pathlib import Path
from typing import assert_type

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem


def hidden_states(diary: pd.DataFrame, folder: Path) -> pd.Series:
    """An HMM from data to decoded states."""
    model = avem.MixedHMM("valence ~ stress + (1 | person)", n_states=3)
    fit = model.fit(diary, time="beep", sequence="day", n_starts=2)
    assert_type(fit, avem.HMMFit)
    assert_type(fit.effects_mean, np.ndarray)
    assert_type(fit.info.tol, float | None)
    loglik: float = fit.loglik()
    print(fit.summary(), loglik, fit.stop is avem.Stop.CONVERGED)
    effects: pd.DataFrame = fit.effects()
    figure: Figure = fit.plot.states()
    print(effects, figure)
    fit.save(folder / "fit.avem")
    found = avem.select(model, diary, states=range(1, 4), time="beep")
    assert_type(found.best, avem.HMMFit)
    errors: pd.DataFrame = avem.bootstrap(found.best, 100).table()
    print(errors, avem.cross_validate(model, diary, folds=3).per_value)
    assert_type(avem.steps_and_turns(diary, "person", "valence", "arousal"), pd.DataFrame)
    chances = fit.state_probabilities(diary)
    assert_type(chances, pd.DataFrame)
    return fit.decode(diary)


def latent_states(frame: pd.DataFrame) -> np.ndarray:
    """A state-space model."""
    model = avem.MixedSSM(["eda", "pupil"], n_latent=1, subject="person")
    fit = model.fit(frame, time="second")
    assert_type(fit, avem.SSMFit)
    best = avem.select(model, frame, latent=range(1, 3)).best
    assert_type(best, avem.SSMFit)
    ahead: pd.DataFrame = best.predict(horizon=5)
    print(ahead, fit.whiteness())
    return fit.transitions


def loaded(path: Path) -> avem.HMMFit:
    """A file may hold either kind."""
    fit = avem.load(path)
    assert_type(fit, avem.HMMFit | avem.SSMFit)
    if isinstance(fit, avem.HMMFit):
        return fit
    raise avem.ModelError("not an HMM")


def expected(path: Path) -> pd.Series:
    """A file of which one knows what it holds."""
    ssm = avem.load(path / "mood.avem", expect=avem.SSMFit)
    assert_type(ssm, avem.SSMFit)
    fit = avem.load(path / "states.avem", expect=avem.HMMFit)
    assert_type(fit, avem.HMMFit)
    states: pd.Series = fit.decode()
    return states
