// Inverse and log determinant of many symmetric matrices, the batch on the last axis.
#include "inverse.h"

#include "arguments.h"

namespace {

ffi::Error Inverse(ffi::AnyBuffer matrix, ffi::Result<ffi::AnyBuffer> inverse,
                   ffi::Result<ffi::AnyBuffer> logdet) {
  Batched given(matrix, 3), out(*inverse, 3), logs(*logdet, 1);
  int64_t d = given.dims[0], n = given.dims[2];
  Room room(d * d + d);
  vec *a = room.get(), *over = a + d * d;
  for (int64_t b = 0; b < given.batches; ++b) {
    for (int64_t lane = 0; lane < n; lane += kLanes) {
      int count = n - lane < kLanes ? int(n - lane) : kLanes;
      for (int64_t i = 0; i < d * d; ++i) a[i] = load(given.at<double>(b) + i * n + lane, count);
      store(logs.into<double>(b) + lane, invert_in(a, d, over), count);
      for (int64_t i = 0; i < d * d; ++i) store(out.into<double>(b) + i * n + lane, a[i], count);
    }
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    avem_inverse, Inverse,
    ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
