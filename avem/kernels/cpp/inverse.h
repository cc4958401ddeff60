// Inverse and log determinant of a few symmetric matrices of any size.
#pragma once

#include "lanes.h"

// The matrix, of which the lower triangle is read, becomes its inverse, by L D L'; its log
// determinant. `over` has room for d vectors. A matrix that is not positive definite gets NaN.
inline vec invert_in(vec* a, int64_t d, vec* over) {
  LogProduct pivots;
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      // Below the diagonal L, above it L D.
      vec rest = a[i * d + j];
      for (int64_t m = 0; m < j; ++m) rest -= a[m * d + i] * a[j * d + m];
      if (j < i) {
        a[j * d + i] = rest;
        a[i * d + j] = rest * over[j];
      } else {
        vec pivot = where(rest > 0.0, rest, all(std::numeric_limits<double>::quiet_NaN()));
        over[i] = 1.0 / pivot;
        pivots.times(pivot);
      }
    }
  }
  // The inverse of L takes the place of L.
  for (int64_t j = 0; j < d; ++j) {
    for (int64_t i = j + 1; i < d; ++i) {
      vec known = a[i * d + j];
      for (int64_t m = j + 1; m < i; ++m) known += a[i * d + m] * a[m * d + j];
      a[i * d + j] = -known;
    }
  }
  // Row by row: what a row of the inverse is made of stands below it.
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      vec total = i == j ? over[i] : over[i] * a[i * d + j];
      for (int64_t m = i + 1; m < d; ++m) total += a[m * d + i] * over[m] * a[m * d + j];
      a[j * d + i] = total;
    }
  }
  for (int64_t i = 0; i < d; ++i)
    for (int64_t j = 0; j < i; ++j) a[i * d + j] = a[j * d + i];
  return pivots.sum();
}
