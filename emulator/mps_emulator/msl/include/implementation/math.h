// <metal_math>, <metal_common>, <metal_relational> and <metal_geometric>.
// On the host, namespace fast has the same functions as namespace precise,
// because the emulator does not imitate the approximations of a GPU.
#pragma once

namespace metal {

// MSL_VECTORS uses a function for scalars of type T to define the function for
// vectors of T.  The new function works component by component.
#define MSL_VECTOR_1(T, N, name)                   \
  MSL_INLINE T##N name(T##N a) {                   \
    for (int i = 0; i < N; ++i) a[i] = name(a[i]); \
    return a;                                      \
  }
#define MSL_VECTOR_2(T, N, name)                         \
  MSL_INLINE T##N name(T##N a, T##N b) {                 \
    for (int i = 0; i < N; ++i) a[i] = name(a[i], b[i]); \
    return a;                                            \
  }
#define MSL_VECTOR_3(T, N, name)                               \
  MSL_INLINE T##N name(T##N a, T##N b, T##N c) {               \
    for (int i = 0; i < N; ++i) a[i] = name(a[i], b[i], c[i]); \
    return a;                                                  \
  }
#define MSL_VECTORS(arguments, T, name)                                 \
  MSL_VECTOR_##arguments(T, 2, name) MSL_VECTOR_##arguments(T, 3, name) \
      MSL_VECTOR_##arguments(T, 4, name)

// MSL_FLOAT_... define a function for float and for vectors of float.
// MSL_HALF_... define a function for half and for vectors of half from the
// function for float: the new function converts its arguments to float, and its
// result to half.  MSL_MATH_... define a function for all of these types.
#define MSL_FLOAT_1(name, ...)                           \
  MSL_INLINE float name(float x) { return __VA_ARGS__; } \
  MSL_VECTORS(1, float, name)
#define MSL_FLOAT_2(name, ...)                                    \
  MSL_INLINE float name(float x, float y) { return __VA_ARGS__; } \
  MSL_VECTORS(2, float, name)
#define MSL_FLOAT_3(name, ...)                                             \
  MSL_INLINE float name(float x, float y, float z) { return __VA_ARGS__; } \
  MSL_VECTORS(3, float, name)
#define MSL_HALF_1(name)                                        \
  MSL_INLINE half name(half x) { return (half)name((float)x); } \
  MSL_VECTORS(1, half, name)
#define MSL_HALF_2(name)                   \
  MSL_INLINE half name(half x, half y) {   \
    return (half)name((float)x, (float)y); \
  }                                        \
  MSL_VECTORS(2, half, name)
#define MSL_HALF_3(name)                             \
  MSL_INLINE half name(half x, half y, half z) {     \
    return (half)name((float)x, (float)y, (float)z); \
  }                                                  \
  MSL_VECTORS(3, half, name)
#define MSL_MATH_1(name, ...) MSL_FLOAT_1(name, __VA_ARGS__) MSL_HALF_1(name)
#define MSL_MATH_2(name, ...) MSL_FLOAT_2(name, __VA_ARGS__) MSL_HALF_2(name)
#define MSL_MATH_3(name, ...) MSL_FLOAT_3(name, __VA_ARGS__) MSL_HALF_3(name)

// ---- Rounding and sign

MSL_MATH_1(ceil, __builtin_ceilf(x))
MSL_MATH_1(floor, __builtin_floorf(x))
MSL_MATH_1(rint, __builtin_rintf(x))
MSL_MATH_1(round, __builtin_roundf(x))
MSL_MATH_1(trunc, __builtin_truncf(x))
MSL_MATH_1(fabs, __builtin_fabsf(x))
MSL_MATH_1(abs, __builtin_fabsf(x))
MSL_MATH_2(copysign, __builtin_copysignf(x, y))
MSL_MATH_2(divide, x / y)
// fract(x) is below 1.  But for a tiny negative x, x - floor(x) is rounded to
// 1, so the result is limited to 1 - 2^-24, the largest float below 1.
MSL_MATH_1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
MSL_MATH_1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)

// ---- Elementary functions

MSL_MATH_1(acos, __msl::target::acos(x))
MSL_MATH_1(acosh, __msl::target::acosh(x))
MSL_MATH_1(asin, __msl::target::asin(x))
MSL_MATH_1(asinh, __msl::target::asinh(x))
MSL_MATH_1(atan, __msl::target::atan(x))
MSL_MATH_1(atanh, __msl::target::atanh(x))
MSL_MATH_1(cos, __msl::target::cos(x))
MSL_MATH_1(cosh, __msl::target::cosh(x))
MSL_MATH_1(exp, __msl::target::exp(x))
MSL_MATH_1(exp2, __msl::target::exp2(x))
MSL_MATH_1(exp10, __msl::target::exp10(x))
MSL_MATH_1(log, __msl::target::log(x))
MSL_MATH_1(log2, __msl::target::log2(x))
MSL_MATH_1(log10, __msl::target::log10(x))
MSL_MATH_1(sin, __msl::target::sin(x))
MSL_MATH_1(sinh, __msl::target::sinh(x))
MSL_MATH_1(sqrt, __builtin_sqrtf(x))
MSL_MATH_1(rsqrt, 1.0f / __builtin_sqrtf(x))
MSL_MATH_1(tan, __msl::target::tan(x))
MSL_MATH_1(tanh, __msl::target::tanh(x))
#ifdef MSL_HAS_FAST
namespace fast {
MSL_FLOAT_1(cos, __msl::target::fast::cos(x))
MSL_FLOAT_1(exp, __msl::target::fast::exp(x))
MSL_FLOAT_1(exp2, __msl::target::fast::exp2(x))
MSL_FLOAT_1(exp10, __msl::target::fast::exp10(x))
MSL_FLOAT_1(log, __msl::target::fast::log(x))
MSL_FLOAT_1(log2, __msl::target::fast::log2(x))
MSL_FLOAT_1(log10, __msl::target::fast::log10(x))
MSL_FLOAT_1(sin, __msl::target::fast::sin(x))
}  // namespace fast
#endif
MSL_MATH_2(atan2, __msl::target::atan2(x, y))
MSL_MATH_2(pow, __msl::target::pow(x, y))
MSL_MATH_2(powr, __msl::target::pow(x, y))
MSL_FLOAT_2(nextafter, __msl::target::nextafter(x, y))
MSL_MATH_2(fmod, __msl::target::fmod(x, y))

// fma() for half rounds twice, to float and to half.  A GPU rounds once.  If
// the float is in the middle between two neighbouring numbers of type half, the
// result can differ from the result of a GPU by one unit in the last place.
MSL_MATH_3(fma, __builtin_fmaf(x, y, z))

// sin(pi x) and cos(pi x).  Both functions reduce x to the interval [-0.5, 0.5]
// before the multiplication with pi, so that the error of the product is small.
MSL_INLINE float sinpi(float x) {
  float r = x - 2.0f * __builtin_rintf(0.5f * x);
  if (r > 0.5f) r = 1.0f - r;
  if (r < -0.5f) r = -1.0f - r;
  return __msl::target::sin(3.14159265358979323846f * r);
}
MSL_INLINE float cospi(float x) {
  float r = __builtin_fabsf(x - 2.0f * __builtin_rintf(0.5f * x));
  return r <= 0.25f ? __msl::target::cos(3.14159265358979323846f * r)
                    : sinpi(0.5f - r);
}
MSL_VECTORS(1, float, sinpi)
MSL_VECTORS(1, float, cospi)
MSL_HALF_1(sinpi)
MSL_HALF_1(cospi)
MSL_MATH_1(tanpi, sinpi(x) / cospi(x))

// ---- Minimum and maximum.  If one argument is a NaN, the result is the other
// argument.

MSL_MATH_2(fmax, __builtin_fmaxf(x, y))
MSL_MATH_2(fmin, __builtin_fminf(x, y))
MSL_MATH_2(max, __builtin_fmaxf(x, y))
MSL_MATH_2(min, __builtin_fminf(x, y))
MSL_MATH_3(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))
MSL_MATH_1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
MSL_MATH_3(fmax3, __builtin_fmaxf(__builtin_fmaxf(x, y), z))
MSL_MATH_3(fmin3, __builtin_fminf(__builtin_fminf(x, y), z))
MSL_MATH_3(fmedian3, fmax(fmin(x, y), fmin(fmax(x, y), z)))
MSL_MATH_3(max3, __builtin_fmaxf(__builtin_fmaxf(x, y), z))
MSL_MATH_3(min3, __builtin_fminf(__builtin_fminf(x, y), z))
MSL_MATH_3(median3, fmax(fmin(x, y), fmin(fmax(x, y), z)))

// ---- Common functions

MSL_MATH_2(step, y < x ? 0.0f : 1.0f)
MSL_MATH_3(mix, x + (y - x) * z)

// ---- Functions with an integer argument or a second result

MSL_INLINE float ldexp(float x, int k) { return __builtin_ldexpf(x, k); }
MSL_INLINE float frexp(float x, MSL_THREAD int &exponent) {
  int e;
  float mantissa = __builtin_frexpf(x, &e);
  exponent = e;
  return mantissa;
}
MSL_INLINE float sincos(float x, MSL_THREAD float &cosine) {
  cosine = cos(x);
  return sin(x);
}

// ---- Relational functions.  The result of a comparison of clang's vectors is
// an integer vector.  So each of these functions accepts an integer vector in
// place of a boolean vector.

#define MSL_CLASSIFY(name, ...)                               \
  MSL_INLINE bool name(float x) { return __VA_ARGS__; }       \
  MSL_INLINE bool name(half x_) {                             \
    float x = (float)x_;                                      \
    return __VA_ARGS__;                                       \
  }                                                           \
  MSL_INLINE bool name(bfloat x_) {                           \
    float x = (float)x_;                                      \
    return __VA_ARGS__;                                       \
  }                                                           \
  template <class T, int N>                                   \
  MSL_INLINE __msl::bool_vector<N> name(__msl::vec<T, N> x) { \
    __msl::bool_vector<N> result;                             \
    for (int i = 0; i < N; ++i) result[i] = name((T)x[i]);    \
    return result;                                            \
  }
MSL_CLASSIFY(isnan, (as_type<uint>(x) & 0x7fffffffu) > 0x7f800000u)
MSL_CLASSIFY(isinf, (as_type<uint>(x) & 0x7fffffffu) == 0x7f800000u)
MSL_CLASSIFY(isfinite, (as_type<uint>(x) & 0x7f800000u) != 0x7f800000u)
MSL_CLASSIFY(signbit, (as_type<uint>(x) >> 31) != 0)
#undef MSL_CLASSIFY

template <class T>
MSL_INLINE auto isunordered(T x, __msl::identity_t<T> y) {
  return isnan(x) || isnan(y);
}

MSL_INLINE bool all(bool x) { return x; }
MSL_INLINE bool any(bool x) { return x; }
template <int N>
MSL_INLINE bool all(__msl::bool_vector<N> x) {
  bool result = true;
  for (int i = 0; i < N; ++i) result = result && x[i];
  return result;
}
template <int N>
MSL_INLINE bool any(__msl::bool_vector<N> x) {
  bool result = false;
  for (int i = 0; i < N; ++i) result = result || x[i];
  return result;
}
template <class T, int N, class = enable_if_t<is_integral<T>::value>>
MSL_INLINE bool all(__msl::vec<T, N> x) {
  return all(__msl::bool_vector<N>(x));
}
template <class T, int N, class = enable_if_t<is_integral<T>::value>>
MSL_INLINE bool any(__msl::vec<T, N> x) {
  return any(__msl::bool_vector<N>(x));
}

template <class T, class = enable_if_t<!is_vector<T>::value>>
MSL_INLINE T select(T a, __msl::identity_t<T> b, bool c) {
  return c ? b : a;
}
template <class T, int N>
MSL_INLINE __msl::vec<T, N> select(__msl::vec<T, N> a,
                                   __msl::identity_t<__msl::vec<T, N>> b,
                                   __msl::bool_vector<N> c) {
  for (int i = 0; i < N; ++i) a[i] = c[i] ? b[i] : a[i];
  return a;
}
template <class T, class C, int N, class = enable_if_t<is_integral<C>::value>>
MSL_INLINE __msl::vec<T, N> select(__msl::vec<T, N> a,
                                   __msl::identity_t<__msl::vec<T, N>> b,
                                   __msl::vec<C, N> c) {
  return select(a, b, __msl::bool_vector<N>(c));
}

// ---- Geometric functions

#define MSL_DOT(T, N)                               \
  MSL_INLINE T dot(T##N a, T##N b) {                \
    T sum = a[0] * b[0];                            \
    for (int i = 1; i < N; ++i) sum += a[i] * b[i]; \
    return sum;                                     \
  }
#define MSL_DOTS(T) MSL_DOT(T, 2) MSL_DOT(T, 3) MSL_DOT(T, 4)
MSL_DOTS(float)
MSL_DOTS(half)
#undef MSL_DOTS
#undef MSL_DOT

}  // namespace metal
