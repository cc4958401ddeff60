// Forward and backward pass of hidden Markov chains, for XLA to call. STATES is given to the compiler: with
// it known, all loops over the states unroll.
#include "chains.h"
#include "tables.h"

extern "C" XLA_FFI_Error* avem_forward_backward(XLA_FFI_CallFrame* frame) {
  Call call(frame);
  if (call.is_question()) return nullptr;
  if (!call.has(6, 3)) return call.wrong_shapes();
  ChainArrays arrays(call);
  Array table = call.argument(3), loglik = call.result(1), state = call.result(3), pair = call.result(4);
  arrays.gives(loglik, pair);
  if (!call.sound() || table.dims[1] != STATES || !arrays.fit(STATES)) return call.wrong_shapes();
  Room room(Block<STATES, TableRows<STATES>>::room(arrays.at(0)));
  for (int64_t b = 0; b < loglik.batches; ++b) {
    const Chains chains = arrays.at(b);
    run_chains<STATES>(chains, Tables<STATES>{chains.times, chains.lanes, table.at(b), state.at(b)}, room.get());
  }
  return nullptr;
}
