// What all chains have in common, read from a call.
#pragma once

#include "call.h"
#include "chain.h"

// First states, transitions and which of them each step has, which steps there are and to which cells their pairs go,
// from a call; log likelihoods and pairs go to its results.
class ChainArrays {
 public:
  explicit ChainArrays(Call& call)
      : initial_(call.argument(2)),
        transition_(call.argument(4)),
        which_(call.argument(2, XLA_FFI_DataType_S32)),
        valid_(call.argument(2, XLA_FFI_DataType_PRED)),
        cell_(call.argument(2, XLA_FFI_DataType_S32)) {}

  void gives(const Array& loglik, const Array& pair) {
    loglik_ = &loglik;
    pair_ = &pair;
  }

  int64_t times() const { return valid_.dims[0]; }
  int64_t lanes() const { return valid_.dims[1]; }

  bool fit(int states) const {
    const int64_t moves = transition_.dims[0];
    const bool shared = moves == 1 || moves == times() || which_.dims[0] == times();
    return transition_.dims[1] == states && shared && (!each() || pair_->dims[0] == times());
  }

  Chains at(int64_t b) const {
    Chains z;
    z.times = times();
    z.lanes = lanes();
    z.cells = each() ? 0 : pair_->dims[0];
    z.moves = transition_.dims[0];
    z.initial = initial_.lanes(b, 2);
    z.transition = transition_.lanes(b, 4);
    z.which = which_.dims[0] > 0 ? which_.at<int32_t>(b) : nullptr;
    z.valid = valid_.at<uint8_t>(b);
    z.cell = has_cell() ? cell_.at<int32_t>(b) : nullptr;
    z.loglik = loglik_->at(b);
    z.pair = pair_->at(b);
    z.together = has_cell() && pair_->dims[3] == 1;
    return z;
  }

 private:
  bool has_cell() const { return cell_.dims[0] > 0; }
  // Every step's pairs on their own.
  bool each() const { return !has_cell() && pair_->dims[0] != 1; }

  Array initial_, transition_, which_, valid_, cell_;
  const Array *loglik_ = nullptr, *pair_ = nullptr;
};
