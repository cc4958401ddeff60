// Filter, smoother and sums of moments of a few sequences, as `kernels/kalman.py` and
// `kernels/kalman_moments.py` define them; their scan is the definition and the fallback.
//
// Covariances do not depend on the outcomes, only on which of them are seen: in a stretch without
// gaps they soon stop changing, and from there on only means are computed.
#pragma once

#include <vector>

#include "lanes.h"

struct Shape {
  int64_t times, p, w, s, groups, lanes;
  bool driven;
  const int32_t* group_of;  // of each outcome
};

struct Inputs {
  Lanes start_mean, start_cov, transition, state_noise, loading, noise, y, drive, w, s;
  const uint8_t *seen, *valid;
};

// The outputs, one after the other, in rows of one number per lane; Python reads them in this order.
inline int64_t count_rows(int64_t q, const Shape& z) {
  return 1 + q + 3 * q * q + 2 * q * z.s + z.groups * (q * q + q * z.w) + z.p * (q + z.w + 1);
}

template <int q>
struct Square {
  vec a[q][q];

  vec* operator[](int i) { return a[i]; }
  const vec* operator[](int i) const { return a[i]; }
};

// Inverse of a symmetric matrix (its lower triangle is read) by L D L', and the product of D.
template <int q>
inline vec invert(const Square<q>& given, Square<q>& out) {
  vec unit[q][q], over[q];
  vec product = all(1.0);
  for (int i = 0; i < q; ++i) {
    vec scaled[q];
    for (int j = 0; j <= i; ++j) {
      vec rest = given[i][j];
      for (int m = 0; m < j; ++m) rest -= scaled[m] * unit[j][m];
      scaled[j] = rest;
      if (j < i) unit[i][j] = rest * over[j];
    }
    // A pivot that is not positive ends as NaN, as the root of a Cholesky factor would.
    vec pivot = where(scaled[i] > 0.0, scaled[i], all(std::numeric_limits<double>::quiet_NaN()));
    over[i] = 1.0 / pivot;
    product *= pivot;
  }
  vec half[q][q];  // the inverse of L, below its diagonal of ones
  for (int j = 0; j < q; ++j) {
    for (int i = j + 1; i < q; ++i) {
      vec known = unit[i][j];
      for (int m = j + 1; m < i; ++m) known += unit[i][m] * half[m][j];
      half[i][j] = -known;
    }
  }
  for (int i = 0; i < q; ++i) {
    for (int j = 0; j <= i; ++j) {
      vec total = i == j ? over[i] : over[i] * half[i][j];
      for (int m = i + 1; m < q; ++m) total += half[m][i] * (over[m] * half[m][j]);
      out[i][j] = out[j][i] = total;
    }
  }
  return product;
}

template <int q>
inline void product(const Square<q>& a, const Square<q>& b, Square<q>& out) {
  for (int i = 0; i < q; ++i) {
    for (int j = 0; j < q; ++j) {
      vec total = a[i][0] * b[0][j];
      for (int m = 1; m < q; ++m) total += a[i][m] * b[m][j];
      out[i][j] = total;
    }
  }
}

// a b' where it is known to be symmetric, plus `more`.
template <int q>
inline void symmetric_product(const Square<q>& a, const Square<q>& b, const Square<q>& more, Square<q>& out) {
  for (int i = 0; i < q; ++i) {
    for (int j = 0; j <= i; ++j) {
      vec total = more[i][j];
      for (int m = 0; m < q; ++m) total += a[i][m] * b[j][m];
      out[i][j] = out[j][i] = total;
    }
  }
}

// Whether a covariance is the same as before in all lanes, but for the last bits.
template <int q>
inline bool settled(const Square<q>& now, const Square<q>& before) {
  mask same = mask{} - 1;
  for (int a = 0; a < q; ++a) {
    for (int b = 0; b <= a; ++b) {
      vec change = now[a][b] - before[a][b], most = 1e-14 * (now[a][a] + now[b][b]);
      same &= (change <= most) & (change >= -most);
    }
  }
  bool every = true;
  for (int l = 0; l < kLanes; ++l) every &= same[l] != 0;
  return every;
}

template <int q>
class Block {
 public:
  Block(const Shape& shape, const Inputs& in, int64_t lane, int count, vec* room)
      : z_(shape), in_(in), lane_(lane), count_(count), spread_of_(shape.times), complete_(shape.times) {
    h_ = room;
    weight_ = h_ + z_.p * q;
    y_ = weight_ + z_.p;
    miss_ = y_ + z_.p;
    seen_weight_ = miss_ + z_.p;
    gain_of_ = seen_weight_ + z_.p;
    sums_ = gain_of_ + z_.p * q;
    filtered_ = sums_ + z_.p * (q + z_.w + 1) + z_.groups * (2 * q * q + q * z_.w) + 2 * q * z_.s;
    for (int64_t i = 0; i < z_.p; ++i) {
      weight_[i] = 1.0 / in.noise.load(i, lane, count);
      for (int k = 0; k < q; ++k) h_[i * q + k] = in.loading.load(i * q + k, lane, count);
    }
    for (int a = 0; a < q; ++a) {
      for (int b = 0; b < q; ++b) {
        g_[a][b] = in.transition.load(a * q + b, lane, count);
        noise_[a][b] = in.state_noise.load(a * q + b, lane, count);
        vec total = vec{};
        for (int64_t i = 0; i < z_.p; ++i) total += h_[i * q + a] * weight_[i] * h_[i * q + b];
        full_[a][b] = total;
      }
    }
  }

  // Vectors of room that a block needs.
  static size_t room(const Shape& z) {
    return z.p * (2 * q + 4) + z.p * (q + z.w + 1) + z.groups * (2 * q * q + q * z.w) + 2 * q * z.s +
           z.times * kKept;
  }

  void run(double* out) {
    vec loglik = filter();
    smooth();
    write(loglik, out);
  }

 private:
  static constexpr int64_t kAhead = 6;  // steps by which outcomes are fetched early
  static constexpr int kHalf = q * (q + 1) / 2;
  static constexpr int kKept = q + 2 * kHalf;  // of a step: mean, covariance, inverse of the prior's

  vec read(const Lanes& from, int64_t row) const { return from.load(row, lane_, count_); }

  Flags valid(int64_t t) const { return Flags::load(in_.valid + t * z_.lanes + lane_, count_); }

  // Whether outcome i is there: all of its group are, or none.
  Flags seen(int64_t t, int64_t i) const { return group_seen(t, z_.group_of[i]); }

  Flags group_seen(int64_t t, int64_t group) const {
    return Flags::load(in_.seen + (t * z_.groups + group) * z_.lanes + lane_, count_);
  }

  // y_t, and whether all of it is there.
  bool read_outcomes(int64_t t) {
    bool every = true;
    for (int64_t i = 0; i < z_.p; ++i) {
      int64_t row = t * z_.p + i, later = row + kAhead * z_.p;
      y_[i] = read(in_.y, row);
      // Rows are far apart: the processor does not guess the next.
      if (later < z_.times * z_.p) __builtin_prefetch(in_.y.at + later * in_.y.n + lane_);
    }
    for (int64_t group = 0; group < z_.groups; ++group) every &= group_seen(t, group).every;
    return every;
  }

  vec filter() {
    vec mean[q], known[q], det, total = vec{};
    Square<q> cov, prior, precision, posterior, moved, next;
    for (int a = 0; a < q; ++a) {
      mean[a] = read(in_.start_mean, a);
      if (z_.driven) mean[a] += read(in_.drive, a);
      for (int b = 0; b < q; ++b) cov[a][b] = read(in_.start_cov, a * q + b);
    }
    LogProduct dets;
    bool steady = false;
    for (int64_t t = 0; t < z_.times; ++t) {
      if (steady) {
        int64_t from = t;
        t = coast(t, posterior, mean, total);
        dets.times_many(det, t - from);
        if (t == z_.times) break;
      }
      Flags here = valid(t);
      if (here.none) break;
      bool every = read_outcomes(t);
      complete_[t] = every;
      spread_of_[t] = t;
      det = invert(cov, prior);
      for (int a = 0; a < q; ++a)
        for (int b = 0; b <= a; ++b) precision[a][b] = every ? prior[a][b] + full_[a][b] : prior[a][b];
      vec pull[q] = {};
      for (int64_t i = 0; i < z_.p; ++i) {
        const vec* h = h_ + i * q;
        vec at = h[0] * mean[0];
        for (int a = 1; a < q; ++a) at += h[a] * mean[a];
        miss_[i] = y_[i] - at;
        seen_weight_[i] = weight_[i];
        if (!every) {
          seen_weight_[i] = where(seen(t, i).here, weight_[i]);
          for (int a = 0; a < q; ++a)
            for (int b = 0; b <= a; ++b) precision[a][b] += seen_weight_[i] * h[a] * h[b];
        }
        vec pulled = seen_weight_[i] * miss_[i];
        for (int a = 0; a < q; ++a) pull[a] += h[a] * pulled;
      }
      det *= invert(precision, posterior);
      dets.times(det, here);
      keep_spread(t, posterior, prior);
      vec* kept = filtered_ + t * kKept;
      for (int a = 0; a < q; ++a) {
        vec step = vec{};
        for (int b = 0; b < q; ++b) step += posterior[a][b] * pull[b];
        kept[a] = known[a] = mean[a] + step;
      }
      // r'S^-1 r with S^-1 r = R^-1 (y - H x), x the filtered state: nothing large cancels.
      vec square = vec{};
      for (int64_t i = 0; i < z_.p; ++i) {
        vec left = y_[i];
        for (int a = 0; a < q; ++a) left -= h_[i * q + a] * known[a];
        square += seen_weight_[i] * miss_[i] * left;
      }
      total += here.every ? square : where(here.here, square);
      product(g_, posterior, moved);
      symmetric_product(moved, g_, noise_, next);
      steady = every && settled(next, cov);
      bool driven = z_.driven && t + 1 < z_.times;
      for (int a = 0; a < q; ++a) {
        vec ahead = driven ? read(in_.drive, (t + 1) * q + a) : vec{};
        for (int b = 0; b < q; ++b) ahead += g_[a][b] * known[b];
        mean[a] = where(here.here, ahead, mean[a]);
        for (int b = 0; b < q; ++b) cov[a][b] = where(here.here, next[a][b], cov[a][b]);
      }
    }
    return -0.5 * (total + dets.sum() + constant());
  }

  // The filter from `t` on while all outcomes are seen, with the covariances of the step before;
  // the step that it ends at.
  int64_t coast(int64_t t, const Square<q>& posterior, vec* mean, vec& total) {
    for (int64_t i = 0; i < z_.p; ++i) {
      for (int a = 0; a < q; ++a) {
        vec sum = vec{};
        for (int b = 0; b < q; ++b) sum += posterior[a][b] * h_[i * q + b];
        gain_of_[i * q + a] = sum * weight_[i];
      }
    }
    for (; t < z_.times && read_outcomes(t); ++t) {
      complete_[t] = true;
      spread_of_[t] = spread_of_[t - 1];
      vec known[q];
      for (int a = 0; a < q; ++a) known[a] = mean[a];
      for (int64_t i = 0; i < z_.p; ++i) {
        const vec *h = h_ + i * q, *gain = gain_of_ + i * q;
        vec miss = y_[i];
        for (int a = 0; a < q; ++a) miss -= h[a] * mean[a];
        for (int a = 0; a < q; ++a) known[a] += gain[a] * miss;
        miss_[i] = weight_[i] * miss;
      }
      for (int64_t i = 0; i < z_.p; ++i) {
        vec left = y_[i];
        for (int a = 0; a < q; ++a) left -= h_[i * q + a] * known[a];
        total += miss_[i] * left;
      }
      vec* kept = filtered_ + t * kKept;
      for (int a = 0; a < q; ++a) {
        kept[a] = known[a];
        mean[a] = z_.driven && t + 1 < z_.times ? read(in_.drive, (t + 1) * q + a) : vec{};
        for (int b = 0; b < q; ++b) mean[a] += g_[a][b] * known[b];
      }
    }
    return t;
  }

  // The part of the log densities that depends on nothing but which outcomes were seen.
  vec constant() const {
    vec total = vec{};
    for (int64_t group = 0; group < z_.groups; ++group) {
      vec n = vec{}, each = vec{};
      for (int64_t t = 0; t < z_.times; ++t) {
        Flags here = group_seen(t, group);
        n += here.every ? all(1.0) : where(here.here, all(1.0));
      }
      for (int64_t i = 0; i < z_.p; ++i) {
        if (z_.group_of[i] != group) continue;
        for (int l = 0; l < kLanes; ++l) each[l] += kLog2Pi - std::log(weight_[i][l]);
      }
      total += n * each;
    }
    return total;
  }

  void keep_spread(int64_t t, const Square<q>& cov, const Square<q>& prior) {
    vec* at = filtered_ + t * kKept + q;
    for (int a = 0; a < q; ++a)
      for (int b = 0; b <= a; ++b) *at++ = cov[a][b];
    for (int a = 0; a < q; ++a)
      for (int b = 0; b <= a; ++b) *at++ = prior[a][b];
  }

  static void unpack(const vec* at, Square<q>& out) {
    for (int a = 0; a < q; ++a)
      for (int b = 0; b <= a; ++b) out[a][b] = out[b][a] = *at++;
  }

  void smooth() {
    const int64_t p = z_.p;
    seen_ex_ = sums_;
    seen_ew_ = seen_ex_ + p * q;
    seen_ee_ = seen_ew_ + p * z_.w;
    seen_cov_ = seen_ee_ + p;
    seen_mm_ = seen_cov_ + z_.groups * q * q;
    seen_xw_ = seen_mm_ + z_.groups * q * q;
    xs_ = seen_xw_ + z_.groups * q * z_.w;
    es_ = xs_ + q * z_.s;
    for (vec* at = sums_; at < filtered_; ++at) *at = vec{};
    std::memset(&mm_, 0, sizeof mm_);
    std::memset(&on_cov_, 0, sizeof on_cov_);
    std::memset(&em_, 0, sizeof em_);
    std::memset(&cross_, 0, sizeof cross_);
    for (int a = 0; a < q; ++a) first_[a] = vec{};
    std::memset(&first_cov_, 0, sizeof first_cov_);

    vec* mean = first_;
    Square<q>& cov = first_cov_;
    Flags on = {mask{}, false, true};
    bool steady = false;
    here_ = next_ = -1;
    for (int64_t t = z_.times - 1; t >= 0; --t) {
      if (steady) {
        t = coast_back(t, mean, cov);
        if (t < 0) break;
      }
      Flags here = valid(t);
      if (here.none) continue;
      const vec* known = filtered_ + t * kKept;
      if (on.none) {
        for (int a = 0; a < q; ++a) mean[a] = known[a];
        unpack(filtered_ + spread_of_[t] * kKept + q, cov);
      } else {
        vec left[q];
        steady = step_back(t, on, known, mean, cov, left);
        add_move(t, on, left, mean, cov);
      }
      add_outcomes(t, mean, cov);
      on = here;
    }
  }

  // The smoothed moments of a step from those of the next; true where the covariance stays.
  bool step_back(int64_t t, const Flags& on, const vec* known, vec* mean, Square<q>& cov, vec* left) {
    if (spread_of_[t] != here_ || spread_of_[t + 1] != next_) find_gain(t);
    vec ahead[q], u[q], jump[q];
    for (int a = 0; a < q; ++a) {
      u[a] = z_.driven ? read(in_.drive, (t + 1) * q + a) : vec{};
      ahead[a] = mean[a];
      jump[a] = mean[a] - u[a];
      for (int b = 0; b < q; ++b) jump[a] -= g_[a][b] * known[b];
    }
    for (int a = 0; a < q; ++a) {
      vec smoothed = known[a];
      for (int b = 0; b < q; ++b) smoothed += gain_[a][b] * jump[b];
      mean[a] = on.every ? smoothed : where(on.here, smoothed, known[a]);
    }
    for (int a = 0; a < q; ++a) {
      left[a] = ahead[a] - u[a];
      for (int b = 0; b < q; ++b) left[a] -= g_[a][b] * mean[b];
      if (!on.every) left[a] = where(on.here, left[a]);
    }
    Square<q> change, moved, back;
    for (int a = 0; a < q; ++a) {
      for (int b = 0; b < q; ++b) {
        vec total = vec{};
        for (int m = 0; m < q; ++m) total += cov[a][m] * gain_[b][m];
        lag_[a][b] = total;
        change[a][b] = cov[a][b] - predicted_[a][b];
      }
    }
    product(gain_, change, moved);
    symmetric_product(moved, gain_, spread_, back);
    bool steady = on.every && settled(back, cov);
    for (int a = 0; a < q; ++a)
      for (int b = 0; b < q; ++b) cov[a][b] = on.every ? back[a][b] : where(on.here, back[a][b], spread_[a][b]);
    return steady;
  }

  // Steps back from `t` on while everything is seen and the covariances stay what they are: the
  // step that it ends at.
  int64_t coast_back(int64_t t, vec* mean, const Square<q>& cov) {
    vec mm[q][q] = {}, em[q][q] = {};
    Square<q> jg;
    product(gain_, g_, jg);
    int64_t from = t;
    for (; t >= 0 && complete_[t] && complete_[t + 1] && spread_of_[t] == here_ && spread_of_[t + 1] == next_; --t) {
      const vec* known = filtered_ + t * kKept;
      vec ahead[q], base[q];
      for (int a = 0; a < q; ++a) {
        base[a] = known[a];
        ahead[a] = mean[a];
        for (int b = 0; b < q; ++b) base[a] -= jg[a][b] * known[b];
      }
      if (z_.driven) {
        for (int b = 0; b < q; ++b) {
          vec u = read(in_.drive, (t + 1) * q + b);
          for (int a = 0; a < q; ++a) base[a] -= gain_[a][b] * u;
        }
      }
      for (int a = 0; a < q; ++a) {
        mean[a] = base[a];
        for (int b = 0; b < q; ++b) mean[a] += gain_[a][b] * ahead[b];
      }
      for (int a = 0; a < q; ++a) {
        vec left = z_.driven ? ahead[a] - read(in_.drive, (t + 1) * q + a) : ahead[a];
        for (int b = 0; b < q; ++b) left -= g_[a][b] * mean[b];
        for (int b = 0; b < q; ++b) em[a][b] += left * mean[b];
        for (int b = 0; b <= a; ++b) mm[a][b] += mean[a] * mean[b];
        for (int64_t c = 0; c < z_.s; ++c) {
          vec column = read(in_.s, (t + 1) * z_.s + c);
          xs_[a * z_.s + c] += mean[a] * column;
          es_[a * z_.s + c] += left * column;
        }
        for (int64_t c = 0; c < z_.w; ++c) {
          vec xw = mean[a] * read(in_.w, t * z_.w + c);
          for (int64_t g = 0; g < z_.groups; ++g) seen_xw_[(g * q + a) * z_.w + c] += xw;
        }
      }
      add_misses(t, mean);
    }
    double times = double(from - t);
    for (int a = 0; a < q; ++a) {
      for (int b = 0; b < q; ++b) {
        vec own = mm[a > b ? a : b][a > b ? b : a];
        em_[a][b] += em[a][b];
        mm_[a][b] += own;
        on_cov_[a][b] += times * cov[a][b];
        cross_[a][b] += times * lag_[a][b];
        for (int64_t g = 0; g < z_.groups; ++g) {
          seen_mm_[(g * q + a) * q + b] += own;
          seen_cov_[(g * q + a) * q + b] += times * cov[a][b];
        }
      }
    }
    return t;
  }

  // What a step back needs of the covariances of the filter.
  void find_gain(int64_t t) {
    here_ = spread_of_[t];
    next_ = spread_of_[t + 1];
    Square<q> turned, inverse;
    unpack(filtered_ + here_ * kKept + q, spread_);
    unpack(filtered_ + next_ * kKept + q + kHalf, inverse);
    product(g_, spread_, turned);
    symmetric_product(turned, g_, noise_, predicted_);
    for (int a = 0; a < q; ++a) {
      for (int b = 0; b < q; ++b) {
        vec total = vec{};
        for (int m = 0; m < q; ++m) total += turned[m][a] * inverse[m][b];
        gain_[a][b] = total;
      }
    }
  }

  void add_move(int64_t t, const Flags& on, const vec* left, const vec* mean, const Square<q>& cov) {
    for (int a = 0; a < q; ++a) {
      for (int b = 0; b < q; ++b) {
        vec mm = mean[a] * mean[b];
        em_[a][b] += left[a] * mean[b];
        mm_[a][b] += on.every ? mm : where(on.here, mm);
        on_cov_[a][b] += on.every ? cov[a][b] : where(on.here, cov[a][b]);
        cross_[a][b] += on.every ? lag_[a][b] : where(on.here, lag_[a][b]);
      }
      for (int64_t c = 0; c < z_.s; ++c) {
        vec column = read(in_.s, (t + 1) * z_.s + c), xs = mean[a] * column;
        xs_[a * z_.s + c] += on.every ? xs : where(on.here, xs);
        es_[a * z_.s + c] += left[a] * column;
      }
    }
  }

  void add_outcomes(int64_t t, const vec* mean, const Square<q>& cov) {
    for (int64_t group = 0; group < z_.groups; ++group) {
      Flags here = complete_[t] ? Flags::all_set() : group_seen(t, group);
      vec *cc = seen_cov_ + group * q * q, *mm = seen_mm_ + group * q * q;
      for (int a = 0; a < q; ++a) {
        vec value = here.every ? mean[a] : where(here.here, mean[a]);
        for (int b = 0; b <= a; ++b) {
          mm[a * q + b] += value * mean[b];
          cc[a * q + b] += here.every ? cov[a][b] : where(here.here, cov[a][b]);
        }
        for (int64_t c = 0; c < z_.w; ++c)
          seen_xw_[(group * q + a) * z_.w + c] += value * read(in_.w, t * z_.w + c);
      }
    }
    add_misses(t, mean);
  }

  // What is left of the outcomes, times the states and the known columns.
  void add_misses(int64_t t, const vec* mean) {
    for (int64_t i = 0; i < z_.p; ++i) {
      vec miss = read(in_.y, t * z_.p + i);
      for (int a = 0; a < q; ++a) miss -= h_[i * q + a] * mean[a];
      if (!complete_[t]) miss = where(seen(t, i).here, miss);
      for (int a = 0; a < q; ++a) seen_ex_[i * q + a] += miss * mean[a];
      for (int64_t c = 0; c < z_.w; ++c) seen_ew_[i * z_.w + c] += miss * read(in_.w, t * z_.w + c);
      seen_ee_[i] += miss * miss;
    }
  }

  void write(vec loglik, double* out) {
    double* at = out + lane_;
    auto put = [&](vec value) {
      store(at, value, count_);
      at += z_.lanes;
    };
    put(loglik);
    for (int a = 0; a < q; ++a) put(first_[a]);
    for (int a = 0; a < q; ++a)
      for (int b = 0; b < q; ++b) put(first_cov_[a][b]);
    for (int a = 0; a < q; ++a)
      for (int b = 0; b < q; ++b) put(mm_[a][b] + on_cov_[a][b]);
    for (int a = 0; a < q; ++a) {
      for (int b = 0; b < q; ++b) {
        vec total = em_[a][b] + cross_[a][b];
        for (int m = 0; m < q; ++m) total -= g_[a][m] * on_cov_[m][b];
        put(total);
      }
    }
    for (int64_t i = 0; i < q * z_.s; ++i) put(xs_[i]);
    for (int64_t i = 0; i < q * z_.s; ++i) put(es_[i]);
    for (int64_t g = 0; g < z_.groups; ++g)
      for (int a = 0; a < q; ++a)
        for (int b = 0; b < q; ++b) put(seen_mm_[of(g, a, b)] + seen_cov_[of(g, a, b)]);
    for (int64_t i = 0; i < z_.groups * q * z_.w; ++i) put(seen_xw_[i]);
    for (int64_t i = 0; i < z_.p; ++i) {
      for (int a = 0; a < q; ++a) put(seen_ex_[i * q + a] - known(i, a));
    }
    for (int64_t i = 0; i < z_.p * z_.w; ++i) put(seen_ew_[i]);
    for (int64_t i = 0; i < z_.p; ++i) {
      vec total = seen_ee_[i];
      for (int a = 0; a < q; ++a) total += known(i, a) * h_[i * q + a];
      put(total);
    }
  }

  static int64_t of(int64_t group, int a, int b) {
    return group * q * q + (a > b ? a * q + b : b * q + a);
  }

  // An entry of H times the sum of the covariances of the states when outcome i was seen.
  vec known(int64_t i, int a) const {
    vec total = vec{};
    for (int b = 0; b < q; ++b) total += h_[i * q + b] * seen_cov_[of(z_.group_of[i], a, b)];
    return total;
  }

  static constexpr double kLog2Pi = 1.8378770664093454836;
  Shape z_;
  Inputs in_;
  int64_t lane_;
  int count_;
  vec *h_, *weight_, *y_, *miss_, *seen_weight_, *gain_of_, *sums_, *filtered_;
  vec *seen_ex_, *seen_ew_, *seen_ee_, *seen_cov_, *seen_mm_, *seen_xw_, *xs_, *es_;
  Square<q> g_, noise_, full_;
  Square<q> mm_, on_cov_, em_, cross_, first_cov_;
  vec first_[q];
  std::vector<int64_t> spread_of_;  // the step whose covariances are also this step's
  std::vector<char> complete_;      // whether all lanes have all outcomes
  // Of the last step back: the gain, what it comes from, and the lag-one covariance.
  Square<q> gain_, predicted_, spread_, lag_;
  int64_t here_, next_;
};

template <int q>
void all_moments(const Shape& shape, const Inputs& in, double* out) {
  Room room(Block<q>::room(shape));
  for (int64_t lane = 0; lane < shape.lanes; lane += kLanes) {
    int64_t left = shape.lanes - lane;
    Block<q>(shape, in, lane, left < kLanes ? int(left) : kLanes, room.get()).run(out);
  }
}
