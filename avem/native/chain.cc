// Forward and backward pass of hidden Markov chains, for XLA to call. STATES is given to the compiler: with
// it known, all loops over the states unroll.
#include "call.h"
#include "chain.h"

#include <initializer_list>

extern "C" XLA_FFI_Error* avem_chain(XLA_FFI_CallFrame* frame) {
  if (told_version(frame)) return nullptr;
  if (frame->args.size != 5 || frame->rets.size != 3) return wrong_shapes(frame);
  void **in = frame->args.args, **out = frame->rets.rets;
  const auto number = XLA_FFI_DataType_F64;
  Array initial(in[0], 2, number), transition(in[1], 4, number), table(in[2], 3, number),
      valid(in[3], 2, XLA_FFI_DataType_PRED), cell(in[4], 2, XLA_FFI_DataType_S32);
  Array loglik(out[0], 1, number), state(out[1], 3, number), pair(out[2], 4, number);
  for (const Array* array : {&initial, &transition, &table, &valid, &cell, &loglik, &state, &pair})
    if (!array->sound) return wrong_shapes(frame);
  const int64_t times = table.dims[0], lanes = table.dims[2], moves = transition.dims[0];
  const bool has_cell = cell.dims[0] > 0;
  if (table.dims[1] != STATES || transition.dims[1] != STATES || (moves != 1 && moves != times))
    return wrong_shapes(frame);
  const bool each = !has_cell && pair.dims[0] != 1;
  if (each && pair.dims[0] != times) return wrong_shapes(frame);

  Chains chains;
  chains.times = times;
  chains.lanes = lanes;
  chains.cells = each ? 0 : pair.dims[0];
  chains.over_time = moves > 1;
  Room room(Block<STATES>::room(chains));
  for (int64_t b = 0; b < loglik.batches; ++b) {
    chains.initial = {initial.at<double>(b), initial.dims[1]};
    chains.transition = {transition.at<double>(b), transition.dims[3]};
    chains.table = {table.at<double>(b), lanes};
    chains.valid = valid.at<uint8_t>(b);
    chains.cell = has_cell ? cell.at<int32_t>(b) : nullptr;
    chains.loglik = loglik.at<double>(b);
    chains.state = state.at<double>(b);
    chains.pair = pair.at<double>(b);
    run_chains<STATES>(chains, room.get());
  }
  return nullptr;
}
