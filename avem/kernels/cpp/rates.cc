// Probabilities of a Markov chain over intervals, and their slopes in the logarithms of its rates, for XLA to
// call. STATES is given to the compiler. As `numerics/generator.py` has it: with Q the generator times the interval
// and r its fastest rate, exp(Q) = (e^(-r/2^s) exp((Q + r I) / 2^s))^(2^s), in which no term is negative; rows of
// squares are made to add up to 1.
//
// For slopes, r counts as a constant: exp(Q) does not depend on it. The slope of the generator in the log of the
// rate q from k to m has q at (k, m) and -q at (k, k), so that its products with a matrix are cheap.
#include "call.h"
#include "exponential.h"

constexpr int K = STATES;

struct Matrix {
  vec at[K][K];
};

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out;
  for (int i = 0; i < K; ++i)
    for (int j = 0; j < K; ++j) {
      vec total = a.at[i][0] * b.at[0][j];
      for (int k = 1; k < K; ++k) total += a.at[i][k] * b.at[k][j];
      out.at[i][j] = total;
    }
  return out;
}

class Intervals {
 public:
  // `room`: matrices of as many moves.
  Intervals(const double* rates, const int32_t* pairs, int64_t moves, int64_t n, Matrix* room)
      : rates_(rates), pairs_(pairs), moves_(moves), n_(n), slope_(room) {}

  void run(int64_t lane, int count, double* chance, double* slope) {
    const int64_t wanted = slope ? moves_ : 0;
    read(lane, count);
    series(wanted);
    square(wanted);
    write(chance, total_, lane, count);
    for (int64_t m = 0; m < wanted; ++m) write(slope + m * K * K * n_, slope_[m], lane, count);
  }

 private:
  static constexpr int kTerms = 11;           // of the series, for arguments up to
  static constexpr double kLargest = 0.25;    // this; the rest is below 1e-16 of it
  static constexpr double kMost = 0x1p100;    // faster chains are taken to be as slow

  vec rate(int64_t move, int64_t lane, int count) const { return load(rates_ + move * n_ + lane, count); }

  void read(int64_t lane, int count) {
    lane_ = lane;
    count_ = count;
    for (auto& row : base_.at)
      for (vec& entry : row) entry = vec{};
    for (int64_t m = 0; m < moves_; ++m) {
      const vec q = rate(m, lane, count);
      base_.at[pairs_[2 * m]][pairs_[2 * m + 1]] += q;
      base_.at[pairs_[2 * m]][pairs_[2 * m]] -= q;
    }
    vec fastest = -base_.at[0][0];
    for (int k = 1; k < K; ++k) fastest = where(-base_.at[k][k] > fastest, -base_.at[k][k], fastest);
    const vec slower = where(fastest > kMost, kMost / fastest, all(1.0));
    fastest *= slower;
    most_ = 0;
    for (int l = 0; l < kLanes; ++l) {
      const double over = fastest[l] / kLargest;
      squarings_[l] = over > 1.0 ? int64_t(std::ceil(std::log2(over))) : 0;
      if (squarings_[l] > most_) most_ = squarings_[l];
    }
    const vec part = from_bits((1023 - squarings_) << 52);
    slower_ = slower * part;
    scale_ = exponential(-fastest * part);
    for (int k = 0; k < K; ++k)
      for (int m = 0; m < K; ++m) base_.at[k][m] = (base_.at[k][m] * slower + (k == m ? fastest : vec{})) * part;
  }

  // Horner's rule: total = I + base total / term.
  void series(int64_t wanted) {
    for (int k = 0; k < K; ++k)
      for (int m = 0; m < K; ++m) total_.at[k][m] = (k == m ? all(1.0) : vec{});
    for (int64_t m = 0; m < wanted; ++m) slope_[m] = Matrix{};
    for (int term = kTerms; term > 0; --term) {
      const double over = 1.0 / term;
      for (int64_t m = 0; m < wanted; ++m) {
        const int from = pairs_[2 * m], to = pairs_[2 * m + 1];
        const vec q = rate(m, lane_, count_) * slower_;
        Matrix next = product(base_, slope_[m]);
        for (int j = 0; j < K; ++j) next.at[from][j] += q * (total_.at[to][j] - total_.at[from][j]);
        scaled(next, all(over));
        slope_[m] = next;
      }
      total_ = product(base_, total_);
      scaled(total_, all(over));
      for (int k = 0; k < K; ++k) total_.at[k][k] += 1.0;
    }
    scaled(total_, scale_);
    for (int64_t m = 0; m < wanted; ++m) scaled(slope_[m], scale_);
  }

  void square(int64_t wanted) {
    for (int64_t i = 0; i < most_; ++i) {
      const mask here = squarings_ > i;
      Matrix squared = product(total_, total_);
      vec over[K];
      for (int k = 0; k < K; ++k) {
        over[k] = 1.0 / sum(squared.at[k]);
        for (vec& entry : squared.at[k]) entry *= over[k];
      }
      for (int64_t m = 0; m < wanted; ++m) {
        Matrix next = product(slope_[m], total_);
        const Matrix other = product(total_, slope_[m]);
        for (int k = 0; k < K; ++k) {
          for (int j = 0; j < K; ++j) next.at[k][j] += other.at[k][j];
          const vec excess = sum(next.at[k]);
          for (int j = 0; j < K; ++j) next.at[k][j] = (next.at[k][j] - squared.at[k][j] * excess) * over[k];
        }
        blend(slope_[m], next, here);
      }
      blend(total_, squared, here);
    }
  }

  static vec sum(const vec* row) {
    vec total = row[0];
    for (int j = 1; j < K; ++j) total += row[j];
    return total;
  }

  static void scaled(Matrix& matrix, vec by) {
    for (auto& row : matrix.at)
      for (vec& entry : row) entry *= by;
  }

  static void blend(Matrix& old, const Matrix& made, mask here) {
    for (int k = 0; k < K; ++k)
      for (int j = 0; j < K; ++j) old.at[k][j] = where(here, made.at[k][j], old.at[k][j]);
  }

  void write(double* out, const Matrix& matrix, int64_t lane, int count) const {
    for (int k = 0; k < K; ++k)
      for (int j = 0; j < K; ++j) store(out + (k * K + j) * n_ + lane, matrix.at[k][j], count);
  }

  const double* rates_;
  const int32_t* pairs_;
  const int64_t moves_, n_;
  Matrix *slope_, base_, total_;
  int64_t lane_ = 0, most_ = 0;
  int count_ = 0;
  mask squarings_;
  vec slower_, scale_;
};

extern "C" XLA_FFI_Error* avem_rates(XLA_FFI_CallFrame* frame) {
  Call call(frame);
  if (call.is_question()) return nullptr;
  if (!call.has(2, 2)) return call.wrong_shapes();
  Array rates = call.argument(2), pairs = call.argument(2, XLA_FFI_DataType_S32);
  Array chance = call.result(3), slope = call.result(4);
  const int64_t moves = rates.dims[0], n = rates.dims[1];
  if (!call.sound() || pairs.dims[0] != moves || chance.dims[0] != STATES) return call.wrong_shapes();
  Room room(moves * K * K);
  auto* slopes = reinterpret_cast<Matrix*>(room.get());
  for (int64_t b = 0; b < chance.batches; ++b) {
    Intervals intervals(rates.at(b), pairs.at<int32_t>(b), moves, n, slopes);
    for (int64_t lane = 0; lane < n; lane += kLanes) {
      const int count = n - lane < kLanes ? int(n - lane) : kLanes;
      intervals.run(lane, count, chance.at(b), slope.dims[0] ? slope.at(b) : nullptr);
    }
  }
  return nullptr;
}
