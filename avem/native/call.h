// A call from XLA by its plain C interface: the C++ one would take most of the time to build.
//
// Every array may have one more axis in front, as jax.vmap puts it there: of length 1 where it is the same
// for all.
#pragma once

#include "lanes.h"
#include "xla/ffi/api/c_api.h"

// An array of `rank` axes, or one more.
struct Array {
  void* data;
  int64_t batches;  // 1: shared
  int64_t stride;   // numbers from one batch to the next
  const int64_t* dims;  // without the batch axis
  bool sound;

  Array(const void* given, int64_t rank, XLA_FFI_DataType type) {
    const auto* buffer = static_cast<const XLA_FFI_Buffer*>(given);
    const bool batched = buffer->rank > rank;
    data = buffer->data;
    batches = batched ? buffer->dims[0] : 1;
    dims = buffer->dims + batched;
    sound = buffer->dtype == type && buffer->rank == rank + batched;
    stride = 1;
    for (int64_t i = 0; i < rank; ++i) stride *= dims[i];
  }

  template <typename T>
  T* at(int64_t batch) const {
    return static_cast<T*>(data) + (batches == 1 ? 0 : batch * stride);
  }
};

// What XLA asks of a handler before it calls it: the version of the interface it was built for.
inline bool told_version(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Extension_Base* asked = frame->extension_start;
  if (asked == nullptr || asked->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* told = reinterpret_cast<XLA_FFI_Metadata_Extension*>(asked)->metadata;
  told->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
  told->traits = 0;
  return true;
}

inline XLA_FFI_Error* wrong_shapes(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Error_Create_Args error = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr,
                                     "avem: the native kernel got shapes it was not made for",
                                     XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return frame->api->XLA_FFI_Error_Create(&error);
}
