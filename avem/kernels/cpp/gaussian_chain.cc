// Forward and backward pass of hidden Markov chains with Gaussian outcomes, for XLA to call: only sums leave it.
// STATES and OUTCOMES are given to the compiler.
#include "chains.h"
#include "gaussian.h"

extern "C" XLA_FFI_Error* avem_gaussian_chain(XLA_FFI_CallFrame* frame) {
  Call call(frame);
  if (call.is_question()) return nullptr;
  if (!call.has(15, 4)) return call.wrong_shapes();
  constexpr auto kFlag = XLA_FFI_DataType_PRED, kInteger = XLA_FFI_DataType_S32;
  ChainArrays arrays(call);
  Array a = call.argument(3), y = call.argument(3), seen = call.argument(3, kFlag), coef = call.argument(4),
        constant = call.argument(2), weight = call.argument(2),
        column = call.argument(1, kInteger), group = call.argument(1, kInteger), term = call.argument(2, kInteger),
        feature = call.argument(2, kInteger);
  Array loglik = call.result(1), first = call.result(2), pair = call.result(4), sums = call.result(3);
  arrays.gives(loglik, pair);
  const bool right = call.sound() && coef.dims[0] == STATES && coef.dims[1] == OUTCOMES && y.dims[1] == OUTCOMES &&
                     constant.dims[0] == STATES && weight.dims[0] == STATES && arrays.fit(STATES);
  if (!right) return call.wrong_shapes();
  using Source = Gaussian<STATES, OUTCOMES>;
  Source rows;
  rows.times = arrays.times();
  rows.lanes = arrays.lanes();
  rows.width = a.dims[1];
  rows.masks = seen.dims[1];
  rows.columns = column.dims[0];
  rows.groups = group.dims[0];
  rows.terms = term.dims[0];
  rows.features = feature.dims[0];
  Room room(Block<STATES, Source::Rows>::room(arrays.at(0)) + rows.room());
  for (int64_t b = 0; b < loglik.batches; ++b) {
    rows.a = a.at(b);
    rows.y = y.at(b);
    rows.seen = seen.at<uint8_t>(b);
    rows.coef = coef.lanes(b, 4);
    rows.constant = constant.at(b);
    rows.weight = weight.at(b);
    rows.column = column.at<int32_t>(b);
    rows.group = group.at<int32_t>(b);
    rows.term = term.at<int32_t>(b);
    rows.feature = feature.at<int32_t>(b);
    rows.first = first.at(b);
    rows.sums = sums.at(b);
    run_chains<STATES>(arrays.at(b), rows, room.get());
  }
  return nullptr;
}
