// Forward and backward pass of hidden Markov chains, for XLA to call. STATES is given to the compiler: with
// it known, all loops over the states unroll.
#include "call.h"
#include "chain.h"

extern "C" XLA_FFI_Error* avem_forward_backward(XLA_FFI_CallFrame* frame) {
  Call call(frame);
  if (call.is_question()) return nullptr;
  if (!call.has(5, 3)) return call.wrong_shapes();
  Array initial = call.argument(2), transition = call.argument(4), table = call.argument(3),
        valid = call.argument(2, XLA_FFI_DataType_PRED), cell = call.argument(2, XLA_FFI_DataType_S32);
  Array loglik = call.result(1), state = call.result(3), pair = call.result(4);
  if (!call.sound()) return call.wrong_shapes();
  const int64_t times = table.dims[0], moves = transition.dims[0];
  const bool has_cell = cell.dims[0] > 0;
  if (table.dims[1] != STATES || transition.dims[1] != STATES || (moves != 1 && moves != times))
    return call.wrong_shapes();
  const bool each = !has_cell && pair.dims[0] != 1;
  if (each && pair.dims[0] != times) return call.wrong_shapes();

  Chains chains;
  chains.times = times;
  chains.lanes = table.dims[2];
  chains.cells = each ? 0 : pair.dims[0];
  chains.over_time = moves > 1;
  Room room(Block<STATES>::room(chains));
  for (int64_t b = 0; b < loglik.batches; ++b) {
    chains.initial = initial.lanes(b, 2);
    chains.transition = transition.lanes(b, 4);
    chains.table = table.lanes(b, 3);
    chains.valid = valid.at<uint8_t>(b);
    chains.cell = has_cell ? cell.at<int32_t>(b) : nullptr;
    chains.loglik = loglik.at(b);
    chains.state = state.at(b);
    chains.pair = pair.at(b);
    run_chains<STATES>(chains, room.get());
  }
  return nullptr;
}
