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
#elif defined(MSL_AIR)
#include "target_air.h"
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

// Namespaces precise and fast have the same functions, for float and for
// vectors of float.  A half or bfloat argument converts to float, so the result
// is a float.  On a target that defines MSL_HAS_FAST, math.h has already
// defined some functions of namespace fast.
// clang-format off
#define MSL_UNARY(X)                                                  \
  X(1, abs) X(1, ceil) X(1, fabs) X(1, floor) X(1, fract)             \
  X(1, rint) X(1, round) X(1, rsqrt) X(1, sqrt) X(1, trunc)           \
  X(1, acos) X(1, acosh) X(1, asin) X(1, asinh) X(1, atan) X(1, atanh) \
  X(1, cosh) X(1, cospi) X(1, sinh) X(1, sinpi)                       \
  X(1, tan) X(1, tanh) X(1, tanpi)
#define MSL_UNARY_OR_FAST(X)                    \
  X(1, cos) X(1, sin) X(1, exp) X(1, exp2)      \
  X(1, exp10) X(1, log) X(1, log2) X(1, log10)
#define MSL_BINARY_AND_TERNARY(X)                               \
  X(2, atan2) X(2, copysign) X(2, divide) X(2, fmod)            \
  X(2, fmax) X(2, fmin) X(2, max) X(2, min) X(2, pow) X(2, powr) \
  X(3, clamp) X(3, fma)
// clang-format on
#define MSL_FUNCTION_1(name) \
  MSL_INLINE float name(float x) { return metal::name(x); }
#define MSL_FUNCTION_2(name) \
  MSL_INLINE float name(float x, float y) { return metal::name(x, y); }
#define MSL_FUNCTION_3(name)                         \
  MSL_INLINE float name(float x, float y, float z) { \
    return metal::name(x, y, z);                     \
  }
#define MSL_FUNCTION(arguments, name) \
  MSL_FUNCTION_##arguments(name) MSL_VECTORS(arguments, float, name)
#define MSL_SHARED                     \
  MSL_UNARY(MSL_FUNCTION)              \
  MSL_BINARY_AND_TERNARY(MSL_FUNCTION) \
  using metal::frexp;                  \
  using metal::ldexp;                  \
  using metal::sincos;
namespace precise {
MSL_SHARED
MSL_UNARY_OR_FAST(MSL_FUNCTION)
}  // namespace precise
namespace fast {
MSL_SHARED
#ifndef MSL_HAS_FAST
MSL_UNARY_OR_FAST(MSL_FUNCTION)
#endif
}  // namespace fast
#undef MSL_FUNCTION
#undef MSL_FUNCTION_1
#undef MSL_FUNCTION_2
#undef MSL_FUNCTION_3
#undef MSL_HAS_FAST
#undef MSL_SHARED

}  // namespace metal

#include "internal.h"

#undef MSL_UNARY
#undef MSL_UNARY_OR_FAST
#undef MSL_BINARY_AND_TERNARY
#undef MSL_VECTOR_1
#undef MSL_VECTOR_2
#undef MSL_VECTOR_3
#undef MSL_VECTORS
