// Forward and backward pass of eight hidden Markov chains, as `local/hmm.py` defines them; its scan is
// the definition and the fallback.
//
// The scan divides every step by its probability. Here a step is only brought back between 1 and 2 by a
// power of two, which is exact: there is one division and one logarithm per sequence, not per step.
//   forward   joint_t = (joint_{t-1} A_t) lift_t,  lift_t(k) = e_t(k) / 2^exponent(sum joint_{t-1})
//   backward  b_t = A_{t+1} (lift_{t+1} b_{t+1}),  at the end 1 / sum joint_t
// so that p(U_t = k | D) = joint_t(k) b_t(k), and the pairs are joint_t(k) A(k, m) lift_{t+1}(m) b_{t+1}(m).
#pragma once

#include "exponential.h"

constexpr double kLog2 = 0x1.62e42fefa39efp-1;

struct Chains {
  int64_t times, lanes;
  int64_t cells;        // of the pairs; 0: every step on its own
  bool over_time;       // a transition for each step
  Lanes initial, transition, table;
  const uint8_t* valid;
  const int32_t* cell;  // of each step and lane, or null: one for all
  double *loglik, *state, *pair;
};

template <int K>
class Block {
 public:
  Block(const Chains& chains, int64_t lane, int count, vec* room)
      : z_(chains), lane_(lane), count_(count), kept_(room), sums_(room + z_.times * 2 * K) {
    simple_ = !z_.over_time && z_.cells == 1;
    for (int64_t i = 0; i < summed(z_); ++i) sums_[i] = vec{};
    if (!z_.over_time) read_transition(0);
  }

  // Vectors of room that a block needs.
  static size_t room(const Chains& z) { return z.times * 2 * K + summed(z); }

  void run() {
    vec loglik = forward();
    backward();
    vec total = vec{};
    for (int64_t i = 0; i < summed(z_); ++i) {
      if (simple_) sums_[i] *= a_[i / K][i % K];
      if (z_.cells) put(z_.pair, i, sums_[i]);
      total += sums_[i];
    }
    // The backward pass can overflow where the forward one does not: one flag for both.
    put(z_.loglik, 0, where(total - total == 0.0, loglik, all(std::numeric_limits<double>::quiet_NaN())));
  }

 private:
  static constexpr int kPairs = K * K;

  // Vectors that the pairs are added to: one where they are only looked at.
  static int64_t summed(const Chains& z) { return z.cells ? z.cells * kPairs : 1; }

  void put(double* out, int64_t row, vec value) const { store(out + row * z_.lanes + lane_, value, count_); }

  Flags valid(int64_t t) const { return Flags::load(z_.valid + t * z_.lanes + lane_, count_); }

  void read_transition(int64_t t) {
    for (int k = 0; k < K; ++k)
      for (int m = 0; m < K; ++m) a_[k][m] = z_.transition.load((t * K + k) * K + m, lane_, count_);
  }

  // The densities of a step over the largest, which is returned, so that exp never overflows.
  vec read_densities(int64_t t, vec* out) const {
    for (int k = 0; k < K; ++k) out[k] = z_.table.load(t * K + k, lane_, count_);
    vec top = out[0];
    for (int k = 1; k < K; ++k) top = where(out[k] > top, out[k], top);
    for (int k = 0; k < K; ++k) out[k] = exponential(out[k] - top);
    return top;
  }

  vec forward() {
    vec ahead[K], scale = all(1.0), mass = all(1.0), tops = vec{};
    mask powers = mask{};
    for (int k = 0; k < K; ++k) ahead[k] = z_.initial.load(k, lane_, count_);
    for (int64_t t = 0; t < z_.times; ++t) {
      Flags here = valid(t);
      if (here.none) continue;
      vec *joint = kept_ + t * 2 * K, *lift = joint + K;
      vec top = read_densities(t, lift), sum = vec{};
      for (int k = 0; k < K; ++k) {
        lift[k] *= scale;
        joint[k] = ahead[k] * lift[k];
        sum += joint[k];
      }
      mask exponent = (bits_of(sum) >> 52) - 1023;
      vec rescale = from_bits((1023 - exponent) << 52);
      if (z_.over_time && t + 1 < z_.times) read_transition(t + 1);
      vec moved[K];
      for (int m = 0; m < K; ++m) {
        moved[m] = joint[0] * a_[0][m];
        for (int k = 1; k < K; ++k) moved[m] += joint[k] * a_[k][m];
      }
      if (here.every) {
        for (int k = 0; k < K; ++k) ahead[k] = moved[k];
        tops += top;
        powers += exponent;
        scale = rescale;
        mass = sum;
      } else {  // what is padded leaves all as it was
        for (int k = 0; k < K; ++k) {
          ahead[k] = where(here.here, moved[k], ahead[k]);
          joint[k] = where(here.here, joint[k]);
        }
        tops += where(here.here, top);
        powers += here.here & exponent;
        scale = where(here.here, rescale, scale);
        mass = where(here.here, sum, mass);
      }
    }
    over_mass_ = 1.0 / mass;
    vec last = mass * scale, loglik;
    for (int l = 0; l < kLanes; ++l) loglik[l] = tops[l] + (kLog2 * double(powers[l]) + std::log(last[l]));
    return loglik;
  }

  void backward() {
    vec b[K];
    Flags on = {mask{}, false, true};  // whether the sequence goes on after t
    for (int64_t t = z_.times - 1; t >= 0; --t) {
      Flags here = valid(t);
      const vec *joint = kept_ + t * 2 * K, *lift = joint + 3 * K;
      if (on.none) {
        for (int k = 0; k < K; ++k) b[k] = over_mass_;
        if (!z_.cells)
          for (int i = 0; i < kPairs; ++i) put(z_.pair, (t + 1 < z_.times ? t + 1 : 0) * kPairs + i, vec{});
      } else {
        vec ahead[K];
        for (int m = 0; m < K; ++m) {
          ahead[m] = lift[m] * b[m];
          if (!on.every) ahead[m] = where(on.here, ahead[m]);
        }
        if (z_.over_time) read_transition(t + 1);
        for (int k = 0; k < K; ++k) {
          vec total = a_[k][0] * ahead[0];
          for (int m = 1; m < K; ++m) total += a_[k][m] * ahead[m];
          b[k] = on.every ? total : where(on.here, total, over_mass_);
        }
        if (simple_) {
          for (int k = 0; k < K; ++k)
            for (int m = 0; m < K; ++m) sums_[k * K + m] += joint[k] * ahead[m];
        } else {
          vec pairs[kPairs];
          for (int k = 0; k < K; ++k)
            for (int m = 0; m < K; ++m) pairs[k * K + m] = joint[k] * (a_[k][m] * ahead[m]);
          add(t + 1, pairs);
        }
      }
      for (int k = 0; k < K; ++k) {
        vec chance = vec{};
        if (!here.none) chance = here.every ? joint[k] * b[k] : where(here.here, joint[k] * b[k]);
        put(z_.state, t * K + k, chance);
      }
      on = here;
    }
  }

  // The pairs of the step into t go to its cell.
  void add(int64_t t, const vec* pairs) {
    if (z_.cells == 0) {
      for (int i = 0; i < kPairs; ++i) {
        put(z_.pair, t * kPairs + i, pairs[i]);
        sums_[0] += pairs[i];
      }
    } else if (z_.cell == nullptr) {
      for (int i = 0; i < kPairs; ++i) sums_[i] += pairs[i];
    } else {
      const int32_t* of = z_.cell + t * z_.lanes + lane_;
      for (int l = 0; l < count_; ++l) {
        if (of[l] < 0 || of[l] >= z_.cells) continue;
        vec* sums = sums_ + of[l] * kPairs;
        for (int i = 0; i < kPairs; ++i) sums[i][l] += pairs[i][l];
      }
    }
  }

  const Chains& z_;
  const int64_t lane_;
  const int count_;
  vec *kept_, *sums_;
  bool simple_;
  vec a_[K][K], over_mass_;
};

template <int K>
void run_chains(const Chains& chains, vec* room) {
  for (int64_t lane = 0; lane < chains.lanes; lane += kLanes) {
    int64_t left = chains.lanes - lane;
    Block<K>(chains, lane, left < kLanes ? int(left) : kLanes, room).run();
  }
}
