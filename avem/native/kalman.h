// Filter, smoother and sums of moments of eight sequences, as `local/kalman.py` and
// `models/ssm_kernel.py` define them; their scan is the definition and the fallback.
#pragma once

#include "lanes.h"

struct Shape {
  int64_t times, p, w, s, groups, lanes;
  bool driven;
  const int64_t* group_of;  // of each outcome

  // Whether an outcome is the first of its group.
  bool leads(int64_t i) const {
    for (int64_t j = 0; j < i; ++j)
      if (group_of[j] == group_of[i]) return false;
    return true;
  }
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

template <int q>
class Block {
 public:
  Block(const Shape& shape, const Inputs& in, int64_t lane, int count, vec* room)
      : z_(shape), in_(in), lane_(lane), count_(count) {
    h_ = room;
    weight_ = h_ + z_.p * q;
    y_ = weight_ + z_.p;
    miss_ = y_ + z_.p;
    seen_weight_ = miss_ + z_.p;
    sums_ = seen_weight_ + z_.p;
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
    return z.p * (q + 4) + z.p * (q + z.w + 1) + z.groups * (2 * q * q + q * z.w) + 2 * q * z.s +
           z.times * kKept;
  }

  void run(double* out) {
    vec loglik = filter();
    smooth();
    write(loglik, out);
  }

 private:
  static constexpr int kHalf = q * (q + 1) / 2;
  static constexpr int kKept = q + 2 * kHalf;  // of a step: mean, covariance, inverse of the prior's

  vec read(const Lanes& from, int64_t row) const { return from.load(row, lane_, count_); }

  Flags valid(int64_t t) const { return Flags::load(in_.valid + t * z_.lanes + lane_, count_); }

  Flags seen(int64_t t, int64_t i) const {
    return Flags::load(in_.seen + (t * z_.p + i) * z_.lanes + lane_, count_);
  }

  // y_t, and whether all of it is there.
  bool read_outcomes(int64_t t) {
    bool every = true;
    for (int64_t i = 0; i < z_.p; ++i) {
      y_[i] = read(in_.y, t * z_.p + i);
      every &= seen(t, i).every;
    }
    return every;
  }

  vec filter() {
    vec mean[q], known[q], total = vec{};
    Square<q> cov, prior, precision, posterior, moved;
    for (int a = 0; a < q; ++a) {
      mean[a] = read(in_.start_mean, a);
      if (z_.driven) mean[a] += read(in_.drive, a);
      for (int b = 0; b < q; ++b) cov[a][b] = read(in_.start_cov, a * q + b);
    }
    LogProduct dets;
    for (int64_t t = 0; t < z_.times; ++t) {
      Flags here = valid(t);
      if (here.none) break;
      vec det = invert(cov, prior);
      bool every = read_outcomes(t);
      vec pull[q] = {};
      if (every) {
        for (int a = 0; a < q; ++a)
          for (int b = 0; b <= a; ++b) precision[a][b] = prior[a][b] + full_[a][b];
      } else {
        for (int a = 0; a < q; ++a)
          for (int b = 0; b <= a; ++b) precision[a][b] = prior[a][b];
      }
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
      for (int a = 0; a < q; ++a) {
        vec step = vec{};
        for (int b = 0; b < q; ++b) step += posterior[a][b] * pull[b];
        known[a] = mean[a] + step;
      }
      // r'S^-1 r with S^-1 r = R^-1 (y - H x), x the filtered state: nothing large cancels.
      vec square = vec{};
      for (int64_t i = 0; i < z_.p; ++i) {
        vec left = y_[i];
        for (int a = 0; a < q; ++a) left -= h_[i * q + a] * known[a];
        square += seen_weight_[i] * miss_[i] * left;
      }
      if (here.every) {
        total += square;
        dets.times(det);
      } else {
        total += where(here.here, square);
        dets.times(det, here.here);
      }
      keep(t, known, posterior, prior);
      bool driven = z_.driven && t + 1 < z_.times;
      product(g_, posterior, moved);
      Square<q> next;
      symmetric_product(moved, g_, noise_, next);
      for (int a = 0; a < q; ++a) {
        vec ahead = driven ? read(in_.drive, (t + 1) * q + a) : vec{};
        for (int b = 0; b < q; ++b) ahead += g_[a][b] * known[b];
        mean[a] = where(here.here, ahead, mean[a]);
        for (int b = 0; b < q; ++b) cov[a][b] = where(here.here, next[a][b], cov[a][b]);
      }
    }
    return -0.5 * (total + dets.sum() + constant());
  }

  // The part of the log densities that depends on nothing but which outcomes were seen.
  vec constant() const {
    vec total = vec{};
    for (int64_t i = 0; i < z_.p; ++i) {
      vec n = vec{};
      for (int64_t t = 0; t < z_.times; ++t) {
        Flags here = seen(t, i);
        n += here.every ? all(1.0) : where(here.here, all(1.0));
      }
      for (int l = 0; l < kLanes; ++l) total[l] += n[l] * (kLog2Pi - std::log(weight_[i][l]));
    }
    return total;
  }

  void keep(int64_t t, const vec* mean, const Square<q>& cov, const Square<q>& prior) {
    vec* at = filtered_ + t * kKept;
    for (int a = 0; a < q; ++a) *at++ = mean[a];
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
    for (int64_t t = z_.times - 1; t >= 0; --t) {
      Flags here = valid(t);
      if (here.none) continue;
      const vec* at = filtered_ + t * kKept;
      vec known[q], left[q];
      Square<q> spread;
      for (int a = 0; a < q; ++a) known[a] = at[a];
      unpack(at + q, spread);
      if (on.none) {
        for (int a = 0; a < q; ++a) mean[a] = known[a];
        cov = spread;
      } else {
        step_back(t, on, known, spread, mean, cov, left);
        add_move(t, on, left, mean, cov);
      }
      add_outcomes(t, mean, cov);
      on = here;
    }
  }

  // The smoothed moments of a step from those of the next; sums of the lag-one covariances.
  void step_back(int64_t t, const Flags& on, const vec* known, const Square<q>& spread, vec* mean,
                 Square<q>& cov, vec* left) {
    Square<q> turned, predicted, inverse, gain, change, cross;
    product(g_, spread, turned);
    symmetric_product(turned, g_, noise_, predicted);
    unpack(filtered_ + (t + 1) * kKept + q + kHalf, inverse);
    vec jump[q], u[q];
    for (int a = 0; a < q; ++a) {
      u[a] = z_.driven ? read(in_.drive, (t + 1) * q + a) : vec{};
      jump[a] = mean[a] - u[a];
      for (int b = 0; b < q; ++b) jump[a] -= g_[a][b] * known[b];
      for (int b = 0; b < q; ++b) {
        vec total = vec{};
        for (int m = 0; m < q; ++m) total += turned[m][a] * inverse[m][b];
        gain[a][b] = total;
        change[a][b] = cov[a][b] - predicted[a][b];
      }
    }
    for (int a = 0; a < q; ++a)
      for (int b = 0; b < q; ++b) {
        vec total = vec{};
        for (int m = 0; m < q; ++m) total += cov[a][m] * gain[b][m];
        cross[a][b] = total;
      }
    Square<q> moved;
    product(gain, change, moved);
    Square<q> back;
    symmetric_product(moved, gain, spread, back);
    vec ahead[q];
    for (int a = 0; a < q; ++a) ahead[a] = mean[a];
    for (int a = 0; a < q; ++a) {
      vec smoothed = known[a];
      for (int b = 0; b < q; ++b) smoothed += gain[a][b] * jump[b];
      mean[a] = on.every ? smoothed : where(on.here, smoothed, known[a]);
      for (int b = 0; b < q; ++b) {
        cov[a][b] = on.every ? back[a][b] : where(on.here, back[a][b], spread[a][b]);
        cross_[a][b] += on.every ? cross[a][b] : where(on.here, cross[a][b]);
      }
    }
    for (int a = 0; a < q; ++a) {
      left[a] = ahead[a] - u[a];
      for (int b = 0; b < q; ++b) left[a] -= g_[a][b] * mean[b];
      if (!on.every) left[a] = where(on.here, left[a]);
    }
  }

  void add_move(int64_t t, const Flags& on, const vec* left, const vec* mean, const Square<q>& cov) {
    for (int a = 0; a < q; ++a) {
      for (int b = 0; b < q; ++b) {
        em_[a][b] += left[a] * mean[b];
        vec mm = mean[a] * mean[b], cc = cov[a][b];
        mm_[a][b] += on.every ? mm : where(on.here, mm);
        on_cov_[a][b] += on.every ? cc : where(on.here, cc);
      }
      for (int64_t c = 0; c < z_.s; ++c) {
        vec column = read(in_.s, (t + 1) * z_.s + c), xs = mean[a] * column;
        xs_[a * z_.s + c] += on.every ? xs : where(on.here, xs);
        es_[a * z_.s + c] += left[a] * column;
      }
    }
  }

  void add_outcomes(int64_t t, const vec* mean, const Square<q>& cov) {
    const int64_t p = z_.p;
    for (int64_t i = 0; i < p; ++i) {
      Flags here = seen(t, i);
      if (here.none) continue;
      int64_t group = z_.group_of[i];
      if (z_.leads(i)) {
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
      vec miss = read(in_.y, t * p + i);
      for (int a = 0; a < q; ++a) miss -= h_[i * q + a] * mean[a];
      if (!here.every) miss = where(here.here, miss);
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
  vec *h_, *weight_, *y_, *miss_, *seen_weight_, *sums_, *filtered_;
  vec *seen_ex_, *seen_ew_, *seen_ee_, *seen_cov_, *seen_mm_, *seen_xw_, *xs_, *es_;
  Square<q> g_, noise_, full_;
  Square<q> mm_, on_cov_, em_, cross_, first_cov_;
  vec first_[q];
};

template <int q>
void all_moments(const Shape& shape, const Inputs& in, double* out) {
  Room room(Block<q>::room(shape));
  for (int64_t lane = 0; lane < shape.lanes; lane += kLanes) {
    int64_t left = shape.lanes - lane;
    Block<q>(shape, in, lane, left < kLanes ? int(left) : kLanes, room.get()).run(out);
  }
}
