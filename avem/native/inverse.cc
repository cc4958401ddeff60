// Inverse and log determinant of many symmetric matrices, the batch on the last axis.
#include "arguments.h"

namespace {

// By L D L'; a matrix that is not positive definite gets NaN.
void invert_block(const double* given, double* inverse, double* logdet, int64_t d, int64_t n,
                         int count, vec* room) {
  vec *low = room, *over = room + d * d;
  LogProduct pivots;
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      // Below the diagonal L, above it L D.
      vec rest = load(given + (i * d + j) * n, count);
      for (int64_t m = 0; m < j; ++m) rest -= low[m * d + i] * low[j * d + m];
      if (j < i) {
        low[j * d + i] = rest;
        low[i * d + j] = rest * over[j];
      } else {
        vec pivot = where(rest > 0.0, rest, all(std::numeric_limits<double>::quiet_NaN()));
        over[i] = 1.0 / pivot;
        pivots.times(pivot);
      }
    }
  }
  // The inverse of L takes the place of L.
  for (int64_t j = 0; j < d; ++j) {
    for (int64_t i = j + 1; i < d; ++i) {
      vec known = low[i * d + j];
      for (int64_t m = j + 1; m < i; ++m) known += low[i * d + m] * low[m * d + j];
      low[i * d + j] = -known;
    }
  }
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      vec total = i == j ? over[i] : over[i] * low[i * d + j];
      for (int64_t m = i + 1; m < d; ++m) total += low[m * d + i] * over[m] * low[m * d + j];
      store(inverse + (i * d + j) * n, total, count);
      if (j < i) store(inverse + (j * d + i) * n, total, count);
    }
  }
  store(logdet, pivots.sum(), count);
}

ffi::Error Inverse(ffi::AnyBuffer matrix, ffi::Result<ffi::AnyBuffer> inverse,
                   ffi::Result<ffi::AnyBuffer> logdet) {
  Batched given(matrix, 3);
  int64_t d = given.dims[0], n = given.dims[2];
  Room room(d * d + d);
  double *out = static_cast<double*>(inverse->untyped_data()), *logs = static_cast<double*>(logdet->untyped_data());
  for (int64_t b = 0; b < given.batches; ++b) {
    const double* in = given.at<double>(b);
    for (int64_t lane = 0; lane < n; lane += kLanes) {
      int count = n - lane < kLanes ? int(n - lane) : kLanes;
      invert_block(in + lane, out + b * d * d * n + lane, logs + b * n + lane, d, n, count, room.get());
    }
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    avem_inverse, Inverse,
    ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
