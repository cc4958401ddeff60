// Inverse and log determinant of many symmetric matrices, the batch on the last axis.
#include "inverse.h"

#include "call.h"

extern "C" XLA_FFI_Error* avem_inverse(XLA_FFI_CallFrame* frame) {
  Call call(frame);
  if (call.is_question()) return nullptr;
  if (!call.has(1, 2)) return call.wrong_shapes();
  Array matrix = call.argument(3), inverse = call.result(3), logdet = call.result(1);
  if (!call.sound()) return call.wrong_shapes();
  const int64_t d = matrix.dims[0], n = matrix.dims[2];
  Room room(d * d + d);
  vec *a = room.get(), *over = a + d * d;
  for (int64_t b = 0; b < logdet.batches; ++b) {
    for (int64_t lane = 0; lane < n; lane += kLanes) {
      const int count = n - lane < kLanes ? int(n - lane) : kLanes;
      for (int64_t i = 0; i < d * d; ++i) a[i] = load(matrix.at(b) + i * n + lane, count);
      store(logdet.at(b) + lane, invert_in(a, d, over), count);
      for (int64_t i = 0; i < d * d; ++i) store(inverse.at(b) + i * n + lane, a[i], count);
    }
  }
  return nullptr;
}
