// A few lanes at a time: a vector holds one number of each of as many sequences (or matrices).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

// As many as a register of the processor takes: wider vectors are compared number by number.
#if defined(__AVX512F__)
constexpr int kLanes = 8;
#elif defined(__AVX__)
constexpr int kLanes = 4;
#else
constexpr int kLanes = 2;
#endif
typedef double vec __attribute__((vector_size(8 * kLanes)));
typedef int64_t mask __attribute__((vector_size(8 * kLanes)));

inline vec all(double value) { return value - vec{}; }

inline vec where(mask here, vec a, vec b = vec{}) { return here ? a : b; }

// The first `count` of a vector's numbers; where there are fewer, the last one again, so that every lane
// computes something sound.
inline vec load(const double* at, int count) {
  vec out;
  if (count == kLanes) {
    std::memcpy(&out, at, sizeof out);
  } else {
    for (int l = 0; l < kLanes; ++l) out[l] = at[l < count ? l : count - 1];
  }
  return out;
}

inline void store(double* at, vec values, int count) {
  if (count == kLanes) {
    std::memcpy(at, &values, sizeof values);
  } else {
    for (int l = 0; l < count; ++l) at[l] = values[l];
  }
}

// The number that is `at` places further than each lane's own.
template <size_t... Lane>
inline vec pick(const double* const* own, int64_t at, std::index_sequence<Lane...>) {
  return vec{own[Lane][at]...};
}

inline vec pick(const double* const* own, int64_t at) { return pick(own, at, std::make_index_sequence<kLanes>()); }

// A number of every lane at `row`; an array with one lane is shared by all.
struct Lanes {
  const double* at;
  int64_t n;

  vec load(int64_t row, int64_t lane, int count) const {
    return n == 1 ? all(at[row]) : ::load(at + row * n + lane, count);
  }
};

// Which of a few flags are set; `every` and `none` let a caller skip the blending.
struct Flags {
  mask here;
  bool every, none;

  static Flags all_set() { return {mask{} - 1, true, false}; }

  static Flags load(const uint8_t* at, int count) {
    uint8_t bytes[kLanes];
    if (count == kLanes) {
      std::memcpy(bytes, at, sizeof bytes);
    } else {
      for (int l = 0; l < kLanes; ++l) bytes[l] = at[l < count ? l : count - 1];
    }
    uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof bytes);
    Flags out = all_set();
    out.every = word == 0x0101010101010101u >> 8 * (8 - kLanes);
    out.none = word == 0;
    if (!out.every) {
      for (int l = 0; l < kLanes; ++l) out.here[l] = bytes[l] ? -1 : 0;
    }
    return out;
  }
};

// Room for vectors, on the boundary that they need.
class Room {
 public:
  explicit Room(size_t count) : at_(static_cast<vec*>(std::aligned_alloc(sizeof(vec), bytes(count))), std::free) {}
  vec* get() const { return at_.get(); }

 private:
  static size_t bytes(size_t count) { return sizeof(vec) * (count ? count : 1); }
  std::unique_ptr<vec, void (*)(void*)> at_;
};

// log of a product that grows over many factors: one logarithm now and then, not one per factor.
class LogProduct {
 public:
  // A factor that is not above 0 makes the sum NaN, as its logarithm would.
  void times(vec factor) {
    product_ = product_ * where(factor > 0.0, factor, all(std::numeric_limits<double>::quiet_NaN()));
    bool wide = false;
    for (int l = 0; l < kLanes; ++l) wide |= product_[l] > 1e100 || product_[l] < 1e-100;
    if (wide) take();
  }

  // `factor` in some lanes only.
  void times(vec factor, const Flags& here) {
    times(here.every ? factor : where(here.here, factor, all(1.0)));
  }

  void times_many(vec factor, int64_t count) {
    for (int l = 0; l < kLanes; ++l) sum_[l] += double(count) * std::log(factor[l]);
  }

  vec sum() {
    take();
    return sum_;
  }

 private:
  void take() {
    for (int l = 0; l < kLanes; ++l) sum_[l] += std::log(product_[l]);
    product_ = all(1.0);
  }
  vec product_ = all(1.0), sum_ = vec{};
};
