"""The mixed-effects state-space model (Section 5) as pure functions of (theta, f, data).

    x_1 ~ N(m, P),   x_t = G_i x_{t-1} + B s_t + N(0, I),   y_t = H_i x_t + A_i w_t + N(0, R),

with G_i = G + (effects), the free entries of H_i (its lower triangle) and of A_i likewise, and R
diagonal. With a clock, G is the drift of dx = (G_i x + B s_t) dt + dW (`ssm_clock`).

`theta` is a flat dict: ``start_mean`` (q,), ``start_covariance`` (q, q), ``dynamics`` G,
``drive`` B, ``loading`` H, ``coef`` A, ``noise_covariance`` (p, 1, 1), ``effect_covariance``. The
effects are deviations from the population's matrices; their mean is 0.

Moments are taken of the residuals at the effects of the local pass, not of the outcomes: where a
subject's states grow large, differences of large sums would leave nothing of its noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from avem.components.lanes import Theta, all_by_subject, by_subject, to_lanes
from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms, Quadratic
from avem.kernels import kalman, kalman_filter
from avem.kernels.kalman_moments import moments, outcome_moments
from avem.models import ssm_clock, ssm_sums
from avem.models.relabelling import Move, sign_flips

_LEAST_CURVATURE = 1e-11
"""Relative to the largest of the same subject."""


class SSMLocal(NamedTuple):
    """What one local pass leaves behind: moments of each subject's residuals e and regressors.

    Of the step into t, r = (x_{t-1}, s_t) predicts the state; of the outcomes, v = (x_t, w_t).
    """

    loglik: Float[Array, " subject"]
    """log p(D_i | f_i)."""
    at: Float[Array, "d subject"]
    """f_i."""
    step_rr: Float[Array, "r r subject"]
    step_er: Float[Array, "q r subject"]
    seen_vv: Float[Array, "group v v subject"]
    """Over the times when the group's outcomes were seen."""
    seen_ev: Float[Array, "p v subject"]
    seen_ee: Float[Array, "p subject"]
    first: Float[Array, "q subject"]
    """x_1 - m, summed over the subject's sequences."""
    first_second: Float[Array, "q q subject"]
    weight: Float[Array, " subject"]
    """1; or a node's share."""


@dataclass(frozen=True)
class SSMKernel:
    """One shape of state-space model; hashable, so that jit can key on it."""

    n_latent: int
    groups: tuple[tuple[int, ...], ...]
    """Outcomes that are always seen together."""
    x_cols: tuple[int, ...]
    """Design columns of the outcomes' coefficients."""
    z_cols: tuple[int, ...]
    """Design columns of the outcomes' effects."""
    drive_cols: tuple[int, ...]
    """Design columns that act on the states."""
    random_transition: bool
    random_loading: bool
    clock: int = -1
    """The design column of the interval before each row; -1: rows are one step apart."""
    n_cells: int = 0
    """Of the chunks' pattern that gathers rows by their interval; 0: every row is on its own."""

    @property
    def by_cell(self) -> bool:
        """Moments of rows with the same interval are added up."""
        return 0 < self.n_cells <= ssm_clock.FEW

    def summed(self) -> SSMKernel:
        """The same: what is read of a local pass is each subject's."""
        return self

    @property
    def closed_form(self) -> bool:
        """The expected log likelihood is quadratic in the effects."""
        return True

    @property
    def concave(self) -> bool:
        """And concave."""
        return True

    @property
    def has_twins(self) -> bool:
        """Other signs of the states are far away from where the prior is."""
        return False

    @property
    def newton_keys(self) -> tuple[str, ...]:
        """Every M-step has a closed form."""
        return ()

    def effects_act_on(self, key: str) -> bool:
        """No entry has a Newton step."""
        return False

    # --- shapes ---------------------------------------------------------------------------------

    @property
    def n_outcomes(self) -> int:
        """p."""
        return sum(map(len, self.groups))

    @property
    def group_of(self) -> np.ndarray:
        """(p,) the group of each outcome."""
        out = np.empty(self.n_outcomes, int)
        for number, group in enumerate(self.groups):
            out[list(group)] = number
        return out

    @property
    def w_cols(self) -> tuple[int, ...]:
        """Design columns that the outcomes read."""
        return tuple(dict.fromkeys((*self.x_cols, *self.z_cols)))

    @property
    def n_effects(self) -> int:
        """d."""
        return len(self.transition_effects) + sum(len(row) for row, _ in self.outcome_effects)

    @cached_property
    def transition_effects(self) -> tuple[tuple[int, int], ...]:
        """The entry of G that each of the first effects is added to, column by column."""
        q = self.n_latent
        return tuple((a, b) for b in range(q) for a in range(q)) if self.random_transition else ()

    @cached_property
    def loading_effects(self) -> tuple[tuple[int, int], ...]:
        """The entry of H that each of the next effects is added to, column by column."""
        entries = [(j, k) for k in range(self.n_latent) for j in range(k, self.n_outcomes)]
        return tuple(entries) if self.random_loading else ()

    @cached_property
    def coef_effects(self) -> tuple[tuple[int, int], ...]:
        """The outcome and the design column (place in `w_cols`) of each of the last effects."""
        places = [self.w_cols.index(c) for c in self.z_cols]
        return tuple((j, place) for j in range(self.n_outcomes) for place in places)

    @cached_property
    def outcome_effects(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """For each outcome its effects, and the entries of v = (x, w) that they multiply."""
        at = len(self.transition_effects)
        q = self.n_latent
        entries = [*self.loading_effects, *((j, q + place) for j, place in self.coef_effects)]
        out = []
        for j in range(self.n_outcomes):
            own = [(at + e, v) for e, (row, v) in enumerate(entries) if row == j]
            out.append((np.array([e for e, _ in own], int), np.array([v for _, v in own], int)))
        return tuple(out)

    # --- a subject's matrices -------------------------------------------------------------------

    def transition(self, theta: Theta, f: Float[Array, "d n"]) -> Float[Array, "q q n"]:
        """G_i."""
        g = theta["dynamics"][:, :, None]
        if not self.random_transition:
            return jnp.broadcast_to(g, (*g.shape[:2], f.shape[1]))
        q = self.n_latent
        return g + jnp.swapaxes(f[: q * q].reshape(q, q, -1), 0, 1)

    def outcome_matrix(self, theta: Theta, f: Float[Array, "d n"]) -> Float[Array, "p v n"]:
        """(H_i, A_i)."""
        fixed = self.fixed_matrix(theta)[:, :, None]
        return fixed + self.outcome_deviation(f)

    def fixed_matrix(self, theta: Theta) -> Float[Array, "p v"]:
        """(H, A), the coefficients at their places among `w_cols`."""
        coef = jnp.zeros((self.n_outcomes, len(self.w_cols)))
        places = np.array([self.w_cols.index(c) for c in self.x_cols], int)
        if len(places):
            coef = coef.at[:, places].set(theta["coef"])
        return jnp.concatenate([theta["loading"], coef], axis=1)

    def outcome_deviation(self, f: Float[Array, "d n"]) -> Float[Array, "p v n"]:
        """The effects at their places in (H, A)."""
        out = jnp.zeros((self.n_outcomes, self.n_latent + len(self.w_cols), f.shape[1]))
        for j, (effects, entries) in enumerate(self.outcome_effects):
            if len(effects):
                out = out.at[j, entries].set(f[effects])
        return out

    def seen(self, chunk: Chunk) -> Array:
        """(time, p, lane) which outcomes there are."""
        return chunk.seen[:, self.group_of]

    def regressors(self, chunk: Chunk) -> tuple[Array, Array]:
        """w and s at every step; s is 0 at the first, which nothing leads into."""
        drive = chunk.a[:, np.array(self.drive_cols, int)]
        return chunk.a[:, np.array(self.w_cols, int)], drive.at[:1].set(0.0)

    def system(
        self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None
    ) -> kalman_filter.Problem:
        """What the filter reads, every lane at its subject's effect.

        With `cov`, expectations of the log densities under q (blocked mean field).
        """
        q = self.n_latent
        f = to_lanes(f, chunk)
        w, s = self.regressors(chunk)
        matrix = self.outcome_matrix(theta, f)
        seen = self.seen(chunk)
        y = chunk.y
        if self.w_cols:
            y = jnp.where(seen, y - jnp.einsum("jan,tan->tjn", matrix[:, q:], w), 0.0)
        noise = theta["noise_covariance"][:, 0]
        drive = moves = more = None
        if self.clock >= 0:
            moves, drive = ssm_clock.moves(self, theta, f, chunk, s)
        elif self.drive_cols:
            drive = jnp.einsum("as,tsn->tan", theta["drive"], s)
        if cov is not None:
            more = self._doubt(to_lanes(cov, chunk), noise, w, seen, chunk.valid)
        return kalman_filter.Problem(
            system=kalman_filter.System(
                start_mean=theta["start_mean"][:, None],
                start_cov=theta["start_covariance"][:, :, None],
                transition=self.transition(theta, f),
                state_noise=jnp.eye(q)[:, :, None],
                loading=matrix[:, :q],
                noise=noise,
            ),
            y=y,
            seen=seen,
            valid=chunk.valid,
            drive=drive,
            more=more,
            moves=moves,
        )

    def _doubt(self, cov: Array, noise: Array, w: Array, seen: Array, valid: Array):
        """What uncertain matrices add to the log densities: -x'Jx/2 + l'x + c at every step."""
        q = self.n_latent
        precision = jnp.zeros((len(w), q, q, w.shape[-1]))
        linear = jnp.zeros((len(w), q, w.shape[-1]))
        constant = jnp.zeros((len(w), w.shape[-1]))
        if self.random_transition:
            # The variance of G x_{t-1}, summed over the states: there is a next step to leave for.
            block = cov[: q * q, : q * q].reshape(q, q, q, q, -1)  # (b, a, b', a')
            own = jnp.einsum("bacan->bcn", block)
            goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
            precision += jnp.where(goes_on[:, None, None], own, 0.0)
        for j, (effects, entries) in enumerate(self.outcome_effects):
            if not len(effects):
                continue
            size = q + len(self.w_cols)
            own = jnp.zeros((size, size, cov.shape[-1]))
            own = own.at[entries[:, None], entries].set(cov[effects[:, None], effects]) / noise[j]
            here = seen[:, j]
            precision += jnp.where(here[:, None, None], own[:q, :q], 0.0)
            pull = jnp.einsum("abn,tbn->tan", own[:q, q:], w)
            linear -= jnp.where(here[:, None], pull, 0.0)
            square = jnp.einsum("tan,abn,tbn->tn", w, own[q:, q:], w)
            constant -= jnp.where(here, 0.5 * square, 0.0)
        return kalman_filter.More(precision, linear, constant)

    # --- the local pass -------------------------------------------------------------------------

    def path_posterior(self, theta: Theta, f: Array, chunk: Chunk, form: str) -> kalman.Smoothed:
        """Smoothed states of every lane at its subject's effect, up to what was seen last."""
        return kalman.smooth(self.system(theta, f, _until_seen(chunk)))

    def local(
        self, theta: Theta, f: Array, chunk: Chunk, form: str, cov: Array | None = None
    ) -> SSMLocal:
        """Filter and smoother of every subject at its effect `f`, reduced to what is needed later.

        ``form`` is for kernels with more than one; there is one here.
        """
        chunk = _until_seen(chunk)
        problem = self.system(theta, f, chunk, cov)
        if self.clock < 0:
            lanes, first, first_cov = self._in_steps(problem, chunk)
        else:
            lanes, first, first_cov = self._along_paths(theta, f, problem, chunk)
        away = jnp.where(chunk.valid[0], first - theta["start_mean"][:, None], 0.0)
        spread = jnp.where(chunk.valid[0], first_cov, 0.0)
        lanes = (*lanes, away, spread + away[:, None] * away[None])
        loglik, *rest = all_by_subject(lanes, chunk)
        return SSMLocal(loglik, f, *rest, weight=jnp.ones(f.shape[1]))

    def _in_steps(self, problem: kalman_filter.Problem, chunk: Chunk):
        """Log likelihood and moments of every lane; mean and covariance of its first state."""
        w, s = self.regressors(chunk)
        sums = moments(self, problem, w, s, chunk.seen)
        into = jnp.where(chunk.valid[1:, None], s[1:], 0.0)
        seen_w = [jnp.where(chunk.seen[:, g, None], w, 0.0) for g in range(len(self.groups))]
        pairs = zip(sums.seen_xx, sums.seen_xw, seen_w, strict=True)
        lanes = (
            sums.loglik,
            _bordered(sums.xx, sums.xs, into),
            jnp.concatenate([sums.ex, sums.es], axis=1),
            jnp.stack([_bordered(*parts) for parts in pairs]),
            jnp.concatenate([sums.seen_ex, sums.seen_ew], axis=1),
            sums.seen_ee,
        )
        return lanes, sums.first, sums.first_cov

    def _along_paths(self, theta: Theta, f: Array, problem: kalman_filter.Problem, chunk: Chunk):
        """The same in continuous time: of the steps, integrals over the paths between rows."""
        w, s = self.regressors(chunk)
        found = kalman.smooth(problem)
        path = ssm_clock.within(self, theta, to_lanes(f, chunk), chunk, s, problem, found)
        of_outcomes = outcome_moments(problem, found, w, chunk.seen)
        lost = ssm_clock.lost(problem, found)
        moments = [jnp.where(lost, 0.0, part) for part in (*path, *of_outcomes)]
        loglik = jnp.where(lost, -jnp.inf, found.loglik)
        return (loglik, *moments), found.mean[0], found.cov[0]

    def weigh(self, local: SSMLocal, share: Float[Array, " subject"], chunk: Chunk) -> SSMLocal:
        """A local pass that counts only with a share of each subject."""
        moments = [part * share for part in local[2:]]
        return SSMLocal(local.loglik, local.at, *moments)

    # --- the expected log likelihood, as far as the effects act on it ---------------------------

    @cached_property
    def _information(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries of the effects' information matrix that are not 0, and where they come from.

        First the entries, counted row by row; then the row of each among all moments; then, for
        the slope, the row of each effect.
        """
        q, d, v = self.n_latent, self.n_effects, self.n_latent + len(self.w_cols)
        into, entry_of, row_of = [], [], np.zeros(d, int)
        for e, (a, b) in enumerate(self.transition_effects):
            row_of[e] = b * q + a
            for other, (c, d_) in enumerate(self.transition_effects):
                if a == c:
                    into.append(e * d + other)
                    entry_of.append(b * q + d_)
        for j, (effects, entries) in enumerate(self.outcome_effects):
            row_of[effects] = q * q + j * v + entries
            for e, r in zip(effects, entries, strict=True):
                for other, c in zip(effects, entries, strict=True):
                    into.append(e * d + other)
                    entry_of.append(q * q + (j * v + r) * v + c)
        return np.array(into, int), np.array(entry_of, int), row_of

    def _weighed_vv(self, local: SSMLocal, noise: Array) -> list[Array]:
        """Each outcome's (v v, n) second moments of its regressors, over its noise."""
        n = local.loglik.shape[0]
        pairs = zip(self.group_of, noise, strict=True)
        return [(local.seen_vv[g] / r).reshape(-1, n) for g, r in pairs]

    def quadratic(self, theta: Theta, local: SSMLocal) -> Quadratic:
        """Eqs. Lambda_gi to eta_hi, about the effects of the local pass."""
        q, n = self.n_latent, local.loglik.shape[0]
        noise = theta["noise_covariance"][:, 0]
        into, entry_of, row_of = self._information
        # All numbers that there are, a row each, and where they go: one copy instead of many.
        rows = jnp.concatenate(
            [local.step_rr[:q, :q].reshape(-1, n), *self._weighed_vv(local, noise)]
        )
        d = self.n_effects
        curvature = jnp.zeros((d * d, n)).at[into].set(rows[entry_of]).reshape(d, d, n)
        slopes = [jnp.swapaxes(local.step_er[:, :q], 0, 1).reshape(-1, n)]
        slopes.append((local.seen_ev / noise[:, None]).reshape(-1, n))
        linear = jnp.concatenate(slopes)[row_of]
        # A subject whose states grow without bound tells so much of one direction that nothing of
        # the others would be left in double precision.
        most = jnp.diagonal(curvature).T.max(0, initial=0.0)
        curvature += _LEAST_CURVATURE * most * jnp.eye(self.n_effects)[:, :, None]
        return Quadratic(curvature, linear, local.at)

    def value(self, theta: Theta, mean, cov, local, quadratic: Quadratic, chunk: Chunk) -> Array:
        """E_q Q(f) of every subject up to a constant; at the point `mean` when `cov` is None."""
        return quadratic.value(mean, cov)

    def effect_terms(
        self, theta: Theta, mean, cov, local, quadratic: Quadratic, chunk: Chunk
    ) -> EffectTerms:
        """E_q Q(f) with its gradient (d, subject) and curvature (d, d, subject) in f."""
        return quadratic.terms(mean, cov)

    def twins(self, theta, matches) -> list[Move]:
        """Other effects that turned signs of the states lead to."""
        return sign_flips(self, theta)

    # --- the M-step -----------------------------------------------------------------------------

    def sums(self, local: SSMLocal, mean: Array, cov: Array | None, chunk: Chunk):
        """What the M-step needs, summed over subjects, when the effects are N(mean, cov)."""
        return ssm_sums.collect(self, local, mean, cov, chunk)

    def read(self, sums: Any) -> Any:
        """Themselves."""
        return sums

    def maximise(self, theta, sums, fixed, free, noise_floor) -> dict[str, np.ndarray]:
        """New entries of theta."""
        return ssm_sums.maximise(self, theta, sums, fixed, free, noise_floor)

    def slopes(self, theta, sums) -> dict[str, np.ndarray]:
        """Derivatives of the expected complete log likelihood in them."""
        return ssm_sums.slopes(self, theta, sums)

    def shifted(self, sums, moves) -> Any:
        """They are of residuals at whole matrices, which that leaves as they are."""
        return sums

    def needed_by_newton(self, local: SSMLocal) -> None:
        """Nothing: every M-step has a closed form here."""

    def coef_terms(self, key: str, coef, mean, cov, local, chunk: Chunk) -> CoefTerms:
        """Nothing: every M-step has a closed form here."""
        return CoefTerms(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)))

    # --- the definition -------------------------------------------------------------------------

    def expected_complete(
        self, theta: Theta, f: Array, posterior: kalman.Smoothed, chunk: Chunk
    ) -> Float[Array, " subject"]:
        """E over p(U | D, f0) of log p(D, U | f; theta): what an M-step maximises.

        In continuous time the states U are those at the rows, and the M-step's are whole paths: its
        slopes at f0 are the same.
        """
        problem = self.system(theta, f, _until_seen(chunk))
        return by_subject(kalman.expected_log_density(problem, posterior), chunk)


def _until_seen(chunk: Chunk) -> Chunk:
    """Without rows at the ends of sequences where nothing was seen, which say nothing.

    Where states may grow without bound, their moments there would leave no digit of the others.
    """
    later = jnp.cumsum(chunk.seen.any(1)[::-1], axis=0)[::-1] > 0
    return chunk._replace(valid=chunk.valid & later.at[0].set(True))


def _bordered(
    xx: Float[Array, "q q n"], xc: Float[Array, "q c n"], columns: Float[Array, "time c n"]
) -> Array:
    """The second moments of (x, c), from those of the states and the known columns c."""
    known = (columns[:, :, None] * columns[:, None]).sum(0)
    top = jnp.concatenate([xx, xc], axis=1)
    return jnp.concatenate([top, jnp.concatenate([jnp.swapaxes(xc, 0, 1), known], axis=1)])
