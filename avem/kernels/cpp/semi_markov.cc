// Forward and backward pass of hidden semi-Markov chains, as `kernels/semi_markov.py` defines them, where the chances of
// stays do not change over time. For XLA to call.
//
// The forward pass keeps the beginning of every block of steps alone, and goes through a block once more when the
// backward pass comes to it.
#include <initializer_list>

#include "call.h"
#include "exponential.h"

namespace {

struct Semi {
  int64_t times, lanes, states, longest;
  bool cut;  // the last stay may go on
  Lanes initial, transition, phase, leave, stay;
  const double* table;
  const uint8_t* valid;
  double *loglik, *state, *pair, *first, *ended, *stayed;

  int64_t size() const { return longest * states; }
  int64_t block() const {
    int64_t length = 1;
    while (length * length < times) ++length;
    return length;
  }
  int64_t blocks() const { return (times + block() - 1) / block(); }
  size_t room() const {
    return size() * (6 + blocks() + block()) + 2 * states * states + times * (states + 1) + 6 * states;
  }
};

// A few lanes; arrays are (duration, state). N is the number of states, 0 where the compiler is not told.
template <int64_t N>
class Chains {
 public:
  Chains(const Semi& z, int64_t lane, int count, vec* room) : z_(z), D(z.longest), lane_(lane), count_(count) {
    const auto take = [&room](int64_t n) {
      vec* at = room;
      room += n;
      return at;
    };
    for (vec** part : {&leave_, &stay_, &start_, &ahead_, &ended_, &stayed_}) *part = take(z.size());
    moves_ = take(K() * K());
    pair_ = take(K() * K());
    density_ = take(z.times * K());
    over_ = take(z.times);
    begins_ = take(z.blocks() * z.size());
    kept_ = take(z.block() * z.size());
    for (vec** part : {&exits_, &back_, &chance_, &follow_, &seen_, &gone_on_}) *part = take(K());
    for (int64_t i = 0; i < z.size(); ++i) {
      leave_[i] = z.leave.load(i, lane, count);
      stay_[i] = z.stay.load(i, lane, count);
      start_[i] = z.initial.load(i % K(), lane, count) * z.phase.load(i, lane, count);
      ended_[i] = stayed_[i] = ahead_[i] = vec{};
    }
    for (int64_t i = 0; i < K() * K(); ++i) {
      moves_[i] = z.transition.load(i, lane, count);
      pair_[i] = vec{};
    }
  }

  void run() {
    const int64_t length = z_.block();
    vec* here = kept_;
    for (int64_t i = 0; i < z_.size(); ++i) here[i] = vec{};
    for (int64_t b = 0; b < z_.blocks(); ++b) {
      vec* begin = begins_ + b * z_.size();
      for (int64_t i = 0; i < z_.size(); ++i) begin[i] = here[i];
      here = walk(b, begin, true);
    }
    vec sound = vec{};
    for (int64_t b = z_.blocks() - 1; b >= 0; --b) {
      walk(b, begins_ + b * z_.size(), false);
      const int64_t end = b * length + length < z_.times ? b * length + length : z_.times;
      for (int64_t t = end - 1; t >= b * length; --t) sound += step_back(t, kept_ + (t - b * length) * z_.size());
    }
    vec total = tops_ + masses_.sum();
    for (int64_t i = 0; i < K() * K(); ++i) sound += pair_[i];
    // The backward pass can overflow where the forward one does not: one flag for both.
    put(z_.loglik, 0, where(sound - sound == 0.0, total, all(std::numeric_limits<double>::quiet_NaN())));
    for (int64_t i = 0; i < K() * K(); ++i) put(z_.pair, i, pair_[i]);
    for (int64_t i = 0; i < z_.size(); ++i) {
      put(z_.ended, i, ended_[i]);
      put(z_.stayed, i, stayed_[i]);
    }
  }

 private:
  int64_t K() const { return N ? N : z_.states; }

  void put(double* out, int64_t row, vec value) const { store(out + row * z_.lanes + lane_, value, count_); }

  Flags valid(int64_t t) const {
    return t < z_.times ? Flags::load(z_.valid + t * z_.lanes + lane_, count_) : Flags{mask{}, false, true};
  }

  // Filtered probabilities of the steps of a block, times their masses, and where they end; `first`: densities and
  // masses are new.
  vec* walk(int64_t b, const vec* begin, bool first) {
    const int64_t from = b * z_.block(), end = from + z_.block() < z_.times ? from + z_.block() : z_.times;
    const vec* here = begin;
    vec* out = kept_;
    for (int64_t t = from; t < end; ++t) {
      out = kept_ + (t - from) * z_.size();
      if (first) read_densities(t);
      const Flags now = valid(t);
      const vec mass = onward(t, here, out);
      if (!now.every && t > 0)
        for (int64_t i = 0; i < z_.size(); ++i) out[i] = where(now.here, out[i], here[i] * over_[t - 1]);
      if (first) {
        over_[t] = where(now.here, 1.0 / mass, all(1.0));
        tell(t, mass, out, now);
      }
      here = out;
    }
    return out;
  }

  void tell(int64_t t, vec mass, const vec* here, const Flags& now) {
    masses_.times(mass, now);
    if (z_.cut) return;
    const Flags next = valid(t + 1);
    if (next.every) return;
    vec last = vec{};
    for (int64_t i = 0; i < z_.size(); ++i) last += here[i] * leave_[i];
    masses_.times(where(now.here & ~next.here, last * over_[t], all(1.0)));
  }

  void read_densities(int64_t t) {
    const Flags now = valid(t);
    vec* e = density_ + t * K();
    for (int64_t k = 0; k < K(); ++k) e[k] = load(z_.table + (t * K() + k) * z_.lanes + lane_, count_);
    vec top = e[0];
    for (int64_t k = 1; k < K(); ++k) top = where(e[k] > top, e[k], top);
    for (int64_t k = 0; k < K(); ++k) e[k] = exponential(e[k] - top);
    tops_ += where(now.here, top);
  }

  // Probabilities and density of step t, and their sum. `out` may not be `here`.
  vec onward(int64_t t, const vec* here, vec* out) {
    const vec* e = density_ + t * K();
    vec mass = vec{};
    if (t == 0) {
      for (int64_t u = 0; u < D; ++u)
        for (int64_t k = 0; k < K(); ++k) mass += out[u * K() + k] = start_[u * K() + k] * e[k];
      return mass;
    }
    const vec over = over_[t - 1];
    vec* seen = back_;
    for (int64_t k = 0; k < K(); ++k) {
      exits_[k] = vec{};
      seen[k] = e[k] * over;
    }
    for (int64_t u = 0; u < D; ++u) {
      // A stay that is as long as any is told of goes on being so.
      vec* longer = out + (u + 1) * K();
      const bool tail = u + 1 == D;
      for (int64_t k = 0; k < K(); ++k) {
        const int64_t i = u * K() + k;
        exits_[k] += here[i] * leave_[i];
        const vec on = here[i] * stay_[i] * seen[k];
        mass += on;
        if (!tail) longer[k] = on;
        else if (D > 1) out[i] += on;
        else gone_on_[k] = on;
      }
    }
    for (int64_t m = 0; m < K(); ++m) {
      vec enters = vec{};
      for (int64_t k = 0; k < K(); ++k) enters += exits_[k] * moves_[k * K() + m];
      enters *= seen[m];
      mass += enters;
      out[m] = D > 1 ? enters : enters + gone_on_[m];
    }
    return mass;
  }

  // What the steps after t say of it. Returns numbers that are finite where all is well.
  vec step_back(int64_t t, const vec* here) {
    const Flags now = valid(t), next = valid(t + 1);
    const vec over = over_[t];
    for (int64_t k = 0; k < K(); ++k) {
      back_[k] = exits_[k] = chance_[k] = vec{};
      for (int64_t m = 0; m < K(); ++m) back_[k] += moves_[k * K() + m] * ahead_[m];
      follow_[k] = ahead_[k];
      seen_[k] = density_[t * K() + k] * over;
    }
    if (now.every && next.every) pass_back<true>(t, here, now, next, vec{});
    else {
      vec last = vec{};
      for (int64_t i = 0; i < z_.size(); ++i) last += here[i] * leave_[i];
      pass_back<false>(t, here, now, next, 1.0 / (last * over));
    }
    for (int64_t k = 0; k < K(); ++k)
      for (int64_t m = 0; m < K(); ++m)
        pair_[k * K() + m] += where(next.here, exits_[k] * moves_[k * K() + m] * follow_[m]);
    vec sound = vec{};
    for (int64_t k = 0; k < K(); ++k) {
      put(z_.state, t * K() + k, chance_[k]);
      sound += chance_[k];
    }
    return sound;
  }

  template <bool every>
  void pass_back(int64_t t, const vec* here, const Flags& now, const Flags& next, vec over_end) {
    const vec over = over_[t];
    for (int64_t u = 0; u < D; ++u) {
      const vec* longer = ahead_ + (u + 1 < D ? u + 1 : u) * K();
      for (int64_t k = 0; k < K(); ++k) {
        const int64_t i = u * K() + k;
        const vec known = here[i] * over, gone = leave_[i] * back_[k], on = stay_[i] * longer[k];
        exits_[k] += known * leave_[i];
        vec beta = gone + on, smoothed = known * beta;
        if (every) {
          ended_[i] += known * gone;
          stayed_[i] += known * on;
          ahead_[i] = seen_[k] * beta;
        } else {
          beta = where(next.here, beta, z_.cut ? all(1.0) : leave_[i] * over_end);
          smoothed = where(now.here, known * beta);
          ended_[i] += where(next.here, known * gone, z_.cut ? vec{} : smoothed);
          stayed_[i] += where(next.here, known * on);
          ahead_[i] = where(now.here, seen_[k] * beta);
        }
        chance_[k] += smoothed;
        if (t == 0) put(z_.first, i, smoothed);
      }
    }
  }

  const Semi& z_;
  const int64_t D, lane_;
  const int count_;
  vec *leave_, *stay_, *start_, *ahead_, *ended_, *stayed_;
  vec *moves_, *pair_, *density_, *over_, *begins_, *kept_, *exits_, *back_, *chance_, *follow_, *seen_, *gone_on_;
  vec tops_ = vec{};
  LogProduct masses_;
};

// All lanes, a few at a time.
template <int64_t N>
void pass(const Semi& z, vec* room) {
  for (int64_t lane = 0; lane < z.lanes; lane += kLanes) {
    const int64_t left = z.lanes - lane;
    Chains<N>(z, lane, left < kLanes ? int(left) : kLanes, room).run();
  }
}

}  // namespace

extern "C" XLA_FFI_Error* avem_semi_markov(XLA_FFI_CallFrame* frame) {
  Call call(frame);
  if (call.is_question()) return nullptr;
  if (!call.has(8, 6)) return call.wrong_shapes();
  Array initial = call.argument(2), transition = call.argument(3), phase = call.argument(3), leave = call.argument(3),
        stay = call.argument(3), table = call.argument(3), valid = call.argument(2, XLA_FFI_DataType_PRED),
        cut = call.argument(1, XLA_FFI_DataType_S32);
  Array loglik = call.result(1), state = call.result(3), pair = call.result(3), first = call.result(3),
        ended = call.result(3), stayed = call.result(3);
  if (!call.sound()) return call.wrong_shapes();
  Semi z;
  z.times = table.dims[0];
  z.states = table.dims[1];
  z.lanes = table.dims[2];
  z.longest = phase.dims[0];
  const bool right = initial.dims[0] == z.states && transition.dims[0] == z.states && transition.dims[1] == z.states &&
                     phase.dims[1] == z.states && leave.dims[0] == z.longest && stay.dims[0] == z.longest &&
                     leave.dims[1] == z.states && stay.dims[1] == z.states && first.dims[0] == z.longest;
  if (!right) return call.wrong_shapes();
  Room room(z.room());
  for (int64_t b = 0; b < loglik.batches; ++b) {
    z.cut = *cut.at<int32_t>(b) != 0;
    z.initial = initial.lanes(b, 2);
    z.transition = transition.lanes(b, 3);
    z.phase = phase.lanes(b, 3);
    z.leave = leave.lanes(b, 3);
    z.stay = stay.lanes(b, 3);
    z.table = table.at(b);
    z.valid = valid.at<uint8_t>(b);
    z.loglik = loglik.at(b);
    z.state = state.at(b);
    z.pair = pair.at(b);
    z.first = first.at(b);
    z.ended = ended.at(b);
    z.stayed = stayed.at(b);
    // Loops over a few states are written out.
    const auto run = z.states == 2 ? pass<2> : z.states == 3 ? pass<3> : z.states == 4 ? pass<4> : pass<0>;
    run(z, room.get());
  }
  return nullptr;
}
