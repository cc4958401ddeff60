// What all chains have in common, read from a call.
#pragma once

#include "call.h"
#include "chain.h"

// First states, transitions, which steps there are and to which cells their pairs go; log likelihoods and pairs.
struct ChainArrays {
  Array initial, transition, valid, cell, loglik, pair;

  bool fit(int states) const {
    const int64_t times = valid.dims[0], moves = transition.dims[0];
    const bool shared = moves == 1 || moves == times;
    return transition.dims[1] == states && shared && (!each() || pair.dims[0] == times);
  }

  Chains at(int64_t b) const {
    Chains z;
    z.times = valid.dims[0];
    z.lanes = valid.dims[1];
    z.cells = each() ? 0 : pair.dims[0];
    z.over_time = transition.dims[0] > 1;
    z.initial = initial.lanes(b, 2);
    z.transition = transition.lanes(b, 4);
    z.valid = valid.at<uint8_t>(b);
    z.cell = has_cell() ? cell.at<int32_t>(b) : nullptr;
    z.loglik = loglik.at(b);
    z.pair = pair.at(b);
    return z;
  }

 private:
  bool has_cell() const { return cell.dims[0] > 0; }
  // Every step's pairs on their own.
  bool each() const { return !has_cell() && pair.dims[0] != 1; }
};
