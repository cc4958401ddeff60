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

  template <typename T = double>
  T* at(int64_t batch) const {
    return static_cast<T*>(data) + (batches == 1 ? 0 : batch * stride);
  }

  // Its numbers by lane, which is the last of its `rank` axes.
  Lanes lanes(int64_t batch, int64_t rank) const { return {at(batch), dims[rank - 1]}; }
};

// The arguments and results of a call, taken one after the other.
class Call {
 public:
  explicit Call(XLA_FFI_CallFrame* frame) : frame_(frame) {}

  // XLA asks for the version of the interface before it calls: then there is nothing else to do.
  bool is_question() const {
    auto* asked = frame_->extension_start;  // its type has other names in other versions
    if (asked == nullptr || asked->type != XLA_FFI_Extension_Metadata) return false;
    XLA_FFI_Metadata* told = reinterpret_cast<XLA_FFI_Metadata_Extension*>(asked)->metadata;
    told->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
    told->traits = 0;
    return true;
  }

  bool has(int64_t arguments, int64_t results) const {
    return frame_->args.size == arguments && frame_->rets.size == results;
  }

  Array argument(int64_t rank, XLA_FFI_DataType type = XLA_FFI_DataType_F64) {
    return checked(Array(frame_->args.args[argument_++], rank, type));
  }

  Array result(int64_t rank) { return checked(Array(frame_->rets.rets[result_++], rank, XLA_FFI_DataType_F64)); }

  // Whether all arrays so far have the type and number of axes that were asked for.
  bool sound() const { return sound_; }

  XLA_FFI_Error* wrong_shapes() const {
    XLA_FFI_Error_Create_Args error = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr,
                                       "avem: the native kernel got shapes it was not made for",
                                       XLA_FFI_Error_Code_INVALID_ARGUMENT};
    return frame_->api->XLA_FFI_Error_Create(&error);
  }

 private:
  Array checked(Array array) {
    sound_ &= array.sound;
    return array;
  }

  XLA_FFI_CallFrame* frame_;
  int64_t argument_ = 0, result_ = 0;
  bool sound_ = true;
};
