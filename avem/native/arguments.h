// Arguments as XLA hands them over. Each may have one more axis in front, as jax.vmap puts it there: of
// length 1 where the argument is the same for all.
#pragma once

#include "lanes.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

struct Batched {
  const void* data;
  int64_t batches;         // 1: shared
  int64_t stride;          // numbers from one batch to the next
  ffi::AnyBuffer::Dimensions dims;  // without the batch axis

  Batched(const ffi::AnyBuffer& buffer, size_t rank) : data(buffer.untyped_data()), dims(buffer.dimensions()) {
    batches = dims.size() > rank ? dims.front() : 1;
    if (dims.size() > rank) dims = {dims.begin() + 1, dims.size() - 1};
    stride = 1;
    for (int64_t size : dims) stride *= size;
  }

  template <typename T>
  const T* at(int64_t batch) const {
    return static_cast<const T*>(data) + (batches == 1 ? 0 : batch * stride);
  }

  // A result to be written.
  template <typename T>
  T* into(int64_t batch) const {
    return const_cast<T*>(at<T>(batch));
  }
};
