// The Gaussian q of every subject from a quadratic log likelihood, as `effects/posterior.py` defines it.
#include "arguments.h"
#include "inverse.h"

namespace {

// A matrix that all lanes share times a vector of each.
void times(const double* matrix, const vec* x, int64_t d, vec* out) {
  for (int64_t i = 0; i < d; ++i) {
    out[i] = vec{};
    for (int64_t j = 0; j < d; ++j) out[i] += matrix[i * d + j] * x[j];
  }
}

vec dot(const vec* a, const vec* b, int64_t d) {
  vec total = vec{};
  for (int64_t i = 0; i < d; ++i) total += a[i] * b[i];
  return total;
}

ffi::Error Posterior(ffi::AnyBuffer prior, ffi::AnyBuffer prior_logdet, ffi::AnyBuffer curvature,
                     ffi::AnyBuffer linear, ffi::AnyBuffer origin, ffi::Result<ffi::AnyBuffer> mean,
                     ffi::Result<ffi::AnyBuffer> covariance, ffi::Result<ffi::AnyBuffer> divergence,
                     ffi::Result<ffi::AnyBuffer> height) {
  Batched priors(prior, 2), logdets(prior_logdet, 0), curvatures(curvature, 3), linears(linear, 2),
      origins(origin, 2), means(*mean, 2), covariances(*covariance, 3), divergences(*divergence, 1),
      heights(*height, 1);
  int64_t d = linears.dims[0], n = linears.dims[1];
  Room room(d * d + 7 * d);
  vec *cov = room.get(), *over = cov + d * d, *at = over + d, *from = at + d, *moved = from + d,
      *pull = moved + d, *prior_at = pull + d, *prior_from = prior_at + d;
  for (int64_t b = 0; b < means.batches; ++b) {
    const double *p = priors.at<double>(b), *lambda = curvatures.at<double>(b), *h = linears.at<double>(b),
                 *o = origins.at<double>(b);
    for (int64_t lane = 0; lane < n; lane += kLanes) {
      int count = n - lane < kLanes ? int(n - lane) : kLanes;
      for (int64_t i = 0; i < d; ++i) {
        from[i] = load(o + i * n + lane, count);
        for (int64_t j = 0; j <= i; ++j) cov[i * d + j] = p[i * d + j] + load(lambda + (i * d + j) * n + lane, count);
      }
      vec precision_logdet = invert_in(cov, d, over);
      times(p, from, d, prior_from);
      vec slope = vec{}, spread = vec{};  // h'(m - o), tr(prior cov)
      for (int64_t i = 0; i < d; ++i) pull[i] = load(h + i * n + lane, count) - prior_from[i];
      for (int64_t i = 0; i < d; ++i) {
        moved[i] = dot(cov + i * d, pull, d);
        at[i] = from[i] + moved[i];
        slope += (pull[i] + prior_from[i]) * moved[i];
        for (int64_t j = 0; j < d; ++j) spread += p[i * d + j] * cov[i * d + j];
      }
      times(p, at, d, prior_at);
      // With Lambda = cov^-1 - prior: tr(Lambda cov) and (m - o)'Lambda(m - o).
      vec trace = double(d) - spread;
      vec bent = dot(moved, pull, d) - dot(moved, prior_at, d) + dot(moved, prior_from, d);
      vec away = spread + dot(at, prior_at, d) - double(d);
      store(heights.into<double>(b) + lane, slope - 0.5 * (trace + bent), count);
      store(divergences.into<double>(b) + lane, 0.5 * (away + *logdets.at<double>(b) + precision_logdet), count);
      for (int64_t i = 0; i < d; ++i) store(means.into<double>(b) + i * n + lane, at[i], count);
      for (int64_t i = 0; i < d * d; ++i) store(covariances.into<double>(b) + i * n + lane, cov[i], count);
    }
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(avem_posterior, Posterior,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
