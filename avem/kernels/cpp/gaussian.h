// Rows of chains whose log densities are sums of squares of residuals, as `kernels/gaussian_chain.py` defines
// them; state probabilities become sums of products of a row's numbers.
//
// A row has the numbers v = (1, a, y). With the lists of the definition, in state k
//   r_j = y_j - sum of coef(k, j, c) a_c   over the columns c
//   log density = sum of constant(k, g) over the groups g that are seen
//               - sum of weight(k, q) r_i r_j over the terms q = (g, i, j) of such groups
//   sums(k, f) = sum over time of chance(k) v_l v_r over the features f = (g, l, r), where g is seen.
#pragma once

#include "chain.h"

template <int K, int P>
class GaussianRows;

template <int K, int P>
struct Gaussian {
  using Rows = GaussianRows<K, P>;
  int64_t times, lanes, width, masks;              // width: of `a`
  int64_t columns, groups, terms, features;
  const double *a, *y;                             // (time, width, lane), (time, outcome, lane)
  const uint8_t* seen;                             // (time, mask, lane)
  Lanes coef;                                      // (state, outcome, column, lane)
  const double *constant, *weight;                 // (state, group), (state, term)
  const int32_t *column, *group, *term, *feature;  // (column,), (group,), (term, 3), (feature, 3)
  double *first, *sums;                            // (state, lane), (state, feature, lane)

  int64_t numbers() const { return 1 + width + P; }
  size_t room() const { return numbers() + masks + K * (P * columns + features); }
};

template <int K, int P>
class GaussianRows {
 public:
  GaussianRows(const Gaussian<K, P>& all_lanes, int64_t lane, int count, vec* room)
      : z_(all_lanes),
        lane_(lane),
        count_(count),
        v_(room),
        shown_(v_ + z_.numbers()),
        coef_(shown_ + z_.masks),
        sums_(coef_ + K * P * z_.columns) {
    v_[0] = all(1.0);
    for (int kj = 0; kj < K * P; ++kj)
      for (int64_t c = 0; c < z_.columns; ++c) coef_[c * K * P + kj] = z_.coef.load(kj * z_.columns + c, lane_, count_);
    for (int64_t i = 0; i < K * z_.features; ++i) sums_[i] = vec{};
    for (int k = 0; k < K; ++k) add_up(k);
  }

  template <bool dense>
  void densities(int64_t t, vec* log) {
    vec r[K][P];
    const double* y = z_.y + t * P * z_.lanes + lane_;
    for (int j = 0; j < P; ++j) {
      const vec here = load(y + j * z_.lanes, dense ? kLanes : count_);
      for (int k = 0; k < K; ++k) r[k][j] = here;
    }
    for (int64_t c = 0; c < z_.columns; ++c) {
      const vec a = load(z_.a + (t * z_.width + z_.column[c]) * z_.lanes + lane_, dense ? kLanes : count_);
      const vec* coef = coef_ + c * K * P;
      for (int k = 0; k < K; ++k)
        for (int j = 0; j < P; ++j) r[k][j] -= coef[k * P + j] * a;
    }
    if (dense && t + kSoon < z_.times) ask(t + kSoon);
    if (look<dense>(t)) {
      for (int k = 0; k < K; ++k) {
        log[k] = all(level_[k]);
        for (int i = 0; i < P; ++i) {
          vec pulled = square_[k][i][i] * r[k][i];
          if (crossed_)
            for (int j = 0; j < i; ++j) pulled += square_[k][i][j] * r[k][j];
          log[k] -= pulled * r[k][i];
        }
      }
    } else {
      for (int k = 0; k < K; ++k) log[k] = in_part(k, r[k]);
    }
  }

  template <bool dense>
  void take(int64_t t, const vec* chance) {
    const int count = dense ? kLanes : count_;
    const double *a = z_.a + t * z_.width * z_.lanes + lane_, *y = z_.y + t * P * z_.lanes + lane_;
    for (int64_t c = 0; c < z_.width; ++c) v_[1 + c] = load(a + c * z_.lanes, count);
    for (int j = 0; j < P; ++j) v_[1 + z_.width + j] = load(y + j * z_.lanes, count);
    const bool whole = look<dense>(t);
    vec own[K];
    for (int k = 0; k < K; ++k) own[k] = chance[k];
    for (int64_t f = 0; f < z_.features; ++f) {
      const int32_t* of = z_.feature + 3 * f;
      vec product = v_[of[1]] * v_[of[2]], *sums = sums_ + f * K;
      if (!whole) product = where(is_shown(of[0]), product);
      for (int k = 0; k < K; ++k) sums[k] += own[k] * product;
    }
    if (t == 0)
      for (int k = 0; k < K; ++k) store(z_.first + k * z_.lanes + lane_, own[k], count_);
  }

  void finish() {
    for (int k = 0; k < K; ++k)
      for (int64_t f = 0; f < z_.features; ++f)
        store(z_.sums + (k * z_.features + f) * z_.lanes + lane_, sums_[f * K + k], count_);
  }

 private:
  static constexpr int kSoon = 8;  // steps: memory is asked that early, as rows are far apart

  // The density where everything is seen.
  void add_up(int k) {
    level_[k] = 0.0;
    for (int64_t g = 0; g < z_.groups; ++g) level_[k] += z_.constant[k * z_.groups + g];
    for (int i = 0; i < P; ++i)
      for (int j = 0; j < P; ++j) square_[k][i][j] = 0.0;
    for (int64_t q = 0; q < z_.terms; ++q) {
      const int32_t *of = z_.term + 3 * q, i = of[1], j = of[2];
      square_[k][i > j ? i : j][i > j ? j : i] += z_.weight[k * z_.terms + q];
      crossed_ |= i != j;
    }
  }

  // Whether everything is seen of a step in every lane.
  template <bool dense>
  bool look(int64_t t) {
    bool whole = true;
    for (int64_t g = 0; g < z_.masks; ++g) {
      const Flags flags = Flags::load(z_.seen + (t * z_.masks + g) * z_.lanes + lane_, dense ? kLanes : count_);
      std::memcpy(&shown_[g], &flags.here, sizeof flags.here);
      whole &= flags.every;
    }
    return whole;
  }

  mask is_shown(int32_t g) const { return bits_of(shown_[g]); }

  // The log density where some is not seen.
  __attribute__((noinline)) vec in_part(int k, const vec* r) const {
    vec total = vec{};
    for (int64_t g = 0; g < z_.groups; ++g)
      total += where(is_shown(z_.group[g]), all(z_.constant[k * z_.groups + g]));
    for (int64_t q = 0; q < z_.terms; ++q) {
      const int32_t* of = z_.term + 3 * q;
      total -= where(is_shown(of[0]), z_.weight[k * z_.terms + q] * (r[of[1]] * r[of[2]]));
    }
    return total;
  }

  void ask(int64_t t) const {
    for (int64_t c = 0; c < z_.width; ++c) __builtin_prefetch(z_.a + (t * z_.width + c) * z_.lanes + lane_);
    for (int j = 0; j < P; ++j) __builtin_prefetch(z_.y + (t * P + j) * z_.lanes + lane_);
  }

  const Gaussian<K, P>& z_;
  const int64_t lane_;
  const int count_;
  vec *v_, *shown_, *coef_, *sums_;
  double level_[K], square_[K][P][P];
  bool crossed_ = false;
};
