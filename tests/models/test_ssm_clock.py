"""State-space models in continuous time against dense Gaussians, other models and derivatives."""

from functools import partial

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm

import avem
from avem.data import Panel
from avem.inference.fit_ssm import make_ssm_em
from avem.models.ssm import SSMModel
from avem.numerics.diffusion import Ends, discretise, integrals
from avem.numerics.precision import in_float64
from tests.chosen import chosen

OUTCOMES = "y1 + y2 + y3 ~ 1 + x + (1 | id)"


def visits(n=5, length=6, even=None, seed=0):
    """Unequal, nested sequences at irregular times (or steps of `even`), with missing cells."""
    rng = np.random.default_rng(seed)
    keys = [
        {"id": i, "session": s, "row": t}
        for i in range(n)
        for s in range(1 + i % 2)
        for t in range(length - i % 3 if i else 1)
    ]
    frame = pd.DataFrame(keys)
    gaps = rng.gamma(1.0, 1.0, len(frame)) + 0.01 if even is None else np.full(len(frame), even)
    frame["time"] = gaps
    frame["time"] = frame.groupby(["id", "session"])["time"].cumsum()
    for column in ("y1", "y2", "y3", "x", "z"):
        frame[column] = rng.standard_normal(len(frame))
    frame.loc[frame.sample(frac=0.2, random_state=1).index, "y2"] = np.nan
    frame.loc[frame.sample(frac=0.1, random_state=2).index, ["y1", "y2", "y3"]] = np.nan
    return frame


def parameters(model, seed=0):
    """Some, in the user's units."""
    rng = np.random.default_rng(seed)
    q, p, d = model.n_latent, len(model.outcomes), model.n_effects
    start, root = rng.standard_normal((q, q)), 0.3 * rng.standard_normal((d, d)) / np.sqrt(d or 1)
    blocks = model.effect_blocks
    theta = {
        "start_mean": rng.standard_normal(q),
        "start_covariance": start @ start.T + np.eye(q),
        "dynamics": 0.4 * rng.standard_normal((q, q)) - 0.5 * np.eye(q),
        "drive": 0.5 * rng.standard_normal((q, len(model.drive_cols))),
        "loading": np.tril(rng.standard_normal((p, q))),
        "coef": rng.standard_normal((p, len(model.x_cols))),
        "noise_covariance": rng.uniform(0.3, 1.0, (p, 1, 1)),
        "effect_covariance": np.where(
            blocks[:, None] == blocks, root @ root.T + 0.05 * np.eye(d), 0.0
        ),
    }
    return model.in_user_units().params_out(theta)


def make(frame, q=2, state="~ 0 + z", random="both", scaled=True, outcomes=OUTCOMES):
    """A model in its own units, the data, and parameters and effects on the scale of the fit."""
    made = avem.MixedSSM(
        outcomes, q, state=state, random=random, time_scale="continuous", subject="id"
    )
    panel = Panel.from_frame(frame, "id", time="time", sequence="session")
    model = SSMModel.learn(made.spec, panel)
    params = parameters(model)
    if scaled:
        model = model.scaled_to(model.read(panel))
    effects = 0.3 * np.random.default_rng(1).standard_normal((panel.n_subjects, model.n_effects))
    return model, model.encode(panel), params, effects


def exact_interval(a, push, time):
    """By an exponential of a block matrix (Van Loan)."""
    q = len(a)
    block = np.zeros((2 * q, 2 * q))
    block[:q, :q], block[:q, q:], block[q:, q:] = -a, np.eye(q), a.T
    big = expm(block * time)
    g = big[q:, q:].T
    wide = np.zeros((q + 1, q + 1))
    wide[:q, :q], wide[:q, q] = a, push
    return g, expm(wide * time)[:q, q], g @ big[:q, q:]


def dense_loglik(model, panel, params, effects):
    """log p(D_i | f_i) of every subject, in the user's units, from the joint Gaussian."""
    user = model.in_user_units()
    theta = user.params_in(params)
    data = user.read(panel)
    q, p = model.n_latent, len(model.outcomes)
    out = np.zeros(panel.n_subjects)
    for lane in range(panel.n_lanes):
        rows = panel.order[panel.row_lane[panel.order] == lane]
        who = panel.row_subject[rows[0]]
        f = effects[who]
        a, load = theta["dynamics"].copy(), theta["loading"].copy()
        at = 0
        for matrix, places in (
            (a, user.shape.transition_effects),
            (load, user.shape.loading_effects),
        ):
            for i, j in places:
                matrix[i, j] += f[at]
                at += 1
        w = data.A[rows][:, list(user.shape.w_cols)]
        coef = np.zeros((p, len(user.shape.w_cols)))
        coef[:, [user.shape.w_cols.index(c) for c in user.x_cols]] = theta["coef"]
        for j, c in user.shape.coef_effects:
            coef[j, c] += f[at]
            at += 1
        n = len(rows)
        mean, cov = np.zeros((n, q)), np.zeros((n, q, n, q))
        mean[0], cov[0, :, 0] = theta["start_mean"], theta["start_covariance"]
        for t in range(1, n):
            gap = data.A[rows[t], user.clock_col]
            push = theta["drive"] @ data.A[rows[t], list(user.drive_cols)]
            g, b, s = exact_interval(a, push, gap)
            mean[t] = g @ mean[t - 1] + b
            cov[t, :, :t] = np.einsum("ab,bsc->asc", g, cov[t - 1, :, :t])
            cov[:t, :, t] = np.einsum("asc->sca", cov[t, :, :t])
            cov[t, :, t] = g @ cov[t - 1, :, t - 1] @ g.T + s
        y = data.Y[rows]
        keep = ~np.isnan(y).ravel()
        big = np.kron(np.eye(n), load)[keep]
        expected = (mean @ load.T + w @ coef.T).ravel()[keep]
        noise = np.tile(theta["noise_covariance"][:, 0, 0], n)[keep]
        total = big @ cov.reshape(n * q, n * q) @ big.T + np.diag(noise)
        away = y.ravel()[keep] - expected
        height = away @ np.linalg.solve(total, away) + np.linalg.slogdet(total)[1]
        out[who] -= 0.5 * (height + len(away) * np.log(2 * np.pi))
    return out


@partial(jax.jit, static_argnames="kernel")
def posterior_at(kernel, theta, f, chunk):
    return kernel.path_posterior(theta, f, chunk, "")


@partial(jax.jit, static_argnames="kernel")
def local_at(kernel, theta, f, chunk):
    return kernel.local(theta, f, chunk, "")


@partial(jax.jit, static_argnames="kernel")
def terms_at(kernel, theta, f, local, chunk):
    return kernel.effect_terms(theta, f, None, local, kernel.quadratic(theta, local), chunk)


@partial(jax.jit, static_argnames="kernel")
def sums_at(kernel, local, f, chunk):
    return kernel.sums(local, f, None, chunk)


def run(model, data, params, effects):
    """The local pass of all subjects, who are one chunk."""
    theta = model.params_in(params)
    f = next(iter(data.layout.split(model.effects_in(effects))))
    return theta, f, local_at(data.kernel, theta, f, data.chunks[0])


def loglik(model, data, params, effects):
    *_, local = run(model, data, params, effects)
    found = data.layout.join([np.asarray(local.loglik)])
    return found + data.log_jacobian(model)


@pytest.mark.parametrize(
    ("even", "random"),
    chosen(
        [(None, "both"), (None, "loading"), (0.7, "both"), (0.7, "none")],
        [(None, "both")],
    ),
)
@in_float64
def test_the_likelihood_is_that_of_the_dense_joint_gaussian(even, random):
    """Whatever the units of the fit, and however rows share their intervals."""
    model, data, params, effects = make(visits(even=even), random=random)
    assert (data.kernel.n_cells == 1) == (even is not None)
    found = loglik(model, data, params, effects)
    exact = dense_loglik(model, data.panel, params, effects)
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@in_float64
def test_an_interval_of_two_is_two_steps_with_the_middle_row_missing():
    frame = visits(even=1.0)
    frame["z"] = frame["id"] + 1.0  # what acts in the middle is what acts at the end
    frame.loc[frame["row"] == 2, ["y1", "y2", "y3"]] = np.nan
    model, data, params, effects = make(frame, scaled=False)
    short = frame[frame["row"] != 2]
    again = model.encode(Panel.from_frame(short, "id", time="time", sequence="session"))
    assert again.kernel.n_cells == 2
    one, other = (loglik(model, each, params, effects) for each in (data, again))
    np.testing.assert_allclose(one, other, atol=1e-11)


@in_float64
def test_equal_intervals_are_a_model_in_steps():
    """With G = exp(A d), in the basis in which the noise of a step is I."""
    d = 0.6
    frame = visits(even=d)
    model, data, params, _ = make(frame, random="none", outcomes="y1 + y2 + y3 ~ 1 + x")
    g, _, noise = exact_interval(params["drift_mean"], np.zeros(2), d)
    push = np.stack(
        [exact_interval(params["drift_mean"], b, d)[1] for b in params["state_coef"].T], axis=1
    )
    root = np.linalg.cholesky(noise)
    back = np.linalg.inv(root)
    steps = {
        **{name: params[name] for name in ("coef", "noise")},
        "initial_mean": back @ params["initial_mean"],
        "initial_covariance": back @ params["initial_covariance"] @ back.T,
        "transition_mean": back @ g @ root,
        "state_coef": back @ push,
        "loading_mean": params["loading_mean"] @ root,
    }
    discrete = avem.MixedSSM(
        "y1 + y2 + y3 ~ 1 + x", 2, state="~ 0 + z", random="none", subject="id"
    )
    other = SSMModel.learn(discrete.spec, data.panel)
    nobody = np.zeros((data.panel.n_subjects, 0))
    one = loglik(model, data, params, nobody)
    two = loglik(other, other.encode(data.panel), steps, nobody)
    np.testing.assert_allclose(one, two, atol=1e-10)


CASES = chosen(
    [(None, "both", "~ 0 + z"), (0.7, "both", "~ 0 + z"), (None, "none", "~ 0")],
    [(None, "both", "~ 0 + z")],
)


@pytest.mark.parametrize(("even", "random", "state"), CASES)
@in_float64
def test_slopes_in_effects_and_parameters_are_those_of_the_likelihood(even, random, state):
    """Fisher's identity: those of the expected log likelihood of the path are exact at its f."""
    model, data, params, effects = make(visits(even=even), random=random, state=state)
    theta, f, local = run(model, data, params, effects)
    kernel, chunk, step = data.kernel, data.chunks[0], 1e-6

    def height(theta, f):
        return np.asarray(local_at(kernel, theta, f, chunk).loglik)

    terms = terms_at(kernel, theta, f, local, chunk)
    for e in range(model.n_effects):
        unit = step * (np.arange(model.n_effects) == e)[:, None]
        slope = (height(theta, f + unit) - height(theta, f - unit)) / (2 * step)
        np.testing.assert_allclose(terms.gradient[e], slope, atol=1e-6)
    sums = jax.tree.map(np.asarray, sums_at(kernel, local, f, chunk))
    found = kernel.slopes(theta, sums)
    for key in ("dynamics", "drive", "loading", "coef", "noise_covariance", "start_mean"):
        for place in np.ndindex(*theta[key].shape):
            if key == "loading" and place[1] > place[0]:
                continue
            moved = [{**theta, key: theta[key].copy()} for _ in range(2)]
            for sign, there in zip((1, -1), moved, strict=True):
                there[key][place] += sign * step
            slope = sum(s * height(t, f).sum() for s, t in zip((1, -1), moved, strict=True))
            assert abs(found[key][place] - slope / (2 * step)) < 2e-5, (key, place)


@pytest.mark.slow
@in_float64
def test_moments_of_paths_are_those_of_many_rows_in_between():
    """A fine grid of missing rows has sums in the place of the integrals."""
    frame = visits(n=2, length=4)
    model, data, params, effects = make(frame, scaled=False)
    *_, whole = run(model, data, params, effects)

    def on_grid(n):
        parts = []
        for _, own in frame.groupby(["id", "session"]):
            fine = own.iloc[:1]
            for (_, a), (_, b) in zip(
                own.iloc[:-1].iterrows(), own.iloc[1:].iterrows(), strict=True
            ):
                more = pd.DataFrame([b] * n)
                more["time"] = a["time"] + (b["time"] - a["time"]) * (np.arange(n) + 1) / n
                more.iloc[:-1, more.columns.get_indexer(["y1", "y2", "y3"])] = np.nan
                fine = pd.concat([fine, more])
            parts.append(fine)
        panel = Panel.from_frame(pd.concat(parts), "id", time="time", sequence="session")
        fine = model.encode(panel)
        theta, f, local = run(model, fine, params, effects)
        chunk = fine.chunks[0]
        posterior = posterior_at(fine.kernel, theta, f, chunk)
        mean, cov = np.asarray(posterior.mean), np.asarray(posterior.cov)
        gap = np.asarray(chunk.a[:, model.clock_col]) * np.asarray(chunk.valid)
        second = mean[:, :, None] * mean[:, None] + cov
        halves = 0.5 * (second[1:] + second[:-1]) * gap[1:, None, None]  # by trapezoids
        lanes = np.zeros((2, 2, len(chunk.real)))
        np.add.at(lanes, (..., np.asarray(chunk.owner)), halves.sum(0))
        return lanes, local

    sums, finer = on_grid(64)
    np.testing.assert_allclose(whole.step_rr[:2, :2], sums, rtol=2e-4, atol=2e-4)
    # However the intervals are cut, what is known of the path is the same.
    for name in ("loglik", "step_rr", "step_er", "seen_vv", "seen_ev", "seen_ee"):
        np.testing.assert_allclose(
            getattr(whole, name), getattr(finer, name), atol=1e-9, rtol=1e-9, err_msg=name
        )


@in_float64
def test_the_m_step_raises_the_likelihood():
    frame = visits(n=8, length=9)
    model, data, params, _ = make(frame, random="none", state="~ 0", outcomes="y1 + y2 + y3 ~ 1")
    em = make_ssm_em(model, data)
    theta = model.params_in(params)
    nobody = np.zeros((0, data.panel.n_subjects))
    heights = []
    for _ in range(6):
        f = next(iter(data.layout.split(nobody)))
        local = local_at(data.kernel, theta, f, data.chunks[0])
        heights.append(float(local.loglik.sum()))
        sums = jax.tree.map(np.asarray, sums_at(data.kernel, local, f, data.chunks[0]))
        new = data.kernel.maximise(theta, sums, frozenset(), em.m_step.free, np.zeros(3))
        theta = {**theta, **new}
    assert (np.diff(heights) > 0).all()


@in_float64
def test_long_gaps_and_fast_drifts_stay_finite_and_exact():
    """Where exp(-A d) would overflow, and where the state is forgotten within an interval."""
    frame = visits()
    frame.loc[frame["row"] >= 3, "time"] += 300.0
    frame.loc[frame["row"] >= 4, "time"] += 1e-5
    model, data, params, effects = make(frame, random="loading")
    params["drift_mean"] = np.array([[-2.0, 0.4], [-0.3, -0.9]])
    theta, f, local = run(model, data, params, effects)
    posterior = posterior_at(data.kernel, theta, f, data.chunks[0])
    assert all(np.isfinite(np.asarray(part)).all() for part in (*local, *posterior))
    user = model.in_user_units()
    a = user.params_in(params)["dynamics"]
    # Van Loan's exponential is of no use at 300: what was forgotten is cut off by hand.
    far = frame.copy()
    far.loc[far["row"] >= 3, "time"] -= 280.0
    near = model.encode(Panel.from_frame(far, "id", time="time", sequence="session"))
    assert np.abs(expm(a * 20)).max() < 1e-8
    found = loglik(model, data, params, effects)
    push = frame["z"].abs().max()
    assert push > 0
    np.testing.assert_allclose(found, loglik(model, near, params, effects), atol=1e-6)


def test_short_intervals_keep_their_digits_beside_long_ones():
    """A drift that is nearly defective, by Van Loan's exponential; integrals as if alone."""
    drift, times = np.array([[-0.5, 1.0], [0.0, -0.5000001]]), np.array([1e-3, 0.4, 7.0, 1e12])
    a = drift[:, :, None]
    found = discretise(a, times, 2)
    for i, time in enumerate(times[:3]):
        both = expm(np.block([[-drift, np.eye(2)], [np.zeros((2, 2)), drift.T]]) * time)
        kept = both[2:, 2:].T
        np.testing.assert_allclose(found.transition[:, :, i], kept, atol=1e-14)
        np.testing.assert_allclose(found.noise[:, :, i], kept @ both[:2, 2:], rtol=1e-12)
    # In the long run A V + V A' = -I.
    rest = found.noise[:, :, 3]
    np.testing.assert_allclose(drift @ rest + rest @ drift.T, -np.eye(2), atol=1e-12)
    assert not found.transition[:, :, 3].any()
    rng = np.random.default_rng(0)
    square = rng.standard_normal((3, 2, 2, 4))
    ends = Ends(*(one + one.swapaxes(0, 1) for one in square), np.ones(4))
    beside = integrals(a, times, ends, 2)
    for i in range(3):
        alone = integrals(a, times[[i]], Ends(*(part[..., [i]] for part in ends)), 2)
        for own, other in zip(alone, beside, strict=True):
            np.testing.assert_allclose(other[..., [i]], own, rtol=1e-12)
    assert all(np.isfinite(part).all() for part in beside)


def test_draws_have_the_moments_of_the_model():
    """A state a time apart, from many draws; and the same rows at other times."""
    frame = pd.DataFrame({"id": np.repeat(np.arange(20000), 2), "y": 0.0})
    frame["time"] = np.tile([0.0, 1.7], 20000)
    model = avem.MixedSSM("y ~ 0", 1, random="none", time_scale="continuous", subject="id")
    params = {
        "initial_mean": [1.0],
        "initial_covariance": [[0.5]],
        "drift_mean": [[-0.8]],
        "loading_mean": [[1.0]],
        "noise": [1e-6],
    }
    made = model.simulate(params, data=frame, time="time", seed=0)
    x = made.states.reshape(-1, 2)
    kept = np.exp(-0.8 * 1.7)
    np.testing.assert_allclose(x.mean(0), [1.0, kept], atol=0.02)
    spread = 0.5 * kept**2 + (1 - kept**2) / 1.6
    np.testing.assert_allclose(np.cov(x.T), [[0.5, 0.5 * kept], [0.5 * kept, spread]], atol=0.02)
