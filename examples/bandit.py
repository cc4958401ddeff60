"""Reinforcement learning as an emission: a two-armed bandit, learnt differently in each state.

In every state a person chooses by Q-learning: the value of the chosen arm moves towards the reward
by a learning rate, and the arm with the higher value is preferred by an inverse temperature. Rate
and temperature differ between states (somebody may be engaged for a while, then choose at random)
and between people (random effects). All of this is the library's public extension point:
`avem.Custom` takes the two functions below.

    python examples/bandit.py             # people made by this script, with the truth beside
    python examples/bandit.py table.tsv   # your own: subjID, trial, choice (1, 2), outcome
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import avem

START = {"rate": -1.0, "temperature": 1.0}


def log_prob(y, x, history, params, effect):
    """Log probability of choosing arm y (0 or 1), given the arms' values before the trial."""
    preference = params["temperature"] * (history[1] - history[0])
    return jnp.where(y == 1, jax.nn.log_sigmoid(preference), jax.nn.log_sigmoid(-preference))


def update(history, y, x, params, effect):
    """The arms' values after the trial: the chosen one moves towards the reward."""
    chosen = jnp.array([y == 0, y == 1])
    rate = jax.nn.sigmoid(params["rate"])
    return history + rate * (x["reward"] - history) * chosen


def model(n_states: int) -> avem.MixedHMM:
    """Q-learning in every state, with a learning rate and a temperature for each person."""
    learner = avem.Custom(
        log_prob,
        params=START,
        effects=("rate", "temperature"),
        history=np.zeros(2),
        update=update,
    )
    return avem.MixedHMM(
        avem.outcome("choice ~ reward", learner), n_states, effect_covariance="diagonal"
    )


def make_people(n: int = 30, n_trials: int = 150, seed: int = 1) -> pd.DataFrame:
    """People who are engaged (state 1) or choose almost at random (state 0), in stretches."""
    rng = np.random.default_rng(seed)
    rate, temperature = np.array([-1.0, 0.0]), np.array([0.2, 4.0])
    rows = []
    for person in range(n):
        own_rate, own_temperature = 0.4 * rng.standard_normal(), 0.6 * rng.standard_normal()
        values = np.zeros((2, 2))  # of each arm, as each state would have it
        state = int(rng.random() < 0.5)
        good = 0
        for trial in range(n_trials):
            if trial and rng.random() < 0.04:
                state = 1 - state
            if trial % 30 == 0:
                good = 1 - good  # the better arm changes now and then
            advantage = values[state, 1] - values[state, 0]
            preference = (temperature[state] + own_temperature) * advantage
            choice = int(rng.random() < 1 / (1 + np.exp(-preference)))
            reward = 1.0 if rng.random() < (0.8 if choice == good else 0.2) else -1.0
            rows.append((person, trial, choice, reward, state))
            speed = 1 / (1 + np.exp(-(rate + own_rate)))
            values[:, choice] += speed * (reward - values[:, choice])
    return pd.DataFrame(rows, columns=["person", "trial", "choice", "reward", "state"])


def main(path: str | None = None) -> None:
    """Fit one and two states, and say what was found."""
    if path is None:
        people = make_people()
    else:
        table = pd.read_csv(path, sep=None, engine="python")
        people = pd.DataFrame(
            {
                "person": table["subjID"],
                "trial": table["trial"],
                "choice": table["choice"] - 1,
                "reward": table["outcome"],
            }
        )
    for n_states in (1, 2):
        fit = model(n_states).fit(people, subject="person", time="trial")
        print(fit.summary(), "\n")
        rate = 1 / (1 + np.exp(-fit.params["rate"]))
        print("learning rate of each state:", np.round(rate, 2))
        if n_states == 2 and "state" in people:
            share = np.mean(fit.decode() == people["state"])
            print(f"states decoded as they were: {max(share, 1 - share):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
