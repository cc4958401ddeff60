// The Gaussian q of every subject from a quadratic log likelihood, as `kernels/posterior.py` defines it.
#include "call.h"
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

}  // namespace

extern "C" XLA_FFI_Error* avem_posterior(XLA_FFI_CallFrame* frame) {
  Call call(frame);
  if (call.is_question()) return nullptr;
  if (!call.has(5, 4)) return call.wrong_shapes();
  Array prior = call.argument(2), prior_logdet = call.argument(0), curvature = call.argument(3),
        linear = call.argument(2), origin = call.argument(2);
  Array mean = call.result(2), covariance = call.result(3), divergence = call.result(1), height = call.result(1);
  if (!call.sound()) return call.wrong_shapes();
  const int64_t d = linear.dims[0], n = linear.dims[1];
  Room room(d * d + 7 * d);
  vec *cov = room.get(), *over = cov + d * d, *at = over + d, *from = at + d, *moved = from + d,
      *pull = moved + d, *prior_at = pull + d, *prior_from = prior_at + d;
  for (int64_t b = 0; b < mean.batches; ++b) {
    const double *p = prior.at(b), *lambda = curvature.at(b), *h = linear.at(b), *o = origin.at(b);
    for (int64_t lane = 0; lane < n; lane += kLanes) {
      const int count = n - lane < kLanes ? int(n - lane) : kLanes;
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
      store(height.at(b) + lane, slope - 0.5 * (trace + bent), count);
      store(divergence.at(b) + lane, 0.5 * (away + *prior_logdet.at(b) + precision_logdet), count);
      for (int64_t i = 0; i < d; ++i) store(mean.at(b) + i * n + lane, at[i], count);
      for (int64_t i = 0; i < d * d; ++i) store(covariance.at(b) + i * n + lane, cov[i], count);
    }
  }
  return nullptr;
}
