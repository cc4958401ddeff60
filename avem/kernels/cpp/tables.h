// Rows of chains whose densities are a table, and whose state probabilities become another.
#pragma once

#include "chain.h"

template <int K>
class TableRows;

template <int K>
struct Tables {
  using Rows = TableRows<K>;
  int64_t times, lanes;
  const double* table;  // (time, state, lane)
  double* state;

  size_t room() const { return 0; }
};

template <int K>
class TableRows {
 public:
  TableRows(const Tables<K>& all, int64_t lane, int count, vec*) : z_(all), lane_(lane), count_(count) {}

  template <bool dense>
  void densities(int64_t t, vec* log) const {
    const double* at = z_.table + t * K * z_.lanes + lane_;
    for (int k = 0; k < K; ++k) log[k] = load(at + k * z_.lanes, dense ? kLanes : count_);
    if (dense && t + kSoon < z_.times)
      for (int k = 0; k < K; ++k) __builtin_prefetch(at + (kSoon * K + k) * z_.lanes);
  }

  template <bool dense>
  void take(int64_t t, const vec* chance) {
    double* at = z_.state + t * K * z_.lanes + lane_;
    for (int k = 0; k < K; ++k) {
      store(at + k * z_.lanes, chance[k], dense ? kLanes : count_);
      if (dense && t >= kSoon) __builtin_prefetch(at - (kSoon * K - k) * z_.lanes, 1);
    }
  }

  void finish() {}

 private:
  static constexpr int kSoon = 8;  // steps: memory is asked that early, as rows are far apart
  const Tables<K>& z_;
  const int64_t lane_;
  const int count_;
};
