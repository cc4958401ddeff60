// Forward and backward pass of a few hidden Markov chains, as `kernels/forward_backward.py` defines them; its scan is
// the definition and the fallback.
//
// The scan divides every step by its probability. Here a step is only brought back between 1 and 2 by a
// power of two, which is exact: there is one division and one logarithm per sequence, not per step.
//   forward   joint_t = (joint_{t-1} A_t) lift_t,  lift_t(k) = e_t(k) / 2^exponent(sum joint_{t-1})
//   backward  b_t = A_{t+1} (lift_{t+1} b_{t+1}),  at the end 1 / sum joint_t
// so that p(U_t = k | D) = joint_t(k) b_t(k), and the pairs are joint_t(k) A(k, m) lift_{t+1}(m) b_{t+1}(m).
//
// Where densities come from and what becomes of the state probabilities is for `Rows` to say, which has
//   densities<dense>(t, log)    log densities of step t in every state
//   take<dense>(t, chance)      state probabilities of step t: the last step first
//   finish()                    after all steps.
// `dense`: all lanes are in use and have that step.
#pragma once

#include "exponential.h"

constexpr double kLog2 = 0x1.62e42fefa39efp-1;

struct Chains {
  int64_t times, lanes;
  int64_t cells;        // of the pairs; 0: every step on its own
  int64_t moves;        // how many transitions there are: 1, or one for each step, or as `which` says
  Lanes initial, transition;
  const int32_t* which; // transition of each step and lane, or null
  const uint8_t* valid;
  const int32_t* cell;  // of each step and lane, or null: one for all
  bool together;        // pairs are summed over lanes, too
  double *loglik, *pair;
};

template <int K, class Rows>
class Block {
 public:
  Block(const Chains& chains, Rows& rows, int64_t lane, int count, vec* room)
      : z_(chains), rows_(rows), lane_(lane), count_(count), kept_(room), sums_(room + z_.times * kept(z_)) {
    for (int64_t i = 0; i < summed(z_); ++i) sums_[i] = vec{};
    if (!over_time()) read_transition(0);
    full_ = 0;
    if (count_ == kLanes)
      while (full_ < z_.times && valid(full_).every) ++full_;
  }

  // Vectors of room that a block needs.
  static size_t room(const Chains& z) { return z.times * kept(z) + summed(z); }

  void run() {
    // Nearly all steps are of all lanes: for them there is code without blending.
    Forward to = start();
    forward<true>(0, full_, to);
    forward<false>(full_, z_.times, to);
    over_mass_ = 1.0 / to.mass;
    vec b[K];
    const bool simple = !over_time() && z_.cells == 1;
    if (simple) {
      backward<false, true>(full_ - 1, z_.times, b);
      backward<true, true>(0, full_ - 1, b);
    } else {
      backward<false, false>(full_ - 1, z_.times, b);
      backward<true, false>(0, full_ - 1, b);
    }
    rows_.finish();
    vec total = vec{};
    for (int64_t i = 0; i < summed(z_); ++i) {
      if (z_.cells && !z_.together) put(z_.pair, i, sums_[i]);
      total += sums_[i];
    }
    // The backward pass can overflow where the forward one does not: one flag for both.
    vec loglik = where(total - total == 0.0, to.loglik(), all(std::numeric_limits<double>::quiet_NaN()));
    put(z_.loglik, 0, loglik);
  }

 private:
  static constexpr int kPairs = K * K;

  struct Forward {
    vec ahead[K];  // not yet scaled
    vec scale, mass, tops;
    mask powers;

    vec loglik() const {
      vec last = mass * scale, out;
      for (int l = 0; l < kLanes; ++l) out[l] = tops[l] + (kLog2 * double(powers[l]) + std::log(last[l]));
      return out;
    }
  };

  // Vectors that are kept of a step: joint, lift, and what took long to gather.
  static int64_t kept(const Chains& z) { return 2 * K + (z.which ? kPairs : 0); }

  // Vectors that the pairs are added to: one where they are only looked at.
  static int64_t summed(const Chains& z) { return z.cells && !z.together ? z.cells * kPairs : 1; }

  template <bool dense = false>
  void put(double* out, int64_t row, vec value) const {
    store(out + row * z_.lanes + lane_, value, dense ? kLanes : count_);
  }

  Flags valid(int64_t t) const { return Flags::load(z_.valid + t * z_.lanes + lane_, count_); }

  bool over_time() const { return z_.moves > 1 || z_.which; }

  void read_transition(int64_t t) {
    if (z_.which) return gather_transition(z_.which + t * z_.lanes + lane_);
    for (int k = 0; k < K; ++k)
      for (int m = 0; m < K; ++m) a_[k][m] = z_.transition.load((t * K + k) * K + m, lane_, count_);
  }

  // Each lane's own; past the end, where there is no step, any will do.
  void gather_transition(const int32_t* which) {
    const int64_t n = z_.transition.n;
    const double* own[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      const int lane = l < count_ ? l : count_ - 1;
      const int64_t cell = which[lane] < z_.moves ? which[lane] : z_.moves - 1;
      own[l] = z_.transition.at + cell * kPairs * n + (n == 1 ? 0 : lane_ + lane);
    }
    for (int k = 0; k < K; ++k)
      for (int m = 0; m < K; ++m) a_[k][m] = pick(own, (k * K + m) * n);
  }

  Forward start() const {
    Forward to = {{}, all(1.0), all(1.0), vec{}, mask{}};
    for (int k = 0; k < K; ++k) to.ahead[k] = z_.initial.load(k, lane_, count_);
    return to;
  }

  // The densities of a step over the largest, which is returned, so that exp never overflows.
  template <bool dense>
  vec read_densities(int64_t t, vec* out) const {
    rows_.template densities<dense>(t, out);
    if constexpr (K == 2) {  // one of two is the largest: half of the work
      const vec more = out[1] - out[0], top = where(more > 0.0, out[1], out[0]);
      const vec less = exponential(where(more > 0.0, -more, more));
      out[0] = where(more > 0.0, less, all(1.0));
      out[1] = where(more > 0.0, all(1.0), less);
      return top;
    }
    vec top = out[0];
    for (int k = 1; k < K; ++k) top = where(out[k] > top, out[k], top);
    for (int k = 0; k < K; ++k) out[k] = exponential(out[k] - top);
    return top;
  }

  template <bool dense>
  void forward(int64_t from, int64_t end, Forward& to) {
    Forward now = to;
    for (int64_t t = from; t < end; ++t) {
      Flags here = dense ? Flags::all_set() : valid(t);
      if (!dense && here.none) continue;
      vec joint[K], lift[K], moved[K];
      vec top = read_densities<dense>(t, lift), mass = vec{};
      for (int k = 0; k < K; ++k) {
        lift[k] *= now.scale;
        joint[k] = now.ahead[k] * lift[k];
        if (!dense) joint[k] = where(here.here, joint[k]);
        mass = k ? mass + joint[k] : joint[k];
      }
      const mask exponent = (bits_of(mass) >> 52) - 1023;
      const vec scale = from_bits((1023 - exponent) << 52);
      vec* kept = kept_ + t * each_;
      if (over_time() && t + 1 < z_.times) {
        read_transition(t + 1);
        if (z_.which) std::memcpy(kept + 2 * K, a_, sizeof a_);
      }
      for (int m = 0; m < K; ++m) {
        moved[m] = joint[0] * a_[0][m];
        for (int k = 1; k < K; ++k) moved[m] += joint[k] * a_[k][m];
      }
      // What is padded leaves all as it was.
      for (int k = 0; k < K; ++k) now.ahead[k] = dense ? moved[k] : where(here.here, moved[k], now.ahead[k]);
      now.tops += dense ? top : where(here.here, top);
      now.powers += dense ? exponent : here.here & exponent;
      now.scale = dense ? scale : where(here.here, scale, now.scale);
      now.mass = dense ? mass : where(here.here, mass, now.mass);
      for (int k = 0; k < K; ++k) kept[k] = joint[k];
      for (int k = 0; k < K; ++k) kept[K + k] = lift[k];
    }
    to = now;
  }

  // From `end` back; `b` is that of the step `end`. `simple`: all steps are alike, and the transition can be
  // multiplied in at the end.
  template <bool dense, bool simple>
  void backward(int64_t from, int64_t end, vec* to) {
    vec b[K], sums[K][K] = {};
    for (int k = 0; k < K; ++k) b[k] = to[k];
    for (int64_t t = end - 1; t >= from && t >= 0; --t) {
      const Flags on = dense ? Flags::all_set() : goes_on(t);
      vec ahead[K], joint[K];
      for (int k = 0; k < K; ++k) joint[k] = kept_[t * each_ + k];
      if (dense || !on.none) {
        const vec* lift = kept_ + (t + 1) * each_ + K;
        for (int m = 0; m < K; ++m) {
          ahead[m] = lift[m] * b[m];
          if (!dense) ahead[m] = where(on.here, ahead[m]);
        }
        if (z_.which) {
          std::memcpy(a_, kept_ + t * each_ + 2 * K, sizeof a_);
        } else if (over_time()) {
          read_transition(t + 1);
        }
        for (int k = 0; k < K; ++k) {
          vec total = a_[k][0] * ahead[0];
          for (int m = 1; m < K; ++m) total += a_[k][m] * ahead[m];
          b[k] = dense ? total : where(on.here, total, over_mass_);
        }
        if constexpr (simple) {
          for (int k = 0; k < K; ++k)
            for (int m = 0; m < K; ++m) sums[k][m] += joint[k] * ahead[m];
        } else {
          add<dense>(t + 1, joint, ahead);
        }
      } else {
        for (int k = 0; k < K; ++k) b[k] = over_mass_;
        if (!z_.cells)
          for (int i = 0; i < kPairs; ++i) put(z_.pair, (t + 1 < z_.times ? t + 1 : 0) * kPairs + i, vec{});
      }
      const Flags here = dense ? on : valid(t);
      vec chance[K];
      for (int k = 0; k < K; ++k) {
        chance[k] = joint[k] * b[k];
        if (!dense) chance[k] = where(here.here, chance[k]);
      }
      rows_.template take<dense>(t, chance);
    }
    for (int k = 0; k < K; ++k) to[k] = b[k];
    if constexpr (simple) {
      for (int k = 0; k < K; ++k)
        for (int m = 0; m < K; ++m) sums_[k * K + m] += a_[k][m] * sums[k][m];
    }
  }

  // Which sequences have a step after t.
  Flags goes_on(int64_t t) const { return t + 1 < z_.times ? valid(t + 1) : Flags{mask{}, false, true}; }

  // The pairs of the step into t go to its cell.
  template <bool dense>
  void add(int64_t t, const vec* joint, const vec* ahead) {
    vec pairs[kPairs];
    for (int k = 0; k < K; ++k)
      for (int m = 0; m < K; ++m) pairs[k * K + m] = joint[k] * (a_[k][m] * ahead[m]);
    if (z_.cells == 0) {
      for (int i = 0; i < kPairs; ++i) {
        put<dense>(z_.pair, t * kPairs + i, pairs[i]);
        sums_[0] += pairs[i];
      }
    } else if (z_.together) {
      add_together(z_.cell + t * z_.lanes + lane_, pairs);
    } else if (z_.cell == nullptr) {
      for (int i = 0; i < kPairs; ++i) sums_[i] += pairs[i];
    } else {
      add_to_cells(z_.cell + t * z_.lanes + lane_, pairs);
    }
  }

  // `of` is the cell of each lane, as below.
  void add_together(const int32_t* of, const vec* pairs) {
    for (int l = 0; l < count_; ++l) {
      if (of[l] < 0 || of[l] >= z_.cells) continue;
      double* sums = z_.pair + of[l] * kPairs;
      for (int i = 0; i < kPairs; ++i) sums[i] += pairs[i][l];
    }
    for (int i = 0; i < kPairs; ++i) sums_[0] += pairs[i];
  }

  // `of` is the cell of each lane; what is no cell is left out.
  void add_to_cells(const int32_t* of, const vec* pairs) {
    if (z_.cells < kLanes) {  // cell by cell
      mask own = mask{} - 1;
      for (int l = 0; l < count_; ++l) own[l] = of[l];
      for (int64_t c = 0; c < z_.cells; ++c)
        for (int i = 0; i < kPairs; ++i) sums_[c * kPairs + i] += where(own == c, pairs[i]);
    } else {  // lane by lane
      for (int l = 0; l < count_; ++l) {
        if (of[l] < 0 || of[l] >= z_.cells) continue;
        vec* sums = sums_ + of[l] * kPairs;
        for (int i = 0; i < kPairs; ++i) sums[i][l] += pairs[i][l];
      }
    }
  }

  const Chains& z_;
  Rows& rows_;
  const int64_t lane_;
  const int count_;
  vec *kept_, *sums_;
  const int64_t each_ = kept(z_);  // vectors of a step
  int64_t full_;  // the first steps, in which all lanes are there
  vec a_[K][K], over_mass_;
};

// A few lanes at a time; a `Source` has the data of all.
template <int K, class Source>
void run_chains(const Chains& chains, const Source& source, vec* room) {
  using Rows = typename Source::Rows;
  if (chains.together) std::fill_n(chains.pair, chains.cells * K * K, 0.0);
  for (int64_t lane = 0; lane < chains.lanes; lane += kLanes) {
    const int64_t left = chains.lanes - lane;
    const int count = left < kLanes ? int(left) : kLanes;
    Rows rows(source, lane, count, room);
    Block<K, Rows>(chains, rows, lane, count, room + source.room()).run();
  }
}
