"""Ties, priors, types and effects together: the maximum and its curvature on a dense grid.

The likelihood is written anew, by the forward recursion at every node of a grid. At the fitted
parameters its slope, with that of the priors, must be 0, and its curvature must give the errors.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit, logsumexp
from scipy.stats import norm

import avem
from avem.priors import Dirichlet, HalfNormal, InverseWishart, Normal, Sticky
from tests.fits.kinds import fit_from

KEYS = {"time": "t", "sequence": "day"}
LIMITS = (-0.5, 3.5)


def rows(n, length=8, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.MultiIndex.from_product([range(n), range(2), range(length)], names=["who", *"dt"])
    frame = frame.to_frame(index=False).rename(columns={"d": "day"})
    return frame.assign(x=rng.normal(size=len(frame)).round(3))


def two(odds):
    """Probabilities of two states from the log odds of the second."""
    return np.array([expit(-odds), expit(odds)])


def loglik(frame, densities, moves, first, grid, log_prior, shares=(1.0,)):
    """Sum over types and nodes, from (nodes, rows, states) and (..., rows, states, states)."""
    total = 0.0
    for _, own in frame.groupby("who"):
        heights = np.zeros((len(shares), len(grid)))
        for _, some in own.groupby("day"):
            table = densities(some, grid)
            for c in range(len(shares)):
                steps = np.broadcast_to(moves(some, c), (len(grid), len(some), 2, 2))
                now = np.log(first[c]) + table[:, 0]
                for t in range(1, len(some)):
                    now = logsumexp(now[:, :, None] + np.log(steps[:, t]), axis=1) + table[:, t]
                heights[c] += logsumexp(now, axis=1)
        total += logsumexp(np.log(shares)[:, None] + heights + log_prior)
    return total


def normal_grid(variances, n):
    """Nodes (n^d, d) of independent effects, and the log of prior x cell."""
    z, sd = np.linspace(-5, 5, n), np.sqrt(variances)
    at = np.stack(np.meshgrid(*[z] * len(sd), indexing="ij"), -1).reshape(-1, len(sd))
    return at * sd, norm.logpdf(at).sum(1) + len(sd) * np.log(z[1] - z[0])


def means(some, coef, effects):
    """(nodes, rows, states) of a line with an effect on its intercept."""
    design = np.stack([np.ones(len(some)), some["x"]], axis=1)
    return (design @ np.asarray(coef).T)[None] + effects[:, :1, None]


class Types:
    """Two types of subjects, an effect, ties over states and types, counts beforehand."""

    model = avem.MixedHMM(
        "y ~ x + (1 | who)",
        2,
        n_clusters=2,
        constraints=["coef[:, 'x'] equal", "initial[:] equal", "variance[:] equal"],
        priors={"transition": Sticky(2, 1), "clusters": Dirichlet(2)},
    )

    def frame(self):
        params = {
            "clusters": [0.6, 0.4],
            "initial": [[0.5, 0.5]] * 2,
            "transition": [[[0.95, 0.05], [0.05, 0.95]], [[0.4, 0.6], [0.6, 0.4]]],
            "coef": [[[0.0, 0.5]], [[3.0, 0.5]]],
            "variance": [[1.0], [0.7]],
            "effect_covariance": [[0.4]],
        }
        model = avem.MixedHMM("y ~ x + (1 | who)", 2, n_clusters=2)
        return model.simulate(params, data=rows(14, 10), **KEYS, seed=1).frame

    def values(self, p):
        return np.array(
            [
                logit(p["clusters"][1]),
                logit(p["initial"][0, 1]),
                *logit(p["transition"][:, :, 1]).ravel(),
                *p["coef"][:, 0, 0],
                p["coef"][0, 0, 1],
                np.log(p["variance"][0, 0]),
                np.log(p["effect_covariance"][0, 0]),
            ]
        )

    def objective(self, frame, v):
        moves = np.array([[two(v[2]), two(v[3])], [two(v[4]), two(v[5])]])
        coef, sd = [[v[6], v[8]], [v[7], v[8]]], np.exp(0.5 * v[9])

        def densities(some, grid):
            y = some["y"].to_numpy()[None, :, None]
            return norm.logpdf(y, means(some, coef, grid), sd)

        found = loglik(
            frame,
            densities,
            lambda some, c: moves[c],
            [two(v[1])] * 2,
            *normal_grid([np.exp(v[10])], 61),
            shares=two(v[0]),
        )
        counts = np.array([[2, 1], [1, 2]])
        return found + (counts * np.log(moves)).sum() + np.log(two(v[0])).sum()

    def told(self, v):
        return {
            ("clusters", 1): expit(v[0]),
            ("transition", 7): expit(v[5]),
            ("coef", 0): v[6],
            ("coef", 1): v[8],
            ("variance", 0): np.exp(v[9]),
            ("effect_covariance", 0): np.exp(v[10]),
        }


class Moves:
    """Effects on the log odds of moves, a tie of slopes, priors of slopes and of variances."""

    model = avem.MixedHMM(
        "y ~ 1",
        2,
        transition="~ x + (1 | who)",
        constraints=["transition_coef[0, 1, 'x'] == transition_coef[1, 0, 'x']"],
        effect_covariance="diagonal",
        priors={
            "transition_coef[:, :, 'x']": Normal(0, 0.5),
            "effect_covariance": InverseWishart(3, 1),
        },
    )

    def frame(self):
        coef = np.zeros((2, 2, 2))
        coef[0, 1], coef[1, 0] = [-1.5, 0.6], [-1.2, 0.6]
        params = {
            "initial": [0.5, 0.5],
            "transition_coef": coef,
            "coef": [[[0.0]], [[3.0]]],
            "variance": [[1.0], [0.7]],
            "effect_covariance": np.diag([0.5, 0.4]),
        }
        model = avem.MixedHMM("y ~ 1", 2, transition="~ x + (1 | who)")
        return model.simulate(params, data=rows(10, 10), **KEYS, seed=1).frame

    def values(self, p):
        coef = p["transition_coef"]
        return np.array(
            [
                logit(p["initial"][1]),
                *(coef[0, 1, 0], coef[1, 0, 0], coef[0, 1, 1]),
                *p["coef"][:, 0, 0],
                *np.log(p["variance"][:, 0]),
                *np.log(np.diagonal(p["effect_covariance"])),
            ]
        )

    def objective(self, frame, v):
        between = np.exp(v[8:])
        grid, log_prior = normal_grid(between, 21)

        def moves(some, c):
            x = some["x"].to_numpy()
            there = expit(v[1] + v[3] * x + grid[:, :1])
            back = expit(v[2] + v[3] * x + grid[:, 1:])
            rows = [np.stack([1 - there, there], -1), np.stack([back, 1 - back], -1)]
            return np.stack(rows, axis=2)

        def densities(some, at):
            y = some["y"].to_numpy()[:, None]
            table = norm.logpdf(y, v[4:6], np.exp(0.5 * v[6:8]))
            return np.broadcast_to(table, (len(at), *table.shape))

        found = loglik(frame, densities, moves, [two(v[0])], grid, log_prior)
        prior = -((v[3] / 0.5) ** 2) - 0.5 * 6 * np.log(between).sum() - 0.5 * (1 / between).sum()
        return found + prior

    def told(self, v):
        return {
            ("initial", 1): expit(v[0]),
            ("transition_coef", 0): v[1],
            ("transition_coef", 3): v[3],
            ("coef", 1): v[5],
            ("effect_covariance", 0): np.exp(v[8]),
        }


class Tobit:
    """Censored at both ends, an effect, one sd and one slope for both states, priors of means."""

    model = avem.MixedHMM(
        "y ~ x + (1 | who)",
        2,
        avem.Censored("gaussian", *LIMITS),
        constraints=["sd[:] equal", "coef[:, 'x'] equal"],
        priors={"coef[:, 'Intercept']": Normal(1, 2), "sd": HalfNormal(1)},
    )

    def frame(self):
        params = {
            "initial": [0.5, 0.5],
            "transition": [[0.8, 0.2], [0.3, 0.7]],
            "coef": [[[0.0, 0.4]], [[3.0, 0.4]]],
            "variance": [[1.0], [0.7]],
            "effect_covariance": [[0.5]],
        }
        model = avem.MixedHMM("y ~ x + (1 | who)", 2)
        frame = model.simulate(params, data=rows(12), **KEYS, seed=1).frame
        return frame.assign(y=frame["y"].clip(*LIMITS))

    def values(self, p):
        return np.array(
            [
                logit(p["initial"][1]),
                *logit(p["transition"][:, 1]),
                *p["coef"][:, 0, 0],
                p["coef"][0, 0, 1],
                np.log(p["sd"][0, 0]),
                np.log(p["effect_covariance"][0, 0]),
            ]
        )

    def objective(self, frame, v):
        coef, sd = [[v[3], v[5]], [v[4], v[5]]], np.exp(v[6])

        def densities(some, grid):
            y, at = some["y"].to_numpy()[None, :, None], means(some, coef, grid)
            below, above = norm.logcdf(LIMITS[0], at, sd), norm.logsf(LIMITS[1], at, sd)
            inside = norm.logpdf(y, at, sd)
            return np.where(y <= LIMITS[0], below, np.where(y >= LIMITS[1], above, inside))

        found = loglik(
            frame,
            densities,
            lambda some, c: np.array([two(v[1]), two(v[2])]),
            [two(v[0])],
            *normal_grid([np.exp(v[7])], 61),
        )
        return found - 0.5 * (((v[3:5] - 1) / 2) ** 2).sum() - sd**2

    def told(self, v):
        return {
            ("transition", 1): expit(v[1]),
            ("coef", 0): v[3],
            ("coef", 1): v[5],
            ("sd", 0): np.exp(v[6]),
            ("effect_covariance", 0): np.exp(v[7]),
        }


def slope_and_curvature(objective, at, step=1e-3):
    unit, n = step * np.eye(len(at)), len(at)
    up, down = (np.array([objective(at + way * own) for own in unit]) for way in (1, -1))
    curvature = np.diag(up + down - 2 * objective(at))
    for i in range(n):
        for j in range(i):
            ends = [objective(at + a * unit[i] + b * unit[j]) for a in (1, -1) for b in (1, -1)]
            curvature[i, j] = curvature[j, i] = (ends[0] - ends[1] - ends[2] + ends[3]) / 4
    return (up - down) / (2 * step), curvature / step**2


@pytest.mark.slow
@pytest.mark.parametrize("case", [Types(), Moves(), Tobit()], ids=["types", "moves", "tobit"])
def test_the_fit_is_at_the_maximum_and_its_errors_are_the_curvature(case):
    frame = case.frame()
    fit = case.model.fit(frame, **KEYS, n_starts=2, refine="adaptive")
    at = case.values(fit.params)
    slope, curvature = slope_and_curvature(lambda v: case.objective(frame, v), at)
    covariance = np.linalg.inv(-curvature)
    # How far the maximum is from here, in standard errors.
    away = covariance @ slope / np.sqrt(np.diagonal(covariance))
    assert np.abs(away).max() < 1e-3
    table = fit.standard_errors()
    names = list(case.told(at))
    step = 1e-5 * np.eye(len(at))
    jacobian = np.array(
        [[case.told(at + d)[name] - case.told(at - d)[name] for d in step] for name in names]
    )
    wanted = np.sqrt(np.diagonal(jacobian @ covariance @ jacobian.T)) / 2e-5
    for (parameter, number), error in zip(names, wanted, strict=True):
        own = table[table["parameter"] == parameter].iloc[number]
        assert own["estimate"] == pytest.approx(case.told(at)[parameter, number], rel=1e-9)
        assert own["se"] == pytest.approx(error, rel=2e-3), (parameter, number)


def test_likelihood_and_prior_are_those_of_the_grid():
    """The small twin: no search, the truth."""
    case, frame = Types(), Types().frame()
    truth = {
        "clusters": [0.6, 0.4],
        "initial": [[0.4, 0.6]] * 2,
        "transition": [[[0.9, 0.1], [0.2, 0.8]], [[0.4, 0.6], [0.5, 0.5]]],
        "coef": [[[0.0, 0.5]], [[3.0, 0.5]]],
        "variance": [[0.8], [0.8]],
        "effect_covariance": [[0.4]],
    }
    truth = {name: np.array(value) for name, value in truth.items()}
    fit = fit_from(case.model, truth, frame, np.zeros((14, 1)), **KEYS)
    found = float(fit.loglik()) + fit.log_prior
    assert found == pytest.approx(case.objective(frame, case.values(truth)), abs=1e-3)
