// The internal functions of Apple's compiler that programs call, as the headers
// of mlx do, and the class os_log of <metal_logging>.
#pragma once

// The last parameter chooses fast math.  The functions ignore it, as namespace
// fast does on the host.
#define MSL_INTERNAL_1(name)                       \
  MSL_INLINE float __metal_##name(float x, bool) { \
    return metal::precise::name(x);                \
  }
#define MSL_INTERNAL_2(name)                                \
  MSL_INLINE float __metal_##name(float x, float y, bool) { \
    return metal::precise::name(x, y);                      \
  }
#define MSL_INTERNAL_3(name)                                         \
  MSL_INLINE float __metal_##name(float x, float y, float z, bool) { \
    return metal::name(x, y, z);                                     \
  }
#define MSL_INTERNAL(arguments, name) MSL_INTERNAL_##arguments(name)
MSL_UNARY(MSL_INTERNAL)
MSL_UNARY_OR_FAST(MSL_INTERNAL)
MSL_INTERNAL_2(atan2)
MSL_INTERNAL_2(divide)
MSL_INTERNAL_2(fmax)
MSL_INTERNAL_2(fmin)
MSL_INTERNAL_2(fmod)
MSL_INTERNAL_2(pow)
MSL_INTERNAL_2(powr)
MSL_INTERNAL_3(fmax3)
MSL_INTERNAL_3(fmedian3)
MSL_INTERNAL_3(fmin3)
#undef MSL_INTERNAL
#undef MSL_INTERNAL_1
#undef MSL_INTERNAL_2
#undef MSL_INTERNAL_3
MSL_INLINE float __metal_fma(float x, float y, float z) {
  return metal::fma(x, y, z);
}
MSL_INLINE float __metal_frexp(float x, MSL_THREAD int *exponent) {
  return metal::frexp(x, *exponent);
}
MSL_INLINE float __metal_ldexp(float x, int k, bool) {
  return metal::ldexp(x, k);
}
MSL_INLINE float __metal_nextafter(float x, float y) {
  return metal::nextafter(x, y);
}

constexpr ushort __metal_get_simdgroup_size(ushort) { return 32; }
#define MSL_INTERNAL(name)                                          \
  template <class T>                                                \
  MSL_SUSPENDS MSL_INLINE T __metal_simd_##name(T data, MSL_SITE) { \
    return metal::simd_##name(data, site);                          \
  }
MSL_INTERNAL(max)
MSL_INTERNAL(min)
MSL_INTERNAL(prefix_exclusive_product)
MSL_INTERNAL(prefix_exclusive_sum)
MSL_INTERNAL(prefix_inclusive_product)
MSL_INTERNAL(prefix_inclusive_sum)
MSL_INTERNAL(product)
MSL_INTERNAL(sum)
#undef MSL_INTERNAL
#define MSL_INTERNAL(name)                                            \
  template <class T>                                                  \
  MSL_SUSPENDS MSL_INLINE T __metal_simd_##name(T data, ushort delta, \
                                                MSL_SITE) {           \
    return metal::simd_##name(data, delta, site);                     \
  }
MSL_INTERNAL(broadcast)
MSL_INTERNAL(shuffle)
MSL_INTERNAL(shuffle_down)
MSL_INTERNAL(shuffle_rotate_down)
MSL_INTERNAL(shuffle_rotate_up)
MSL_INTERNAL(shuffle_up)
MSL_INTERNAL(shuffle_xor)
#undef MSL_INTERNAL
#define MSL_INTERNAL(name)                                         \
  template <class T>                                               \
  MSL_SUSPENDS MSL_INLINE T __metal_simd_##name(                   \
      T data, T filling, ushort delta, ushort modulo, MSL_SITE) {  \
    return metal::simd_##name(data, filling, delta, modulo, site); \
  }
MSL_INTERNAL(shuffle_and_fill_down)
MSL_INTERNAL(shuffle_and_fill_up)
#undef MSL_INTERNAL
// mlx's headers call this function for a float, too.
template <class T>
MSL_SUSPENDS MSL_INLINE T __metal_simd_xor(T data, MSL_SITE) {
  if constexpr (__is_integral(T))
    return metal::simd_xor(data, site);
  else
    return as_type<T>(metal::simd_xor(as_type<uint>(data), site));
}

namespace metal {

// A log drops its messages.
struct os_log {
  constexpr os_log(MSL_CONSTANT const char *, MSL_CONSTANT const char *) {}
#define MSL_LOG(name)   \
  template <class... A> \
  MSL_INLINE void name(MSL_CONSTANT const char *, A...) const {}
  MSL_LOG(log)
  MSL_LOG(log_debug)
  MSL_LOG(log_default)
  MSL_LOG(log_error)
  MSL_LOG(log_fault)
  MSL_LOG(log_info)
#undef MSL_LOG
};

}  // namespace metal
