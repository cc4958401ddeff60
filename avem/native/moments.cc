// Filter, smoother and sums of moments, for XLA to call. STATES, q, is given to the compiler: with it
// known, all loops over the states unroll.
#include "arguments.h"
#include "kalman.h"

namespace {

Lanes lanes(const Batched& from, int64_t batch) { return {from.at<double>(batch), from.dims.back()}; }

ffi::Error Moments(ffi::AnyBuffer start_mean, ffi::AnyBuffer start_cov, ffi::AnyBuffer transition,
                   ffi::AnyBuffer state_noise, ffi::AnyBuffer loading, ffi::AnyBuffer noise,
                   ffi::AnyBuffer y, ffi::AnyBuffer seen, ffi::AnyBuffer valid, ffi::AnyBuffer drive,
                   ffi::AnyBuffer w, ffi::AnyBuffer s, ffi::Span<const int64_t> group_of,
                   int64_t n_groups, ffi::Result<ffi::AnyBuffer> out) {
  Batched m0(start_mean, 2), p0(start_cov, 3), g(transition, 3), noise_x(state_noise, 3), h(loading, 3),
      r(noise, 2), ys(y, 3), flags(seen, 3), there(valid, 2), u(drive, 3), ws(w, 3), ss(s, 3);
  Batched result(*out, 2);
  Shape shape = {ys.dims[0], ys.dims[1],    ws.dims[1],       ss.dims[1],
                 n_groups,   there.dims[1], u.dims[0] > 0, group_of.begin()};
  if (g.dims[0] != STATES || result.dims[0] != count_rows(STATES, shape))
    return ffi::Error::InvalidArgument("avem: the native kernel got shapes it was not made for");
  for (int64_t b = 0; b < result.batches; ++b) {
    Inputs in = {lanes(m0, b), lanes(p0, b), lanes(g, b), lanes(noise_x, b), lanes(h, b),
                 lanes(r, b),  lanes(ys, b), lanes(u, b), lanes(ws, b),      lanes(ss, b),
                 flags.at<uint8_t>(b), there.at<uint8_t>(b)};
    all_moments<STATES>(shape, in, result.into<double>(b));
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(avem_moments, Moments,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Attr<ffi::Span<const int64_t>>("group_of")
                                  .Attr<int64_t>("n_groups")
                                  .Ret<ffi::AnyBuffer>());
