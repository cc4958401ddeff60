"use strict";

// The page's data: columns of numbers as typed arrays in base64, read when they are first needed.

const PAGE = JSON.parse(document.getElementById("page-data").textContent);

const KINDS = {
  i1: [Int8Array, -128],
  i2: [Int16Array, -32768],
  i4: [Int32Array, -2147483648],
  q2: [Uint16Array, 65535],
  f4: [Float32Array, NaN],
  f8: [Float64Array, NaN],
};

/** The numbers of one packed column, NaN where missing; decoded once. */
function column(packed) {
  if (!packed.values) {
    const [kind, missing] = KINDS[packed.t];
    const text = atob(packed.d);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const raw = new kind(bytes.buffer);
    // Units below 1 are negative powers of 10: dividing gives back the digits that were written.
    const inverse = packed.u < 1 && packed.t !== "q2" ? Math.round(1 / packed.u) : 0;
    packed.values = Float64Array.from(raw, (v) =>
      v === missing ? NaN : (inverse ? v / inverse : v * packed.u) + packed.o);
    packed.d = "";
  }
  return packed.values;
}

/** Part of a packed column. */
const part = (packed, from, to) => column(packed).subarray(from, to);

/** The texts of a column that has codes. */
const textAt = (coded, i) => coded.texts[column(coded.codes)[i]];
