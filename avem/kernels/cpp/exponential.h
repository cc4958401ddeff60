// exp of a few numbers that are not above 0.
#pragma once

#include "lanes.h"

inline mask bits_of(vec value) {
  mask out;
  std::memcpy(&out, &value, sizeof out);
  return out;
}

inline vec from_bits(mask bits) {
  vec out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

// Within one unit of the last place: exp(x) = 2^n exp(r) with n whole and |r| <= log(2)/2, and exp(r) =
// 1 + r + r^2 p(r) with a polynomial that meets exp at Chebyshev's points (relative error 2e-17).
// What is below the smallest normal number is 0. NaN stays NaN.
inline vec exponential(vec x) {
  const double round = 0x1.8p52;  // adding it leaves a whole number in the last bits
  const vec shifted = x * 0x1.71547652b82fep+0 + round;
  const vec n = shifted - round;
  const vec r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
  const vec r2 = r * r, r4 = r2 * r2;
  const vec low = (0x1.0000000000001p-1 + r * 0x1.5555555555556p-3) +
                  r2 * (0x1.5555555553d68p-5 + r * 0x1.11111111109b5p-7);
  const vec high = (0x1.6c16c17889ef1p-10 + r * 0x1.a01a01a7c2efep-13) +
                   r2 * (0x1.a019b9149a41cp-16 + r * 0x1.71de0db2f6b19p-19) +
                   r4 * (0x1.28917c89a43bcp-22 + r * 0x1.af389ecfc4bb6p-26);
  const vec whole = 1.0 + (r + r2 * (low + r4 * high));
  const vec power = from_bits((bits_of(shifted) + 1023) << 52);
  return where(x < -708.0, vec{}, whole * power);
}
