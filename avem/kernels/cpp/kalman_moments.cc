// Filter, smoother and sums of moments, for XLA to call. STATES, q, is given to the compiler: with it
// known, all loops over the states unroll.
#include "call.h"
#include "kalman.h"

extern "C" XLA_FFI_Error* avem_kalman_moments(XLA_FFI_CallFrame* frame) {
  Call call(frame);
  if (call.is_question()) return nullptr;
  if (!call.has(13, 1)) return call.wrong_shapes();
  Array start_mean = call.argument(2), start_cov = call.argument(3), transition = call.argument(3),
        state_noise = call.argument(3), loading = call.argument(3), noise = call.argument(2),
        y = call.argument(3), seen = call.argument(3, XLA_FFI_DataType_PRED),
        valid = call.argument(2, XLA_FFI_DataType_PRED), drive = call.argument(3), w = call.argument(3),
        s = call.argument(3), group_of = call.argument(1, XLA_FFI_DataType_S32);
  Array sums = call.result(2);
  if (!call.sound()) return call.wrong_shapes();
  Shape shape;
  shape.times = y.dims[0];
  shape.p = y.dims[1];
  shape.w = w.dims[1];
  shape.s = s.dims[1];
  shape.lanes = valid.dims[1];
  shape.driven = drive.dims[0] > 0;
  shape.group_of = group_of.at<int32_t>(0);
  shape.groups = 0;
  for (int64_t i = 0; i < shape.p; ++i)
    if (shape.group_of[i] >= shape.groups) shape.groups = shape.group_of[i] + 1;
  if (transition.dims[0] != STATES || seen.dims[1] != shape.groups || sums.dims[0] != count_rows(STATES, shape)) return call.wrong_shapes();
  for (int64_t b = 0; b < sums.batches; ++b) {
    Inputs in = {start_mean.lanes(b, 2), start_cov.lanes(b, 3), transition.lanes(b, 3), state_noise.lanes(b, 3),
                 loading.lanes(b, 3),    noise.lanes(b, 2),     y.lanes(b, 3),          drive.lanes(b, 3),
                 w.lanes(b, 3),          s.lanes(b, 3),         seen.at<uint8_t>(b),    valid.at<uint8_t>(b)};
    all_moments<STATES>(shape, in, sums.at(b));
  }
  return nullptr;
}
