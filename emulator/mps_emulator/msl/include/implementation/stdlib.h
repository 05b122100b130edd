// <metal_stdlib>, which includes all other headers.
#pragma once

namespace metal {

template <class T, int N>
using vec = __msl::vec<T, N>;

}  // namespace metal

// Each header needs the headers before it.
// clang-format off
#ifdef __NVPTX__
#include "target_nvptx.h"
#else
#include "target_host.h"
#endif
#include "traits.h"
#include "math.h"
#include "integer.h"
#include "atomic.h"
#include "simdgroup.h"
#include "array.h"
// clang-format on

namespace metal {

using ::as_type;

using ::bfloat;
using ::bool2;
using ::bool3;
using ::bool4;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::ptrdiff_t;
using ::size_t;
using ::uchar;
using ::uint;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::ulong;
using ::ushort;

#define MSL_EXPORT(T) \
  using ::T##2;       \
  using ::T##3;       \
  using ::T##4;
MSL_NUMBERS(MSL_EXPORT)
#undef MSL_EXPORT

// Namespaces precise and fast have the same functions.  On a target that
// defines MSL_HAS_FAST, math.h has already defined some functions of namespace
// fast.
#define MSL_UNARY(X)                                                           \
  X(acos)                                                                      \
  X(acosh)                                                                     \
  X(asin)                                                                      \
  X(asinh)                                                                     \
  X(atan)                                                                      \
  X(atanh) X(ceil) X(cosh) X(cospi) X(fabs) X(floor) X(fract) X(rint) X(round) \
      X(rsqrt) X(sinh) X(sinpi) X(sqrt) X(tan) X(tanh) X(trunc)
#define MSL_UNARY_OR_FAST(X) \
  X(cos) X(exp) X(exp10) X(exp2) X(log) X(log10) X(log2) X(sin)
#define MSL_BINARY(X) X(atan2) X(fmax) X(fmin) X(fmod) X(pow)
#define MSL_OTHER(X)                                                     \
  X(abs)                                                                 \
  X(clamp)                                                               \
  X(copysign)                                                            \
  X(fma) X(frexp) X(ldexp) X(max) X(min) X(sincos)
#define MSL_EXPORT(name) using metal::name;
namespace precise {
MSL_UNARY(MSL_EXPORT)
MSL_UNARY_OR_FAST(MSL_EXPORT)
MSL_BINARY(MSL_EXPORT)
MSL_OTHER(MSL_EXPORT)
}  // namespace precise
namespace fast {
MSL_UNARY(MSL_EXPORT)
MSL_BINARY(MSL_EXPORT)
MSL_OTHER(MSL_EXPORT)
#ifndef MSL_HAS_FAST
MSL_UNARY_OR_FAST(MSL_EXPORT)
#endif
}  // namespace fast
#undef MSL_EXPORT
#undef MSL_HAS_FAST

}  // namespace metal

#undef MSL_UNARY
#undef MSL_UNARY_OR_FAST
#undef MSL_BINARY
#undef MSL_OTHER
