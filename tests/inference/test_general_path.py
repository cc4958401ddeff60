"""The general path (Newton, quadrature) against closed forms, brute force and plain optimisers."""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import avem
from avem.families import UnivariateGaussian
from avem.inference.methods.anchored import anchored_pass
from avem.inference.passes import coef_pass
from avem.numerics.precision import in_float64
from tests.panels import anchors_at, awkward_frame, chunk_of, passes_at, prepare_model, start_state

GAUSSIAN = {
    "initial": [0.4, 0.6],
    "transition": [[0.8, 0.2], [0.3, 0.7]],
    "coef": np.array([[[-1.0, 0.3]], [[1.0, -0.2]]]),
    "variance": np.array([[0.8], [1.3]]),
    "effect_covariance": np.array([[0.5, 0.1], [0.1, 0.3]]),
}


def general(params):
    """The same model with the standard deviation as a parameter with a link."""
    params = dict(params)
    return {**params, "sd": np.sqrt(params.pop("variance"))}


def frame(seed=0, n=12, n_times=25):
    model = avem.MixedHMM("y ~ x + (1 + x | who)", 2)
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"who": np.repeat(np.arange(n), n_times)})
    rows["t"] = np.tile(np.arange(n_times), n)
    rows["session"] = 0
    rows["x"] = rng.standard_normal(len(rows))
    data = model.simulate(GAUSSIAN, data=rows, seed=seed).frame
    data.loc[rng.random(len(data)) < 0.1, "y"] = np.nan
    return data


@pytest.mark.parametrize(
    ("q_update", "by_state"),
    [
        ("laplace", True),
        pytest.param("quadrature", True, marks=pytest.mark.slow),
        pytest.param("laplace", False, marks=pytest.mark.slow),
        pytest.param("quadrature", False, marks=pytest.mark.slow),
    ],
)
@in_float64
def test_with_gaussian_data_it_equals_the_closed_form(q_update, by_state):
    """One iteration from the same state: q, bound and new parameters, then ten of them."""
    data = frame()
    closed = avem.MixedHMM("y ~ x + (1 + x | who)", 2, effects_by_state=by_state)
    loose = avem.MixedHMM(
        "y ~ x + (1 + x | who)", 2, UnivariateGaussian(), effects_by_state=by_state
    )
    params = dict(GAUSSIAN)
    if by_state:
        params["effect_covariance"] = np.kron(np.eye(2), GAUSSIAN["effect_covariance"])
    states, steps, of_q = [], [], []
    for hmm, given in ((closed, params), (loose, general(params))):
        model, encoded, em = prepare_model(hmm, data, q_update=q_update)
        d = model.n_effects
        anchors = 0.3 * np.random.default_rng(1).standard_normal((d, encoded.panel.n_subjects))
        state = start_state(model, encoded, given, anchors)
        states.append(state)
        step = em.step(state)
        steps.append(step)
        of_q.append(em.e.of_subjects(step.before, "mean", "covariance"))
        for _ in range(9):
            state = em.step(state).state
        states.append(state)
    exact, found = steps
    np.testing.assert_allclose(found.bound, exact.bound, rtol=1e-9)
    (mean, cov), (found_mean, found_cov) = of_q
    np.testing.assert_allclose(found_mean, mean, atol=1e-6)
    np.testing.assert_allclose(found_cov, cov, atol=1e-6)
    for a, b in ((exact.state, found.state), (states[1], states[3])):
        np.testing.assert_allclose(b.theta["0.coef"][:, :2], a.theta["0.coef"][:, 0], atol=1e-5)
        np.testing.assert_allclose(b.theta["transition"], a.theta["transition"], atol=1e-6)
        np.testing.assert_allclose(
            b.theta["effect_covariance"], a.theta["effect_covariance"], atol=1e-6
        )


@in_float64
def test_the_noise_of_the_m_step_is_the_maximum():
    """The closed form takes coefficients first, then variances; Newton takes both at once."""
    data = frame(n=6)
    model, encoded, em = prepare_model(
        avem.MixedHMM("y ~ x + (1 + x | who)", 2, UnivariateGaussian()), data
    )
    state = start_state(model, encoded, general(GAUSSIAN), np.zeros((2, 6)))
    step = em.step(state)
    weight = np.asarray(
        passes_at(em.e, step.before)[0].kept.local.parts[0]
    )  # whole rows, or cells of equal rows
    assert weight.ndim == 3
    coef = step.state.theta["0.coef"]
    for nudge in 1e-3 * np.random.default_rng(0).standard_normal((10, *coef.shape)):
        assert value(em, step, coef + nudge).sum() < value(em, step, coef).sum()


def value(em, step, coef):
    p = passes_at(em.e, step.before)[0]
    terms = coef_pass(em.kernel, "0.coef", coef, p.kept, chunk_of(em))
    return np.asarray(terms.value)


# --- the q-update against dense grids -------------------------------------------------------------

BERNOULLI = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.1, 0.9]],
    "coef": np.array([[[-1.0]], [[1.5]]]),
    "effect_covariance": np.array([[0.8]]),
}


def bernoulli_setup(q_update):
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 2, "bernoulli")
    rows = awkward_frame()
    rows["y"] = (rows["y1"] > 0).astype(float).where(rows["y1"].notna())
    model, encoded, em = prepare_model(hmm, rows, q_update=q_update)
    anchors = 0.5 * np.random.default_rng(2).standard_normal((1, encoded.panel.n_subjects))
    return rows, model, encoded, em, start_state(model, encoded, BERNOULLI, anchors)


def state_chances(encoded, em, state):
    """(rows, states) at the anchors."""
    smooth = jax.jit(em.kernel.posterior, static_argnums=3)
    posterior = smooth(state.theta, anchors_at(em, state)[0], encoded.chunks[0], "log")
    return encoded.layout.gather([np.asarray(posterior.state)])


def curve(zeta, encoded, state, i, grid):
    """Q_i(f) + log prior on a grid of f, from state probabilities and scipy alone."""
    own = np.flatnonzero(encoded.panel.row_subject == i)
    y = encoded.panel.table["y"].to_numpy()[own]
    beta = state.theta["0.coef"][:, 0]
    total = norm.logpdf(grid, scale=np.sqrt(0.8))
    for row, value in zip(own, y, strict=True):
        if np.isnan(value):
            continue
        eta = beta[:, None] + grid
        log_p = -np.logaddexp(0.0, -eta) if value == 1 else -np.logaddexp(0.0, eta)
        total = total + zeta[row] @ log_p
    return total


def in_order(encoded, found):
    """Means and covariances of q in the order of the panel's subjects."""
    join = encoded.layout.join
    return join([np.asarray(found.mean)]), join([np.asarray(found.covariance)])


@in_float64
def test_laplace_finds_mode_and_curvature():
    _, _, encoded, em, state = bernoulli_setup("laplace")
    mean, cov = in_order(encoded, passes_at(em.e, state)[0])
    zeta = state_chances(encoded, em, state)
    grid = np.linspace(-4, 4, 80_001)
    for i in range(encoded.panel.n_subjects):
        height = curve(zeta, encoded, state, i, grid)
        top = height.argmax()
        np.testing.assert_allclose(mean[0, i], grid[top], atol=2e-4)
        h = 100 * (grid[1] - grid[0])
        bend = -(height[top + 100] - 2 * height[top] + height[top - 100]) / h**2
        np.testing.assert_allclose(1 / cov[0, 0, i], bend, rtol=1e-4)


@in_float64
def test_quadrature_finds_the_best_gaussian():
    _, _, encoded, em, state = bernoulli_setup("quadrature")
    means, covs = in_order(encoded, passes_at(em.e, state)[0])
    zeta = state_chances(encoded, em, state)
    node, weight = np.polynomial.hermite_e.hermegauss(40)
    weight = weight / weight.sum()
    for i in range(encoded.panel.n_subjects):

        def bound(mean, sd, i=i):
            expected = weight @ curve(zeta, encoded, state, i, mean + sd * node)
            return expected + np.log(sd)

        mean, sd = float(means[0, i]), float(np.sqrt(covs[0, 0, i]))
        best = bound(mean, sd)
        for dm, ds in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01)):
            assert bound(mean + dm, sd + ds) < best
        # stationary: a small move changes nothing to first order
        e = 1e-3
        slopes = [
            (bound(mean + e, sd) - bound(mean - e, sd)) / (2 * e),
            (bound(mean, sd + e) - bound(mean, sd - e)) / (2 * e),
        ]
        np.testing.assert_allclose(slopes, 0.0, atol=1e-4)


@in_float64
def test_gathered_rows_give_the_same_pass_as_single_rows(monkeypatch):
    """Cells of equal rows are only bookkeeping."""
    _, model, encoded, em, state = bernoulli_setup("laplace")
    assert em.kernel.blocks[0].pattern == 0
    import avem.models.hmm_layout as home

    monkeypatch.setattr(home, "_alike", lambda values, most: None)
    single = model.encode(encoded.panel)
    assert single.kernel.blocks[0].pattern == -1
    a = passes_at(em.e, state)[0]
    b = anchored_pass(
        single.kernel, state.theta, anchors_at(em, state)[0], None, single.chunks[0], "scaled"
    )
    np.testing.assert_allclose(b.bound, a.bound, rtol=1e-10)
    np.testing.assert_allclose(b.mean, a.mean, atol=1e-9)
    partial_terms = [
        value_of(k, p, c, state)
        for k, p, c in ((em.kernel, a, chunk_of(em)), (single.kernel, b, single.chunks[0]))
    ]
    for one, other in zip(*partial_terms, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def value_of(kernel, p, chunk, state):
    coef = state.theta["0.coef"]
    return coef_pass(kernel, "0.coef", coef, p.kept, chunk)


# --- transitions ----------------------------------------------------------------------------------


def moving_frame(n=8, n_times=12, seed=0):
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"who": np.repeat(np.arange(n), n_times), "session": 0})
    rows["t"] = np.tile(np.arange(n_times), n)
    rows["x"] = rng.standard_normal(len(rows))
    rows["g"] = rng.integers(0, 2, len(rows))
    rows["y"] = rng.standard_normal(len(rows))
    return rows


CHAINS = {
    "covariate": ("~ x", "~ 1"),
    "few values": ("~ g", "~ 1"),
    "effect": ("~ 1 + (1 | who)", "~ 1"),
    "covariate and effect": ("~ x + (1 + x | who)", "~ 1"),
    "start": ("~ 1", "~ x"),
    "stationary": ("~ 1", "stationary"),
    "stationary with all": ("~ x + (1 | who)", "stationary"),
}


@pytest.mark.parametrize(
    ("kind", "n_states"),
    [
        ("covariate and effect", 2),
        ("stationary", 2),
        ("start", 3),
        *(
            pytest.param(kind, 2, marks=pytest.mark.slow)
            for kind in ("stationary with all", "start")
        ),
        *(
            pytest.param(kind, 3, marks=pytest.mark.slow)
            for kind in ("covariate and effect", "stationary")
        ),
    ],
)
@in_float64
def test_chain_terms_equal_the_definition(kind, n_states):
    """Log likelihood, effect terms and coefficient terms of the chain, from plain NumPy."""
    transition, initial = CHAINS[kind]
    hmm = avem.MixedHMM("y ~ 1", n_states, transition=transition, initial=initial)
    rows = moving_frame()
    model, encoded, em = prepare_model(hmm, rows)
    rng = np.random.default_rng(1)
    d, k = model.n_effects, n_states
    params = {
        "coef": np.linspace(-1, 1, k)[:, None, None],
        "variance": np.full((k, 1), 0.7),
        "effect_covariance": 0.3 * np.eye(d),
    }
    if initial == "~ 1":
        params["initial"] = rng.dirichlet(np.ones(k))
    elif initial == "~ x":
        params["initial_coef"] = np.vstack([np.zeros(2), rng.standard_normal((k - 1, 2))])
    m = len(model.transition.lines[0].terms) if model.transition.lines else 0
    if m and not (m == 1 and d == 0):
        params["transition_coef"] = 0.5 * rng.standard_normal((k, k, m))
        params["transition_coef"][np.arange(k), np.arange(k)] = 0.0
    else:
        params["transition"] = rng.dirichlet(np.ones(k), size=k)
    anchors = 0.5 * rng.standard_normal((d, encoded.panel.n_subjects))
    state = start_state(model, encoded, params, anchors)
    step = passes_at(em.e, state)[0]

    def matrix(f, x, g):
        if "transition" in params:
            return params["transition"]
        terms = {"Intercept": 1.0, "x": x, "g": g}
        names = model.transition.lines[0].terms
        logits = np.array(params["transition_coef"]) @ np.array([terms[name] for name in names])
        for place, effect in enumerate(model.structure.effects):
            logits[effect.state, effect.to_state] += f[place] * terms[effect.term]
        odds = np.exp(logits)
        return odds / odds.sum(1, keepdims=True)

    def first(f, x, g):
        if "initial" in params:
            return params["initial"]
        if "initial_coef" in params:
            odds = np.exp(params["initial_coef"] @ np.array([1.0, x]))
            return odds / odds.sum()
        gamma = matrix(f, x, g)
        return np.linalg.solve(np.eye(k) - gamma.T + 1.0, np.ones(k))

    for i in range(3):
        own = rows[rows["who"] == i]
        f = anchors[:, i]
        density = norm.pdf(own["y"].to_numpy()[:, None], params["coef"][:, 0, 0], np.sqrt(0.7))
        alpha, total = None, 0.0
        for t, (x, g) in enumerate(zip(own["x"], own["g"], strict=True)):
            predicted = first(f, x, g) if t == 0 else alpha @ matrix(f, x, g)
            alpha = predicted * density[t]
            total += np.log(alpha.sum())
            alpha = alpha / alpha.sum()
        np.testing.assert_allclose(step.loglik[i], total, rtol=1e-9)

    # The score at the anchor, by Fisher's identity, is the slope of log p(D | f).
    if d:
        pass_at = jax.jit(em.kernel.local, static_argnums=3)
        local = pass_at(state.theta, anchors_at(em, state)[0], chunk_of(em), "scaled")
        quadratic = em.kernel.quadratic(state.theta, local)
        terms = jax.jit(em.kernel.effect_terms)(
            state.theta, anchors_at(em, state)[0], None, local, quadratic, chunk_of(em)
        )
        for j in range(d):
            h = np.zeros_like(anchors_at(em, state)[0])
            h[j] = 1e-5
            up, down = (
                pass_at(state.theta, anchors_at(em, state)[0] + s * h, chunk_of(em), "scaled")
                for s in (1, -1)
            )
            slope = (np.asarray(up.loglik) - np.asarray(down.loglik)) / 2e-5
            np.testing.assert_allclose(terms.gradient[j], slope, atol=1e-6)
    check_coef_score(em, state)


def check_coef_score(em, state):
    """Gradients in the chain's coefficients are slopes of the log likelihood at the anchors."""
    p = passes_at(em.e, state)[0]
    chunk, anchor = chunk_of(em), anchors_at(em, state)[0]
    real = np.asarray(chunk.real)

    pass_at = jax.jit(em.kernel.local, static_argnums=3)

    def height(theta):
        local = pass_at(theta, anchor, chunk, "scaled")
        return float(np.asarray(local.loglik)[real].sum())

    for key in ("moves.coef", "start.coef"):
        if key not in state.theta:
            continue
        at_anchor = p.kept._replace(mean=anchor, covariance=None)
        terms = coef_pass(em.kernel, key, state.theta[key], at_anchor, chunk)
        gradient = np.asarray(terms.gradient).reshape(state.theta[key].shape)
        for at in np.ndindex(*state.theta[key].shape):
            slopes = []
            for s in (1, -1):
                moved = state.theta[key].copy()
                moved[at] += s * 1e-5
                slopes.append(height({**state.theta, key: moved}))
            np.testing.assert_allclose(
                gradient[at], (slopes[0] - slopes[1]) / 2e-5, atol=2e-5, rtol=1e-5
            )


@pytest.mark.slow
def test_params_survive_the_way_in_and_out():

    hmm = avem.MixedHMM(
        [
            avem.outcome("y ~ x + (1 | who)", "student_t"),
            avem.outcome("c ~ 1", avem.Categorical()),
        ],
        3,
        transition="~ x + (1 | who)",
        initial="~ x",
    )
    rows = moving_frame().assign(c=lambda f: np.resize(["a", "b", "c"], len(f)))
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        fit = hmm.fit(rows, time="t", max_iter=2, n_starts=1, refine=None)
    back = fit.model.params_out(fit.model.params_in(fit.params))
    assert fit.model.scaling.scale[0] != 1.0
    for name, value in fit.params.items():
        np.testing.assert_allclose(back[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
