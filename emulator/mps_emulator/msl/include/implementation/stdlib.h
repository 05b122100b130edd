// <metal_stdlib>: all of Metal's headers.
#pragma once

namespace metal {

template <class T, int N>
using vec = __msl::vec<T, N>;
template <class T, int N>
using packed_vec = __msl::packed_vector<T, N>;

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
#include "simdgroup_matrix.h"
#include "matrix.h"
#include "array.h"
#include "pack.h"
#include "logging.h"
// clang-format on

namespace metal {

using ::as_type;

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

#define MSL_EXPORT_VECTORS(T) \
  using ::T##2;               \
  using ::T##3;               \
  using ::T##4;
#define MSL_EXPORT(T)   \
  MSL_EXPORT_VECTORS(T) \
  MSL_EXPORT_VECTORS(packed_##T)
MSL_EXPORT(char)
MSL_EXPORT(uchar)
MSL_EXPORT(short)
MSL_EXPORT(ushort)
MSL_EXPORT(int)
MSL_EXPORT(uint)
MSL_EXPORT(long)
MSL_EXPORT_VECTORS(ulong)
MSL_EXPORT(half)
MSL_EXPORT(float)
#if __METAL_VERSION__ >= 310
using ::bfloat;
MSL_EXPORT(bfloat)
#endif
#undef MSL_EXPORT
#undef MSL_EXPORT_VECTORS

// Namespaces precise and fast.  On the host both have the same functions.
#define MSL_EXPORT(name) \
  namespace precise {    \
  using metal::name;     \
  }                      \
  namespace fast {       \
  using metal::name;     \
  }
// math.h has separate fast versions of these functions for targets that have them.
#ifdef MSL_HAS_FAST
#define MSL_EXPORT_PRECISE(name) \
  namespace precise {            \
  using metal::name;             \
  }
#else
#define MSL_EXPORT_PRECISE MSL_EXPORT
#endif
MSL_EXPORT(abs)
MSL_EXPORT(acos)
MSL_EXPORT(acosh)
MSL_EXPORT(asin)
MSL_EXPORT(asinh)
MSL_EXPORT(atan)
MSL_EXPORT(atan2)
MSL_EXPORT(atanh)
MSL_EXPORT(ceil)
MSL_EXPORT(clamp)
MSL_EXPORT(copysign)
MSL_EXPORT_PRECISE(cos)
MSL_EXPORT(cosh)
MSL_EXPORT(cospi)
MSL_EXPORT(distance)
MSL_EXPORT_PRECISE(divide)
MSL_EXPORT_PRECISE(exp)
MSL_EXPORT_PRECISE(exp10)
MSL_EXPORT_PRECISE(exp2)
MSL_EXPORT(fabs)
MSL_EXPORT(fdim)
MSL_EXPORT(floor)
MSL_EXPORT(fma)
MSL_EXPORT(fmax)
MSL_EXPORT(fmax3)
MSL_EXPORT(fmedian3)
MSL_EXPORT(fmin)
MSL_EXPORT(fmin3)
MSL_EXPORT(fmod)
MSL_EXPORT(fract)
MSL_EXPORT(frexp)
MSL_EXPORT(ilogb)
MSL_EXPORT(ldexp)
MSL_EXPORT(length)
MSL_EXPORT_PRECISE(log)
MSL_EXPORT_PRECISE(log10)
MSL_EXPORT_PRECISE(log2)
MSL_EXPORT(max)
MSL_EXPORT(max3)
MSL_EXPORT(median3)
MSL_EXPORT(min)
MSL_EXPORT(min3)
MSL_EXPORT(modf)
MSL_EXPORT(nextafter)
MSL_EXPORT(normalize)
MSL_EXPORT(pow)
MSL_EXPORT(powr)
MSL_EXPORT(rint)
MSL_EXPORT(round)
MSL_EXPORT(rsqrt)
MSL_EXPORT(saturate)
MSL_EXPORT_PRECISE(sin)
MSL_EXPORT(sincos)
MSL_EXPORT(sinh)
MSL_EXPORT(sinpi)
MSL_EXPORT(sqrt)
MSL_EXPORT(tan)
MSL_EXPORT(tanh)
MSL_EXPORT(tanpi)
MSL_EXPORT(trunc)
#undef MSL_EXPORT
#undef MSL_EXPORT_PRECISE
#undef MSL_HAS_FAST

}  // namespace metal
